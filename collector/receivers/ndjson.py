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
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from collector.columnar import objects as columns
from collector.columnar.moments import moments
from collector.columnar.objects import Objects
from collector.columnar.otlp_tables import KEY, KIND, TEXT, Array
from collector.receivers.base import (
    MOST_LINES,
    Batch,
    Decoded,
    Payload,
    Receiver,
    Request,
    Route,
    Run,
    answer_json,
    micros,
    moment_of,
)
from collector.receivers.refusals import Poison, Refused, too_many
from collector.receivers.wrapped import HEAD_LINES, Streams, document, is_wrapped, loads, whole
from collector.receivers.wrapped_columns import WrappedColumns, parted, plain_wrappers
from collector.segment_file import short_lines
from parsers import documents
from parsers import journal_fields as journal
from parsers.lines import codes, line_ends, numbered
from parsers.recognition.not_text import archive_of
from parsers.record import Origin

_HEADERS = ("host", "source", "path", "stream", "cluster", "timezone")
#: Keys of objects that a format parses whole: the journal's own entries, and records of a kernel log reader.
_WHOLE = frozenset((*journal.TIME, "kmsg_us"))
_LINES = ("raw", "lines", "raw_base64", "lines_base64")
_BASE64 = frozenset(("raw_base64", "lines_base64"))
#: Content fields of a wire record, with their types.
_CONTENT: dict[str, type | tuple[type, ...]] = {
    "raw": str, "lines": (str, list), "raw_base64": str, "lines_base64": str, "blind": dict, "status": dict, "defaults": dict,
}  # fmt: skip
#: Where a record's lines are encoded or the members of a list, and those that are encoded.
_DENSE = re.compile(rb'"lines(?:_base64"|"\s*:\s*\[)')
_ENCODED = re.compile(rb'"lines_base64"\s*:\s*"([^"]*)')
#: Fields in which similar records may differ.
_OWN = frozenset(("raw", "time", "read", "offset"))
#: Keys that only a wire record has, or that a format parses whole.
_OURS = frozenset((*_CONTENT, "document", *_WHOLE))
#: Records with more names than this are rarely similar.
_MOST_NAMES = 64
_SCHEMA = {
    name: pl.Int64 if name in ("lines", "received", "time", "read", "pid", "group") else pl.String
    for name in (*Run._fields, "group")
}
_LEVELS = frozenset(("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug"))


def _accept(request: Request) -> Batch:
    body = request.plain()
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    lines, bound = (body.count(b"\n"),) * 2 if kind == "text/plain" else _counted(body)
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
    lines = body.count(b"\n")
    if short_lines(lines + body.count(b"\\"), len(body)):
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
        payload, into, "http", cluster=_text(own, "cluster"), timezone=_text(own, "timezone"), says_source=True
    )
    to = _To(payload, into, Streams(), others, own)
    if charset := payload.meta.get("charset"):
        body = body.decode(str(charset), "replace").removeprefix("\ufeff").encode()
    if payload.meta.get("form") == "text":
        _add_text(body if body.endswith(b"\n") else body + b"\n", defaults, to)
        return
    reading = _Reading(to, defaults)
    json_form = payload.meta.get("form") == "json"
    first = 0
    for part in [body] if json_form else _parts(body, _AT_ONCE):
        found = columns.in_a_list(part, json.loads) if json_form else columns.on_lines(part, loads)
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
    if body.count(b"\n") <= most:
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

    def __init__(self, to: _To, defaults: dict[str, Any]) -> None:
        self._to, self.defaults, self.alike = to, defaults, _Alike(to)
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
            _one(record, {**self.defaults, **record}, self._to)

    def add(self) -> None:
        """Passes on what waits for others like it: lines that are no objects, or similar records."""
        self.alike.add()
        if self._texts:
            run, group = _described(len(self._texts), self._texts[:1], self.defaults, self._to)
            self._to.into.add(self._texts, run, **group)
            self._texts = []


def _singly(body: bytes, json_form: bool, reading: _Reading, to: _To, first: int) -> int:
    """Adds all records of (a part of) a body one by one, and returns their number. ``first``: the number of records
    before them."""
    if first != to.others.row + 1:
        reading.add()
    row = first
    for row, record in enumerate(_records(body, json_form), first + 1):
        to.others.row = row - 1
        reading.one(record)
    return row - first


