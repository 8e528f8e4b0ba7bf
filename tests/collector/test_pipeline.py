"""From the spool into the store: each batch once, poison batches set aside whole, trouble reported and waited out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from collector import decoding, merging, pipeline
from collector.decoding import Job, Outcome
from collector.ledger import Ledger
from collector.pipeline import Pipeline
from collector.quarantine import Quarantine
from collector.spool import Spool
from collector.storing import Storing, Transaction
from collector.workers import WorkerDied, WorkerFault
from store import open_store
from store.duckdb import segments
from store.duckdb import segments as duckdb_segments
from store.duckdb.store import DuckStore
from store.errors import EngineError
from tests.line_parser import line_parser

NOW = 1_795_000_000_000_000
PARSER = line_parser()


class InThread:
    """A worker without a process: the same work in the test's process. Two lines are a part of an answer."""

    connection = None

    def __init__(self, make: object, patterns: object = ()) -> None:
        self._answers: list[Outcome | Exception] = []

    def start(self) -> None: ...

    def stop(self) -> None:
        self._answers.clear()

    def release(self) -> None: ...

    def give(self, jobs: tuple[Job, ...]) -> None:
        if any(job.meta.get("kills") for job in jobs):
            self._answers.append(WorkerDied("a parser process died over the batch (exit code -9)"))
        elif any(job.meta.get("trips") for job in jobs):
            self._answers.append(WorkerFault("Traceback: KeyError"))
        else:
            parts = list(decoding.in_parts(jobs, PARSER, 2))
            self._answers += parts
            if any(job.meta.get("gives_out") for job in jobs):
                parts[-1].more = True
                self._answers.append(WorkerDied("a parser process died over the batch (exit code -9)"))

    def take(self) -> Outcome:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def store() -> Iterator[DuckStore]:
    with open_store(None) as opened:
        yield opened


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool", min_free_bytes=0)
    yield opened
    opened.close()


@pytest.fixture
def begin(store: DuckStore, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Pipeline]]:
    monkeypatch.setattr(pipeline, "Worker", InThread)
    monkeypatch.setattr(pipeline, "LINGER_S", 0.0)
    monkeypatch.setattr(pipeline, "RETRY_S", 0.01)
    running: list[Pipeline] = []

    def start() -> Pipeline:
        running.append(Pipeline(store, spool))
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.stop()


def put(spool: Spool, *lines: str, key: object = None, **meta: Any) -> None:
    body = "\n".join(json.dumps({"host": "gpu01", "path": "/var/log/syslog", "raw": text}) for text in lines)
    described = {"kind": "ingest", "form": "records", "received": NOW, **({"key": key} if key else {}), **meta}
    spool.append(described, body.encode()).result(120)


def raws(store: DuckStore) -> list[str]:
    return [r["raw"] for r in store.rows("SELECT raw FROM raw.logs ORDER BY file, line")]


def test_a_batch_sent_twice_is_stored_once_also_over_a_restart(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline]) -> None:  # fmt: skip
    keys: list[tuple[str, object]] = [("a", ["n1", "s", "1", 1, 1]), ("b", ["n1", "s", "1", 3, 3]), ("c", "opaque")]
    for _ in range(2):
        for text, key in keys:
            put(spool, text, key=key)
    first = begin()
    assert first.drain(120)
    first.stop()
    for text, key in [*keys, ("d", ["n1", "s", "1", 2, 2]), ("e", ["n1", "s", "2", 1, 1])]:
        put(spool, text, key=key)
    again = begin()
    assert again.drain(120)
    assert raws(store) == ["a", "b", "c", "d", "e"]
    assert store.rows("SELECT ranges FROM intake.streams ORDER BY epoch") == [{"ranges": "1-3"}, {"ranges": "1-1"}]
    assert again.counts.duplicates == 3


