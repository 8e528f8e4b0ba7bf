"""Requests as Fluent Bit and Vector make them: the same line over each of their outputs gives the same row.

Neither is packaged by Debian or PyPI. The requests are written from their sources and manuals, named at each: Fluent
Bit 3-4: plugins/out_es/{es.c,es_bulk.h}, plugins/out_http/http.c and the manual's "Output formats",
plugins/out_loki/loki.c, plugins/out_opentelemetry/opentelemetry_logs.c, plugins/out_syslog/syslog.c. Vector 0.3x-0.4x:
src/sinks/elasticsearch/{encoder,tests,retry}.rs, src/sinks/http/, src/sinks/loki/, its file source's fields (file,
host, message, source_type, timestamp).
"""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from receiver_requests import ask, lines

from collector.intake import Intake
from collector.receivers import syslog
from collector.receivers.base import Decoded, Payload
from parsers.engine import LineParser
from parsers.lines import split
from tests.collector.receivers.test_receivers_syslog import Collected, receive

TEXT = "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down"
#: rsyslog's present and former default file format, as a tail reads it.
ISO = f"2026-11-21T10:00:00.123456+00:00 gpu02 kernel: {TEXT}"
BSD = f"Nov 21 10:00:00 gpu02 kernel: {TEXT}"
NANOS = 1_795_255_200_123_456_789
AT = datetime(2026, 11, 21, 10, 0, 0)


class Sent(NamedTuple):
    path: str
    body: bytes
    headers: dict[str, str]
    answers: int = 200


def ndjson(*documents: object) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def fluent_otlp(line: str, body_key: bool) -> bytes:
    """Without logs_body_key the whole record is the body, as a list of keys; with it only the text."""
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    record = group.scope_logs.add().log_records.add(time_unix_nano=NANOS)
    if body_key:
        record.body.string_value = line
        record.attributes.add(key="host").value.string_value = "gpu02"
    else:
        for key, value in (("log", line), ("path", "/var/log/syslog"), ("host", "gpu02")):
            record.body.kvlist_value.values.add(key=key).value.string_value = value
    return request.SerializeToString()


def snappy(data: bytes) -> bytes:
    """Snappy's block format with literals only."""
    size, head = len(data), b""
    while size >= 128:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    out = head + bytes([size])
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out += bytes([(len(piece) - 1) << 2]) + piece
    return out


