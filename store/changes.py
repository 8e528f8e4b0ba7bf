"""What changed in a store since a reader was there: batches, which number its commits, and what each did to the tables of ``raw``.

Holds for every engine: the numbers and sums are made here, and an engine keeps the entries (``ChangeLog.entries``) with its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

#: So many batches are remembered at least; who was there before them reads all. An hour of three commits a second.
KEPT = 10_000


class Mark(NamedTuple):
    """Up to which batch a store was read. A reader may keep it, also across a restart.

    ``batch`` numbers the commits; it only grows. ``instance`` names the store as long as that holds: one that was restored, or that
    lost commits, has another name, since its numbers are given again."""

    instance: str
    batch: int


class Change(NamedTuple):
    """How many rows of a table were ``added``, ``amended`` (they have other values) and ``removed``, and how many were only ``moved``:
    they are what they were, and lie elsewhere (in a closed segment, in a file of a closed day)."""

    added: int = 0
    amended: int = 0
    removed: int = 0
    moved: int = 0

    def and_then(self, more: Change) -> Change:
        """Both, one after the other."""
        return Change(*map(sum, zip(self, more, strict=True)))


NOTHING = Change()
#: A batch, and what it did to the tables of ``raw`` that it changed.
Entry = tuple[int, Mapping[str, Change]]


@dataclass(frozen=True)
class Changes:
    """What changed between two marks. ``too_old``: that is not known (the reader was never there, or too long ago, or at another
    instance): read all. ``rows``: how many rows each table holds now, in all places; ``until``: for the next question."""

    until: Mark
    tables: Mapping[str, Change]
    rows: Mapping[str, int]
    too_old: bool = False
    #: An engine's own: where the rows of a table lie that were added.
    places: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def nothing(self) -> bool:
        """No row was added, amended, removed or moved."""
        return not self.too_old and all(change == NOTHING for change in self.tables.values())


class ChangeLog:
    """The batches of one instance from ``floor`` on: what they changed. One thread adds at a time, others read meanwhile."""

    def __init__(self, instance: str, floor: int, entries: Sequence[Entry] = ()) -> None:
        self.instance, self.floor = instance, floor
        self.entries = list(entries)

    def add(self, batch: int, tables: Mapping[str, Change]) -> None:
        """A batch that is about to be committed; it is taken back (``take_back``) where that fails."""
        self.entries.append((batch, dict(tables)))

    def take_back(self, batch: int) -> None:
        """Forgets a batch that was not committed."""
        if self.entries and self.entries[-1][0] == batch:
            self.entries.pop()

    def shorten(self, kept: int = KEPT) -> bool:
        """Forgets batches before the last ``kept``, where there are half as many more; whether it did. Then ``floor`` is another."""
        if len(self.entries) <= kept + kept // 2:
            return False
        rest = self.entries[-kept:]
        self.floor, self.entries = self.entries[-kept - 1][0], rest
        return True

    def reaches(self, since: Mark | None, until: int) -> bool:
        """Whether all changes after a mark are known."""
        return since is not None and since.instance == self.instance and self.floor <= since.batch <= until

    def between(self, since: int, until: int, tables: Collection[str]) -> dict[str, Change]:
        """What the batches after ``since`` did to some tables, ``until`` included."""
        entries, found = self.entries, dict.fromkeys(tables, NOTHING)
        for batch, changed in islice(entries, bisect_right(entries, since, key=lambda entry: entry[0]), None):
            if batch > until:
                break
            for table, change in changed.items():
                if table in found:
                    found[table] = found[table].and_then(change)
        return found


def growth(change: Change) -> int:
    """By how many rows a table grew, wherever they lie."""
    return change.added - change.removed


def written(change: Change) -> int:
    """How many rows an engine may have written behind all others for it."""
    return change.added + change.moved
