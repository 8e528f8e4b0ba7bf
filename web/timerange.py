"""The time range of the URL, ``?from=...&to=...``, which every page and every list obeys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from parsers import moments
from parsers.moments import later
from web.zones import local, name_at

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
RELATIVE = re.compile(r"^(?:now)?\s*-\s*(\d{1,6})\s*([smhdw])$")


class BadTimeError(ValueError):
    """An invalid time in the URL. Carries the text, so that the answer can name it."""

    def __init__(
        self, name: str, text: str, wrong: str = "is not a time; write 2026-11-21T00:30:00Z, now or now-6h"
    ) -> None:
        super().__init__(f"{name}={text!r} {wrong}")
        self.name, self.text = name, text


@dataclass(frozen=True)
class Range:
    """Naive UTC, as the store keeps it; ``None`` is an open end."""

    start: datetime | None = None
    end: datetime | None = None
    text_from: str | None = None
    text_to: str | None = None

    def shifted(self, direction: int) -> dict[str, str] | None:
        """The neighbouring range of the same length, or None if an end is open."""
        if self.start is None or self.end is None:
            return None
        step = (self.end - self.start) * direction
        return {"from": rfc3339(later(self.start, step)), "to": rfc3339(later(self.end, step))}

    def label(self) -> str:
        """The range in words for the top bar."""
        if self.start is None and self.end is None:
            return f"All time, {name_at()}"
        if self.text_from and RELATIVE.match(self.text_from) and self.end is None:
            return f"Last {self.text_from.removeprefix('now').strip().lstrip('-').strip()}, {name_at()}"
        start, end = (local(moment) if moment else None for moment in (self.start, self.end))
        if start and end and start.date() == end.date():
            return f"{start:%-d %b %Y, %H:%M:%S} – {end:%H:%M:%S} {name_at(self.end)}"
        left = f"{start:%-d %b %Y %H:%M}" if start else "start"
        right = f"{end:%-d %b %Y %H:%M}" if end else "now"
        return f"{left} – {right} {name_at(self.end or self.start)}"


def rfc3339(moment: datetime) -> str:
    """Naive UTC as RFC 3339, with microseconds if there are any."""
    return moments.rfc3339(moment)


def parse_time(name: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """``now``, ``now-6h``, ``-6h``, RFC 3339 or a date.

    A time without a zone is UTC, whatever zone the reader chose: an address means the same to everybody.
    """
    if text is None or not text.strip():
        return None
    text = text.strip()
    present = now or datetime.now(UTC).replace(tzinfo=None)
    if text == "now":
        return present
    relative = RELATIVE.match(text)
    try:
        if relative:
            return later(present, -timedelta(seconds=int(relative[1]) * UNITS[relative[2]]))
        # The "+" of a zone arrives as a space if the client forgot to encode it.
        moment = datetime.fromisoformat(text.replace(" ", "+") if re.search(r"\d \d\d:\d\d$", text[10:]) else text)
    except (ValueError, OverflowError):
        raise BadTimeError(name, text) from None
    return moments.utc(moment)


def parse_range(text_from: str | None, text_to: str | None, now: datetime | None = None) -> Range:
    """Both ends; an end before its start is an error and not an empty page."""
    start, end = parse_time("from", text_from, now), parse_time("to", text_to, now)
    if start and end and end < start:
        raise BadTimeError("to", str(text_to), f"is before from={text_from!r}; give the earlier time first")
    return Range(start, end, text_from or None, text_to or None)
