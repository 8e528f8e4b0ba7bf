"""What a tick stores before it has concluded: events that belong to no fact will belong to no incident."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from correlator.events import Lines
from correlator.model import Event, Fact

if TYPE_CHECKING:
    from correlator.engine import Conclusions

#: So many are stored before all else is known; fewer are not worth a commit of their own, which takes 3 to 5 ms.
AHEAD_EVENTS = 1000


@dataclass(frozen=True)
class Early:
    """Who is told what is known before everything is: ``store_ahead`` of new events that will belong to no incident, once at
    most, ``begin`` of the conclusions while they are not yet in words."""

    store_ahead: Callable[[Lines], None] | None = None
    begin: Callable[[Conclusions], None] = lambda merged: None


def free(lines: Lines, border: float, known: Sequence[Event], facts: Iterable[Fact]) -> list[bool]:
    """Which of the events of ``lines`` lie behind a moment, with no fact that tells of them, and are not ``known`` already."""
    taken = {e.id for e in known[bisect_left(known, border, key=attrgetter("time")) :]}
    taken.update(e.id for fact in facts for e in fact.events)
    first = bisect_left(lines.events, border, key=attrgetter("time"))
    return [False] * first + [event.id not in taken for event in lines.events[first:]]