def test_stamps_that_are_ahead_are_counted_and_reported_once(
    store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[dict[str, Any]] = []
    monkeypatch.setattr(
        pipeline.log, "warning", lambda text, **what: reported.append({"text": text, **what}), raising=False
    )
    running = begin()
    for second in range(3):
        put(spool, f"2099-01-01T00:00:0{second}Z gpu01 kernel: x", "2026-11-18T00:00:00Z gpu01 kernel: x")
        assert running.drain(120)
    (source,) = running.ledger.sources.values()
    assert (source.ahead, source.lines, source.last_time) == (3, 6, datetime(2026, 11, 18))
    assert [(row["sender"], "are held" in row["text"]) for row in reported] == [("gpu01", True)]
    assert store.rows("SELECT ahead FROM intake.sources") == [{"ahead": 3}]
    assert Ledger(store, "spool").sources[source.key].ahead == 3


def test_the_lines_of_a_stream_are_numbered_on(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline]) -> None:
    put(spool, "a", "b")
    first = begin()
    assert first.drain(120)
    first.stop()
    put(spool, "c")
    assert begin().drain(120)
    assert store.rows("SELECT file, line, raw FROM raw.logs ORDER BY line") == [
        {"file": "gpu01:/var/log/syslog", "line": n, "raw": text} for n, text in ((1, "a"), (2, "b"), (3, "c"))
    ]
    (source,) = store.rows("SELECT host, source, lines FROM intake.sources")
    assert (source["host"], source["lines"]) == ("gpu01", 3)


@pytest.mark.parametrize("fault", ["kills", "gives_out", "trips", "undecodable", "unknown"])
def test_a_poison_batch_is_set_aside_whole_and_all_others_are_stored(fault: str, store: DuckStore, spool: Spool, begin: Callable[[], Pipeline]) -> None:  # fmt: skip
    for number in range(9):
        if number == 4 and fault == "undecodable":
            spool.append(
                {"kind": "ingest", "received": NOW, "encoding": "zstd", "key": ["n", "s", "1", 4, 4]}, b"no zstd"
            ).result()
        elif number == 4 and fault == "unknown":
            spool.append({"kind": "gone", "received": NOW, "key": ["n", "s", "1", 4, 4]}, b"x").result()
        else:
            put(spool, f"{number}", key=["n", "s", "1", number, number], **({fault: True} if number == 4 else {}))
    running = begin()
    assert running.drain(120)
    assert raws(store) == [str(n) for n in range(9) if n != 4]
    (aside,) = store.rows("SELECT * FROM intake.quarantine")
    assert aside["key"] == "n/s/1/4/4" and aside["reason"] and aside["replayed_at"] is None
    found = running.quarantine.get(aside["id"])
    assert found is not None and (fault != "undecodable" or found[1] == b"no zstd")
    # The parser was fixed: the batch is stored unchanged, once.
    meta = {k: v for k, v in found[0].items() if k not in ("kills", "gives_out", "trips", "encoding", "key")}
    body = json.dumps({"host": "gpu01", "path": "/var/log/syslog", "raw": "mended"}).encode()
    spool.append({**meta, "kind": "ingest", "form": "records", "replay": aside["id"]}, body).result()
    assert running.drain(120)
    assert "mended" in raws(store) and running.quarantine.get(aside["id"]) is None
    assert store.rows("SELECT count(*) AS n FROM intake.quarantine WHERE replayed_at IS NULL") == [{"n": 0}]
    assert running.ledger.quarantined == 0


#: Found by reading: one such record, and nothing was stored any more, or the store could not be opened again.
HOSTILE: tuple[dict[str, Any], ...] = (
    {"blind": {"from": -9e16, "to": 0, "reason": "before the year 1"}},
    {"blind": {"from": "0001-01-01T00:00:00+14:00", "to": 0}},
    {"blind": {"from": 0, "to": 0, "reason": "half a character \ud800"}},
    {"status": {"a": 1}, "boot_time": -9e16},
    {"raw": "a line", "time": -9e16, "read": 9.9e16},
    {"message": "an object around a line", "time": "9999-12-31T23:59:59-12:00"},
    {"raw": "<13>1 9999-12-31T23:59:59-12:00 gpu07 app - - - x"},
    {"raw": "0000-01-01T00:00:00Z gpu07 app: x"},
)


def test_what_a_sender_says_neither_ends_storing_nor_spoils_the_store(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline]) -> None:  # fmt: skip
    running = begin()
    for number, record in enumerate(HOSTILE):
        body = json.dumps({"host": f"a{number}", **record}).encode()
        spool.append({"kind": "ingest", "form": "records", "received": NOW}, body).result(120)
        put(spool, f"behind {number}")
        assert running.drain(120) and running.trouble is None, record
        assert f"behind {number}" in raws(store) and not store.rows("SELECT * FROM intake.quarantine"), record
    Ledger(store, spool.id)
    for table in ("raw.logs", "intake.blind", "intake.sources", "intake.nodes"):
        moments = [value for row in store.rows(f"SELECT * FROM {table}") for value in row.values()]
        assert all(not isinstance(value, str) or value[:5] not in ("10000", "0001-") for value in moments)


