"""Beside the answer to a query: its rows over time and by their most telling columns, with true counts.

The answer itself may be cut (``take``, the most rows of an answer). The counts are of all rows that the query's filters
leave, before it limits or summarizes them; ``before`` names the operator at which they were counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.kql import syntax as ast
from queries.kql.errors import KqlError
from queries.kql.parser import parse

#: Operators that leave rows what they are; the first other one ends the part that is counted.
_KEEPING = frozenset({"where", "search", "extend", "sort", "order", "serialize", "as"})
#: The columns that are offered, if the rows have them.
FACETS = ("Host", "Source", "Severity", "Event", "Unit")
#: Values of a column that are offered.
MOST_VALUES = 6
#: About this many bins, and their widths in seconds.
BINS = 90
STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000,
)  # fmt: skip


@dataclass(frozen=True)
class Base:
    """The part of a query that is counted. ``text``: alone; ``end``: where it ends in the query, and a filter can be
    added; ``before``: the operator after it, empty if there is none."""

    text: str
    end: int
    before: str


def base_of(text: str) -> Base | None:
    """The part of a query that is counted; None if its last statement reads no table. Raises ``KqlError``."""
    script = parse(text)
    last = script.statements[-1] if script.statements else None
    if isinstance(last, ast.Name):
        end = len(text.rstrip().rstrip(";").rstrip())
        return Base(text[:end], end, "")
    if not isinstance(last, ast.Pipeline) or isinstance(last.source, ast.Operator):
        return None
    for operator in last.operators:
        if isinstance(operator, ast.Operator) and operator.name not in _KEEPING:
            end = len(text[: max(text.rfind("|", 0, operator.span.start), 0)].rstrip())
            return Base(text[:end], end, operator.name) if end else None
    end = len(text.rstrip().rstrip(";").rstrip())
    return Base(text[:end], end, "")


def time_column(columns: Sequence[tuple[str, str]]) -> str | None:
    """The column of times that rows are counted by."""
    times = [name for name, kind in columns if kind == "datetime"]
    return next((name for name in ("Time", "TimeGenerated") if name in times), times[0] if times else None)


def facets_of(columns: Sequence[tuple[str, str]]) -> list[str]:
    """The columns whose values are counted."""
    texts = {name for name, kind in columns if kind == "string"}
    return [name for name in FACETS if name in texts]


def ends(base: Base, time: str | None) -> str:
    """The query for the number of rows, and the first and last time."""
    spans = f", First = min({time}), Last = max({time})" if time else ""
    return f"{base.text}\n| summarize Rows = count(){spans}"


def step_of(first: datetime, last: datetime) -> int:
    """The width of a bin in seconds."""
    span = (last - first) / timedelta(seconds=1)
    return next((step for step in STEPS if span / step <= BINS), STEPS[-1])


def counts(base: Base, time: str | None, step_s: int, facets: Sequence[str]) -> list[str]:
    """The queries for the rows of each bin, if there is a time, and of each value of the facets."""
    bins = (
        [f"{base.text}\n| summarize Rows = count() by Bin = bin({time}, {step_s}s)\n| sort by Bin asc"] if time else []
    )
    return [
        *bins,
        *(
            f"{base.text}\n| summarize Rows = count() by {name}\n| sort by Rows desc, {name} asc | take {MOST_VALUES + 1}"
            for name in facets
        ),
    ]


def patterns(base: Base, columns: Sequence[tuple[str, str]]) -> str | None:
    """The query for messages alike but for their numbers, by how many there are; None if the rows have no message."""
    names = dict(columns)
    if names.get("Message") != "string":
        return None
    hosts = "Hosts = dcount(Host), " if "Host" in names else ""
    return (
        f"{base.text}\n| summarize Lines = count(), {hosts}Sample = take_any(Message)\n"
        '    by Pattern = replace_regex(Message, @"0x[0-9a-fA-F]+|[0-9]+", "#")\n| sort by Lines desc, Pattern asc'
    )


def readable(text: str) -> Base | None:
    """As ``base_of``, and None for a query that cannot be read: the query itself says why."""
    try:
        return base_of(text)
    except KqlError:
        return None
