"""OTLP logs parsed record by record with the library: the reference for the columns of the receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from collector.receivers.base import Decoded, Payload, Run
from collector.receivers.refusals import Poison
from collector.receivers.wrapped import Streams, Wrapped, is_wrapped, loads, nanoseconds

#: The model's severity numbers, four to a word -> ours.
_SEVERITIES = ("debug", "debug", "info", "warning", "error", "crit")
_FILE = ("log.file.path", "log.file.name")
_HOST = ("host.name", "k8s.node.name", "net.host.name", "host.id")
#: Attributes that have become columns.
_COLUMNS = frozenset((*_FILE, *_HOST, "service.name", "process.pid", "log.file.name_resolved"))


class _Log(NamedTuple):
    """One log record of either form; times in nanoseconds."""

    time: int
    observed: int
    number: int
    text: str
    body: Any
    attributes: dict[str, Any]


def decode(payload: Payload, into: Decoded) -> None:
    body = payload.unpacked()
    try:
        if payload.meta.get("form") == "json":
            document = loads(body)
            logs = _json_logs(document)
        else:
            logs = _proto_logs(body)
        streams, others = Streams(), Wrapped(payload, into, "otlp")
        for resource, log in logs:
            known = {**resource, **log.attributes}
            if isinstance(log.body, dict) and is_wrapped(log.body):  # Fluent Bit without logs_body_key
                others.add({"@timestamp": log.time or log.observed or None, **known, **log.body}, "otlp")
            else:
                _one(known, log, payload, into, streams)
        others.done()
    except (DecodeError, ValueError, OverflowError, TypeError, AttributeError, KeyError) as error:
        raise Poison(f"not OTLP: {error}") from error


def _one(known: dict[str, Any], log: _Log, payload: Payload, into: Decoded, streams: Streams) -> None:
    """``known``: the record's attributes on top of its resource's."""
    host = _first(known, _HOST)
    path = _first(known, _FILE)
    text = log.body if isinstance(log.body, str) else json.dumps(log.body, ensure_ascii=False)
    fields = {k: v for k, v in known.items() if k not in _COLUMNS}
    service = known.get("service.name")
    pid = known.get("process.pid")
    stamp = log.time or log.observed
    source, job = None, None
    if path:
        found = streams.of(path, [text.encode("utf-8", "surrogatepass")])
        source, job = found.source, found.job_id
    file = f"{host or payload.peer or '?'}:{path}" if path else f"otlp:{host or payload.peer or '?'}"
    run = Run(
        1, payload.received, host or payload.peer, file, stamp // 1000 if stamp else None, None, _severity(log),
        str(service) if service else None, int(pid) if isinstance(pid, int | str) and str(pid).isdigit() and len(str(pid)) < 19 else None, None,
        json.dumps(fields, ensure_ascii=False, sort_keys=True) if fields else None, None, "otlp",
    )  # fmt: skip
    into.add(
        [text.encode("utf-8", "surrogatepass")], run, source=source, job_id=job if source == "job_stdout" else None
    )


def _first(known: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((str(known[name]) for name in names if known.get(name)), None)


def _severity(log: _Log) -> str | None:
    if 1 <= log.number <= 24:
        return _SEVERITIES[(log.number - 1) // 4]
    return {"warn": "warning", "err": "error", "fatal": "crit", "critical": "crit"}.get(log.text.lower())


def _value(value: Any) -> Any:
    """A protobuf AnyValue as plain Python."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held = getattr(value, kind)
    if kind == "array_value":
        return [_value(item) for item in held.values]
    if kind == "kvlist_value":
        return _pairs(held.values)
    if kind == "bytes_value":
        return held.decode("utf-8", "replace")
    return held


def _pairs(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _proto_logs(body: bytes) -> Iterator[tuple[dict[str, Any], _Log]]:
    for group in ExportLogsServiceRequest.FromString(body).resource_logs:
        resource = _pairs(group.resource.attributes)
        for scope in group.scope_logs:
            for r in scope.log_records:
                yield resource, _Log(
                    r.time_unix_nano, r.observed_time_unix_nano, r.severity_number, r.severity_text,
                    _value(r.body) if r.HasField("body") else "", _pairs(r.attributes),
                )  # fmt: skip


def _json_value(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return None
    ((kind, held),) = list(value.items())[:1]
    if kind == "arrayValue":
        return [_json_value(item) for item in held.get("values") or []]
    if kind == "kvlistValue":
        return _json_pairs(held.get("values"))
    return int(held) if kind == "intValue" else held


def _json_pairs(attributes: Any) -> dict[str, Any]:
    return {str(pair["key"]): _json_value(pair.get("value")) for pair in attributes or []}


def _json_logs(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], _Log]]:
    for group in document.get("resourceLogs") or []:
        resource = None  # parsed with its first record: one without records sets no request aside
        for scope in group.get("scopeLogs") or group.get("instrumentationLibraryLogs") or []:
            for r in scope.get("logRecords") or []:
                if resource is None:
                    resource = _json_pairs((group.get("resource") or {}).get("attributes"))
                body = _json_value(r.get("body"))
                yield resource, _Log(
                    nanoseconds(r.get("timeUnixNano")), nanoseconds(r.get("observedTimeUnixNano")), _number(r.get("severityNumber")),
                    str(r.get("severityText") or ""), "" if body is None else body, _json_pairs(r.get("attributes")),
                )  # fmt: skip


def _number(value: Any) -> int:
    return value if isinstance(value, int) else int(value) if isinstance(value, str) and value.isdigit() else 0