def _columns(found: Objects, json_form: bool, reading: _Reading, to: _To, before: int) -> int:
    """Adds all records of (a part of) a body: similar ones and foreign ones many at once, the others one by one. Returns
    their number; ``before``: the number of records before them."""
    foreign = plain_wrappers(found) & ~found.with_any([top in _OURS for top in found.tops]) & (not to.own)
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
            for record in [found.loads(text)] if json_form else _records(text, False):
                reading.one(record)
    kept = np.flatnonzero(foreign)
    to.others.add_all(found, kept, ["http"], np.zeros(len(kept), np.int64), before)
    return len(found)


class _To(NamedTuple):
    """Where the result of one payload goes: ``others`` takes foreign objects; ``own`` holds the request's headers."""

    payload: Payload
    into: Decoded
    streams: Streams
    others: WrappedColumns
    own: dict[str, Any]


class _Alike:
    """Adjacent one-line records that differ only in time and offset: described once."""

    def __init__(self, to: _To) -> None:
        self._to = to
        self._rest: dict[str, Any] | None = None
        self._full: dict[str, Any] = {}
        self._lines: list[str] = []
        self._times: list[tuple[int | None, int | None]] = []

    def takes(self, record: dict[str, Any], defaults: dict[str, Any]) -> bool:
        """Whether a record is similar: then it is consumed, and empty afterwards."""
        line = record.get("raw")
        if type(line) is not str:
            return False
        rest = {name: value for name, value in record.items() if name not in _OWN} if len(record) > 1 else {}
        if rest != self._rest:
            if not _is_plain(rest):
                return False
            self.add()
            self._rest, self._full = rest, {**defaults, **rest}
        self._lines.append(line)
        time, read = (record.get(name, defaults.get(name)) for name in ("time", "read"))
        self._times.append((micros(time), micros(read)))
        return True

    def add(self) -> None:
        """Passes on what was consumed."""
        if self._lines:
            lines = list(map(_text_of, self._lines))
            run, group = _described(len(lines), lines, self._full, self._to)
            times = ((*moment, len(list(same))) for moment, same in groupby(self._times))
            runs = [run._replace(lines=count, time=time, read=read) for time, read, count in times]
            self._to.into.add(lines, *runs, **group)
        self._rest, self._lines, self._times = None, [], []


class AlikeColumns:
    """Like :class:`_Alike`, for many records; ``fits``: which records of a body qualify."""

    def __init__(self, found: Objects) -> None:
        self._found = found
        attributes = found.tables.attributes
        other = [name != top or name in _OURS - {"raw"} for name, top in zip(found.names, found.tops, strict=True)]
        is_rest = np.array(
            [not odd and name not in _OWN for odd, name in zip(other, found.names, strict=True)] or [False]
        )
        is_odd = np.array(other or [True])[attributes[:, KEY]]
        is_odd |= is_rest[attributes[:, KEY]] & (attributes[:, KIND] != TEXT)
        none = np.full(len(found), -1)
        self._own = found.slots(sorted(_OWN))
        self.fits = ~found.marked() & ~found.owners(is_odd) & (found.kinds(self._own.get("raw", none)) == TEXT)
        names = [name for name, is_wanted in zip(found.names, is_rest.tolist(), strict=False) if is_wanted]
        if len(names) > _MOST_NAMES:
            self.fits[:] = False
        self._rest = found.slots(names) if self.fits.any() else {}

    def add(self, rows: Array, defaults: dict[str, Any], to: _To) -> None:
        """Passes on ``rows``, which have only foreign objects between them."""
        lines = self._found.texts(self._own["raw"][rows]).cast(pl.Binary).to_list()
        together = np.zeros(len(rows), np.int64)
        coded = {name: codes(self._found.texts(held[rows])) for name, held in self._rest.items()}
        for part in coded.values():
            together = numbered(together)[0].astype(np.int64) * (int(part.which.max()) + 1) + part.which
        words = {name: (part.which, part.names.to_list()) for name, part in coded.items()}
        which, firsts = numbered(together)
        ends = np.append(np.flatnonzero((np.diff(which) != 0) | (np.diff(rows) != 1)) + 1, len(rows))
        runs = []
        groups: dict[tuple[tuple[str, Any], ...], int] = {}
        for first in firsts.tolist():
            end = int(ends[np.searchsorted(ends, first, "right")])
            rest = {name: word for name, (held, known) in words.items() if (word := known[held[first]]) is not None}
            run, group = _described(end - first, lines[first:end], {**defaults, **rest}, to)
            runs.append((*run, groups.setdefault(tuple(group.items()), len(groups))))
        table = pl.DataFrame(runs, schema=_SCHEMA, orient="row")[which]
        table = table.with_columns(self._moments(rows, name, defaults) for name in ("time", "read")).drop("lines")
        table = table.select(column for column in table if column.null_count() < len(table))  # the others take as much
        for group_of, at in zip(groups, parted(table["group"].to_numpy(), len(groups)), strict=True):
            to.into.add_table([lines[row] for row in at.tolist()], table[at].drop("group"), **dict(group_of))

    def _moments(self, rows: Array, name: str, defaults: dict[str, Any]) -> pl.Series:
        """Each record's own time if it has one, else the default."""
        general = pl.Series(name, [micros(defaults.get(name))], dtype=pl.Int64).new_from_index(0, len(rows))
        if name not in self._own:
            return general
        slots = self._own[name][rows]
        own = moments(self._found, slots, micros).alias(name)
        return own if (slots >= 0).all() else own.zip_with(pl.Series(slots >= 0), general)


