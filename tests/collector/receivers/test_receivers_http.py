"""Requests as shippers send them: rows with the right host, time and message, and the answers that they expect."""

from __future__ import annotations

import asyncio
import base64
import gzip
import importlib
import io
import json
import re
import struct
import tarfile
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from packing import snap, varint
from receiver_requests import ask, lines, tables

from collector import decoding
from collector.intake import Intake, _chunks
from collector.receivers import _BUILT_IN, all_receivers, journal_upload, ndjson, ndjson_records
from collector.receivers.base import MAX_BODY, Decoded, Payload, micros
from collector.receivers.refusals import Refused
from collector.receivers.unpacking import MOST_STREAMS, unpack, unsnap
from collector.receivers.wrapped import Streams, Wrapped
from collector.segment_file import Position
from collector.spool import Spool, SpoolFull

INGEST = "/api/v1/ingest"
LINK = "2026-02-28T16:29:24.000000+00:00 gpu02 kernel: igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down"


def tarred() -> bytes:
    """An archive of one file, as tar makes it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        named = tarfile.TarInfo("hosts/gpu02/syslog")
        named.size = len(LINK)
        archive.addfile(named, io.BytesIO(LINK.encode()))
    return made.getvalue()


def test_every_receiver_file_is_listed() -> None:
    folder = Path(journal_upload.__file__).parent
    names = {p.stem for p in folder.glob("[a-z]*.py")}
    receivers = {name for name in names if hasattr(importlib.import_module(f"collector.receivers.{name}"), "RECEIVER")}
    assert receivers == set(_BUILT_IN)
    assert len(all_receivers()) >= len(_BUILT_IN)


# -- /api/v1/ingest ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "rows"),
    [
        (LINK + "\n", {"content_type": "text/plain"}, [(LINK, "gpu02", "nic.link_down")]),
        ("a\r\nb\n", {"content_type": "text/plain", "x_faultline_host": "n1"}, [("a", "n1", "other"), ("b", "n1", "other")]),
        (json.dumps({"raw": LINK}), {}, [(LINK, "gpu02", "nic.link_down")]),
        (json.dumps({"host": "n7", "lines": "a\nb\n"}), {}, [("a", "n7", "other"), ("b", "n7", "other"), ("", "n7", "other")]),
        ('{"defaults": {"host": "n1"}}\n{"raw": "a"}\n{"raw": "b", "host": "n2"}', {}, [("a", "n1", "other"), ("b", "n2", "other")]),
        (json.dumps({"raw_base64": base64.b64encode(b"\xff\xfe").decode(), "host": "n1"}), {}, [("��", "n1", "other")]),
        ("no json\n\"a string\"\n", {}, [("no json", "10.0.0.9", "other"), ("a string", "10.0.0.9", "other")]),
        ("\ufeff" + json.dumps({"raw": "a", "host": "n1"}) + "\r\n{}", {}, [("a", "n1", "other"), ("{}", "10.0.0.9", "other")]),
        ("\ufeffa\r\nb", {"content_type": "text/plain"}, [("a", "10.0.0.9", "other"), ("b", "10.0.0.9", "other")]),
        (json.dumps([{"raw": "a", "host": "x"}, "b"]), {"content_type": "application/json"}, [("a", "x", "other"), ("b", "10.0.0.9", "other")]),
    ],
)  # fmt: skip
def test_lines_and_records_come_in_as_they_are(body: str, headers: dict[str, str], rows: list[tuple[str, str, str]], spool: Spool, intake: Intake) -> None:  # fmt: skip
    packed = {"": body.encode(), "gzip": gzip.compress(body.encode()), "zstd": zstandard.compress(body.encode())}
    for encoding, sent in packed.items():
        reply = ask(intake, "POST", INGEST, sent, **headers, **({"content_encoding": encoding} if encoding else {}))
        assert reply.status == 200 and reply.document["status"] == "stored"
    found = [(r["raw"], r["host"], r["event"]) for r in lines(spool)]
    assert sorted(found) == sorted(rows * len(packed))
    assert {r.unpacked_bytes for r in spool.read(Position(0, 0), 1 << 40)} == {len(body.encode())}


@pytest.mark.parametrize(("body", "headers"), [
    (gzip.compress(LINK.encode(), mtime=0), {}), (zstandard.compress(LINK.encode()), {}),
    (zlib.compress(LINK.encode()), {"content_encoding": "deflate"}), (zlib.compress(LINK.encode())[2:-4], {"content_encoding": "deflate"}),
    (pyarrow.compress(LINK.encode(), codec="snappy", asbytes=True), {"content_encoding": "snappy"}),
    (gzip.compress(zstandard.compress(LINK.encode()), mtime=0), {"content_encoding": "zstd, gzip"}),
    (f"\ufeff{LINK}".encode("utf-16-le"), {"content_type": "text/plain; charset=utf-16le"}),
    (f"{LINK}\n".encode("utf-16"), {"content_type": "text/plain; charset=UTF-16"}),
])  # fmt: skip
def test_a_line_comes_out_of_whatever_it_was_packed_in(
    body: bytes, headers: dict[str, str], spool: Spool, intake: Intake
) -> None:
    assert ask(intake, "POST", INGEST, body, **{"content_type": "text/plain", **headers}).status == 200
    assert [row["raw"] for row in lines(spool)] == [LINK]


def test_a_document_that_is_no_json_is_a_line_and_its_neighbours_are_stored(spool: Spool, intake: Intake) -> None:
    body = b'{"index":{}}\n{"message":"a"}\n{"index":{}}\n{"message":"say "b""}\n{"index":{}}\n[1]\n'
    assert len(ask(intake, "POST", "/x/_bulk", body).document["items"]) == 3
    assert sorted(row["raw"] for row in lines(spool)) == ["[1]", "a", '{"message":"say "b""}']


def test_what_a_file_is_follows_from_the_lines_that_came_of_it(spool: Spool, intake: Intake) -> None:
    """A line that shows no source itself has that of its neighbours, over every protocol that names files."""
    reported = [LINK, "  a continuation"]
    documents = b"".join(json.dumps({"log": text, "path": "/data/all.log"}).encode() + b"\n" for text in reported)
    bulk = b"".join(b'{"index":{}}\n' + line + b"\n" for line in documents.splitlines())
    records = b"".join(
        json.dumps({"raw": text, "path": "/data/raw.log", "offset": at}).encode() + b"\n"
        for at, text in enumerate(reported)
    )
    for path, body in ((INGEST, documents), ("/_bulk", bulk), (INGEST, records)):
        assert ask(intake, "POST", path, body).status == 200
    assert {(row["raw"], row["source"]) for row in lines(spool)} == {(LINK, "kernel"), (reported[1], "syslog")}


_WORDS = st.sampled_from(["n1", "n2"])
_TIMES = st.sampled_from([None, 0, 1, True, 1.0, "1", "2026-11-21T10:00:00Z", "x", [1]])
_PLAIN = st.fixed_dictionaries(
    {"raw": st.sampled_from(["a", "", LINK])}, optional={"time": _TIMES, "read": _TIMES, "host": _WORDS}
)
_STRANGE = st.sampled_from([
    {"raw": "\ud800"}, {"raw": 1}, {"host": 1}, {"host": True}, {"host": 1.0}, {"path": "/x/slurmd.log"}, {"path": "/x/slurmctld.log"},
    {"path": "/x/y.log", "source": "slurmd"}, {"stream": "s"}, {"severity": "error"}, {"tags": ["t"]}, {"lines": "x\ny"}, {"lines": ["x"]},
    {"raw_base64": "YQ=="}, {"status": {}},
])  # fmt: skip
_RECORDS = _PLAIN | st.tuples(_PLAIN, _STRANGE).map(lambda parts: {**parts[0], **parts[1]})
_DEFAULTS = st.fixed_dictionaries({}, optional={"time": _TIMES, "host": _WORDS, "path": st.just("/x/slurmd.log")})


@example(defaults={}, records=[({"raw": "a", "host": 1}, 1), ({"raw": "a", "host": True}, 1)])
@given(defaults=_DEFAULTS, records=st.lists(st.tuples(_RECORDS, st.integers(1, 2)), max_size=4))
def test_records_side_by_side_say_what_each_says_alone(
    defaults: dict[str, Any], records: list[tuple[dict[str, Any], int]]
) -> None:
    all_of_them = [record for record, times in records for _ in range(times)]
    body = "\n".join(json.dumps(record) for record in ({"defaults": defaults}, *all_of_them)).encode()
    payload = Payload(body, {"received": 1_700_000_000_000_000})
    together, alone = Decoded(), Decoded()
    ndjson.RECEIVER.decode(payload, together)
    own = ndjson_records.To(payload, alone, Streams(), Wrapped(payload, alone, "http"), {})
    for record in (ndjson_records.loads(json.dumps(one).encode()) for one in all_of_them):
        ndjson_records.add_record(record, {**defaults, **record}, own)
    assert _said(together) == _said(alone)


def _said(decoded: Decoded) -> dict[Any, list[tuple[Any, ...]]]:
    """By the fields that lines are parsed together with: every line, and its metadata."""
    found = {}
    for key, group in decoded.groups.items():
        stated = group.lines or b"".join(group.data).split(b"\n")[:-1]
        runs = [run._replace(lines=1) for run in group.runs for _ in range(run.lines)]
        found[key] = list(zip(stated, runs, strict=True))
    return found


def test_what_the_sender_knows_fills_what_the_line_leaves_out(spool: Spool, intake: Intake) -> None:
    records = [
        {"host": "gpu01", "path": "/var/log/app.log", "raw": "no stamp", "read": "2026-11-21T10:00:00Z", "tags": ["t"]},
        {"host": "gpu01", "stream": "kmsg", "source": "kernel", "time": "2026-11-21T10:00:01.5Z", "raw": "6,12,99,-;mlx5_core 0000:53:00.0: x"},
        {"host": "gpu01", "path": "/jobs/slurm-17.out", "raw": "step 4", "severity": "warning"},
        {"host": "other", "raw": LINK, "time": "2020-01-01T00:00:00Z"},
    ]  # fmt: skip
    ask(intake, "POST", INGEST, "\n".join(map(json.dumps, records)).encode())
    read, kernel, job, stamped = sorted(lines(spool), key=lambda r: [x["raw"] for x in records].index(r["raw"]))
    assert (read["time"], read["file"], read["time_quality"], read["tags"][-1:]) == (
        datetime(2026, 11, 21, 10),
        "gpu01:/var/log/app.log",
        "received",
        ["t"],
    )
    assert (kernel["time"], kernel["time_quality"], kernel["source"]) == (
        datetime(2026, 11, 21, 10, 0, 1, 500000),
        "line",
        "kernel",
    )
    assert (job["job_id"], job["source"], job["severity"]) == (17, "job_stdout", "warning")
    assert (stamped["host"], stamped["time"]) == (
        "gpu02",
        datetime(2026, 2, 28, 16, 29, 24),
    )  # the line's own values win


@pytest.mark.parametrize("times", [1, 60])  # one by one, and many at once
def test_a_records_message_is_of_the_source_and_the_job_that_it_says(times: int, spool: Spool, intake: Intake) -> None:
    records = [
        {"time": "2026-11-21T10:00:00Z", "host": "ctl", "source": "slurmctld", "message": "error: Nodes gx01 not responding"},
        {"time": "2026-11-21T10:00:01Z", "host": "gx01", "source": "job_stdout", "job_id": 17, "message": "step 4"},
        {"time": "2026-11-21T10:00:02Z", "host": "gx01", "source": "syslog", "unit": "sshd", "message": "hello"},
        {"time": "2026-11-21T10:00:03Z", "host": "gx01", "path": "/var/log/slurmd.log", "message": "error: x"},
    ]  # fmt: skip
    ask(intake, "POST", INGEST, "\n".join(map(json.dumps, records * times)).encode())
    rows = sorted(lines(spool), key=lambda row: row["time"])
    assert len(rows) == 4 * times
    for row, (source, unit, job) in zip(
        rows[::times],
        [("slurmctld", None, None), ("job_stdout", None, 17), ("syslog", "sshd", None), ("slurmd", None, None)],
        strict=True,
    ):
        assert (row["source"], row["unit"] and unit, row["job_id"]) == (source, unit, job)
    assert rows[0]["event"] == "slurm.node_not_responding"


def test_documents_are_read_whole_and_unknown_kinds_are_poison(spool: Spool, intake: Intake) -> None:
    sacct = "JobID|JobName|State|ExitCode|Start|End|NodeList\n17|train|FAILED|1:0|2026-11-21T10:00:00|2026-11-21T10:05:00|gpu01\n"
    ask(intake, "POST", INGEST, json.dumps({"document": "sacct", "raw": sacct, "cluster": "ml1"}).encode())
    ask(
        intake,
        "POST",
        INGEST,
        json.dumps({"document": "prometheus", "host": "gpu01", "raw": "# TYPE x gauge\nx 4\n"}).encode(),
    )
    found = tables(spool)
    (job,) = found["jobs"].to_dicts()
    assert (job["job_id"], job["state"], job["exit_code"]) == (17, "FAILED", 1)
    assert [(r["metric"], r["value"], r["host"]) for r in found["metrics"].to_dicts()] == [("x", 4.0, "gpu01")]
    ask(intake, "POST", INGEST, json.dumps({"document": "horoscope", "raw": "x"}).encode())
    with pytest.raises(AssertionError, match="horoscope"):
        tables(spool)


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"not packed", {"content_encoding": "gzip"}, 400, "not gzip"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-4], {"content_encoding": "gzip"}, 400, "middle"),
        (zstandard.compress(bytes(range(256)) * 9)[:-9], {"content_encoding": "zstd"}, 400, "zstd"),
        (b"x", {"content_encoding": "br"}, 415, "br"),
        (b"{", {"content_type": "application/json"}, 400, "not JSON"),
        (b"[" * 200_000, {"content_type": "application/json"}, 400, "nested"),
        (b"--x\r\n", {"content_type": "multipart/form-data; boundary=x"}, 415, "multipart"),
        (b"x", {"content_type": "text/plain; charset=hex"}, 415, "hex"),
        (gzip.compress(tarred(), mtime=0), {}, 415, "a tar archive"),
        (b"PK\x03\x04" + bytes(26), {}, 415, "a zip archive"),
        (b"x", {"content_encoding": "gzip, br"}, 415, "br"),
        (b"x" * (MAX_BODY + 1), {}, 413, "16,777,216"),
        (zstandard.compress(bytes(65 * 1024 * 1024)), {"content_encoding": "zstd"}, 413, "unpacked"),
        (b"x", {"content_length": str(MAX_BODY + 1)}, 413, "more than"),
    ],
)  # fmt: skip
def test_refusals_are_problem_details_and_keep_nothing(body: bytes, headers: dict[str, str], status: int, says: str, spool: Spool, intake: Intake) -> None:  # fmt: skip
    reply = ask(intake, "POST", INGEST, body, **headers)
    assert reply.status == status and says in reply.document["detail"]
    assert reply.headers["content-type"] == "application/problem+json" and reply.document["status"] == status
    assert list(spool.read(Position(0, 0), 1 << 40)) == []


def test_full_and_broken_say_when_to_come_again(spool: Spool, intake: Intake) -> None:
    assert ask(intake, "POST", INGEST, b"x").status == 200
    spool.max_waiting_bytes = 0
    full = ask(intake, "POST", INGEST, b"x")
    assert full.status == 429 and int(full.headers["retry-after"]) >= 1 and "behind" in full.document["detail"]
    assert ask(intake, "POST", "/_bulk", b"{}\n{}").headers["retry-after"] == full.headers["retry-after"]


def test_tokens_in_the_forms_that_clients_send(spool: Spool) -> None:
    intake = Intake(spool, tokens=["s3cret"])
    basic = "Basic " + base64.b64encode(b"anyone:s3cret").decode()
    for header, status in (
        ("Bearer s3cret", 200),
        (basic, 200),
        ("ApiKey s3cret", 200),
        ("Bearer wrong", 403),
        ("", 401),
    ):
        assert ask(intake, "POST", INGEST, b"x", **({"authorization": header} if header else {})).status == status


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2026-11-21T10:00:00Z", 1795255200_000000), ("2026-11-21T12:00:00+02:00", 1795255200_000000),
        (1795255200, 1795255200_000000), (1795255200.25, 1795255200_250000), (1795255200123, 1795255200_123000),
        (1795255200123456, 1795255200_123456), (1795255200123456789, 1795255200_123456), ("1795255200.5", 1795255200_500000),
        ("soon", None), (-9e16, None), ("0001-01-01T00:00:00+14:00", None), (None, None), (True, None), ({}, None),
    ],
)  # fmt: skip
def test_moments_in_every_unit(value: object, found: int | None) -> None:
    assert micros(value) == found


@given(st.lists(st.binary(max_size=500), min_size=1, max_size=4))
def test_frames_behind_each_other_are_one_body(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert unpack(b"".join(map(zstandard.compress, parts)), "zstd") == whole
    assert unpack(b"".join(map(gzip.compress, parts)), "gzip") == whole
    with pytest.raises(Refused):
        unpack(b"\x00" + gzip.compress(whole), "gzip")


@pytest.mark.parametrize(
    ("encoding", "stream"),
    [("gzip", gzip.compress(b"")), ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(b""))],
    ids=("gzip", "zstd"),  # gzip writes the time: a different name in every process
)
def test_a_body_of_nothing_but_streams_is_refused(encoding: str, stream: bytes) -> None:
    """Found by reading: 16 MB of empty ones blocked everybody for minutes."""
    assert unpack(stream * 300 + stream, encoding) == b""
    with pytest.raises(Refused) as refused:
        unpack(stream * (MOST_STREAMS + 1), encoding)
    assert refused.value.status == 413


def test_senders_that_stop_in_the_middle_hold_no_more_memory_than_there_is(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.arriving.MOST_ARRIVING", 100)

    async def talk() -> tuple[int, int, int]:
        halves = [
            asyncio.ensure_future(intake.body(_chunks(_sender(b"x" * 60, asyncio.Event())), "a")) for _ in range(2)
        ]
        done, waiting = await asyncio.wait(halves, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        reported = [half.exception() for half in done]
        for half in waiting:
            half.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return sum(isinstance(error, SpoolFull) for error in reported), len(waiting), intake.arriving.size

    assert asyncio.run(talk()) == (1, 1, 0)


def _sender(data: bytes, never: asyncio.Event) -> Any:
    sent: list[bytes] = [data]

    async def receive() -> dict[str, Any]:
        if not sent:
            await never.wait()
        return {"type": "http.request", "body": sent.pop(), "more_body": True}

    return receive


# -- OTLP ----------------------------------------------------------------------------------------------------------

OTLP_JSON: dict[str, Any] = {"resourceLogs": [{
    "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu03"}}, {"key": "service.name", "value": {"stringValue": "trainer"}}]},
    "scopeLogs": [{"scope": {}, "logRecords": [
        {"timeUnixNano": "1795255200123456789", "severityNumber": 17, "body": {"stringValue": "CUDA error: out of memory"},
         "attributes": [{"key": "rank", "value": {"intValue": "3"}}], "traceId": "5b8efff798038103d269b633813fc60c"},
        {"observedTimeUnixNano": "1795255201000000000", "severityText": "WARN", "body": {"stringValue": LINK},
         "attributes": [{"key": "log.file.path", "value": {"stringValue": "/var/log/syslog"}}]},
        {"timeUnixNano": "1795255202000000000", "body": {"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}},
    ]}],
}]}  # fmt: skip


def otlp_protobuf() -> bytes:
    request = ExportLogsServiceRequest()
    for group in OTLP_JSON["resourceLogs"]:
        out = request.resource_logs.add()
        for pair in group["resource"]["attributes"]:
            out.resource.attributes.add(key=pair["key"]).value.string_value = pair["value"]["stringValue"]
        scope = out.scope_logs.add()
        for record in group["scopeLogs"][0]["logRecords"]:
            made = scope.log_records.add(
                time_unix_nano=int(record.get("timeUnixNano", 0)), observed_time_unix_nano=int(record.get("observedTimeUnixNano", 0)),
                severity_number=record.get("severityNumber", 0), severity_text=record.get("severityText", ""),
            )  # fmt: skip
            if "stringValue" in record["body"]:
                made.body.string_value = record["body"]["stringValue"]
            else:
                made.body.kvlist_value.values.add(key="a").value.bool_value = True
            for pair in record.get("attributes", []):
                value = made.attributes.add(key=pair["key"]).value
                if "intValue" in pair["value"]:
                    value.int_value = int(pair["value"]["intValue"])
                else:
                    value.string_value = pair["value"]["stringValue"]
    return request.SerializeToString()


@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_otlp_logs_of_both_forms_are_the_same_rows(form: str, spool: Spool, intake: Intake) -> None:
    body = json.dumps(OTLP_JSON).encode() if form == "json" else otlp_protobuf()
    kind = "application/json" if form == "json" else "application/x-protobuf"
    reply = ask(intake, "POST", "/v1/logs", gzip.compress(body), content_type=kind, content_encoding="gzip")
    assert reply.status == 200 and reply.headers["content-type"] == kind
    error, syslog, structured = sorted(
        lines(spool), key=lambda r: r["raw"] != "CUDA error: out of memory" and 1 + (r["raw"] != LINK)
    )
    assert (error["host"], error["unit"], error["severity"], error["time"]) == (
        "gpu03",
        "trainer",
        "error",
        datetime(2026, 11, 21, 10, 0, 0, 123456),
    )
    assert json.loads(error["entities"])["rank"] == 3
    assert (syslog["event"], syslog["host"], syslog["file"], syslog["time"]) == (
        "nic.link_down",
        "gpu02",
        "gpu03:/var/log/syslog",
        datetime(2026, 2, 28, 16, 29, 24),
    )
    assert json.loads(structured["raw"]) == {"a": True}
    (record,) = spool.read(Position(0, 0), 1 << 40)
    assert str(record.meta["key"]).startswith("otlp logs ")  # the same body again is the same batch


def test_otlp_that_is_none_is_refused_for_good(intake: Intake) -> None:
    assert ask(intake, "POST", "/v1/logs", b"\xff\xff\xff", content_type="application/x-protobuf").status == 400
    refused = ask(intake, "POST", "/v1/logs", b"[1", content_type="application/json")
    assert (refused.status, refused.headers["content-type"]) == (400, "application/json")
    assert json.loads(refused.body)["code"] == 3 and "OTLP" in json.loads(refused.body)["message"]
    for body in (b'{"resourceMetrics":[]}', b'{"resourceLogs":"x"}', b'{"resourceLogs":[1]}', b"{" * 200_000):
        assert ask(intake, "POST", "/v1/logs", body, content_type="application/json").status == 400
    assert ask(intake, "POST", "/v1/logs", b"a line", content_type="text/plain").status == 415
    assert (
        ask(intake, "POST", "/v1/logs", b'{"resourceLogs":[]}').status == 200
    )  # a brace means JSON, whatever the content type


def test_otlp_metrics_become_samples(spool: Spool, intake: Intake) -> None:
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    group.resource.attributes.add(key="host.name").value.string_value = "gpu03"
    metrics = group.scope_metrics.add().metrics
    point = metrics.add(name="gpu.temperature").gauge.data_points.add(
        time_unix_nano=1795255200_000000000, as_double=81.5
    )
    point.attributes.add(key="gpu").value.string_value = "4"
    metrics.add(name="rx").histogram.data_points.add(time_unix_nano=1795255200_000000000, count=3, sum=9.0)
    assert ask(intake, "POST", "/v1/metrics", request.SerializeToString()).status == 200
    found = [(r["metric"], r["value"], r["host"], r["device"]) for r in tables(spool)["metrics"].to_dicts()]
    assert found == [
        ("gpu.temperature", 81.5, "gpu03", "4"),
        ("rx_count", 3.0, "gpu03", None),
        ("rx_sum", 9.0, "gpu03", None),
    ]


# -- Loki ----------------------------------------------------------------------------------------------------------


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_loki_push_of_both_forms(form: str, spool: Spool, intake: Intake) -> None:
    if form == "json":
        stream = {
            "stream": {"host": "n4", "filename": "/var/log/syslog", "env": "prod", "level": "warn"},
            "values": [["1795255200123456789", "hello"]],
        }
        reply = ask(
            intake,
            "POST",
            "/loki/api/v1/push",
            json.dumps({"streams": [stream]}).encode(),
            content_type="application/json",
        )
    else:
        moment = b"\x08" + varint(1795255200) + b"\x10" + varint(123456789)
        entry = field(1, moment) + field(2, b"hello")
        stream_bytes = field(1, b'{host="n4", filename="/var/log/syslog", env="prod", level="warn"}') + field(2, entry)
        reply = ask(
            intake, "POST", "/loki/api/v1/push", snap(field(1, stream_bytes)), content_type="application/x-protobuf"
        )
    assert reply.status == 204
    (row,) = lines(spool)
    assert (row["raw"], row["host"], row["file"], row["severity"]) == ("hello", "n4", "n4:/var/log/syslog", "warning")
    assert row["time"] == datetime(2026, 11, 21, 10, 0, 0, 123456) and json.loads(row["entities"]) == {"env": "prod"}
    assert ask(intake, "POST", "/loki/api/v1/push", b"\xff", content_type="application/x-protobuf").status == 400
    assert ask(intake, "POST", "/loki/api/v1/push", b'{"streams":[]}', content_type="application/json").status == 204
    for stamp in ("1e999", '"x"', '"-1"', "99999999999999999999", "{}"):
        body = f'{{"streams":[{{"stream":{{}},"values":[[{stamp},"a"]]}}]}}'.encode()
        assert ask(intake, "POST", "/loki/api/v1/push", body, content_type="application/json").status == 400, stamp


def test_snappy_copies_and_what_is_no_snappy() -> None:
    assert unsnap(snap(b"x" * 30000)) == b"x" * 30000
    assert unsnap(varint(10) + bytes([0]) + b"a" + bytes([(9 - 4) << 2 | 1, 1])) == b"a" * 10
    for broken in (varint(10) + bytes([0]) + b"a", varint(10) + bytes([1 << 2 | 1, 7]), varint(1 << 40)):
        with pytest.raises((ValueError, IndexError)):
            unsnap(broken)


# -- the journal ---------------------------------------------------------------------------------------------------


def entry(number: int, message: bytes = b"hello", journal: str = "aa11") -> bytes:
    fields = [b"__CURSOR=s=%b;i=%x;b=0;m=0;t=0;x=0" % (journal.encode(), number), b"__REALTIME_TIMESTAMP=1795255200123456",
              b"_HOSTNAME=n8", b"SYSLOG_IDENTIFIER=sshd", b"PRIORITY=3", b"_PID=77"]  # fmt: skip
    if b"\n" in message or b"\xff" in message:
        return b"\n".join(fields) + b"\nMESSAGE\n" + struct.pack("<Q", len(message)) + message + b"\n\n"
    return b"\n".join([*fields, b"MESSAGE=" + message]) + b"\n\n"


@given(st.lists(st.integers(1, 400), max_size=6))
def test_the_journal_survives_any_cut(cuts: list[int]) -> None:
    body = b"".join(entry(n, m) for n, m in enumerate((b"one", b"two\n\nlines\n", b"\xff\xfe", b"four")))
    places = sorted({0, len(body), *(c % len(body) for c in cuts)})
    found, entries = [], journal_upload.Entries()
    for a, b in zip(places, places[1:]):  # noqa: B905, RUF007
        entries.feed(body[a:b])
        while (whole := entries.next()) is not None:
            found.append(whole)
    assert [dict(fields)[b"MESSAGE"] for _, fields in found] == [b"one", b"two\n\nlines\n", b"\xff\xfe", b"four"]
    assert b"".join(data for data, _ in found) == body and entries.held == 0


def test_an_upload_is_rows_and_entries_are_distinguished_by_their_number(spool: Spool, intake: Intake) -> None:
    body = entry(5, b"a") + entry(6, b"two\nlines") + entry(7, b"\xffbytes") + entry(1, b"other journal", "bb22")
    reply = ask(
        intake, "POST", "/upload", [body[:100], body[100:333], body[333:]], content_type="application/vnd.fdo.journal"
    )
    assert reply.status == 202
    records = list(spool.read(Position(0, 0), 1 << 40))
    assert [r.meta["key"] for r in records] == [["journal", "aa11", "0", 5, 7], ["journal", "bb22", "0", 1, 1]]
    rows = lines(spool)
    assert (
        {r["host"] for r in rows} == {"n8"}
        and {r["severity"] for r in rows} == {"error"}
        and {r["format"] for r in rows} == {"journald"}
    )
    assert {r["message"] for r in rows} == {"a", "two\nlines", "�bytes", "other journal"}
    assert rows[0]["time"] == datetime(2026, 11, 21, 10, 0, 0, 123456) and rows[0]["file"] == "journal:n8"


@pytest.mark.parametrize(("body", "kind", "status"), [
    (entry(1)[:-30], "application/vnd.fdo.journal", 400), (b"MESSAGE\n" + b"\xff" * 20, "application/vnd.fdo.journal", 400),
    (entry(1), "text/plain", 415), (b"", "application/vnd.fdo.journal", 202)])  # fmt: skip
def test_uploads_that_are_none(body: bytes, kind: str, status: int, intake: Intake) -> None:
    assert ask(intake, "POST", "/upload", body, content_type=kind).status == status


def test_the_receiver_of_the_docs_receives(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs/extending.md").read_text()
    (code,) = [
        b for b in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "BMC_EVENTS = Receiver" in b
    ]
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/extending.md", "exec"), namespace)
    receiver = namespace["BMC_EVENTS"]
    monkeypatch.setattr(decoding, "all_receivers", lambda: {receiver.kind: receiver})
    assert ask(Intake(spool, receivers=[receiver]), "POST", "/bmc/gpu09", b"Fan 3 failed\n").status == 200
    assert [(r["raw"], r["host"], r["source"]) for r in lines(spool)] == [("Fan 3 failed", "gpu09", "bmc")]
