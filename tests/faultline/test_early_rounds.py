"""When a running service moves lines of days that are not closed into files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from faultline.config import Store as Settings
from faultline.config import load
from faultline.early_rounds import EVERY_S, LINES, QUIET_LINES, EarlyRounds
from store.door import Closed
from store.errors import StoreError

NOW = datetime(2026, 3, 1, 12)


@dataclass
class Machine:
    """A store that notes how it was asked, a clock, and the lines that were stored."""

    moved: int = 0
    fails: bool = False
    now: float = 1000.0
    lines: int = 5
    behind: bool = False
    freed: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[datetime, int, int, bool]] = field(default_factory=list)
    is_working: Callable[[], bool] = lambda: False
    worked: list[bool] = field(default_factory=list)

    def close_settled(self, until: datetime, *, least: int, hot_days: int, is_wanted: Callable[[], bool]) -> Closed:
        self.asked.append((until, least, hot_days, is_wanted()))
        self.worked.append(self.is_working())
        if self.fails:
            raise StoreError("the disk is full\nand more")
        return Closed(1, 1, self.moved, 10) if self.moved else Closed()

    def free(self) -> None:
        self.freed += 1


@pytest.fixture
def machine() -> Machine:
    return Machine()


def rounds(machine: Machine, minutes: int = 30) -> EarlyRounds:
    made = EarlyRounds(
        cast(Any, machine), Settings(early_minutes=minutes), lambda: machine.lines, lambda: machine.behind, machine.free,
        machine.ended, clock=lambda: machine.now, now=lambda: NOW,
    )  # fmt: skip
    machine.is_working = lambda: made.is_working
    return made


def run(rounds: EarlyRounds, machine: Machine, seconds: float, *, lines: int = 0) -> None:
    for _ in range(int(seconds / EVERY_S)):
        machine.now += EVERY_S
        machine.lines += lines
        rounds.look()


def test_while_lines_arrive_only_many_are_worth_a_file_and_in_a_quiet_store_few(machine: Machine) -> None:
    made = rounds(machine)
    run(made, machine, 4 * EVERY_S, lines=7)
    assert machine.asked == [(datetime(2026, 3, 1, 11, 30), LINES, 2, True)] * 4
    run(made, machine, 30 * 60)
    assert [least for _, least, _, _ in machine.asked[4:]] == [LINES] * 5 + [QUIET_LINES]
    assert machine.freed == 0


def test_what_it_freed_is_given_back(machine: Machine) -> None:
    made = rounds(machine)
    machine.moved = 70_000
    run(made, machine, EVERY_S)
    assert machine.freed == 1 and machine.worked == [True] and not made.is_working


def test_it_waits_while_lines_wait_and_without_the_setting(machine: Machine) -> None:
    machine.behind = True
    run(rounds(machine), machine, 3 * EVERY_S)
    machine.behind = False
    run(rounds(machine, 0), machine, 3 * EVERY_S)
    assert machine.asked == []


def test_a_service_that_stops_does_not_wait_for_it(machine: Machine) -> None:
    machine.ended.set()
    run(rounds(machine), machine, EVERY_S)
    assert machine.asked[0][3] is False


def test_a_failure_is_logged_and_tried_again(machine: Machine) -> None:
    made = rounds(machine)
    machine.fails = True
    with capture_logs() as logs:
        run(made, machine, 2 * EVERY_S)
    assert len(machine.asked) == 2 and not made.is_working
    assert [entry["error"] for entry in logs] == ["the disk is full"] * 2


def test_the_setting(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("[store]\nearly_minutes = 0\n")
    assert load(tmp_path / "f.toml").store.early_minutes == 0 and Settings().early_minutes == 30
