"""``POST /api/v1/ingest``: the agent's wire format (docs/sources/wire.md), and raw lines from any HTTP client."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from itertools import pairwise
from typing import Any

import numpy as np

from collector.columnar import objects as columns
from collector.columnar.objects import Objects
from collector.receivers.base import MOST_LINES, Batch, Decoded, Payload, Receiver, Request, Route, answer_json
from collector.receivers.ndjson_alike import OURS, Alike, AlikeColumns
from collector.receivers.ndjson_records import To, add_record, add_text, described, records, text_at
from collector.receivers.refusals import Refused, too_many
from collector.receivers.wrapped import Streams, document, loads
from collector.receivers.wrapped_columns import WrappedColumns, plain_wrappers
from collector.segment_file import short_lines
from parsers import json_text
from parsers.lines import count_of, line_ends
from parsers.recognition.not_text import archive_of

_HEADERS = ("host", "source", "path", "stream", "cluster", "timezone")
#: Where a record's lines are encoded or the members of a list, and those that are encoded.
_DENSE = re.compile(rb'"lines(?:_base64"|"\s*:\s*\[)')
_ENCODED = re.compile(rb'"lines_base64"\s*:\s*"([^"]*)')


def _accept(request: Request) -> Batch:
    body = request.plain()
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    lines, bound = (count_of(b"\n", body),) * 2 if kind == "text/plain" else _counted(body)
    if lines > MOST_LINES:
        raise too_many("lines", MOST_LINES)
    if archive := archive_of(body):
        raise Refused(415, f"the body is {archive}", "Send its files one by one, or ingest the unpacked folder.")
    meta: dict[str, Any] = {
        "form": "text" if kind == "text/plain" else "records",
        **request.packing(body, bound + (body.count(b",") if kind == "application/json" else 0)),
    }
    attributes = {n: v for n in _HEADERS if (v := request.headers.get(f"x-faultline-{n}"))}
    if attributes:
        meta["attributes"] = attributes
    if kind == "application/json":
        _check_json(body)
        meta["form"] = "json"
    elif kind.startswith("multipart/"):
        raise Refused(415, f"Content-Type {kind[:60]!r}", "Send the lines themselves: curl --data-binary @FILE.")
    elif kind == "text/plain" and (charset := _charset(request.headers["content-type"])):
        meta["charset"] = charset
    answer = answer_json({"status": "stored", "duplicate": False, "bytes": len(request.body)})
    if not body or body.isspace():
        return Batch(None, answer)
    return Batch(request.body, answer, meta, request.headers.get("idempotency-key"))


def _counted(body: bytes) -> tuple[int, int]:
    """The lines of records, without those that are members of lists, and a bound for all of them. Those inside of
    strings are only counted if they may be very short: ordinary bodies are searched once for each sign."""
    lines = count_of(b"\n", body)
    if short_lines(lines + count_of(b"\\", body), len(body)):
        lines += body.count(b"\\n") - body.count(b"\\\\n")  # line ends, but no backslash before an n
    if not _DENSE.search(body):
        return lines, lines
    with suppress(binascii.Error):
        lines += sum(base64.b64decode(found[1]).count(b"\n") for found in _ENCODED.finditer(body))
    return lines, lines + body.count(b",")


def _charset(content_type: str) -> str | None:
    """The encoding of a content type; None for UTF-8, which needs no conversion. Raises ``Refused``."""
    named = Message()
    named["content-type"] = content_type
    charset = named.get_content_charset()
    if charset is None:
        return None
    try:
        known = codecs.lookup(charset).name
        "".encode(known)  # "hex" and its like are codecs, too
    except (LookupError, ValueError) as error:
        raise Refused(415, f"charset {charset[:40]!r} is not known", "Send UTF-8.") from error
    return None if known in ("utf-8", "ascii") else known


def _check_json(body: bytes) -> None:
    """Checks a body of ``application/json``, which is one document; NDJSON under that name is common, too."""
    try:
        document(body)
    except ValueError as error:
        first = body.lstrip().split(b"\n", 1)[0]
        try:
            json.loads(first)
        except ValueError:
            raise Refused(400, f"the body is not JSON: {error}", "Send NDJSON or text/plain.") from error


def _decode(payload: Payload, into: Decoded) -> None:
    body = payload.unpacked().removeprefix(codecs.BOM_UTF8)
    defaults: dict[str, Any] = dict(payload.meta.get("attributes") or {})
    own = dict(defaults)
    others = WrappedColumns(
        payload, into, "http", cluster=text_at(own, "cluster"), timezone=text_at(own, "timezone"), says_source=True
    )
    to = To(payload, into, Streams(), others, own)
    if charset := payload.meta.get("charset"):
        body = body.decode(str(charset), "replace").removeprefix("\ufeff").encode()
    if payload.meta.get("form") == "text":
        add_text(body if body.endswith(b"\n") else body + b"\n", defaults, to)
        return
    reading = _Reading(to, defaults)
    json_form = payload.meta.get("form") == "json"
    first = 0
    for part in [body] if json_form else _parts(body, _AT_ONCE):
        found = columns.in_a_list(part, json_text.loads) if json_form else columns.on_lines(part, loads)
        first += (
            _singly(part, json_form, reading, to, first)
            if found is None
            else _columns(found, json_form, reading, to, first)
        )
    reading.add()
    others.done()


#: Lines that are read at once: their tables take 150 bytes and more for each meanwhile, however short they are.
_AT_ONCE = 100_000


def _parts(body: bytes, most: int) -> Iterator[bytes]:
    """The body in order, ``most`` lines at a time."""
    if count_of(b"\n", body) <= most:
        yield body
        return
    ends = line_ends(np.frombuffer(body, np.uint8))
    at = 0
    for end in (ends[most - 1 :: most] + 1).tolist():
        yield body[at:end]
        at = end
    if at < len(body):
        yield body[at:]


class _Reading:
    """Reads records one by one, with the defaults that apply so far."""

    def __init__(self, to: To, defaults: dict[str, Any]) -> None:
        self._to, self.defaults, self.alike = to, defaults, Alike(to)
        self._texts: list[bytes] = []

    def one(self, record: dict[str, Any] | bytes) -> None:
        if isinstance(record, bytes):
            self.alike.add()
            self._texts.append(record)
            return
        if self._texts:
            self.add()
        if self.alike.takes(record, self.defaults):
            return
        self.alike.add()
        if isinstance(record.get("defaults"), dict):
            self.defaults = {**self.defaults, **record["defaults"]}
        if len(record) > 1 or "defaults" not in record:
            add_record(record, {**self.defaults, **record}, self._to)

    def add(self) -> None:
        """Passes on what waits for others like it: lines that are no objects, or similar records."""
        self.alike.add()
        if self._texts:
            run, group = described(len(self._texts), self._texts[:1], self.defaults, self._to)
            self._to.into.add(self._texts, run, **group)
            self._texts = []


def _singly(body: bytes, json_form: bool, reading: _Reading, to: To, first: int) -> int:
    """Adds all records of (a part of) a body one by one, and returns their number. ``first``: the number of records
    before them."""
    if first != to.others.row + 1:
        reading.add()
    row = first
    for row, record in enumerate(records(body, json_form), first + 1):
        to.others.row = row - 1
        reading.one(record)
    return row - first


def _columns(found: Objects, json_form: bool, reading: _Reading, to: To, before: int) -> int:
    """Adds all records of (a part of) a body: similar ones and foreign ones many at once, the others one by one. Returns
    their number; ``before``: the number of records before them."""
    foreign = plain_wrappers(found) & ~found.with_any([top in OURS for top in found.tops]) & (not to.own)
    alike = AlikeColumns(found)
    rows = np.flatnonzero(~foreign)
    are_alike = alike.fits[rows]
    changes = np.flatnonzero(np.diff(are_alike)) + 1
    edges = [0, *changes.tolist(), len(rows)] if len(rows) else []
    for first, behind in pairwise(edges):
        if are_alike[first] and behind - first >= columns.FEWEST:
            reading.add()
            alike.add(rows[first:behind], reading.defaults, to)
            continue
        for row in rows[first:behind].tolist():
            if before + row != to.others.row + 1:  # anything between two lines separates them
                reading.add()
            to.others.row = before + row
            text = found.text(row)
            for record in [found.loads(text)] if json_form else records(text, False):
                reading.one(record)
    kept = np.flatnonzero(foreign)
    to.others.add_all(found, kept, ["http"], np.zeros(len(kept), np.int64), before)
    return len(found)


RECEIVER = Receiver(
    "ingest", "NDJSON or raw lines over HTTP, from the agent and from anything that can post", _decode,
    (Route(("POST",), r"/api/v1/ingest/?", _accept),),
)  # fmt: skip
