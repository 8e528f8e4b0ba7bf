"""When a running service shrinks its store's file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from faultline.shrink_rounds import EVERY_S, IN_VAIN_S, QUIET_S, QUIET_SHARE, SHARE, Shrinking
from store.errors import StoreError


@dataclass
class Machine:
    """A store that notes how it was asked, a clock, and the lines that were stored."""

    freed: int = 0
    fails: bool = False
    now: float = 1000.0
    lines: int = 5
    busy: bool = False
    asked: list[float] = field(default_factory=list)

    def shrink(self, *, share: float) -> int:
        self.asked.append(share)
        if self.fails:
            raise StoreError("the disk is full\nand more")
        return self.freed


@pytest.fixture
def machine() -> Machine:
    return Machine()


def rounds(machine: Machine) -> Shrinking:
    return Shrinking(cast(Any, machine), lambda: machine.lines, lambda: machine.busy, clock=lambda: machine.now)


def run(rounds: Shrinking, machine: Machine, seconds: float, *, lines: int = 0) -> None:
    """Rounds of a second, with so many new lines in each."""
    for _ in range(int(seconds)):
        machine.now += 1
        machine.lines += lines
        rounds.look()


def test_a_store_that_is_filled_is_asked_to_shrink_only_if_most_of_it_is_free(machine: Machine) -> None:
    made = rounds(machine)
    machine.freed = 10
    run(made, machine, 3 * EVERY_S + 10, lines=1)
    assert machine.asked == [SHARE] * 3
    machine.freed = 0
    run(made, machine, IN_VAIN_S / 2, lines=1)
    assert len(machine.asked) == 4  # looking takes time, and freed nothing
    run(made, machine, QUIET_S + 1)
    assert machine.asked[4:] == [QUIET_SHARE]


def test_a_quiet_store_gives_back_what_it_can_and_is_asked_no_more(machine: Machine) -> None:
    made = rounds(machine)
    machine.freed = 10
    run(made, machine, QUIET_S + 5)
    assert machine.asked[-1] == QUIET_SHARE
    count = len(machine.asked)
    run(made, machine, EVERY_S)
    assert len(machine.asked) == count + 1  # it gave something back: there may be more
    machine.freed = 0
    run(made, machine, 5 * EVERY_S)
    assert len(machine.asked) == count + 2
    run(made, machine, 1, lines=1)
    run(made, machine, QUIET_S + EVERY_S)
    assert machine.asked[-1] == QUIET_SHARE and len(machine.asked) > count + 2


def test_a_quiet_store_is_asked_again_once_lines_left_its_file(machine: Machine) -> None:
    made = rounds(machine)
    run(made, machine, QUIET_S + EVERY_S)
    count = len(machine.asked)
    run(made, machine, 3 * EVERY_S)
    assert len(machine.asked) == count
    made.again()
    run(made, machine, 1)
    assert machine.asked[count:] == [QUIET_SHARE]


def test_it_waits_while_lines_wait(machine: Machine) -> None:
    made = rounds(machine)
    machine.busy = True
    run(made, machine, 3 * EVERY_S)
    assert machine.asked == []
    machine.busy = False
    run(made, machine, 1)
    assert machine.asked == [QUIET_SHARE]


def test_a_failure_is_logged_and_tried_again(machine: Machine) -> None:
    made = rounds(machine)
    machine.fails = True
    with capture_logs() as logs:
        run(made, machine, 2 * EVERY_S + 5)
    assert len(machine.asked) == 2
    assert [entry["error"] for entry in logs] == ["the disk is full"] * 2