def _is_plain(rest: dict[str, Any]) -> bool:
    """Whether the remaining fields of a record with ``raw`` are all strings (1 and true are equal but not the same) and
    none is content."""
    return (
        all(type(value) is str for value in rest.values())
        and _CONTENT.keys().isdisjoint(rest)
        and "document" not in rest
    )


def _records(body: bytes, json_form: bool) -> Iterator[dict[str, Any] | bytes]:
    """Objects, or the bytes of a line that is not an object."""
    if json_form:
        try:
            whole = json.loads(body)
        except ValueError:
            whole = None
        if whole is not None:
            for item in whole if isinstance(whole, list) else [whole]:
                yield item if isinstance(item, dict) else _text_of(item)
            return
    for line in body.split(b"\n"):
        line = line.removesuffix(b"\r")
        if not line or line.isspace():
            continue
        try:
            value = loads(line) if line[:1] == b"{" or line.lstrip()[:1] in b'{"' else None
        except (ValueError, RecursionError):
            value = None
        yield value if isinstance(value, dict) else _text_of(value) if isinstance(value, str) else line


def _text_of(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _one(record: dict[str, Any], full: dict[str, Any], to: _To) -> None:
    payload, into = to.payload, to.into
    if not _is_ours(record):
        # A foreign object: a shipper's wrapper around a line, or itself the line.
        if is_wrapped(record) and not _WHOLE & record.keys():
            to.others.add({**to.own, **record}, "http")
            return
        _add_lines([json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")], to.own, to)
        return
    host = _text(full, "host")
    if isinstance(record.get("blind"), dict):
        into.blind.append({**_blind(record["blind"], payload.received), "host": host, "stream": _text(full, "stream"),
                           "source": _text(full, "source"), "told_by": _text(full, "agent") or payload.peer})  # fmt: skip
    if isinstance(record.get("status"), dict):
        into.status.append({
            "host": host, "cluster": _text(full, "cluster"), "status": json.dumps({**record["status"], "address": payload.peer}),
            "boot_id": _text(full, "boot_id"), "boot_time": micros(full.get("boot_time")), "received": payload.received,
        })  # fmt: skip
    if isinstance(record.get("document"), str):
        _document(record, full, payload, into)
        return
    if isinstance(record.get("lines"), str) and not _BASE64 & record.keys():
        _add_text(_text_of(record["lines"]) + b"\n", full, to)
    elif lines := _lines_of(record):
        _add_lines(lines, full, to)


def _is_ours(record: dict[str, Any]) -> bool:
    """Whether an object is a wire record: foreign objects have fields of the same names ("status": 200) with other
    values."""
    if isinstance(record.get("document"), str) and not any(name in record for name in _LINES):
        return False
    return any(isinstance(record.get(name), kinds) for name, kinds in _CONTENT.items())


def _lines_of(record: dict[str, Any]) -> list[bytes]:
    try:
        if record.get("lines_base64") is not None:
            return _split(base64.b64decode(str(record["lines_base64"])))
        if record.get("raw_base64") is not None:
            return [base64.b64decode(str(record["raw_base64"]))]
    except binascii.Error as error:
        raise Poison(f"a record's base64 is broken: {error}") from error
    if isinstance(record.get("lines"), str):
        return _split(_text_of(record["lines"]))
    if isinstance(record.get("lines"), list):
        return [_text_of(item) for item in record["lines"]]
    return [_text_of(record["raw"])] if record.get("raw") is not None else []


def _split(data: bytes) -> list[bytes]:
    """``a\\nb`` -> two lines; an empty line in the middle is a line."""
    return [part.removesuffix(b"\r") for part in data.split(b"\n")]


def _text(full: dict[str, Any], name: str) -> str | None:
    value = full.get(name)
    if not isinstance(value, str | int | float) or isinstance(value, bool) or value == "":
        return None
    return whole(str(value))


def _number(full: dict[str, Any], name: str) -> int | None:
    value = full.get(name)
    if isinstance(value, str) and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _add_text(data: bytes, full: dict[str, Any], to: _To) -> None:
    """Adds lines with their ends; an empty one is a line."""
    run, group = _described(data.count(b"\n"), data, full, to)
    to.into.add_data(data, run, **group)


def _add_lines(lines: list[bytes], full: dict[str, Any], to: _To) -> None:
    run, group = _described(len(lines), lines, full, to)
    to.into.add(lines, run, **group)


def _described(count: int, lines: bytes | list[bytes], full: dict[str, Any], to: _To) -> tuple[Run, dict[str, Any]]:
    """What is known about ``lines``, and the group in which they are parsed."""
    payload = to.payload
    host, path, source, job = _text(full, "host"), _text(full, "path"), _text(full, "source"), _number(full, "job_id")
    restarts = _number(full, "restarts")
    if path and source is None:
        first = lines.split(b"\n", HEAD_LINES) if isinstance(lines, bytes) else lines
        known = to.streams.of(path, first)
        source, job = known.source, job if job is not None else known.job_id
        host, restarts = host or known.host, restarts if restarts is not None else known.restarts
    where = path or _text(full, "stream")
    if where is None:
        file = None
    else:
        file = f"{host or payload.peer or '?'}:{where}"
    severity = _text(full, "severity")
    tags = full.get("tags")
    run = Run(
        count, payload.received, host or payload.peer, file, micros(full.get("time")), micros(full.get("read")),
        severity if severity in _LEVELS else None, None, None, None, None,
        json.dumps([whole(str(tag)) for tag in tags]) if isinstance(tags, list) and tags else None, "agent" if where else "http",
    )  # fmt: skip
    return run, {
        "source": source, "cluster": _text(full, "cluster"), "timezone": _text(full, "timezone"),
        "job_id": job if source in ("job_stdout", "job_stderr") else None, "restarts": restarts if job is not None else None,
    }  # fmt: skip


def _blind(period: dict[str, Any], received: int) -> dict[str, Any]:
    return {
        "start": micros(period.get("from")), "end": micros(period.get("to")), "reason": whole(str(period.get("reason") or "not said")),
        "lines": _number(period, "lines"), "bytes": _number(period, "bytes"), "received": received,
    }  # fmt: skip


def _document(record: dict[str, Any], full: dict[str, Any], payload: Payload, into: Decoded) -> None:
    kind = str(record["document"])
    if kind not in documents.families():
        raise Poison(f"document {kind[:60]!r} is not known; known are {', '.join(sorted(documents.families()))}")
    data = b"\n".join(_lines_of(record))
    host, where = _text(full, "host"), _text(full, "path") or _text(full, "stream") or kind
    read = micros(full.get("read")) or micros(full.get("time")) or payload.received
    origin = Origin(
        path=f"{host or payload.peer or '?'}:{where}", cluster=_text(full, "cluster"), host=host, source=kind,
        timezone=_text(full, "timezone") or "UTC", timezone_known="timezone" in full, received=moment_of(read),
        reference=moment_of(read),
    )  # fmt: skip
    into.parsed.append(documents.read(kind, data, origin))


RECEIVER = Receiver(
    "ingest", "NDJSON or raw lines over HTTP, from the agent and from anything that can post", _decode,
    (Route(("POST",), r"/api/v1/ingest/?", _accept),),
)  # fmt: skip
