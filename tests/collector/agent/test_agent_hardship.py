"""The agent as a process on a difficult host: disks full or broken, clocks that jump, memory and CPUs that are capped.

Disks are mounted (root), clocks are changed with libfaketime.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from ingest_server import IngestServer
from running_agent import Started, counted, until, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from small_disks import breakable_disk, fill, needs_root, small_disk
from turned_clock import LIBRARY, SEEN_S, Clock, needs_faketime


@needs_root
def test_a_disk_that_somebody_fills_is_waited_for(tmp_path: Path, server: IngestServer) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        agent = Started(tmp_path, server, spool=disk / "spool")
        write(agent.log, 1, 100)
        agent.start()
        assert until(lambda: len(counted(server)) == 100)
        filler = fill(disk)
        write(agent.log, 101, 400)
        time.sleep(1.0)
        assert agent.process is not None and agent.process.poll() is None
        filler.unlink()
        assert until(lambda: len(counted(server)) == 400), len(counted(server))
        assert agent.terminate() == 0
        assert counted(server) == Counter(range(1, 401)) and server.blind("files") == []


@needs_root
def test_a_disk_that_fills_while_batches_wait_delivers_them(tmp_path: Path, server: IngestServer) -> None:
    """Found by reading: on a disk with no byte left, the first segment that was delivered ended delivery for good."""
    with small_disk(tmp_path / "disk", 8) as disk:
        agent = Started(tmp_path, server, "spool_mb = 1", spool=disk / "spool")
        write(agent.log, 1, 100)
        agent.start()
        assert until(lambda: len(counted(server)) == 100)
        server.refuse = lambda key, body: (503, {"Retry-After": "1"}, "")
        chance = random.Random(7)
        for batch in range(12):
            with agent.log.open("a") as log:
                first = 101 + batch * 100
                log.writelines(
                    f"{n} numbered line of this test {chance.randbytes(150).hex()}\n" for n in range(first, first + 100)
                )
            time.sleep(0.3)
        assert until(lambda: len(list((disk / "spool").glob("*.seg"))) >= 3), "more than one segment waits"
        filler = fill(disk)
        server.refuse = lambda key, body: None
        assert until(lambda: len(counted(server)) == 1300), len(counted(server))
        filler.unlink()
        write(agent.log, 1301, 1400)
        assert until(lambda: len(counted(server)) == 1400)
        assert agent.terminate() == 0
        assert counted(server) == Counter(range(1, 1401)) and server.blind("files") == []


@needs_root
def test_a_spool_on_a_disk_that_turns_read_only_loses_nothing(tmp_path: Path, server: IngestServer) -> None:
    with breakable_disk(tmp_path / "disk") as disk:
        agent = Started(tmp_path, server, spool=disk.folder / "spool")
        write(agent.log, 1, 100)
        agent.start()
        assert until(lambda: len(counted(server)) == 100)
        disk.break_()
        write(agent.log, 101, 300)
        time.sleep(1.5)
        assert agent.process is not None and agent.process.poll() is None, "it goes on, and waits"
        agent.kill()
        # Started on it, it reports what is wrong and where, in one line.
        agent.start()
        assert agent.process is not None and agent.process.stderr is not None
        if until(lambda: agent.process is not None and agent.process.poll() is not None, 5):
            stated = agent.process.stderr.read().decode()
            assert agent.process.returncode == 2 and str(agent.spool) in stated and "ead-only" in stated, stated
            assert len(stated.strip().splitlines()) == 1, stated
        else:
            agent.kill()
        disk.repair()
        agent.start()
        assert until(lambda: len(counted(server)) >= 300), len(counted(server))
        assert agent.terminate() == 0
        assert counted(server) == Counter(range(1, 301))


@needs_faketime
@pytest.mark.parametrize(
    "jumps",
    [("-3d", "+400d"), pytest.param(("+2h", "-3d", "+400d", "-1y", "+0"), marks=pytest.mark.long)],
    ids=["two", "five"],
)
def test_a_clock_that_jumps_changes_nothing(jumps: tuple[str, ...], tmp_path: Path, server: IngestServer) -> None:
    clock, agent = Clock(tmp_path), Started(tmp_path, server)
    write(agent.log, 1, 10)
    agent.start(**clock.environment)
    assert until(lambda: len(counted(server)) == 10)
    for at, jump in enumerate(jumps, 1):
        clock.turn(jump)
        time.sleep(SEEN_S)
        write(agent.log, at * 10 + 1, at * 10 + 10)
        assert until(lambda at=at: len(counted(server)) == at * 10 + 10), jump  # type: ignore[misc]
    years = {row["read"][:4] for row in server.records() if "lines" in row and "read" in row}
    assert len(years) >= 2, "the clock was turned indeed"
    assert agent.terminate() == 0
    assert counted(server) == Counter(range(1, 10 * len(jumps) + 11)) and server.blind("files") == []


@needs_faketime
def test_ten_minutes_without_the_service(tmp_path: Path, server: IngestServer) -> None:
    """Sixty of its seconds pass in one of ours; logs are written and rotated all the while."""
    agent = Started(tmp_path, server)
    write(agent.log, 1, 10)
    agent.start(LD_PRELOAD=str(LIBRARY), FAKETIME="+0 x60")
    assert until(lambda: len(counted(server)) == 10)
    server.close()
    for minute in range(10):
        write(agent.log, minute * 100 + 11, minute * 100 + 110)
        if minute in (3, 7):
            agent.log.rename(agent.log.with_name(f"app.log.{8 - minute}"))
            agent.log.touch()
        time.sleep(1.0)
    server.start()
    assert until(lambda: len(counted(server)) == 1010), len(counted(server))
    assert agent.terminate() == 0
    assert counted(server) == Counter(range(1, 1011)) and server.blind("files") == []


#: The agent as its command starts it, but checking its memory every half second instead of every minute.
IMPATIENT = """
import sys
from pathlib import Path
from collector.agent import agent
from collector.agent.config import load
agent.STATUS_EVERY_S = 0.5
sys.exit(agent.main(load(Path(sys.argv[2]))))
"""


def test_at_the_memory_cap_it_starts_anew_and_loses_nothing(tmp_path: Path, server: IngestServer) -> None:
    """The cap is far below what an agent needs, so it restarts repeatedly: the worst case."""
    agent = Started(tmp_path, server, "memory_mb = 1")
    write(agent.log, 1, 10)
    agent.start(("-c", IMPATIENT))
    total, begun = 10, time.monotonic()
    while time.monotonic() - begun < 3 or total < 100:
        write(agent.log, total + 1, total + 10)
        total += 10
        time.sleep(0.1)
    assert until(lambda: len(counted(server)) == total), f"{len(counted(server))} of {total}"
    starts = {row["status"]["started"] for row in server.records() if isinstance(row.get("status"), dict)}
    # In its first moments, before it handles signals, SIGTERM simply ends it: what it has read is on disk.
    assert agent.terminate() in (0, -signal.SIGTERM)
    assert len(starts) >= 2, "it did start anew"
    assert counted(server) == Counter(range(1, total + 1)) and server.blind("files") == []


def test_it_runs_where_and_as_low_as_configured(tmp_path: Path, server: IngestServer) -> None:
    cpu = min(os.sched_getaffinity(0))
    agent = Started(tmp_path, server, f"nice = 7\ncpus = [{cpu}]")
    lowest = max(os.getpriority(os.PRIO_PROCESS, 0), 7)  # its initial priority is never raised
    write(agent.log, 1, 1)
    agent.start()
    assert until(lambda: bool(counted(server)))
    assert agent.process is not None
    for task in Path(f"/proc/{agent.process.pid}/task").iterdir():
        assert os.sched_getaffinity(int(task.name)) == {cpu}, "every thread"
        assert os.getpriority(os.PRIO_PROCESS, int(task.name)) == lowest
    assert agent.terminate() == 0


def test_cpus_that_are_not_there_are_named(tmp_path: Path, server: IngestServer) -> None:
    agent = Started(tmp_path, server, "cpus = [4095]").start()
    assert agent.process is not None and agent.process.stderr is not None
    assert agent.process.wait(120) == 2
    assert "cpus [4095]" in agent.process.stderr.read().decode()
