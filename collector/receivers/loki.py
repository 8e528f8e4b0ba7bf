"""Loki's push API (``/loki/api/v1/push``), JSON and snappy-packed protobuf: Promtail, Alloy, Fluent Bit, Vector.

As Loki does, a body that is sent twice is taken once: its lines carry nanoseconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from collector.receivers.base import Answer, Batch, Decoded, Payload, Poison, Receiver, Refused, Request, Route, Run
from collector.receivers.elasticsearch import source_named, wrapped
from parsers.recognise import recognise

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_HOST = ("host", "hostname", "node", "node_name", "nodename", "instance")
_PATH = ("filename", "path", "file")
_UNIT = ("unit", "app", "job", "service_name", "container")
_LEVEL = ("level", "detected_level", "severity")
_WORDS = {"warn": "warning", "err": "error", "critical": "crit", "fatal": "crit", "trace": "debug"}
_KNOWN = frozenset((*_HOST, *_PATH, *_LEVEL))


def _accept(request: Request) -> Batch:
    body = request.plain()
    as_json = "json" in request.headers.get("content-type", "").lower()
    try:
        for _labels, _entries in _streams(body, as_json):
            break
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Refused(400, f"the body is no push request of Loki: {error}") from error
    meta = {"form": "json" if as_json else "protobuf", **request.packing(body)}
    key = f"loki {hashlib.blake2b(body, digest_size=16).hexdigest()}"
    return Batch(request.body, Answer(204, b""), meta, request.headers.get("idempotency-key") or key)


def _problem(status: int, text: str) -> Answer:
    return Answer(status, text.encode(), "text/plain; charset=utf-8")


def _decode(payload: Payload, into: Decoded) -> None:
    try:
        for labels, entries in _streams(payload.unpacked(), payload.meta.get("form") == "json"):
            for stamp, line, more in entries:
                _one({**labels, **more}, stamp, line, payload, into)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Poison(f"no push request of Loki: {error}") from error


def _one(labels: dict[str, str], stamp: int, line: str, payload: Payload, into: Decoded) -> None:
    if line.startswith("{") and '"log":' in line and (inner := _object(line)):
        wrapped({"@timestamp": stamp, **labels, **inner}, "loki", "loki", payload, into)
        return
    host = _first(labels, _HOST) or payload.peer
    path, unit, level = _first(labels, _PATH), _first(labels, _UNIT), (_first(labels, _LEVEL) or "").lower()
    source, job = source_named(unit) if unit else None, None
    if path:
        known = recognise(path, line.encode("utf-8", "replace"))
        source, job = known.source or source, known.job_id
    fields = {name: value for name, value in labels.items() if name not in _KNOWN}
    level = _WORDS.get(level, level)
    run = Run(
        1, payload.received, host, f"{host or '?'}:{path}" if path else f"loki:{host or '?'}", stamp // 1000, None,
        level if level in ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug") else None, unit, None, None,
        json.dumps(fields, sort_keys=True, ensure_ascii=False) if fields else None, None, "loki",
    )  # fmt: skip
    into.add([line.encode("utf-8", "surrogatepass")], run, source=None if source == "syslog" else source,
             job_id=job if source == "job_stdout" else None)  # fmt: skip


def _object(line: str) -> dict[str, Any] | None:
    """Fluent Bit's record around a line (``line_format json``, its default); an application's own JSON is a line."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("log"), str) else None


def _first(labels: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


Entry = tuple[int, str, dict[str, str]]


def _streams(body: bytes, as_json: bool) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    if not as_json:
        yield from _protobuf(unsnap(body))
        return
    document = json.loads(body)
    for stream in document["streams"]:
        labels = stream.get("stream")
        if not isinstance(labels, dict):
            labels = dict(_LABEL.findall(str(stream.get("labels", ""))))
        entries = [
            (int(value[0]), str(value[1]), {str(k): str(v) for k, v in value[2].items()} if len(value) > 2 else {})
            for value in stream.get("values") or []
        ]
        yield {str(k): str(v) for k, v in labels.items()}, entries


def _protobuf(body: bytes) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    """logproto.PushRequest: streams = 1; a stream: labels = 1, entries = 2; an entry: timestamp = 1, line = 2, metadata = 3."""
    for number, stream in _fields(body):
        if number != 1:
            continue
        labels: dict[str, str] = {}
        entries: list[Entry] = []
        for inner, value in _fields(stream):
            if inner == 1:
                labels = dict(_LABEL.findall(value.decode().strip("{}")))
            elif inner == 2:
                parts = dict(_fields(value))
                moment = dict(_fields(parts.get(1, b"")))
                stamp = int(moment.get(1, 0)) * 1_000_000_000 + int(moment.get(2, 0))
                more = [dict(_fields(v)) for n, v in _fields(value) if n == 3]
                entries.append(
                    (stamp, parts.get(2, b"").decode("utf-8", "replace"), {p[1].decode(): p[2].decode() for p in more})
                )
        yield labels, entries


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


#: A push request unpacks to no more than this.
_UNPACKED = 64 * 1024 * 1024


def unsnap(data: bytes) -> bytes:
    """Snappy's block format (github.com/google/snappy, format_description.txt). Raises ``ValueError``."""
    size, at = _varint(data, 0)
    if size > _UNPACKED:
        raise ValueError("too large unpacked")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:  # a literal
            length = tag >> 2
            if length >= 60:
                count = length - 59
                length = int.from_bytes(data[at : at + count], "little")
                at += count
            out += data[at : at + length + 1]
            at += length + 1
            continue
        if tag & 3 == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at]
            at += 1
        else:
            wide = 2 if tag & 3 == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + wide], "little")
            at += wide
        if not 0 < offset <= len(out) or len(out) + length > size:
            raise ValueError("a copy points outside")
        start = len(out) - offset
        if offset >= length:
            out += out[start : start + length]
        else:
            out += (out[start:] * (length // offset + 1))[:length]
    if len(out) != size:
        raise ValueError("not as long as it says")
    return bytes(out)


RECEIVER = Receiver("loki", "Loki's push API", _decode, (Route(("POST",), r"/loki/api/v1/push", _accept, _problem),))