def test_a_store_that_does_not_even_say_where_it_stood_is_asked_again(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Found by reading: the second error, while recovering from the first, ended storing for good."""
    faults = [KeyError("a fault of ours"), EngineError("the disk is away"), EngineError("still away")]
    made, load = Pipeline._made, Ledger.load

    def making(self: Pipeline, *given: Any, **more: Any) -> Transaction:
        if len(faults) == 3:
            raise faults.pop(0)
        return made(self, *given, **more)

    def loading(self: Ledger) -> None:
        if faults and len(faults) < 3:
            raise faults.pop(0)
        load(self)

    running = begin()
    monkeypatch.setattr(Pipeline, "_made", making)
    monkeypatch.setattr(Ledger, "load", loading)
    put(spool, "a", key=["n", "s", "1", 1, 1])
    assert running.drain(120) and not faults
    assert raws(store) == ["a"] and running.trouble is None


def test_a_batch_that_was_set_aside_outlives_a_power_cut(spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The spool drops it: so its name must be on the disk, not only its bytes."""
    synced: list[str] = []

    def sync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))

    put(spool, "a")
    (record,) = spool.read(spool.committed, 1)
    monkeypatch.setattr("os.fsync", sync)
    folder = tmp_path / "quarantine"
    identity = Quarantine(folder).put(record, spool.id, "why", datetime.now())["id"]
    assert synced[0].endswith(".draft") and synced[1:] == [str(folder), str(tmp_path)]
    assert (folder / f"{identity}.batch").exists()


