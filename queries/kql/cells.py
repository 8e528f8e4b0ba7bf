"""The cells of an answer as JSON, a column at a time.

Times are RFC 3339 UTC with six digits, timespans `d.hh:mm:ss.fffffff`; decimals and numbers that JSON lacks (NaN,
infinities) are texts. R1: a missing string is "".
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from queries.kql.errors import QueryTimeout
from queries.kql.lexical import format_timespan

_WORDS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def cells(column: Any, kind: str) -> list[Any]:
    """A pyarrow column of one KQL type; dynamics stay JSON text."""
    if kind == "datetime":
        return _times(column)
    values: list[Any] = column.to_pylist()
    if kind == "string":
        return ["" if v is None else v for v in values] if column.null_count else values
    if kind == "real":
        return [_WORDS[str(v)] if v is not None and not math.isfinite(v) else v for v in values]
    if kind == "timespan":
        return [None if v is None else format_timespan(v) for v in values]
    if kind == "decimal":
        return [None if v is None else format(Decimal(str(v)).normalize(), "f") for v in values]
    return values


#: The years 1 to 9999 in microseconds from 1970: a date outside our calendar is an error, not a crash.
_CALENDAR = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def in_calendar(column: Any) -> bool:
    """Can every moment of a pyarrow column be written as a date?"""
    import pyarrow.compute

    ends = pyarrow.compute.min_max(column)
    return all(ends[end].value is None or _CALENDAR[0] <= ends[end].value <= _CALENDAR[1] for end in ("min", "max"))


def _times(column: Any) -> list[Any]:
    moments = column.to_numpy()
    texts = np.char.add(np.datetime_as_string(moments, unit="us"), "Z").tolist()
    return [None if t == "NaTZ" else t for t in texts] if column.null_count else texts


def dynamic(text: str | None) -> Any:
    """The value of a dynamic's JSON text."""
    return None if text is None else finite(json.loads(text))


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity, but the engine parses and writes them."""
    if isinstance(value, float) and not math.isfinite(value):
        return _WORDS[str(value)]
    if isinstance(value, list):
        return [finite(v) for v in value]
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return value


def _embedded(text: str | None) -> Any:
    """A dynamic's JSON text unparsed, unless it may hold a number that JSON lacks."""
    if text is None:
        return None
    return dynamic(text) if "NaN" in text or "nf" in text or "NF" in text or "nan" in text else orjson.Fragment(text)


#: Cells that are written together: as Python objects they take up to fifty times their size in a column.
CELLS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Document:
    """`columns` and `rows` of an answer, for ``dumps`` only: rows are text already.

    The size of the text is in bytes. ``is_whole``: no row is missing.
    """

    body: dict[str, Any]
    bytes: int
    is_whole: bool


def document(
    columns: Sequence[tuple[str, str]], table: Any, most_bytes: int | None = None, deadline: float | None = None
) -> Document:
    """The document of an answer, without the last rows that do not fit into ``most_bytes`` of text.

    Raises ``QueryTimeout`` when ``deadline`` (of ``time.monotonic``) passes.
    """
    at_once = max(1, CELLS_AT_ONCE // max(1, len(columns)))
    parts: list[bytes] = []
    size, is_whole = 0, True
    for start in range(0, table.num_rows, at_once):
        if deadline is not None and time.monotonic() >= deadline:
            raise QueryTimeout("the answer was not written in the query's time")
        part = _written(columns, table.slice(start, at_once))
        if most_bytes is not None and size + len(part) > most_bytes:
            part, is_whole = _fitting(columns, table.slice(start, at_once), most_bytes - size), False
        if part:
            size += len(part) + 1
            parts.append(part)
        if not is_whole:
            break
    made = [{"name": n, "type": t} for n, t in columns]
    rows = orjson.Fragment(b"[" + b",".join(parts) + b"]")
    return Document({"columns": made, "rows": rows}, size, is_whole)


def _written(columns: Sequence[tuple[str, str]], table: Any) -> bytes:
    """Rows of JSON with commas between them."""
    try:
        return orjson.dumps(_rows(columns, table, _embedded))[1:-1]
    except TypeError:  # whole numbers beyond 64 bits, which only a dynamic has
        return json.dumps(_rows(columns, table, dynamic), ensure_ascii=False).encode()[1:-1]


def _rows(columns: Sequence[tuple[str, str]], table: Any, read: Callable[[str | None], Any]) -> list[tuple[Any, ...]]:
    found = [cells(table.column(place), kind) for place, (_, kind) in enumerate(columns)]
    for place, (_, kind) in enumerate(columns):
        if kind == "dynamic":
            found[place] = [read(text) for text in found[place]]
    return list(zip(*found, strict=True))


def _fitting(columns: Sequence[tuple[str, str]], table: Any, left: int) -> bytes:
    """The first rows that fit into this many bytes: tries halves, so that no row is written more than twice."""
    parts: list[bytes] = []
    while table.num_rows:
        half = table.slice(0, (table.num_rows + 1) // 2)
        part = _written(columns, half)
        if len(part) <= left:
            parts.append(part)
            left -= len(part) + 1
            table = table.slice(half.num_rows)
        elif table.num_rows == 1:
            break
        else:
            table = half
    return b",".join(parts)


def dumps(value: Any) -> bytes:
    """JSON in UTF-8."""
    return orjson.dumps(value)
