"""A stretch of old events of which only those are held that something else refers to.

Most events of a long history belong to no fact and no incident: nobody can ask for them but by their place in the list of
all. They are compressed, and made again when that happens.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from threading import Lock
from typing import Any, overload

import numpy as np

from correlator.model.append_only_list import AppendOnlyList
from correlator.model.nouns import EVENTS, Event
from correlator.model.packed import TOGETHER, Block, NotPlainError, rows_of

_KIND = [each.name for each in fields(Event)].index("kind")
_time = attrgetter("time")

#: References to an event that nothing but its list refers to, as ``sys.getrefcount`` counts: the list and the argument.
_ALONE = 2

_lock = Lock()
#: What may hold more than it has to.
_touched: dict[int, Thinned] = {}


class Thinned(Sequence[Event]):
    """Events that do not change any more. An event that was asked for is held, so that all who ask get the same object."""

    __slots__ = ("_blocks", "_held", "_kinds", "_times")

    def __init__(self, events: list[Event]) -> None:
        """Holds all at first, until ``thin_again``. Raises ``NotPlainError``."""
        self._blocks: list[Block] = []
        #: Those of each block: most blocks have none that a question is about.
        self._kinds: list[frozenset[str]] = []
        for first in range(0, len(events), TOGETHER):
            rows = _rows(events[first : first + TOGETHER])
            self._blocks.append(Block(rows))
            self._kinds.append(frozenset([row[_KIND] for row in rows]))
        self._times = np.fromiter([each.time for each in events], np.float64, len(events))
        self._held: list[Event | None] = list(events)
        _touched[id(self)] = self

    def thin(self) -> None:
        """Lets go of the events that nothing else refers to, and of most values of the others."""
        held = self._held
        with _lock:
            for place in range(len(held)):
                if sys.getrefcount(held[place]) == _ALONE:
                    held[place] = None
        for number, block in enumerate(self._blocks):
            EVENTS.pack_as(held[number * TOGETHER : (number + 1) * TOGETHER], block)

    @property
    def held(self) -> int:
        """How many are held."""
        return len(self._held) - self._held.count(None)

    @property
    def begin(self) -> float:
        """The time of the first one, epoch seconds."""
        return float(self._times[0])

    def first_at(self, moment: float) -> int:
        """The place of the first event at or after ``moment`` (epoch seconds)."""
        return int(self._times.searchsorted(moment))

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, place: int) -> Event: ...

    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...

    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        places = range(len(self._held))[place]
        return self._one(places) if isinstance(places, int) else list(map(self._one, places))

    def __iter__(self) -> Iterator[Event]:
        return map(self._one, range(len(self._held)))

    def of_kinds(self, kinds: Collection[str]) -> Iterator[Event]:
        """Those of some kinds, in order. What is made for it is not held: for whoever looks at each once."""
        for number, block in enumerate(self._blocks):
            if self._kinds[number].isdisjoint(kinds):
                continue
            for place, row in enumerate(rows_of(block), number * TOGETHER):
                if row[_KIND] in kinds:
                    yield self._held[place] or Event(*row)

    def _one(self, place: int) -> Event:
        with _lock:
            if (held := self._held[place]) is not None:
                return held
            event = self._held[place] = Event(*rows_of(self._blocks[place // TOGETHER])[place % TOGETHER])
            _touched[id(self)] = self
            return event


def _rows(events: list[Event]) -> list[tuple[Any, ...]]:
    """The values of each, in the order of the fields. ``attrgetter`` would take three times as long."""
    return [
        (
            e.id, e.time, e.sigma, e.kind, e.host, e.device, e.job_id, e.message, e.source, e.layer, e.severity, e.file,
            e.line, e.received, e.time_quality, e.count, e.last, e.entities, e.also, e.clock_offset, e.own, e.known_by,
            e.authority,
        )
        for e in events
    ]  # fmt: skip


def thin_again() -> None:
    """Lets go of what was asked for since the last call and is not used any more."""
    with _lock:
        touched = list(_touched.values())
        _touched.clear()
    for one in touched:
        one.thin()


def thinned(events: list[Event]) -> Sequence[Event]:
    """The events, which are held as long as they are needed; as they are if they hold values that are not plain."""
    try:
        return Thinned(events)
    except NotPlainError:
        return tuple(events)


def first_at(events: Sequence[Event], moment: float) -> int:
    """The place of the first event at or after ``moment`` (epoch seconds) in a list by time."""
    if isinstance(events, AppendOnlyList):
        blocks = events.blocks
        place = max(0, bisect_left(blocks, moment, key=_begin) - 1)
        return place * len(blocks[0]) + first_at(blocks[place], moment) if blocks else 0
    return events.first_at(moment) if isinstance(events, Thinned) else bisect_left(events, moment, key=_time)


def of_kinds(events: Sequence[Event], kinds: Collection[str]) -> Iterator[Event]:
    """The events of some kinds, in order, without holding old ones that nothing else refers to."""
    for block in events.blocks if isinstance(events, AppendOnlyList) else [events]:
        yield from block.of_kinds(kinds) if isinstance(block, Thinned) else (e for e in block if e.kind in kinds)


def _begin(block: Sequence[Event]) -> float:
    return block.begin if isinstance(block, Thinned) else block[0].time
