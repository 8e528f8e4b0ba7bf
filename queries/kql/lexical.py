"""Characters to tokens: comments, string escapes, numbers, timespans and datetimes."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from parsers.moments import utc

STRING = r"""[hH]?(?:@"(?:[^"]|"")*"|@'(?:[^']|'')*'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|```[\s\S]*?```|~~~[\s\S]*?~~~)"""
#: An unclosed string, up to where it could have ended. A search for strings in a whole text includes these: otherwise
#: each quote is tried to the end of the text, a minute for 50,000 of them.
UNCLOSED = r"""[hH]?(?:@"[\s\S]*|@'[\s\S]*|"(?:\\.|[^"\\\n])*|'(?:\\.|[^'\\\n])*|```[\s\S]*|~~~[\s\S]*)"""
_STRING_OR_COMMENT = re.compile(rf"({STRING}|{UNCLOSED})|//[^\n]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.S)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}

TICKS_PER = {"tick": 1, "us": 10, "ms": 10**4, "s": 10**7, "m": 60 * 10**7, "h": 3600 * 10**7, "d": 86400 * 10**7}
_UNITS = {
    "d": "d day days", "h": "h hr hrs hour hours", "m": "m min minute minutes", "s": "s sec second seconds",
    "ms": "ms milli millis millisec millisecond milliseconds", "us": "us micro micros microsec microsecond microseconds",
    "tick": "tick ticks",
}  # fmt: skip
UNIT_TICKS = {word: TICKS_PER[unit] for unit, words in _UNITS.items() for word in words.split()}
TIMESPAN = r"\d+(?:\.\d+)?(?:" + "|".join(sorted(UNIT_TICKS, key=len, reverse=True)) + r")\b"
_SPAN_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)$")
_CLOCK = re.compile(r"(-)?(?:(\d{1,9})\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?$")
_DATE = re.compile(
    r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?(?:[T ]\s*(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?)?\s*(Z|[+-]\d{2}:?\d{2})?$"
)
_US_DATE = re.compile(
    r"(\d{1,2})/(\d{1,2})/(\d{4})(?:,?\s+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?\s*(AM|PM)?)?$", re.I
)
_DASHED_US_DATE = re.compile(r"(?P<m>\d{1,2})-(?P<d>\d{1,2})-(?P<y>\d{4})$")
_COMMA_DATE = re.compile(r"(?P<y>\d{4})\s*,\s*(?P<m>\d{1,2})\s*,\s*(?P<d>\d{1,2})$")
# RFC 822 and RFC 850, as the documentation of todatetime() lists them.
_LONG_DATES = (
    "%a, %d %b %Y %H:%M:%S", "%a, %d %b %Y %H:%M:%S %Z", "%d %b %Y %H:%M:%S", "%d %b %Y %H:%M", "%d %b %Y",
    "%a, %d %b %y %H:%M:%S %Z", "%d %b %y %H:%M:%S", "%A, %d-%b-%y %H:%M:%S", "%A, %d-%b-%y %H:%M:%S %Z",
    "%A, %d-%b-%y %H:%M", "%d-%b-%y", "%B %d, %Y", "%b %d, %Y",
)  # fmt: skip


def blank_comments(text: str) -> str:
    """Replaces each comment by spaces of equal length, so that every offset still fits the user's text."""
    return _STRING_OR_COMMENT.sub(lambda m: m[1] if m[1] is not None else " " * len(m[0]), text)


def unquote(token: str) -> str:
    """The value of one string token."""
    if token[0] in "hH":
        token = token[1:]
    if token[:3] in ("```", "~~~"):
        return token[3:-3]
    if token[0] == "@":
        return token[2:-1].replace(token[1] * 2, token[1])
    text = _ESCAPE.sub(_unescape, token[1:-1])
    if _SURROGATE.search(text):  # two make a character, as in Kusto's UTF-16; a single one is none
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code, 8)) if code.isdigit() and len(code) == 3 else chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)


def timespan_ticks(text: str) -> int | None:
    """Ticks of `5m`, `1.5h`, `00:05:00`, `1.02:03:04.5`, or a bare number of days; None if it is none of these, or too
    long for a timespan."""
    text = text.strip().strip("'\"").strip()
    sign = 1
    if text.startswith("-"):
        sign, text = -1, text[1:].strip()
    unit = _SPAN_PARTS.match(text)
    if unit and unit[2] in UNIT_TICKS:
        return _ticks(sign * float(unit[1]) * UNIT_TICKS[unit[2]])
    clock = _CLOCK.match(text)
    if clock:
        days, hours, minutes, seconds = (int(clock[i] or 0) for i in (2, 3, 4, 5))
        if hours > 23 or minutes > 59 or seconds > 59:
            return None
        fraction = int((clock[6] or "").ljust(7, "0")[:7])
        return _ticks(sign * ((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 10**7 + fraction))
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _ticks(sign * float(text) * TICKS_PER["d"])
    return None


def _ticks(ticks: float) -> int | None:
    """Whole ticks, if a timespan can be that long."""
    return round(ticks) if -(2**63) <= ticks < 2**63 else None


def parse_datetime(text: str) -> datetime | None:
    """A naive UTC datetime from the spellings that Kusto accepts; None if it is none of them."""
    text = text.strip().strip("'\"").strip()
    try:
        match = _DATE.match(text)
        if match:
            micro = int((match[7] or "").ljust(6, "0")[:6])
            value = datetime(
                int(match[1]), int(match[2]), int(match[3] or 1), int(match[4] or 0), int(match[5] or 0),
                int(match[6] or 0), micro,
            )  # fmt: skip
            if match[8] and match[8] != "Z":
                sign = -1 if match[8][0] == "-" else 1
                value -= sign * timedelta(hours=int(match[8][1:3]), minutes=int(match[8][-2:]))
            return value
        match = _US_DATE.match(text)
        if match:
            hour = int(match[4] or 0)
            if match[8]:
                hour = hour % 12 + (12 if match[8].upper() == "PM" else 0)
            micro = int((match[7] or "").ljust(6, "0")[:6])
            return datetime(
                int(match[3]), int(match[1]), int(match[2]), hour, int(match[5] or 0), int(match[6] or 0), micro
            )
        match = _DASHED_US_DATE.match(text) or _COMMA_DATE.match(text)
        if match:
            parts = {k: int(v) for k, v in match.groupdict().items()}
            return datetime(parts["y"], parts["m"], parts["d"])
        for layout in _LONG_DATES:
            try:
                return datetime.strptime(text, layout)
            except ValueError:
                continue
        if re.fullmatch(r"\d{4}", text):
            return datetime(int(text), 1, 1)
    except (ValueError, OverflowError):
        return None
    return None


def format_datetime(value: datetime) -> str:
    """RFC 3339 in UTC with Z, as in the API's answers."""
    value = utc(value)
    return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z" if value.year >= 1000 else value.isoformat() + "Z"


def format_timespan(ticks: int) -> str:
    """`[-][d.]hh:mm:ss[.fffffff]`, Kusto's own spelling."""
    sign, ticks = ("-", -ticks) if ticks < 0 else ("", ticks)
    seconds, fraction = divmod(ticks, 10**7)
    days, seconds = divmod(seconds, 86400)
    head = f"{sign}{days}." if days else sign
    tail = f".{fraction:07d}" if fraction else ""
    return f"{head}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"
