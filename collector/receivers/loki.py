"""Loki's push API (``/loki/api/v1/push``), JSON and snappy-packed protobuf: Promtail, Alloy, Fluent Bit, Vector.

As Loki does, a body that is sent twice is taken once: its lines carry nanoseconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from collector.columnar import loki_entries
from collector.columnar.loki_entries import Entries
from collector.columnar.readiness import Readiness
from collector.receivers.base import (
    Answer,
    Batch,
    Decoded,
    Payload,
    Poison,
    Receiver,
    Refused,
    Request,
    Route,
    Run,
    unsnap,
)
from collector.receivers.wrapped import Streams, Wrapped, loads, nanoseconds, source_named

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_HOST = ("host", "hostname", "node", "node_name", "nodename", "instance")
_PATH = ("filename", "path", "file")
_UNIT = ("unit", "app", "job", "service_name", "container")
_LEVEL = ("level", "detected_level", "severity")
_WORDS = {"warn": "warning", "err": "error", "critical": "crit", "fatal": "crit", "trace": "debug"}
_KNOWN = frozenset((*_HOST, *_PATH, *_LEVEL))


#: Whether the entries of protobuf can be looked at in the event loop without a loop over them.
QUICK = Readiness(loki_entries.prepare)
#: Nanoseconds since 1970, the line, its own metadata.
Entry = tuple[int, str, dict[str, str]]


def _accept(request: Request) -> Batch:
    body = request.plain()
    # A push request that begins with a brace is JSON, whatever it is called: snappy cannot begin so.
    as_json = "json" in request.headers.get("content-type", "").lower() or body[:1] == b"{"
    try:
        _check(body, as_json)
    except KeyError as error:
        raise Refused(400, f"the body is no push request of Loki: it has no {error}") from error
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise Refused(400, f"the body is no push request of Loki: {error}") from error
    meta = {"form": "json" if as_json else "protobuf", **request.packing(body)}
    key = f"loki {hashlib.blake2b(body, digest_size=16).hexdigest()}"
    return Batch(request.body, Answer(204, b""), meta, request.headers.get("idempotency-key") or key)


def _check(body: bytes, as_json: bool) -> None:
    """Reads the first stream; raises what :func:`_decode` takes for no push request."""
    if as_json:
        next(iter(_streams(body)), None)
        return
    for number, stream in _fields(unsnap(body)):
        if number == 1:
            known = loki_entries.labels_of(stream) if len(stream) > loki_entries.LEAST and QUICK else None
            _one_stream(stream) if known is None else _labels(known)
            return


def _problem(status: int, text: str, _content_type: str = "") -> Answer:
    return Answer(status, text.encode(), "text/plain; charset=utf-8")


def _decode(payload: Payload, into: Decoded) -> None:
    to = _To(payload, into, Streams(), Wrapped(payload, into, "loki"))
    body, as_json = payload.unpacked(), payload.meta.get("form") == "json"
    try:
        if as_json and (made := loki_entries.of_json(body)) is not None:
            for entries in made:
                _add({str(k): str(v) for k, v in loads(entries.labels).items()}, entries, to)
        elif as_json:
            for labels, some in _streams(body):
                _stream(labels, some, to)
        else:
            for number, stream in _fields(unsnap(body)):
                if number == 1 and (found := loki_entries.of_protobuf(stream)) is not None:
                    _add(_labels(found.labels), found, to)
                elif number == 1:
                    _stream(*_one_stream(stream), to)
        to.wrapped.done()
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Poison(f"no push request of Loki: {error}") from error


class _To(NamedTuple):
    """Where what is read of one payload goes."""

    payload: Payload
    into: Decoded
    streams: Streams
    wrapped: Wrapped


def _add(labels: dict[str, str], entries: Entries, to: _To) -> None:
    """As :func:`_stream`, for entries of which none is out of the ordinary."""
    if entries.lines:
        run, group = _described(labels, entries.lines[0], to)
        said = {
            name: pl.lit(value)
            for name, value in run._asdict().items()
            if name not in ("lines", "time") and value is not None
        }
        to.into.add_table(entries.lines, pl.DataFrame({"time": entries.times}).with_columns(**said), **group)


def _stream(labels: dict[str, str], entries: list[Entry], to: _To) -> None:
    """The entries of one stream, described once unless some have metadata of their own."""
    described: tuple[Run, dict[str, Any]] | None = None
    lines: list[bytes] = []
    runs: list[Run] = []
    for stamp, line, more in entries:
        if line.startswith("{") and '"log":' in line and (inner := _object(line)):
            to.wrapped.add({"@timestamp": stamp, **labels, **more, **inner}, "loki")
            continue
        data = line.encode("utf-8", "surrogatepass")
        if more:
            run, group = _described({**labels, **more}, data, to)
            to.into.add([data], run._replace(time=stamp // 1000), **group)
            continue
        described = described or _described(labels, data, to)
        lines.append(data)
        runs.append(described[0]._replace(time=stamp // 1000))
    if described:
        to.into.add(lines, *runs, **described[1])


def _described(labels: dict[str, str], line: bytes, to: _To) -> tuple[Run, dict[str, Any]]:
    """What labels say about lines, and with which others they are parsed."""
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


def _object(line: str) -> dict[str, Any] | None:
    """Fluent Bit's record around a line (``line_format json``, its default); an application's own JSON is a line."""
    try:
        found = loads(line.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("log"), str) else None


def _first(labels: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _streams(body: bytes) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    document = loads(body)
    for stream in document["streams"]:
        labels = stream.get("stream")
        if not isinstance(labels, dict):
            labels = dict(_LABEL.findall(str(stream.get("labels", ""))))
        entries = [
            (
                nanoseconds(value[0]),
                str(value[1]),
                {str(k): str(v) for k, v in value[2].items()} if len(value) > 2 else {},
            )
            for value in stream.get("values") or []
        ]
        yield {str(k): str(v) for k, v in labels.items()}, entries


def _one_stream(stream: bytes) -> tuple[dict[str, str], list[Entry]]:
    """A stream of logproto.PushRequest, whose field 1 it is: labels = 1, entries = 2; an entry: timestamp = 1, line = 2, metadata = 3."""
    labels: dict[str, str] = {}
    entries: list[Entry] = []
    for inner, value in _fields(stream):
        if inner == 1:
            labels = _labels(value)
        elif inner == 2:
            parts = dict(_fields(value))
            moment = dict(_fields(parts.get(1, b"")))
            stamp = nanoseconds(int(moment.get(1, 0)) * 1_000_000_000 + int(moment.get(2, 0)))
            more = [dict(_fields(v)) for n, v in _fields(value) if n == 3]
            entries.append(
                (stamp, parts.get(2, b"").decode("utf-8", "replace"), {p[1].decode(): p[2].decode() for p in more})
            )
    return labels, entries


def _labels(text: bytes) -> dict[str, str]:
    return dict(_LABEL.findall(text.decode().strip("{}")))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Protobuf's wire: (field number, bytes or integer)."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("the message is cut")
            yield tag >> 3, data[at : at + size]
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


RECEIVER = Receiver("loki", "Loki's push API", _decode, (Route(("POST",), r"/loki/api/v1/push", _accept, _problem),))
