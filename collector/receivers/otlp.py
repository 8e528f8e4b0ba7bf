"""OTLP/HTTP: logs and metrics of OpenTelemetry collectors and SDKs, protobuf and JSON.

A body that its sender repeats after it was answered is not stored again: OTLP has no key, so the body's digest serves
as one. Two bodies that are equal to the nanosecond timestamp are one body sent twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from collector.columnar import otlp_json, otlp_protobuf, otlp_rows
from collector.columnar.otlp_fields import fields
from collector.columnar.otlp_rows import SEVERITIES, SEVERITY_WORDS, Sorts
from collector.columnar.otlp_tables import BEGIN, END, KIND, RESOURCE, TEXT, Array, Tables
from collector.columnar.readiness import Readiness
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
    answer_json,
    moment_of,
)
from collector.receivers.refusals import Poison, Refused, too_many
from collector.receivers.wrapped import Streams, Wrapped, document, few_values, is_wrapped, loads, nanoseconds
from parsers.documents.prometheus import device_and_host
from parsers.record import Parsed, frame

_REQUESTS: dict[str, Any] = {"logs": ExportLogsServiceRequest, "metrics": ExportMetricsServiceRequest}
_GROUPS = {"logs": "resourceLogs", "metrics": "resourceMetrics"}
#: The fields of a request in which its records lie.
_RECORD_PATH = (1, 2, 2)
_FILE = ("log.file.path", "log.file.name")
_HOST = ("host.name", "k8s.node.name", "net.host.name", "host.id")
_SERVICE, _PID = "service.name", "process.pid"
_SLOTS = (*_FILE, *_HOST, _SERVICE, _PID)
#: Checking that JSON is a logs request costs a third of parsing it.
QUICK = Readiness(otlp_json.prepare_check)
#: Attributes that become columns.
_COLUMNS = frozenset((*_SLOTS, "log.file.name_resolved"))


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
    bound = few_values(body) if as_json else at_most(body, _RECORD_PATH[-1])
    try:
        if as_json:
            if signal != "logs" or not (QUICK and otlp_json.is_request(body)):
                _check_json(signal, body)
            elif bound > MOST_RECORDS:
                _check_tables(body)
            dated = b'imeUnixNano"' in body
        else:
            if signal == "logs" and bound > MOST_RECORDS:
                _check_count(count(body, _RECORD_PATH, MOST_RECORDS))
            if not check_all(body, _REQUESTS[signal], MOST_MESSAGES):
                raise too_many("messages", MOST_MESSAGES)
            message = _REQUESTS[signal].FromString(body)
            dated = message.ByteSize() > 0
    except (DecodeError, ValueError) as error:
        raise Refused(400, f"the body is not OTLP {signal}: {error}") from error
    answer = Answer(200, b'{"partialSuccess":{}}') if as_json else Answer(200, b"", "application/x-protobuf")
    meta = {
        "signal": signal,
        "form": "json" if as_json else "protobuf",
        **request.packing(body, bound if signal == "logs" else 0),
    }
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    key = request.headers.get("idempotency-key") or (f"otlp {signal} {digest}" if dated else None)
    return Batch(request.body if dated or as_json else None, answer, meta, key)


def _check_json(signal: str, body: bytes) -> None:
    """Raises ``ValueError`` for a body that is not a request."""
    found = document(body)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    groups = found.get(_GROUPS[signal], None if found else [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError(f"no list {_GROUPS[signal]!r} of objects")
    if signal == "logs":
        scopes = [scope for group in groups for scope in _list(group.get("scopeLogs")) if isinstance(scope, dict)]
        _check_count(sum(len(_list(scope.get("logRecords"))) for scope in scopes))


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _check_tables(body: bytes) -> None:
    """Raises ``Refused`` for JSON of too many records; it is a request of the regular form."""
    found = otlp_json.tables(body)
    _check_count(len(found.records) if found is not None else 0)


def _check_count(records: int) -> None:
    if records > MOST_RECORDS:
        raise too_many("records", MOST_RECORDS)


def _is_json(request: Request, body: bytes) -> bool:
    """Whether the body is JSON. Raises ``Refused`` if it is neither declared as JSON or protobuf nor looks like
    JSON."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if "json" in kind or body[:1] == b"{":  # no protobuf message begins with a brace
        return True
    if kind not in ("", "application/x-protobuf", "application/protobuf", "application/octet-stream"):
        raise Refused(415, f"Content-Type {kind[:60]!r}: OTLP is application/x-protobuf or application/json")
    return False


def _problem(status: int, text: str, content_type: str = "") -> Answer:
    """A google.rpc.Status in the format of the request: code 3 means "do not retry"; clients retry 429 and 503 by their
    HTTP status."""
    if "json" in content_type.lower():
        return answer_json({"code": 3, "message": text}, status)
    text_bytes = text.encode()[:127].decode("utf-8", "ignore").encode()
    return Answer(status, b"\x08\x03\x12" + bytes([len(text_bytes)]) + text_bytes, "application/x-protobuf")


# -- decoding ------------------------------------------------------------------------------------------------------


def _decode(payload: Payload, into: Decoded) -> None:
    body = payload.unpacked()
    as_json = payload.meta.get("form") == "json"
    try:
        if payload.meta.get("signal") == "metrics":
            metrics = _json_metrics(loads(body)) if as_json else _proto_metrics(body)
            rows = [row for found in metrics for row in _metric_rows(found, payload)]
            if rows:
                into.parsed.append(Parsed({"metrics": frame("metrics", rows)}))
            return
        if not as_json:
            ExportLogsServiceRequest.FromString(body)  # raises for anything else
        tables = otlp_json.tables(body) if as_json else otlp_protobuf.tables(body)
        to = _To(payload, into, Streams(), Wrapped(payload, into, "otlp"))
        if tables is None:
            for resource, log in _json_logs(loads(body)) if as_json else _proto_logs(body):
                if (one := _one(resource, log, to)) is not None:
                    into.add([one.line], one.run, source=one.source, job_id=one.job)
        elif len(tables.records):
            _walked(tables, as_json, to)
        to.wrapped.done()
    except Poison:
        raise
    except (DecodeError, ValueError, OverflowError, TypeError, AttributeError, KeyError) as error:
        raise Poison(f"not OTLP: {error}") from error


class _To(NamedTuple):
    """Where the result of one payload goes."""

    payload: Payload
    into: Decoded
    streams: Streams
    wrapped: Wrapped


class _Read(NamedTuple):
    """A record as it is stored: its line, its metadata, and the group in which it is parsed."""

    line: bytes
    run: Run
    source: str | None
    job: int | None


class _About(NamedTuple):
    """What resource and attributes reveal about a line's origin, and the group in which it is parsed."""

    host: str | None
    file: str
    unit: str | None
    pid: int | None
    source: str | None
    job: int | None


def _one(resource: dict[str, Any], log: _Log, to: _To) -> _Read | None:
    """One record, read by the general reader; None if it is a shipper's wrapper around a line, which is passed on."""
    known = {**resource, **log.attributes}
    if isinstance(log.body, dict) and is_wrapped(log.body):  # Fluent Bit without logs_body_key
        to.wrapped.add({"@timestamp": log.time or log.observed or None, **known, **log.body}, "otlp")
        return None
    text = log.body if isinstance(log.body, str) else json.dumps(log.body, ensure_ascii=False)
    line = text.encode("utf-8", "surrogatepass")
    fields = {k: v for k, v in known.items() if k not in _COLUMNS}
    stamp = log.time or log.observed
    about = _about(known, line, to)
    run = Run(
        1, to.payload.received, about.host, about.file, stamp // 1000 if stamp else None, None, _severity(log), about.unit, about.pid,
        None, json.dumps(fields, ensure_ascii=False, sort_keys=True) if fields else None, None, "otlp",
    )  # fmt: skip
    return _Read(line, run, about.source, about.job)


def _about(known: dict[str, Any], line: bytes, to: _To) -> _About:
    """``known``: the record's attributes merged over those of its resource."""
    host, path = _first(known, _HOST) or to.payload.peer, _first(known, _FILE)
    service, pid = known.get(_SERVICE), known.get(_PID)
    source, job = None, None
    if path:
        found = to.streams.of(path, [line])
        source, job = found.source, found.job_id
    return _About(
        host, f"{host or '?'}:{path}" if path else f"otlp:{host or '?'}", str(service) if service else None,
        int(pid) if isinstance(pid, int | str) and str(pid).isdecimal() and len(str(pid)) < 19 else None,
        source, job if source == "job_stdout" else None,
    )  # fmt: skip


def _walked(tables: Tables, as_json: bool, to: _To) -> None:
    """All records of a request: regular ones at once, unusual ones one by one."""
    resources = _resources(tables, as_json)
    keys = otlp_rows.keys_of(tables)
    slots = otlp_rows.slots_of(tables, keys, _SLOTS)
    strange = otlp_rows.strange(tables, slots, np.array([name == _PID for name in _SLOTS]))
    rows, others = np.flatnonzero(~strange), np.flatnonzero(strange)
    sorts = otlp_rows.sorts(tables, rows, slots)
    lines = otlp_rows.lines_of(tables, rows)
    # In order of arrival: the first line of a file decides what the file is.
    abouts: list[_About] = []
    read: dict[int, _Read] = {}
    firsts = [(row, sort) for sort, row in enumerate(rows[sorts.firsts].tolist())]
    for row, sort in sorted(firsts + [(row, -1) for row in others.tolist()]):
        resource = resources[tables.records[row, RESOURCE]]
        if sort < 0:
            found = _one(resource, _log_at(tables, row, as_json), to)
            if found is not None:
                read[row] = found
        else:
            known = resource | _held(tables, slots[row])
            abouts.append(_about(known, lines[int(sorts.firsts[sort])], to))
    names = [None if name in _COLUMNS else name for name in keys.names]
    general = [{name: value for name, value in resource.items() if name not in _COLUMNS} for resource in resources]
    table = pl.DataFrame([
        *_columns(sorts, abouts),
        otlp_rows.times_of(tables, rows).alias("time"),
        otlp_rows.severities_of(tables, rows).alias("severity"),
        fields(tables, rows, names, keys.which, general).alias("fields"),
        lines.alias("line"),
    ])  # fmt: skip
    groups = {(about.source, about.job) for about in abouts} | {(one.source, one.job) for one in read.values()}
    _give_on(rows, table, read, groups, to)


_ABOUT_TYPES: dict[str, Any] = {
    "host": pl.String, "file": pl.String, "unit": pl.String, "pid": pl.Int64, "source": pl.String, "job": pl.Int64,
}  # fmt: skip


def _columns(sorts: Sorts, abouts: list[_About]) -> list[pl.Series]:
    """What each record's group has in common, by record.

    One by one, and not as a frame: what Polars does with a frame it does in its threads, which are woken for each of
    the thousand records of a request. That took a tenth of a parser's time.
    """
    columns = [pl.Series(n, [about[at] for about in abouts], kind) for at, (n, kind) in enumerate(_ABOUT_TYPES.items())]
    if len(abouts) == 1:
        return [column.new_from_index(0, len(sorts.which)) for column in columns]
    return [column[sorts.which] for column in columns]


def _give_on(
    rows: Array, table: pl.DataFrame, read: dict[int, _Read], groups: set[tuple[str | None, int | None]], to: _To
) -> None:
    """Passes on rows grouped by what they are parsed with (all ``groups`` that occur), each in the order of the records."""
    if read:
        own = pl.DataFrame(
            [(one.run.host, one.run.file, one.run.unit, one.run.pid, one.source, one.job, one.run.time, one.run.severity,
              one.run.fields, one.line) for one in read.values()], schema=table.schema, orient="row",
        )  # fmt: skip
        table = pl.concat([table, own])[np.argsort(np.concatenate((rows, list(read))), kind="stable")]
    parts: dict[Any, pl.DataFrame] = (
        dict.fromkeys(groups, table)
        if len(groups) == 1
        else table.partition_by("source", "job", maintain_order=True, as_dict=True)
    )
    stated = pl.Series("received", [to.payload.received], pl.Int64), pl.Series("transport", ["otlp"])
    for (source, job), part in parts.items():
        known = [column for column in part.get_columns() if column.name not in ("line", "source", "job")]
        described = pl.DataFrame([*known, *(column.new_from_index(0, len(part)) for column in stated)])
        to.into.add_table(part["line"].to_list(), described, source=source, job_id=job)


def _resources(tables: Tables, as_json: bool) -> list[dict[str, Any]]:
    """The attributes of each resource; most requests have few, and if each record has its own, they are similar."""
    known: dict[bytes, dict[str, Any]] = {}
    found = []
    for begin, end in tables.resources.tolist():
        text = tables.body[begin:end]
        if text not in known:
            known[text] = (
                _json_resource(loads(text or b"{}")) if as_json else _pairs(Resource.FromString(text).attributes)
            )
        found.append(known[text])
    return found


def _log_at(tables: Tables, row: int, as_json: bool) -> _Log:
    text = tables.body[tables.records[row, BEGIN] : tables.records[row, END]]
    return _json_log(loads(text)) if as_json else _proto_log(LogRecord.FromString(text))


def _held(tables: Tables, slots: Array) -> dict[str, Any]:
    """The values in a record's slots, by name."""
    held: dict[str, Any] = {}
    for name, slot in zip(_SLOTS, slots.tolist(), strict=True):
        if slot >= 0:
            kind, value, size = tables.attributes[slot, KIND:].tolist()
            held[name] = tables.text(value, size) if kind == TEXT else value
    return held


def _first(known: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((str(known[name]) for name in names if known.get(name)), None)


def _severity(log: _Log) -> str | None:
    if 1 <= log.number <= 24:
        return SEVERITIES[(log.number - 1) // 4]
    return SEVERITY_WORDS.get(log.text.lower())


def _value(value: Any) -> Any:
    """A protobuf AnyValue as a plain Python value."""
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
            for record in scope.log_records:
                yield resource, _proto_log(record)


def _proto_log(r: Any) -> _Log:
    return _Log(
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
        resource = None  # read with its first record: an unused resource causes no quarantine
        for scope in group.get("scopeLogs") or group.get("instrumentationLibraryLogs") or []:
            for record in scope.get("logRecords") or []:
                if resource is None:
                    resource = _json_resource(group.get("resource") or {})
                yield resource, _json_log(record)


def _json_resource(resource: dict[str, Any]) -> dict[str, Any]:
    return _json_pairs(resource.get("attributes"))


def _json_log(r: dict[str, Any]) -> _Log:
    body = _json_value(r.get("body"))
    return _Log(
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
