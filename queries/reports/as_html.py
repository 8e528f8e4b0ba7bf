"""A report as one self-contained HTML page: no script, no font, no external picture; bars and lanes are inline SVG."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from parsers.visible import visible
from queries.reports.model import SHOWN, Column, Document, Table, Timeline
from queries.reports.wording import period, worded

#: Width of a lane in units of its drawing, and the minimum width of a visible mark.
LANE, LEAST = 1000.0, 5.0


def html(document: Document) -> str:
    """``document`` as a page. The template escapes every value."""
    made = _environment().get_template("page.html")
    return visible(made.render(document=document, period=period(document.since, document.until), shown=SHOWN))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters["worded"] = worded
    environment.globals.update(bar=bar, marks=marks, largest=largest, tone=tone)
    return environment


def largest(table: Table, column: Column) -> float:
    """The largest value of a column, against which its bars are drawn."""
    return max((float(row[column.key] or 0) for row in table.rows), default=0.0)


def bar(value: Any, most: float) -> float:
    """Length of a bar in percent; a value above zero is always visible."""
    share = 100.0 * float(value or 0) / most if most > 0 else 0.0
    return round(max(share, 1.5) if share > 0 else 0.0, 2)


def marks(timeline: Timeline, lane: str) -> list[dict[str, Any]]:
    """The positions of the spans on a lane: ``x`` and ``width`` in units of ``LANE``."""
    whole = max((timeline.end - timeline.start).total_seconds(), 1e-6)

    def place(moment: datetime) -> float:
        return min(max((moment - timeline.start).total_seconds() / whole, 0.0), 1.0) * LANE

    found = []
    for span in timeline.lanes[lane]:
        start = place(span.start)
        width = max(place(span.end) - start, LEAST) if span.end else LEAST
        found.append(
            {
                "x": round(min(start, LANE - width), 2),
                "width": round(width, 2),
                "tone": span.tone,
                "text": span.text,
                "open": span.end is None,
            }
        )
    return found


def tone(value: Any) -> str:
    """The colour class of words that express a judgement."""
    return f"t-{value}" if value in ("impact", "degraded", "benign") else ""
