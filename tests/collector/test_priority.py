"""Bulk work yields CPU to threads whose answer is awaited."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.priority import BEHIND, go_first, lower_priority
from tests.collector.running import Running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="niceness is a thread's own on Linux only")


def in_thread(work: Callable[[], int]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def nice() -> int:
    """The niceness of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def of_a_process() -> int:
    asked = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]
    return int(subprocess.run(asked, capture_output=True, check=True).stdout)


def standing_back(then: Callable[[], int]) -> Callable[[], int]:
    def work() -> int:
        lower_priority()
        lower_priority()  # calling it twice changes nothing more
        return then()

    return work


@pytest.mark.parametrize("then", [nice, of_a_process, lambda: in_thread(nice)], ids=["itself", "process", "thread"])
def test_a_thread_stands_back_with_all_that_it_starts_and_nobody_else_does(then: Callable[[], int]) -> None:
    before = nice()
    assert in_thread(standing_back(then)) == before + BEHIND
    assert nice() == before


def test_only_the_thread_that_a_service_began_with_goes_first() -> None:
    def work() -> int:
        go_first()
        return nice()

    assert in_thread(work) == nice()


@pytest.mark.long
def test_of_a_service_the_engines_and_parsers_stand_back_and_what_answers_does_not(tmp_path: Path) -> None:
    service = Running(tmp_path / "data").start()
    try:
        assert (
            service.post("/api/v1/ingest", b'{"host": "n1", "raw": "a line"}', content_type="application/json")[0]
            == 200
        )
        service.until("Logs", 1)
        assert service.process is not None
        main = service.process.pid
        threads = {int(task.name) for task in Path(f"/proc/{main}/task").iterdir()}
        first, behind = of(main), {one for one in threads if of(one) == of(main) + BEHIND}
        assert first <= os.getpriority(os.PRIO_PROCESS, 0)
        assert behind and threads - behind > {main}  # the spool answers, too
        assert {of(one) for one in threads} == {first, first + BEHIND}
        assert [of(child) for child in children(main)] == [first + BEHIND] * len(children(main)) != []
    finally:
        service.stop()


def of(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def children(process: int) -> list[int]:
    found = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    return [int(word) for text in found for word in text.split()]
