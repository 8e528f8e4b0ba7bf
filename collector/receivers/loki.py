"""Loki's push API (``/loki/api/v1/push``), JSON and snappy-packed protobuf: Promtail, Alloy, Fluent Bit, Vector.

As in Loki, a body that is sent twice is stored once: its lines carry nanoseconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import polars as pl
from google.protobuf.message import DecodeError

from collector.loki_messages import PushRequest
from collector.protobuf_messages import at_most, check_all, count
from collector.receivers.base import (
    MOST_MESSAGES,
    MOST_RECORDS,
    Answer,
    Batch,
    Decoded,
    Payload,
    Receiver,
    Request,
    Route,
    Run,
)
from collector.receivers.refusals import Poison, Refused, too_many
from collector.receivers.unpacking import unsnap, unsnapped_size
from collector.receivers.wrapped import Streams, Wrapped, document, loads, nanoseconds, source_named

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_HOST = ("host", "hostname", "node", "node_name", "nodename", "instance")
_PATH = ("filename", "path", "file")
_UNIT = ("unit", "app", "job", "service_name", "container")
_LEVEL = ("level", "detected_level", "severity")
_WORDS = {"warn": "warning", "err": "error", "critical": "crit", "fatal": "crit", "trace": "debug"}
_KNOWN = frozenset((*_HOST, *_PATH, *_LEVEL))
#: Exceptions of parsing a body that is not a push request.
_NO_REQUEST = (DecodeError, ValueError, KeyError, TypeError, AttributeError, IndexError)
#: Nanoseconds since 1970, the line, its own metadata.
Entry = tuple[int, bytes, dict[str, str]]
#: The fields of a push request in which its entries lie.
_ENTRY_PATH = (1, 2)
_NOTHING: dict[str, str] = {}


def _accept(request: Request) -> Batch:
    body = request.plain()
    # A body that begins with a brace is JSON, whatever its content type: snappy cannot begin so.
    as_json = "json" in request.headers.get("content-type", "").lower() or body[:1] == b"{"
    try:
        bound = _check(body, as_json)
    except KeyError as error:
        raise Refused(400, f"the body is no push request of Loki: it has no {error}") from error
    except _NO_REQUEST as error:
        raise Refused(400, f"the body is no push request of Loki: {error}") from error
    meta = {"form": "json" if as_json else "protobuf", **request.packing(body, bound)}
    key = f"loki {hashlib.blake2b(body, digest_size=16).hexdigest()}"
    return Batch(request.body, Answer(204, b""), meta, request.headers.get("idempotency-key") or key)


def _check(body: bytes, as_json: bool) -> int:
    """At most how many entries a body has. Raises what :func:`_decode` raises for one that is not a push request: parses
    the first stream of JSON, all labels of protobuf. Raises ``Refused`` for too many entries."""
    if as_json:
        found = document(body)
        for _, entries in islice(_streams(found), 1):
            deque(entries, maxlen=0)
        entries_of = (len(stream.get("values") or ()) for stream in found["streams"])
        if (bound := sum(entries_of)) > MOST_RECORDS:
            raise too_many("entries", MOST_RECORDS)
        return bound
    plain = unsnap(body)
    bound = at_most(plain, _ENTRY_PATH[-1])
    if bound > MOST_RECORDS and count(plain, _ENTRY_PATH, MOST_RECORDS) > MOST_RECORDS:
        raise too_many("entries", MOST_RECORDS)
    if not check_all(plain, PushRequest, MOST_MESSAGES):
        raise too_many("messages", MOST_MESSAGES)
    for stream in PushRequest.FromString(plain).streams:
        _labels(stream.labels)
    return bound


def _size(body: bytes) -> int:
    """Bytes of the request: protobuf is packed by Snappy."""
    try:
        return max(len(body), unsnapped_size(body))
    except ValueError:
        return len(body)


def _problem(status: int, text: str, _content_type: str = "") -> Answer:
    return Answer(status, text.encode(), "text/plain; charset=utf-8")


def _decode(payload: Payload, into: Decoded) -> None:
    to = _To(payload, into, Streams(), Wrapped(payload, into, "loki"))
    body = payload.unpacked()
    try:
        for labels, entries in _streams(loads(body)) if payload.meta.get("form") == "json" else _messages(body):
            _stream(labels, entries, to)
        to.wrapped.done()
    except Poison:
        raise
    except _NO_REQUEST as error:
        raise Poison(f"no push request of Loki: {error}") from error


class _To(NamedTuple):
    """Where the result of one payload goes."""

    payload: Payload
    into: Decoded
    streams: Streams
    wrapped: Wrapped


def _stream(labels: dict[str, str], entries: Iterable[Entry], to: _To) -> None:
    """Adds the entries of one stream, described once except for those with metadata of their own."""
    lines: list[bytes] = []
    times: list[int] = []
    for stamp, line, more in entries:
        if line.startswith(b"{") and b'"log":' in line and (inner := _object(line)):
            to.wrapped.add({"@timestamp": stamp, **labels, **more, **inner}, "loki")
        elif more:
            run, group = _described({**labels, **more}, line, to)
            to.into.add([line], run._replace(time=stamp // 1000), **group)
        else:
            lines.append(line)
            times.append(stamp // 1000)
    if lines:
        run, group = _described(labels, lines[0], to)
        stated = {
            name: pl.lit(value)
            for name, value in run._asdict().items()
            if name not in ("lines", "time") and value is not None
        }
        to.into.add_table(lines, pl.DataFrame({"time": times}).with_columns(**stated), **group)


def _described(labels: dict[str, str], line: bytes, to: _To) -> tuple[Run, dict[str, Any]]:
    """What labels reveal about lines, and the group in which they are parsed."""
    host = _first(labels, _HOST) or to.payload.peer
    path, unit, level = _first(labels, _PATH), _first(labels, _UNIT), (_first(labels, _LEVEL) or "").lower()
    source, job = source_named(unit) if unit else None, None
    if path:
        known = to.streams.of(path, [line])
        source, job = known.source or source, known.job_id
    fields = {name: value for name, value in labels.items() if name not in _KNOWN}
    level = _WORDS.get(level, level)
    run = Run(
        1, to.payload.received, host, f"{host or '?'}:{path}" if path else f"loki:{host or '?'}", None, None,
        level if level in ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug") else None, unit, None, None,
        json.dumps(fields, sort_keys=True, ensure_ascii=False) if fields else None, None, "loki",
    )  # fmt: skip
    return run, {"source": None if source == "syslog" else source, "job_id": job if source == "job_stdout" else None}


def _object(line: bytes) -> dict[str, Any] | None:
    """Fluent Bit's record around a line (``line_format json``, its default); an application's own JSON is a line."""
    try:
        found = loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("log"), str) else None


def _first(labels: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _streams(found: Any) -> Iterator[tuple[dict[str, str], Iterable[Entry]]]:
    """The streams of a JSON request."""
    for stream in found["streams"]:
        labels = stream.get("stream")
        if not isinstance(labels, dict):
            labels = dict(_LABEL.findall(str(stream.get("labels", ""))))
        yield {str(k): str(v) for k, v in labels.items()}, map(_entry, stream.get("values") or [])


def _entry(value: list[Any]) -> Entry:
    more = {str(k): str(v) for k, v in value[2].items()} if len(value) > 2 else _NOTHING
    return nanoseconds(value[0]), str(value[1]).encode("utf-8", "surrogatepass"), more


def _messages(body: bytes) -> Iterator[tuple[dict[str, str], Iterable[Entry]]]:
    """The streams of a protobuf request."""
    for stream in PushRequest.FromString(unsnap(body)).streams:
        entries = [(_moment(entry.timestamp), _text(entry.line), _metadata(entry.metadata)) for entry in stream.entries]
        yield _labels(stream.labels), entries


def _labels(text: bytes) -> dict[str, str]:
    return dict(_LABEL.findall(text.decode().strip("{}")))


def _moment(stamp: Any) -> int:
    return nanoseconds(stamp.seconds * 1_000_000_000 + stamp.nanos)


def _text(line: bytes) -> bytes:
    """A line as UTF-8."""
    return line if line.isascii() else line.decode("utf-8", "replace").encode()


def _metadata(pairs: Any) -> dict[str, str]:
    return {pair.name.decode(): pair.value.decode() for pair in pairs}


RECEIVER = Receiver(
    "loki", "Loki's push API", _decode, (Route(("POST",), r"/loki/api/v1/push", _accept, _problem, size=_size),)
)