def proto(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        out, rest = b"", value
        while rest >= 128:
            out, rest = out + bytes([rest & 127 | 128]), rest >> 7
        return bytes([number << 3]) + out + bytes([rest])
    return bytes([number << 3 | 2, len(value) & 127 | 128, len(value) >> 7]) + value


def vector_loki(line: str) -> bytes:
    moment = proto(1, NANOS // 10**9) + proto(2, NANOS % 10**9)
    entry = proto(1, moment) + proto(2, line.encode())
    return snappy(proto(1, proto(1, b'{filename="/var/log/syslog", host="gpu02"}') + proto(2, entry)))


def requests(line: str) -> dict[str, Sent]:
    tail = {"path": "/var/log/syslog", "log": line, "host": "gpu02"}  # in_tail with Path_Key, filter_modify
    vector = {
        "file": "/var/log/syslog",
        "host": "gpu02",
        "message": line,
        "source_type": "file",
        "timestamp": "2026-11-21T10:00:00.123456789Z",
    }
    as_ndjson, as_json = {"content_type": "application/x-ndjson"}, {"content_type": "application/json"}
    stream = [{"stream": {"job": "fluent-bit", "host": "gpu02"}, "values": [[str(NANOS), ""]]}]

    def loki(text: str) -> bytes:
        stream[0]["values"][0][1] = text  # type: ignore[index]
        return json.dumps({"streams": stream}).encode()

    es = {"create": {"_index": "fluent-bit", "_type": "_doc"}}
    return {
        "fluent-bit es": Sent("/_bulk", ndjson(es, {"@timestamp": "2026-11-21T10:00:00.123Z", **tail}), as_ndjson),
        "fluent-bit es gzip, 8": Sent(
            "/elasticsearch/_bulk",
            gzip.compress(ndjson({"create": {"_index": "node", "_id": "8c1f0e4a-1b2c"}}, {"@timestamp": "2026-11-21T10:00:00.123456789Z", **tail})),
            {**as_ndjson, "content_encoding": "gzip"},
        ),
        "fluent-bit http json": Sent("/api/v1/ingest", json.dumps([{"date": 1795255200.123456, **tail}]).encode(), as_json),
        "fluent-bit http json_lines": Sent("/api/v1/ingest", ndjson({"date": 1795255200.123456, **tail}), as_ndjson),
        "fluent-bit http json_stream": Sent("/api/v1/ingest", json.dumps({"date": "2026-11-21T10:00:00.123456Z", **tail}).encode(), as_json),
        "fluent-bit loki json": Sent("/loki/api/v1/push", loki(json.dumps({"log": line, "path": "/var/log/syslog"})), as_json, 204),
        "fluent-bit loki single key": Sent("/loki/api/v1/push", loki(line), as_json, 204),
        "fluent-bit opentelemetry": Sent("/v1/logs", fluent_otlp(line, False), {"content_type": "application/x-protobuf"}),
        "fluent-bit opentelemetry body key": Sent(
            "/v1/logs", gzip.compress(fluent_otlp(line, True)), {"content_type": "application/x-protobuf", "content_encoding": "gzip"}
        ),
        "vector elasticsearch": Sent("/elasticsearch/_bulk", ndjson({"index": {"_index": "node"}}, vector), as_ndjson),
        "vector elasticsearch data stream": Sent(
            "/elasticsearch/_bulk",
            ndjson({"create": {"_index": "logs-generic-default", "_type": "_doc"}},
                   {"@timestamp": vector["timestamp"], "data_stream": {"dataset": "generic", "namespace": "default", "type": "logs"},
                    **{k: v for k, v in vector.items() if k != "timestamp"}}),
            as_ndjson,
        ),
        "vector http json": Sent("/api/v1/ingest", json.dumps([vector]).encode(), as_json),
        "vector http newline_delimited": Sent("/api/v1/ingest", ndjson(vector), as_ndjson),
        "vector http text": Sent("/api/v1/ingest", (line + "\n").encode(), {"content_type": "text/plain"}),
        "vector loki": Sent("/loki/api/v1/push", vector_loki(line), {"content_type": "application/x-protobuf"}, 204),
    }  # fmt: skip


@pytest.mark.parametrize("line", [ISO, BSD], ids=["iso", "bsd"])
@pytest.mark.parametrize("name", list(requests("")))
def test_a_tailed_line_is_the_same_row_over_every_output(name: str, line: str, intake: Intake) -> None:
    sent = requests(line)[name]
    reply = ask(intake, "POST", sent.path, sent.body, **sent.headers)
    assert reply.status == sent.answers
    if sent.path.endswith("_bulk"):
        # Vector looks for '"errors":true', Fluent Bit for '"errors":false' and the status of each item.
        assert reply.document["errors"] is False and b'"errors":true' not in reply.body.replace(b" ", b"")
    (row,) = lines(intake.spool)
    assert (row["host"], row["source"], row["event"], row["message"]) == ("gpu02", "kernel", "nic.link_down", TEXT)
    assert row["time"].replace(microsecond=0) == AT and row["time_quality"] in ("line", "inferred")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # in_systemd: the journal's fields unchanged, its time beside them.
        ({"date": 1795255200.5, "MESSAGE": "Failed password", "PRIORITY": "4", "_HOSTNAME": "n7", "SYSLOG_IDENTIFIER": "sshd", "_PID": "77"},
         {"host": "n7", "unit": "sshd", "severity": "warning", "message": "Failed password"}),
        # in_syslog with the manual's parser "syslog-rfc3164".
        ({"date": 1795255200.5, "pri": "12", "host": "n7", "ident": "sshd", "pid": "77", "message": "Failed password"},
         {"host": "n7", "unit": "sshd", "message": "Failed password"}),
        # An application's own JSON: names that the wire also has, with other values.
        ({"date": 1795255200.5, "log": "GET /", "status": "200", "host": "n7"}, {"host": "n7", "message": "GET /"}),
        ({"date": 1795255200.5, "log": "GET /", "host": "N7.site"}, {"host": "N7"}),
        ({"date": 1795255200.5, "log": "GET /", "host": "10.0.0.7:9100"}, {"host": "10.0.0.7:9100"}),
        ({"date": 1795255200.5, "log": "GET /", "host": "::ffff:10.0.0.7"}, {"host": "::ffff:10.0.0.7"}),
        ({"date": 1795255200.5, "log": "GET /", "status": 200, "lines": 3, "raw": None}, {"message": "GET /"}),
        ({"date": 1795255200.5, "message": "saved", "document": "report.pdf"}, {"message": "saved"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["es", "http"])
def test_records_of_other_inputs_keep_text_host_and_time(
    form: str, record: dict[str, Any], expected: dict[str, Any], intake: Intake
) -> None:
    if form == "es":
        stamped = {"@timestamp": "2026-11-21T10:00:00.500Z", **{k: v for k, v in record.items() if k != "date"}}
        ask(intake, "POST", "/_bulk", ndjson({"index": {}}, stamped), content_type="application/x-ndjson")
    else:
        ask(intake, "POST", "/api/v1/ingest", json.dumps([record]).encode(), content_type="application/json")
    (row,) = lines(intake.spool)
    assert {name: row[name] for name in expected} == expected
    assert row["time"] == datetime(2026, 11, 21, 10, 0, 0, 500000)


def test_syslog_of_fluent_bit_has_a_byte_order_mark_that_is_no_text() -> None:
    """out_syslog: RFC 5424 puts a BOM before the message; over TCP messages end with a line feed."""
    kept: Any = Collected()
    stream = syslog.Stream(kept, "tcp", None, set())
    message = f"<3>1 2026-11-21T10:00:00.123456Z gpu02 kernel - - - \ufeff{TEXT}"
    receive(stream, f"{message}\n{message}\n".encode())
    stream.connection_lost(None)
    into = Decoded()
    syslog.RECEIVER.decode(Payload(b"".join(kept.data), {"parts": kept.parts, "received": 1}), into)
    (group,) = into.groups.values()
    rows = LineParser().parse(group.lines or split(b"".join(group.data)).lines, group.origin, 1).to_dicts()
    assert [(r["host"], r["event"], r["message"]) for r in rows] == [("gpu02", "nic.link_down", TEXT)] * 2
