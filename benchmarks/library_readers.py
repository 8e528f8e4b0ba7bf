"""OTLP logs by libraries alone, as tightly as we can write it: what the compiled readers are compared with.

Each record is visited once in a Python loop over the messages of opentelemetry-proto, or over what orjson read; its
metadata is worked out once for each combination of resource and attributes that name a host, file or service. What
comes out is what ``collector.columnar`` gives. Records of unusual forms are left to the reader of single records, as
there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from collector.receivers import otlp
from collector.receivers.base import Decoded, Payload
from collector.receivers.wrapped import Streams, Wrapped

#: A record: nanoseconds, severity number and text, body, and its attributes.
Record = tuple[int, int, str, Any, dict[str, Any]]
_LEVELS = {number: otlp.SEVERITIES[(number - 1) // 4] for number in range(1, 25)}


def decode(payload: Payload, into: Decoded) -> None:
    """In place of ``otlp._decode``, for logs."""
    body = payload.unpacked()
    groups = _of_json(orjson.loads(body)) if payload.meta.get("form") == "json" else _of_protobuf(body)
    to = otlp._To(payload, into, Streams(), Wrapped(payload, into, "otlp"))
    known: dict[tuple[Any, ...], int] = {}
    abouts: list[otlp._About] = []
    which, lines, times, levels, fields = [], [], [], [], []
    for place, (resource, records) in enumerate(groups):
        shared = {name: value for name, value in resource.items() if name not in otlp._COLUMNS}
        for stamp, number, word, text, attributes in records:
            line = (text if isinstance(text, str) else json.dumps(text)).encode("utf-8", "surrogatepass")
            key = (place, *map(attributes.get, otlp._SLOTS))
            if (about := known.get(key)) is None:
                about = known[key] = len(abouts)
                abouts.append(otlp._about(resource | attributes, line, to))
            own = {**shared, **attributes}
            for name in otlp._COLUMNS & own.keys():
                del own[name]
            which.append(about)
            lines.append(line)
            times.append(stamp // 1000 if stamp else None)
            levels.append(_LEVELS.get(number) or otlp.SEVERITY_WORDS.get(word.lower()) if number or word else None)
            fields.append(json.dumps(own, ensure_ascii=False, sort_keys=True) if own else None)
    schema = {"host": pl.String, "file": pl.String, "unit": pl.String, "pid": pl.Int64, "source": pl.String, "job": pl.Int64}  # fmt: skip
    table = pl.DataFrame(abouts, schema=schema, orient="row")[which].with_columns(
        pl.Series("time", times, pl.Int64), pl.Series("severity", levels, pl.String), pl.Series("fields", fields, pl.String),
        pl.Series("line", lines, pl.Binary), received=pl.lit(payload.received, pl.Int64), transport=pl.lit("otlp"),
    )  # fmt: skip
    for (source, job), part in table.partition_by(
        "source", "job", maintain_order=True, as_dict=True, include_key=False
    ).items():
        into.add_table(part["line"].to_list(), part.drop("line"), source=source, job_id=job)


def is_request(body: bytes) -> bool:
    """In place of ``otlp_json.is_request``: by a library's reader."""
    groups = orjson.loads(body).get("resourceLogs")
    return isinstance(groups, list) and all(isinstance(group, dict) for group in groups)


def _of_protobuf(body: bytes) -> Iterator[tuple[dict[str, Any], Iterator[Record]]]:
    for group in ExportLogsServiceRequest.FromString(body).resource_logs:
        yield (
            otlp._pairs(group.resource.attributes),
            (
                (
                    record.time_unix_nano or record.observed_time_unix_nano, record.severity_number, record.severity_text,
                    record.body.string_value if record.body.WhichOneof("value") == "string_value" else otlp._value(record.body),
                    {
                        pair.key: held.string_value if (kind := (held := pair.value).WhichOneof("value")) == "string_value"
                        else held.int_value if kind == "int_value" else otlp._value(held)
                        for pair in record.attributes
                    },
                )
                for scope in group.scope_logs for record in scope.log_records
            ),
        )  # fmt: skip


def _of_json(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Iterator[Record]]]:
    for group in document["resourceLogs"]:
        yield (
            otlp._json_pairs((group.get("resource") or {}).get("attributes")),
            (
                (
                    int(record.get("timeUnixNano") or record.get("observedTimeUnixNano") or 0), record.get("severityNumber") or 0,
                    record.get("severityText") or "", _plain(record.get("body") or {"stringValue": ""}),
                    {pair["key"]: _plain(pair.get("value")) for pair in record.get("attributes") or ()},
                )
                for scope in group.get("scopeLogs") or () for record in scope.get("logRecords") or ()
            ),
        )  # fmt: skip


def _plain(value: dict[str, Any]) -> Any:
    text = value.get("stringValue")
    return otlp._json_value(value) if text is None else text
