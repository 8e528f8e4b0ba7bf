"""Change tracking: batches number a store's commits, and record what each did to the tables of ``raw``.

Applies to every engine: numbers and sums are computed here, and an engine stores the entries (``ChangeLog.entries``)
with its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

#: At least this many batches are remembered; a reader with an older mark reads everything. An hour at three commits a
#: second.
KEPT = 10_000


class Mark(NamedTuple):
    """Up to which batch a store was read. A reader may keep it, also across a restart.

    ``batch`` numbers the commits and only increases. ``instance`` identifies the store for as long as that holds: one
    that was restored, or that lost commits, gets another ID, since its numbers are reused."""

    instance: str
    batch: int


class Change(NamedTuple):
    """How many rows of a table were ``added``, ``amended`` (their values changed) and ``removed``, and how many only
    ``moved``: unchanged, but stored elsewhere (in a closed segment, in a file of a closed day)."""

    added: int = 0
    amended: int = 0
    removed: int = 0
    moved: int = 0

    def and_then(self, more: Change) -> Change:
        """Both changes, in sequence."""
        return Change(*map(sum, zip(self, more, strict=True)))


NOTHING = Change()
#: A batch, and its changes per table of ``raw``.
Entry = tuple[int, Mapping[str, Change]]


@dataclass(frozen=True)
class Changes:
    """The changes between two marks. ``too_old``: unknown (the reader is new, too far behind, or has another instance's
    mark): read everything. ``rows``: how many rows each table holds now, in all places; ``until``: the mark for the
    next query."""

    until: Mark
    tables: Mapping[str, Change]
    rows: Mapping[str, int]
    too_old: bool = False
    #: For the engine's own use: where the added rows of a table are.
    places: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def nothing(self) -> bool:
        """No row was added, amended, removed or moved."""
        return not self.too_old and all(change == NOTHING for change in self.tables.values())


class ChangeLog:
    """The batches of one instance from ``floor`` on, with their changes. One thread adds at a time; others may read
    meanwhile."""

    def __init__(self, instance: str, floor: int, entries: Sequence[Entry] = ()) -> None:
        self.instance, self.floor = instance, floor
        self.entries = list(entries)

    def add(self, batch: int, tables: Mapping[str, Change]) -> None:
        """Adds a batch that is about to be committed; ``take_back`` removes it if the commit fails."""
        self.entries.append((batch, dict(tables)))

    def take_back(self, batch: int) -> None:
        """Removes a batch that was not committed."""
        if self.entries and self.entries[-1][0] == batch:
            self.entries.pop()

    def shorten(self, kept: int = KEPT) -> bool:
        """Forgets batches before the last ``kept`` once there are half as many more; returns whether it did. ``floor``
        changes then."""
        if len(self.entries) <= kept + kept // 2:
            return False
        rest = self.entries[-kept:]
        self.floor, self.entries = self.entries[-kept - 1][0], rest
        return True

    def reaches(self, since: Mark | None, until: int) -> bool:
        """Whether all changes after a mark are known."""
        return since is not None and since.instance == self.instance and self.floor <= since.batch <= until

    def between(self, since: int, until: int, tables: Collection[str]) -> dict[str, Change]:
        """The changes to some tables by the batches after ``since`` up to and including ``until``."""
        entries, found = self.entries, dict.fromkeys(tables, NOTHING)
        for batch, changed in islice(entries, bisect_right(entries, since, key=lambda entry: entry[0]), None):
            if batch > until:
                break
            for table, change in changed.items():
                if table in found:
                    found[table] = found[table].and_then(change)
        return found


def growth(change: Change) -> int:
    """By how many rows a table grew, wherever they are."""
    return change.added - change.removed


def written(change: Change) -> int:
    """How many rows an engine may have appended for it."""
    return change.added + change.moved
