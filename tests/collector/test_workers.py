"""Parsing on several processes: the same rows in the same order, and no process left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from collector.workers import ParserPool, ParsingFailed, Piece, Worker, WorkerFault
from parsers.engine import LineParser
from parsers.lines import split
from parsers.record import Origin
from tests.collector.small_work import dying, in_parts, large

ORIGIN = Origin(path="a.log", host="n1", reference=datetime(2026, 6, 1), received=datetime(2026, 6, 1))
DATA = b"".join(
    f"Mar {1 + n % 28:2d} 05:06:{n % 60:02d} n{n % 7} kernel: igb 0000:02:00.0 eth1: igb: eth1 NIC Link is Down\n".encode()
    + b"[2026-03-04T05:06:07.1] Killing JobId=9 on failed node n4\r\n\xff\xfe no header\n"
    for n in range(300)
)
SITE = """[[pattern]]
id = "site-door"
event = "{event}"
literal = ["door"]
regex = 'door (?P<door>\\d+) open'
example = "door 7 open"
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[ParserPool]:
    with ParserPool(2) as opened:
        yield opened


def test_the_rows_are_those_of_one_process_in_the_order_asked_for(pool: ParserPool) -> None:
    alone = LineParser()
    batches = [Piece(DATA[: 40 * n], ORIGIN.but(host=f"h{n}"), first_line=n) for n in range(1, 8)]
    waiting = [pool.submit(batch) for batch in batches]
    for batch, found in zip(batches, waiting, strict=True):
        assert isinstance(batch.data, bytes)
        assert found.result().equals(alone.parse(split(batch.data).lines, batch.origin, batch.first_line))
    both = pool.parse(*batches[:2], Piece([b"a\nline of two", b"b"], ORIGIN))
    assert both.equals(
        pl.concat([waiting[0].result(), waiting[1].result(), alone.parse([b"a\nline of two", b"b"], ORIGIN)])
    )
    assert pool.parse().height == 0


def test_a_worker_that_dies_is_replaced_and_its_batch_parsed(pool: ParserPool) -> None:
    for _ in range(2):  # the workers take turns
        pool.parse(Piece(DATA, ORIGIN))
    killed, other = pool.pids
    os.kill(killed, signal.SIGKILL)
    assert [pool.parse(Piece(DATA, ORIGIN)).height for _ in range(2)] == [900, 900]
    assert len(pool.pids) == 2 and other in pool.pids and killed not in pool.pids


def test_what_kills_every_worker_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.workers._pieces", dying)
    with ParserPool(1) as pool, pytest.raises(ParsingFailed, match=r"a\.log: two parser processes died"):
        pool.parse(Piece(DATA, ORIGIN))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process was started with")
def test_a_worker_starts_with_its_own_allocator_settings(pool: ParserPool) -> None:
    """Polars sets its own in the environment when it is imported; workers must not take them for a user's choice."""
    before = dict(os.environ)
    assert "dirty_decay_ms" in before["_RJEM_MALLOC_CONF"]  # Polars' own: otherwise this test shows nothing
    pool.parse(Piece(DATA, ORIGIN))
    assert dict(os.environ) == before and pool.pids
    for pid in pool.pids:
        started = dict(part.split(b"=", 1) for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if part)
        assert started[b"_RJEM_MALLOC_CONF"] == b"dirty_decay_ms:10000,muzzy_decay_ms:-1"
        assert started[b"POLARS_MAX_THREADS"] == b"1"


def test_a_worker_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads logs in a user's folder would run that user's code."""
    for name in ("pickle", "signal", "runpy", "socket"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    with ParserPool(1) as fresh:
        assert not fresh.parse(Piece(DATA, ORIGIN)).is_empty()
    assert not (tmp_path / "ran").exists()


def test_workers_die_with_their_parent() -> None:
    program = """
import sys
from collector.workers import ParserPool, Piece
from parsers.record import Origin
if __name__ == "__main__":
    pool = ParserPool(1)
    for found in [pool.submit(Piece(b"x\\n" * 1000, Origin())) for _ in range(4)]:
        found.result()
    print(*pool.pids, flush=True)
    pool.submit(Piece(b"Mar  1 00:00:00 h a: x\\n" * 3_000_000, Origin()))  # busy when the end comes
    sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert parent.stdout is not None and parent.stdin is not None
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert children and all(_alive(pid) for pid in children)
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 120
    while any(map(_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in children if _alive(pid)]
    parent.stdin.close()
    parent.stdout.close()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_answer_in_parts_ends_with_its_error() -> None:
    worker = Worker(in_parts)
    try:
        worker.give(2)
        worker.give(4)
        assert [worker.take() for _ in range(5)] == [1 / 3, 1 / 2, 1 / 3, 1 / 2, 1.0]
        with pytest.raises(WorkerFault, match="ZeroDivisionError"):
            worker.take()
        worker.give(1)
        assert worker.take() == 1 / 3
    finally:
        worker.stop()


def test_requests_go_out_while_answers_wait() -> None:
    """Both larger than a pipe's buffer: neither side may wait for the other to read first."""
    worker = Worker(large)
    given = threading.Event()

    def give() -> None:
        for _ in range(3):
            worker.give(bytes(4 << 20))
        given.set()

    worker.start()
    threading.Thread(target=give, daemon=True).start()
    try:
        assert given.wait(240), "the worker does not read while its answer is not taken"
        assert [len(worker.take()) for _ in range(3)] == [4 << 20] * 3
    finally:
        worker.stop()


@pytest.mark.long
def test_a_process_that_cannot_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without file handles or processes, each request says so, and the first after that is answered."""
    worker = Worker(in_parts)

    def exhausted(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("multiprocessing.context.SpawnProcess.start", exhausted)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(2):
            with pytest.raises(OSError, match="Too many open files"):
                worker.give(1)
        assert worker.stop() is None and len(list(Path("/proc/self/fd").iterdir())) == before
    worker.give(1)
    assert worker.take() == 1 / 3
    running = worker.process
    worker.start()  # of all workers, because another one could not be started
    assert worker.process is running
    worker.stop()
