"""``journalctl -o export``: records of FIELD=value lines, each record followed by an empty line; values with line
breaks are written as FIELD, the length in eight bytes, and the bytes. ``journalctl -o verbose``: a line with time and
cursor, followed by FIELD=value lines indented by four blanks; continuation lines of a value are indented further.
``journalctl -o json-pretty``: consecutive multi-line JSON objects.

Each record becomes one row of logs, parsed like the same record in JSON; its own bytes are kept as ``raw``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import polars as pl

from parsers import journal_fields as journal
from parsers.documents.document import Document
from parsers.engine import LineParser
from parsers.json_text import loads
from parsers.record import Origin, Parsed, empty


@lru_cache(maxsize=1)
def _parser() -> LineParser:
    return LineParser()


def records(data: bytes) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """(first line, bytes, fields) of each record. A field that is not UTF-8 is a list of its bytes, as in JSON."""
    at, line = 0, 1
    while at < len(data):
        start, first_line = at, line
        fields: dict[str, Any] = {}
        while at < len(data):
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            piece = data[at:end]
            at, line = end + 1, line + 1
            if not piece:
                break
            name, equals, value = piece.partition(b"=")
            if not equals:
                size = int.from_bytes(data[at : at + 8], "little")
                value = data[at + 8 : at + 8 + size]
                line += data.count(b"\n", at, at + 8 + size + 1)
                at += 8 + size + 1
            _put(fields, name.decode(errors="replace"), value)
        if fields:
            yield first_line, data[start : min(at, len(data))].rstrip(b"\n"), fields


#: Weekday, date, time, zone and the cursor, whose ``t`` is the time in microseconds since 1970, in hexadecimal digits.
_HEAD = re.compile(rb"\S{1,12} \d{4}-\d\d-\d\d [\d:.]+ \S+ \[s=[0-9a-f]+;.*?\bt=(?P<micros>[0-9a-f]+);.*\]$")
_FIELD = re.compile(rb"    (?P<name>[A-Z_0-9]+)=(?P<value>.*)$", re.DOTALL)


def verbose_records(data: bytes) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """Like :func:`records`, for ``-o verbose``. Lines before the first record are ignored."""
    held: list[bytes] = []
    fields: dict[str, Any] = {}
    first, name = 0, ""
    for number, line in enumerate(data.split(b"\n"), start=1):
        head = _HEAD.match(line)
        if head:
            if fields:
                yield first, b"\n".join(held), fields
            first, held, name = number, [], ""
            fields = {journal.RECEIVED_TIME: str(int(head["micros"], 16))}
        if not fields:
            continue
        field = _FIELD.match(line)
        if field:
            name = field["name"].decode()
            _put(fields, name, field["value"])
        elif name and line.startswith(b" " * 5) and isinstance(fields[name], str):
            fields[name] += "\n" + line.strip().decode(errors="replace")
        if line:
            held.append(line)
    if fields:
        yield first, b"\n".join(held), fields


def pretty_records(data: bytes) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """Like :func:`records`, for ``-o json-pretty``: an object begins and ends with a line that holds only its brace. A
    line outside an object is a record with nothing but its text."""
    held: list[bytes] = []
    first = 1
    for number, line in enumerate(data.split(b"\n"), start=1):
        bare = line.rstrip(b" \r,")
        if bare == b"{":
            yield from _as_pretty(first, held)
            held = []
        if not held:
            first = number
        if held or line.strip():
            held.append(line)
        if bare == b"}":
            yield from _as_pretty(first, held)
            held = []
    yield from _as_pretty(first, held)


def _as_pretty(first: int, held: list[bytes]) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    raw = b"\n".join(held)
    try:
        fields = loads(raw.rstrip(b" \r\n,"))
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        yield first, raw, fields
        return
    for number, line in enumerate(held, start=first):
        if line.strip():
            yield number, line, {"message": line.decode(errors="replace")}


def _put(fields: dict[str, Any], name: str, value: bytes) -> None:
    try:
        text: Any = value.decode()
    except UnicodeDecodeError:
        text = list(value)
    if name in fields:  # a field may occur twice
        known = fields[name]
        text = [*(known if isinstance(known, list) else [known]), text]
    fields[name] = text


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    found = list(_RECORDS[kind](data))
    if not found:
        return Parsed({"logs": empty("logs")})
    logs = _parser().parse([json.dumps(fields).encode() for _, _, fields in found], origin)
    raws = [raw.decode(errors="replace") for _, raw, _ in found]
    exact = [raw if "\ufffd" in text else None for (_, raw, _), text in zip(found, raws, strict=True)]
    logs = logs.with_columns(
        pl.Series("raw", raws, dtype=pl.String), pl.Series("raw_bytes", exact, dtype=pl.Binary),
        pl.Series("line", [line for line, _, _ in found], dtype=pl.Int64),
    )  # fmt: skip
    return Parsed({"logs": logs})


_RECORDS = {"journal_export": records, "journal_verbose": verbose_records, "journal_pretty": pretty_records}

DOCUMENT = Document(kinds=tuple(_RECORDS), read=_read)