def test_a_store_that_refuses_is_waited_for_and_nothing_is_lost_or_doubled(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    refusals = 3
    insert = duckdb_segments.insert

    def sometimes(connection: Any, table: str, data: Any) -> None:
        nonlocal refusals
        insert(connection, table, data)
        if table == "raw.logs" and refusals:
            refusals -= 1
            raise EngineError("Could not write file: No space left on device")

    monkeypatch.setattr(duckdb_segments, "insert", sometimes)
    put(spool, "a", key=["n", "s", "1", 1, 1])
    running = begin()
    reported: set[str | None] = set()
    until = time.monotonic() + 120
    while spool.waiting_bytes and time.monotonic() < until:
        reported.add(running.trouble)
        time.sleep(0.001)
    put(spool, "b", key=["n", "s", "1", 2, 2])
    assert running.drain(120) and refusals == 0
    assert raws(store) == ["a", "b"] and running.trouble is None
    assert any(text and "No space left" in text for text in reported)


def test_a_commit_that_went_through_before_the_error_is_not_repeated(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    stored = Storing._insert
    once = [True]

    def late(self: Storing, made: Transaction) -> None:
        stored(self, made)
        if once and once.pop():
            raise EngineError("the disk went away after the commit")

    monkeypatch.setattr(Storing, "_insert", late)
    put(spool, "a", key=["n", "s", "1", 1, 1])
    assert begin().drain(120)
    assert raws(store) == ["a"]


def test_blind_periods_status_and_boots_reach_the_ledger(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline]) -> None:  # fmt: skip
    records = [
        {"defaults": {"host": "gpu01", "agent": "gpu01", "boot_id": "one"}},
        {"blind": {"from": "2026-11-21T16:10:00Z", "to": "2026-11-21T16:20:00Z", "reason": "spool full", "lines": 7}, "stream": "syslog"},
        {"status": {"sources": [{"name": "nvml", "state": "absent"}]}},
    ]  # fmt: skip
    for boot in ("one", "one", "two"):
        records[0]["defaults"]["boot_id"] = boot
        spool.append({"kind": "ingest", "received": NOW}, "\n".join(map(json.dumps, records)).encode()).result()
    running = begin()
    assert running.drain(120)
    blind = store.rows('SELECT host, stream, reason, lines, epoch("end" - start) AS seconds FROM intake.blind LIMIT 1')
    assert blind == [{"host": "gpu01", "stream": "syslog", "reason": "spool full", "lines": 7, "seconds": 600.0}]
    node = running.ledger.nodes["gpu01"]
    assert (node.boots, node.boot_id) == (2, "two") and json.loads(node.status or "")["sources"][0]["state"] == "absent"


def until(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of four lines, and a rest that waits for more until a flush."""
    for module in (pipeline, merging):
        monkeypatch.setattr(module, "SEGMENT_ROWS", 4)
    monkeypatch.setattr(pipeline, "MERGE_LINES", 4)
    monkeypatch.setattr(pipeline, "FEW_LINES", 0)
    for name in ("QUIET_S", "MERGE_S"):
        monkeypatch.setattr(pipeline, name, 1000.0)


def test_lines_that_wait_for_their_segment_outlive_a_kill(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], small_segments: None, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    for part in ("abc", "def"):
        put(spool, *part, key=["n", "s", "1", ord(part[0]), ord(part[0])])
    killed = begin()
    assert until(lambda: killed._carry.rows is not None and killed._carry.rows.height == 2 and not spool.waiting_bytes)
    assert len(raws(store)) == 4 and killed.counts.lines == 4
    killed._carry.rows = None  # what it had in memory is gone with it
    killed.stop()
    monkeypatch.setattr(pipeline, "QUIET_S", 0.0)
    put(spool, *"abc", key=["n", "s", "1", ord("a"), ord("a")])
    put(spool, "g")
    assert begin().drain(120)
    assert raws(store) == list("abcdefg")
    assert [r["line"] for r in store.rows("SELECT line FROM raw.logs ORDER BY line")] == [1, 2, 3, 4, 5, 6, 7]
    assert not list(spool.folder.glob("*.rows"))


@pytest.mark.parametrize("most", [1, 100, 1 << 30])  # bytes of pieces: of one, of two or three, of all
def test_long_lines_do_not_wait_for_others_that_find_no_room(most: int, store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    constants = {"QUIET_S": 1000.0, "MERGE_S": 1000.0, "FEW_LINES": 0, "PIECE_BYTES": 1, "MOST_BYTES": most}
    for name, value in constants.items():
        monkeypatch.setattr(pipeline, name, value)
    for text in "abcdef":
        put(spool, text)
    running = begin()
    if most == 1 << 30:
        assert until(lambda: [piece.done for piece in running._pieces] == [True] * 6)
        assert raws(store) == []
    else:
        assert until(lambda: len(raws(store)) >= (6 if most == 1 else 2))


def test_an_orderly_end_stores_what_waited(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], small_segments: None) -> None:  # fmt: skip
    put(spool, *"abcdef")
    running = begin()
    assert until(lambda: running._carry.rows is not None)
    running.stop()
    assert raws(store) == list("abcdef") and not list(spool.folder.glob("*.rows"))


def test_a_transaction_that_failed_leaves_the_rest_as_it_was(store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], small_segments: None, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    insert, refusals = segments.insert_sealed, [1, 2]

    def sometimes(*given: Any, **more: Any) -> int:
        count = insert(*given, **more)
        if len(raws(store)) == 4 and refusals:
            refusals.pop()
            raise EngineError("Could not write file: No space left on device")
        return count

    monkeypatch.setattr(segments, "insert_sealed", sometimes)
    running = begin()
    put(spool, *"abcdef")
    assert until(lambda: len(raws(store)) == 4)
    put(spool, *"gh")
    assert until(lambda: len(raws(store)) == 8) and not refusals
    assert raws(store) == list("abcdefgh") and until(lambda: running._carry.rows is None)


@pytest.mark.parametrize("fault", [None, "kills"])
def test_workers_go_on_while_segments_are_stored(
    fault: str | None,
    store: DuckStore,
    spool: Spool,
    begin: Callable[[], Pipeline],
    small_segments: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    insert, give = segments.insert_sealed, InThread.give
    taking, gave = threading.Event(), threading.Event()
    went_on: list[bool] = []

    def noted(self: InThread, jobs: tuple[Job, ...]) -> None:
        give(self, jobs)
        if taking.is_set():
            gave.set()

    def slow(*given: Any, **more: Any) -> int:
        taking.set()
        went_on.append(gave.wait(120))
        return insert(*given, **more)

    monkeypatch.setattr(InThread, "give", noted)
    monkeypatch.setattr(segments, "insert_sealed", slow)
    running = begin()
    put(spool, *"abcd", key=["n", "s", "1", 1, 1])
    assert taking.wait(240)
    put(spool, "x", key=["n", "s", "1", 2, 2], **({fault: True} if fault else {}))
    assert gave.wait(120)
    put(spool, *"efgh", key=["n", "s", "1", 3, 3])
    wanted = [*"abcd", *([] if fault else "x"), *"efgh"]
    assert until(lambda: len(raws(store)) >= 8 and not spool.waiting_bytes)
    running.stop()
    assert raws(store) == wanted and went_on[0]
    assert running.ledger.quarantined == (1 if fault else 0)


class Held:
    """The store accepts nothing until it is released; ``refuses``: it fails instead, until released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuses: bool = False) -> None:
        self.taking, self.go_on = threading.Event(), threading.Event()
        insert = segments.insert_sealed

        def held(*given: Any, **more: Any) -> int:
            self.taking.set()
            assert self.go_on.wait(240)
            if refuses:
                raise EngineError("Could not write file: No space left on device")
            return insert(*given, **more)

        monkeypatch.setattr(segments, "insert_sealed", held)


def streams(store: DuckStore) -> list[str]:
    return [r["ranges"] for r in store.rows("SELECT ranges FROM intake.streams ORDER BY ranges")]


@pytest.mark.usefixtures("small_segments")
def test_the_next_transaction_is_made_meanwhile_and_its_keys_are_not_reported_with_the_first(
    store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    reported: list[list[str]] = []
    written = Storing._insert

    def looked_at(self: Storing, made: Transaction) -> None:
        written(self, made)
        reported.append(streams(store))

    monkeypatch.setattr(Storing, "_insert", looked_at)
    running = begin()
    put(spool, *"abcd", key=["n", "s", "1", 1, 1])
    assert held.taking.wait(240)
    put(spool, *"efgh", key=["n", "s", "1", 2, 2])
    assert until(lambda: running.ledger.streams[("n", "s", "1")].covers(2, 2))  # computed: it is stored after the first
    assert not raws(store) and not streams(store)
    held.go_on.set()
    assert running.drain(120)
    assert raws(store) == list("abcdefgh") and reported == [["1-1"], ["1-2"]]
    assert [r["line"] for r in store.rows("SELECT line FROM raw.logs ORDER BY line")] == list(range(1, 9))


@pytest.mark.usefixtures("small_segments")
def test_what_was_made_behind_a_transaction_that_never_went_through_is_read_anew(
    store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        held = Held(patched, refuses=True)
        killed = begin()
        put(spool, *"abcde", key=["n", "s", "1", 1, 1])
        assert held.taking.wait(240)
        put(spool, *"fghi", key=["n", "s", "1", 2, 2])
        assert until(lambda: killed.ledger.streams[("n", "s", "1")].covers(2, 2))
        threading.Timer(0.2, held.go_on.set).start()
        killed.stop()
    assert not raws(store) and not streams(store) and spool.waiting_bytes
    monkeypatch.setattr(pipeline, "QUIET_S", 0.0)
    put(spool, *"fghi", key=["n", "s", "1", 2, 2])
    assert begin().drain(120)
    assert raws(store) == list("abcdefghi") and streams(store) == ["1-2"]
    assert not list(spool.folder.glob("*.rows"))


@pytest.mark.usefixtures("small_segments")
def test_an_error_that_nobody_foresaw_ends_what_is_under_way_and_all_is_read_anew(
    store: DuckStore, spool: Spool, begin: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    monkeypatch.setattr(pipeline, "RETRY_S", 0.0)
    count, faults = pipeline.Ledger.count, [True]

    def counted(self: Any, *given: Any) -> None:
        if held.taking.is_set() and faults and faults.pop():
            threading.Timer(0.2, held.go_on.set).start()
            raise KeyError("a fault of ours")
        count(self, *given)

    monkeypatch.setattr(pipeline.Ledger, "count", counted)
    running = begin()
    put(spool, *"abcd", key=["n", "s", "1", 1, 1])
    assert held.taking.wait(240)
    put(spool, *"efgh", key=["n", "s", "1", 2, 2])
    assert running.drain(120) and not faults
    assert raws(store) == list("abcdefgh") and running.trouble is None
    assert [r["line"] for r in store.rows("SELECT line FROM raw.logs ORDER BY line")] == list(range(1, 9))
