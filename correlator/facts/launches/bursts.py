"""Failures of one node that follow each other closely are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

#: Failures on one node within this of each other are one (seconds); and one that goes on is cut, because its launches
#: must lie within the window of edge E70.
SAME_FAILURE_S, CUT_S = 300.0, 1500.0

T = TypeVar("T")


def bursts(found: Iterable[T], at: Callable[[T], float]) -> list[list[T]]:
    """Failures of one node that follow each other closely, each group cut where it becomes too long."""
    groups: list[list[T]] = []
    for one in sorted(found, key=at):
        if groups and at(one) - at(groups[-1][-1]) <= SAME_FAILURE_S and at(one) - at(groups[-1][0]) <= CUT_S:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
