"""A result as text or bytes: table, json, ndjson, csv, parquet."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from typing import Any

from parsers.visible import visible
from queries.kql import screen
from queries.kql.run import Result

FORMATS = ("table", "json", "ndjson", "csv", "parquet")


def render(result: Result, format: str = "table") -> str | bytes:
    """The result in one of FORMATS; parquet is bytes, all others text."""
    makers: dict[str, Callable[[Result], str | bytes]] = {
        "json": _json,
        "ndjson": _ndjson,
        "csv": _csv,
        "parquet": _parquet,
        "table": _table,
    }
    if format not in makers:
        raise ValueError(f"unknown format '{format}'; one of {', '.join(FORMATS)}")
    return makers[format](result)


def _json(result: Result) -> str:
    return result.to_json() + "\n"


def _ndjson(result: Result) -> str:
    names = [n for n, _ in result.columns]
    return "".join(json.dumps(dict(zip(names, r, strict=True)), ensure_ascii=False) + "\n" for r in result.rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value)


#: With one of these in front, a spreadsheet interprets a text as a formula.
_RUN = ("=", "+", "-", "@", "\t", "\r")


def _field(value: Any) -> str:
    """A cell of CSV. A text that a spreadsheet would run gets ``'`` in front; numbers stay unchanged."""
    text = _cell(value)
    if not isinstance(value, str) or not text.startswith(_RUN):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _csv(result: Result) -> str:
    out = io.StringIO()
    plain, quoted = (csv.writer(out, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    for row in ([name for name, _ in result.columns], *result.rows):
        fields = [_field(value) for value in row]
        # The writer leaves a lone CR unquoted, and a spreadsheet begins a row after it.
        (quoted if any("\r" in field for field in fields) else plain).writerow(fields)
    return out.getvalue()


def _parquet(result: Result) -> bytes:
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(result.arrow(), out)
    return out.getvalue()


def _table(result: Result) -> str:
    """For a reader on a terminal; plain columns in a pipe."""
    head = f"{visible(result.name, lines=False)}:\n" if result.name else ""  # one of the tables of fork or facet
    names = [visible(n, lines=False) for n, _ in result.columns]
    rows = [[visible(_cell(v)) for v in row] for row in result.rows]
    if not sys.stdout.isatty():
        rows = [[visible(v, lines=False) for v in row] for row in rows]
        widths = [max([len(n), *(len(r[i]) for r in rows)]) for i, n in enumerate(names)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in [names, *rows]]
        return head + "\n".join(lines) + "\n"
    kinds = [kind for _, kind in result.columns]
    return head + screen.show(list(zip(names, kinds, strict=True)), rows)
