"""Turns events into claims where the writer of the line may not report them: by its standing (parsers/authority.py), by the
program that wrote it (parsers/quoting.py), and where the line may stand within a user's text (parsers/cut_quotes.py).

Lines are many, and combinations of a pattern and a writer few: each combination is decided once per batch.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl

from parsers import authority, quoting
from parsers.formats.base import JOB_SOURCES
from parsers.line_events import Events
from parsers.lines import Array, codes, numbered
from parsers.record import Origin

#: Header columns that show who wrote a line.
_WRITER = ("source", "unit", "facility", "format")
#: Fewer events are decided one by one: finding combinations takes as long as some hundred decisions.
_FEW = 500
#: More combinations than this have no number of their own in 64 bits.
_MOST = 1 << 62


def mark(events: Events, frame: pl.DataFrame, origin: Origin, within: Collection[int] = ()) -> Events:
    """``events`` with claims in place of events that the writers of their lines may not report. ``within``: the rows that
    may stand within a user's text."""
    # A job's output was searched for the permitted patterns only.
    if not events.entries or origin.source in JOB_SOURCES:
        return events
    rows = frame[np.array(events.with_event, np.uint32), [*_WRITER, "pid", "step_tag"]]
    which, firsts = _combinations(events, rows)
    if len(firsts) < len(rows):
        rows = rows[firsts]
    each = zip(firsts.tolist(), *(column.to_list() for column in rows.get_columns()), strict=True)
    refused = np.array([not _may_report(events, *one) for one in each])
    refused = refused[which]
    if within:
        refused |= np.array([line in within for line in events.with_event], np.bool_)
    claims = np.flatnonzero(refused).tolist()
    if not claims:
        return events
    entries = list(events.entries)
    for number in claims:
        entries[number] = entries[number].claim
    return authority.without(events, entries, claims)


def _may_report(
    events: Events, number: int, source: str | None, unit: str | None, facility: str | None, form: str | None,
    pid: int | None, step: str | None,
) -> bool:  # fmt: skip
    """Whether the writer of an event's line may report it."""
    entry = events.entries[number]
    if not authority.may_report(entry.event, entry.of_site, source, unit, facility, form):
        return False
    return entry.anywhere or quoting.may_mean(entry.event, source, unit, pid is None or pid == 1, step is not None)


def _combinations(events: Events, rows: pl.DataFrame) -> tuple[Array, Array]:
    """For each event the index of its combination of pattern and writer, and the event where each combination first occurs."""
    if len(rows) < _FEW:
        return np.arange(len(rows)), np.arange(len(rows))
    first = (rows["pid"].is_null() | (rows["pid"] == 1).fill_null(False)).to_numpy()
    columns = (first, rows["step_tag"].is_not_null().to_numpy(), *(codes(rows[name]).which for name in _WRITER))
    which, firsts = numbered(np.fromiter(map(id, events.entries), np.int64, len(rows)))
    together, kinds = which.astype(np.int64), len(firsts)
    for column in columns:
        size = int(column.max()) + 1
        if kinds * size > _MOST:
            which, firsts = numbered(together)
            together, kinds = which.astype(np.int64), len(firsts)
        together, kinds = together * size + column, kinds * size
    return numbered(together)
