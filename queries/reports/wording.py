"""Values as people read them: one place for units, so that HTML and Markdown agree."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from queries.reports.model import Kind

NONE = "–"


def worded(value: Any, kind: Kind) -> str:
    """``value`` as text; a missing value is a dash, never an empty cell that looks like a bug."""
    if value is None or value == "":
        return NONE
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if kind == "flag":
        return "yes" if value else NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if kind == "hours":
        return _hours(float(value))
    if kind == "seconds":
        return length(float(value))
    if kind == "share":
        return f"{float(value) * 100:.1f} %"
    if kind == "count" and isinstance(value, int | float):
        return f"{int(value):,}".replace(",", " ")
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or NONE
    return str(value)


def _hours(hours: float) -> str:
    return f"{hours:,.0f}".replace(",", " ") if hours >= 1000 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


def length(seconds: float) -> str:
    """A duration in its two largest units: 14.0 s, 3 min 20 s, 5 h 12 min, 2 d 4 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for big, small, name, small_name in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= big:
            rest = whole % big // small
            return f"{whole // big} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{seconds:.1f} s"


def stretch(start: datetime, end: datetime) -> str:
    """From when to when, to the minute; the day once if it is the same."""
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} – {last}"


def period(since: datetime | None, until: datetime | None) -> str:
    """The requested period, in words."""
    if since is None and until is None:
        return "everything in the store"
    start = "the beginning" if since is None else f"{since:%Y-%m-%d %H:%M:%S}"
    end = "the end" if until is None else f"{until:%Y-%m-%d %H:%M:%S}"
    return f"{start} to {end} UTC"
