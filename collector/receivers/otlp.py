"""OTLP/HTTP: logs and metrics of OpenTelemetry collectors and SDKs, protobuf and JSON.

A body that was answered is not read again when its sender repeats it: OTLP has no key, so the body's digest is one. Two
bodies that are the same to the nanosecond stamp are one body sent twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

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
    moment_of,
)
from collector.receivers.wrapped import Streams, Wrapped, is_wrapped, loads, nanoseconds
from parsers.documents.prometheus import device_and_host
from parsers.record import Parsed, frame

#: The model's severity numbers, four to a word -> ours.
_SEVERITIES = ("debug", "debug", "info", "warning", "error", "crit")
_REQUESTS: dict[str, Any] = {"logs": ExportLogsServiceRequest, "metrics": ExportMetricsServiceRequest}
_GROUPS = {"logs": "resourceLogs", "metrics": "resourceMetrics"}
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


def _accept(signal: str, request: Request) -> Batch:
    body = request.plain()
    as_json = _is_json(request, body)
    try:
        if as_json:
            found = loads(body)
            if not isinstance(found, dict):
                raise ValueError("not an object")
            groups = found.get(_GROUPS[signal], None if found else [])
            if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
                raise ValueError(f"no list {_GROUPS[signal]!r} of objects")
            dated = b'imeUnixNano"' in body
        else:
            message = _REQUESTS[signal].FromString(body)
            dated = message.ByteSize() > 0
    except (DecodeError, ValueError) as error:
        raise Refused(400, f"the body is not OTLP {signal}: {error}") from error
    answer = Answer(200, b'{"partialSuccess":{}}') if as_json else Answer(200, b"", "application/x-protobuf")
    meta = {"signal": signal, "form": "json" if as_json else "protobuf", **request.packing(body)}
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    key = request.headers.get("idempotency-key") or (f"otlp {signal} {digest}" if dated else None)
    return Batch(request.body if dated or as_json else None, answer, meta, key)


def _is_json(request: Request, body: bytes) -> bool:
    """Raises ``Refused`` for what is called neither JSON nor protobuf, and is neither."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if "json" in kind or body[:1] == b"{":  # no message of protobuf begins with a brace
        return True
    if kind not in ("", "application/x-protobuf", "application/protobuf", "application/octet-stream"):
        raise Refused(415, f"Content-Type {kind[:60]!r}: OTLP is application/x-protobuf or application/json")
    return False


def _problem(status: int, text: str) -> Answer:
    """A google.rpc.Status: code 3 says "do not send this again"; 429 and 503 are retried by their HTTP status."""
    said = text.encode()[:127]
    return Answer(status, b"\x08\x03\x12" + bytes([len(said)]) + said, "application/x-protobuf")


# -- decoding ------------------------------------------------------------------------------------------------------


def _decode(payload: Payload, into: Decoded) -> None:
    body = payload.unpacked()
    try:
        if payload.meta.get("form") == "json":
            document = loads(body)
            logs, metrics = _json_logs(document), _json_metrics(document)
        elif payload.meta.get("signal") == "metrics":
            logs, metrics = iter(()), _proto_metrics(body)
        else:
            logs, metrics = _proto_logs(body), iter(())
        if payload.meta.get("signal") == "metrics":
            rows = [row for found in metrics for row in _metric_rows(found, payload)]
            if rows:
                into.parsed.append(Parsed({"metrics": frame("metrics", rows)}))
            return
        streams, others = Streams(), Wrapped(payload, into, "otlp")
        for resource, log in logs:
            known = {**resource, **log.attributes}
            if isinstance(log.body, dict) and is_wrapped(log.body):  # Fluent Bit without logs_body_key
                others.add({"@timestamp": log.time or log.observed or None, **known, **log.body}, "otlp")
            else:
                _one(known, log, payload, into, streams)
        others.done()
    except (DecodeError, ValueError, TypeError, AttributeError, KeyError) as error:
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
        str(service) if service else None, int(pid) if isinstance(pid, int | str) and str(pid).isdigit() else None, None,
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
        resource = _json_pairs((group.get("resource") or {}).get("attributes"))
        for scope in group.get("scopeLogs") or group.get("instrumentationLibraryLogs") or []:
            for r in scope.get("logRecords") or []:
                body = _json_value(r.get("body"))
                yield resource, _Log(
                    nanoseconds(r.get("timeUnixNano")), nanoseconds(r.get("observedTimeUnixNano")), _number(r.get("severityNumber")),
                    str(r.get("severityText") or ""), "" if body is None else body, _json_pairs(r.get("attributes")),
                )  # fmt: skip


def _number(value: Any) -> int:
    return value if isinstance(value, int) else int(value) if isinstance(value, str) and value.isdigit() else 0


# -- metrics -------------------------------------------------------------------------------------------------------


class _Point(NamedTuple):
    resource: dict[str, Any]
    name: str
    suffix: str
    attributes: dict[str, Any]
    time: int
    value: float


def _proto_metrics(body: bytes) -> Iterator[_Point]:
    for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        resource = _pairs(group.resource.attributes)
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points if kind else ():
                    attributes = _pairs(point.attributes)
                    if kind in ("gauge", "sum"):
                        held = point.WhichOneof("value")
                        if held:
                            yield _Point(
                                resource, metric.name, "", attributes, point.time_unix_nano, float(getattr(point, held))
                            )
                    else:
                        yield _Point(
                            resource, metric.name, "_count", attributes, point.time_unix_nano, float(point.count)
                        )
                        yield _Point(resource, metric.name, "_sum", attributes, point.time_unix_nano, float(point.sum))


def _json_metrics(document: dict[str, Any]) -> Iterator[_Point]:
    for group in document.get("resourceMetrics") or []:
        resource = _json_pairs((group.get("resource") or {}).get("attributes"))
        for scope in group.get("scopeMetrics") or []:
            for metric in scope.get("metrics") or []:
                for kind in ("gauge", "sum", "histogram", "exponentialHistogram", "summary"):
                    for point in (metric.get(kind) or {}).get("dataPoints") or []:
                        attributes, time = _json_pairs(point.get("attributes")), nanoseconds(point.get("timeUnixNano"))
                        names = (("", "asDouble"), ("", "asInt"), ("_count", "count"), ("_sum", "sum"))
                        for suffix, name in names:
                            if point.get(name) is not None:
                                yield _Point(
                                    resource, str(metric.get("name")), suffix, attributes, time, float(point[name])
                                )


def _metric_rows(point: _Point, payload: Payload) -> Iterator[dict[str, object]]:
    labels = {str(k): str(v) for k, v in point.attributes.items()}
    device, named = device_and_host(labels)
    host = named or _first(point.resource, _HOST) or payload.peer
    yield {
        "time": moment_of(point.time // 1000 if point.time else payload.received), "host": host,
        "metric": point.name + point.suffix, "value": point.value, "device": device, "file": f"otlp:{host}",
        "labels": json.dumps(labels, sort_keys=True, ensure_ascii=False) if labels else None,
    }  # fmt: skip


RECEIVER = Receiver(
    "otlp", "OTLP/HTTP logs and metrics, protobuf and JSON", _decode,
    tuple(
        Route(("POST",), rf"/v1/{signal}", lambda request, signal=signal: _accept(signal, request), _problem)  # type: ignore[misc]
        for signal in _REQUESTS
    ),
)  # fmt: skip
