"""A worker's memory depends on the number of lines, so that is limited: lines are parsed in slices, with the same rows,
and no batch or piece of the spool has millions."""

from __future__ import annotations

import asyncio
import base64
import json
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from google.protobuf.message import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from polars.testing import assert_frame_equal
from receiver_requests import PARSER, ask, frames

from collector import decoding, files, line_files, pipeline, protobuf_messages
from collector.decoding import Job, _rows, summed
from collector.intake import Intake
from collector.loki_messages import PushRequest
from collector.merging import numbered_on
from collector.pipeline import Pipeline
from collector.receivers import syslog, syslog_batches
from collector.receivers.base import Decoded, Lines, Run, moment_of
from collector.receivers.syslog_batches import Gatherer, Part
from collector.segment_file import LINE_BYTES, Position
from collector.spool import Spool
from collector.workers import Counted, Piece
from parsers.record import Origin
from store import open_store
from tests.examples import examples

AT = 1_795_000_000_000_000
NOW = moment_of(AT)


def stamped(minutes: float, host: str, text: str) -> bytes:
    """A line of RFC 3164, whose stamp has no zone."""
    return f"<13>{NOW + timedelta(minutes=minutes):%b %e %H:%M:%S} {host} {text}".encode()


XID = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
LINES = (
    b"a", b"", b"  continued", b"\xff\xfe no text", b"x" * 40, b"[12.345678] " + XID, b'{"log":"in an object"}\r',
    b"[2026-11-18T10:00:01.123] error: Nodes node[01-02] not responding", b"<4>" + XID,
    stamped(-60, "gx01", "kernel: " + XID.decode()), stamped(-1, "gx01", "sshd[1]: right"), stamped(90, "gx01", "app: ahead"),
    stamped(90, "gx02", "app: ahead"), stamped(60 * 24, "gx03", "app: far ahead"), b"Traceback (most recent call last):",
    b'  File "train.py", line 3, in <module>', b"RuntimeError: CUDA out of memory",
)  # fmt: skip
RUNS = (
    Run(1, AT, "10.0.0.1", transport="syslog/tcp"), Run(1, AT - 5_000_000, "10.0.0.2", transport="syslog/udp"),
    Run(1, AT, "gx01", "gx01:/var/log/app.log", AT - 7, AT - 3, transport="agent"),
    Run(1, AT, "gx01", severity="error", unit="app", pid=7, fields='{"a": "b"}', tags='["cut"]', transport="otlp"),
)  # fmt: skip
#: What is sent: how it is described (None: a table with a row per line), and which of ``LINES``.
SENT = st.lists(
    st.tuples(st.sampled_from([*RUNS, None]), st.lists(st.integers(0, len(LINES) - 1), min_size=1, max_size=9)),
    min_size=1,
    max_size=5,
)
AHEAD, RIGHT = 11, 10
Sent = list[tuple[Run | None, list[int]]]


def group_of(sent: Sent, as_data: bool, source: str | None) -> Lines:
    into = Decoded()
    for run, numbers in sent:
        lines = [LINES[number] for number in numbers]
        if run is None and not as_data:
            into.add_table(
                lines, pl.DataFrame({"received": AT, "host": "gx02", "time": [AT - n for n in numbers]}), source=source
            )
            continue
        run = (run or RUNS[0])._replace(lines=len(lines))
        if as_data:
            into.add_data(b"".join(line + b"\n" for line in lines), run, source=source)
        else:
            into.add(lines, run, source=source)
    (group,) = into.groups.values()
    return group


@settings(deadline=None, max_examples=examples(6))
@given(SENT, st.booleans(), st.sampled_from([None, "job_stdout", "slurmctld"]), st.integers(1, 12))
@example([(RUNS[0], [AHEAD, 0, 0, RIGHT])], True, None, 1)
@example([(RUNS[0], [RIGHT, 0, 0, AHEAD])], False, None, 2)
@example([(None, [0, 1, 2, 3, 4, 5] * 9), (RUNS[2], [9, 10, 11])], False, None, 7)
@example([(run, list(range(len(LINES)))) for run in RUNS], True, None, 5)
def test_slices_have_the_same_rows_as_one_piece(sent: Sent, as_data: bool, source: str | None, most: int) -> None:
    group = group_of(sent, as_data, source)
    (whole,) = _rows(group, PARSER)
    parts = list(_rows(group, PARSER, most))
    assert {len(part) for part in parts[:-1]} <= {most} and len(parts[-1]) <= most
    assert_frame_equal(pl.concat(parts), whole)


def test_whether_a_stamp_is_right_shows_in_other_slices() -> None:
    """gx01 writes UTC, as another of its lines shows, so a stamp 90 minutes ahead is wrong. gx02's may be local time."""
    group = group_of([(RUNS[0], [AHEAD, 12, 0, RIGHT])], True, None)
    rows = pl.concat(_rows(group, PARSER, 1))
    assert [tags is not None and "future" in tags for tags in rows["tags"].to_list()] == [True, False, False, False]


def jobs_of(spool: Spool) -> list[Job]:
    return [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
        for r in spool.read(Position(0, 0), 1 << 40)
    ]


def test_what_a_worker_returns_in_parts_is_stored_like_one(intake: Intake, spool: Spool) -> None:
    text = b"".join(line + b"\n" for line in LINES if b"\xff" not in line)
    records = b"".join(
        json.dumps({"host": f"n{at % 3}", "path": "/var/log/messages", "lines": text.decode()}).encode() + b"\n"
        for at in range(4)
    )
    for body in (text, records):
        assert ask(intake, "POST", "/api/v1/ingest", body, content_type="application/x-ndjson").status == 200
    whole, sliced = (decoding.work(jobs_of(spool), PARSER, most) for most in (1 << 30, 7))
    assert not whole.poison and not sliced.poison
    assert len(whole.tables) == 1 and len(sliced.tables) > 5 and whole.lines == sliced.lines
    parts = list(decoding.in_parts(jobs_of(spool), PARSER, 7))
    assert [len(part.tables) for part in parts] == [1] * len(sliced.tables), "one part is in memory at a time"
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]

    def stored(outcome: decoding.Outcome) -> pl.DataFrame:
        parts = numbered_on([packed.frame() for name, packed in outcome.tables if name == "logs"], {"n1:x": 3})
        return pl.concat(part.with_columns(pl.col(pl.Categorical).cast(pl.String)) for part in parts)

    assert_frame_equal(stored(whole), stored(sliced))
    stats = [summed([packed.frame() for packed in outcome.stats]) for outcome in (whole, sliced)]
    assert_frame_equal(*stats, check_row_order=False, check_column_order=False)
    assert frames(whole)["logs"].height == whole.lines


# -- what is given to one worker -----------------------------------------------------------------------------------


def test_a_piece_of_the_spool_has_a_limited_number_of_lines(
    spool: Spool, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of short lines count as more than their bytes; one that alone has very many is parsed alone."""
    monkeypatch.setattr(pipeline, "PIECE_BYTES", 1000 * LINE_BYTES)
    counts = [300] * 7 + [2500] + [300] * 2
    for count in counts:
        assert ask(intake, "POST", "/api/v1/ingest", b"a\n" * count, content_type="text/plain").status == 200
    with open_store(None) as store:
        running = Pipeline(store, spool)  # not started: the test takes the pieces
        pieces = []
        while (piece := running._next_piece()) is not None:
            pieces.append(decoding.work(piece.jobs, PARSER).lines)
    assert pieces == [1200, 900, 2500, 600]
    assert sum(pieces) == sum(counts)


def lines_in(spool: Spool) -> list[int | None]:
    return [record.meta.get("lines") for record in spool.read(Position(0, 0), 1 << 40)]


def protobuf(records: int) -> bytes:
    request = ExportLogsServiceRequest()
    made = request.resource_logs.add().scope_logs.add().log_records
    for number in range(records):
        made.add(time_unix_nano=AT * 1000 + number).body.string_value = "a"
    return request.SerializeToString()


def entries(count: int) -> bytes:
    import pyarrow as pa

    request = PushRequest()
    stream = request.streams.add()
    stream.labels = b'{a="b"}'
    for number in range(count):
        stream.entries.add(line=b"a").timestamp.seconds = number
    return pa.compress(request.SerializeToString(), codec="snappy", asbytes=True)


def otlp_json(count: int) -> bytes:
    record = {"timeUnixNano": "1795000000000000000", "body": {"stringValue": "a"}}
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record] * count}]}]}).encode()


def loki_json(count: int) -> bytes:
    return json.dumps({"streams": [{"stream": {"a": "b"}, "values": [["1", "a"]] * count}]}).encode()


WAYS: dict[str, tuple[str, str, Any]] = {
    "lines": ("/api/v1/ingest", "application/x-ndjson", lambda count: b"a\n" * count),
    "text": ("/api/v1/ingest", "text/plain", lambda count: b"a\n" * count),
    "record": ("/api/v1/ingest", "application/x-ndjson", lambda count: b'{"lines":"a' + b"\\na" * (count - 1) + b'"}\n'),
    "base64": ("/api/v1/ingest", "application/x-ndjson",
               lambda count: b'{"lines_base64":"' + base64.b64encode(b"\n" * (count - 1)) + b'"}\n'),
    "otlp": ("/v1/logs", "application/x-protobuf", protobuf),
    "otlp json": ("/v1/logs", "application/json", otlp_json),
    "loki": ("/loki/api/v1/push", "application/x-protobuf", entries),
    "loki json": ("/loki/api/v1/push", "application/json", loki_json),
}  # fmt: skip


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_more_lines_than_a_worker_holds_are_refused_before_they_are_stored(
    way: str, quick: bool, intake: Intake, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender has to split them: it is told so, and has lost nothing. ``quick``: whether the machine code is loaded."""
    from collector.receivers import otlp

    if quick:
        otlp.QUICK.wait()
    else:
        monkeypatch.setattr(otlp, "QUICK", False)
    for module, name in (("ndjson", "MOST_LINES"), ("otlp", "MOST_RECORDS"), ("loki", "MOST_RECORDS")):
        monkeypatch.setattr(f"collector.receivers.{module}.{name}", 50)
    path, kind, body = WAYS[way]
    assert ask(intake, "POST", path, body(50), content_type=kind).status in (200, 204)
    refused = ask(intake, "POST", path, body(51), content_type=kind)
    assert refused.status == 413 and b"more than 50 " in refused.body
    assert decoding.work(jobs_of(spool), PARSER).lines == 50


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_says_how_many_lines_it_has_if_they_are_short(way: str, intake: Intake, spool: Spool) -> None:
    path, kind, body = WAYS[way]
    assert ask(intake, "POST", path, body(400), content_type=kind).status in (200, 204)
    (lines,), (record,) = lines_in(spool), spool.read(Position(0, 0), 1 << 40)
    if way == "otlp json":  # 60 bytes each
        assert lines is None and record.weight == record.unpacked_bytes > 400 * LINE_BYTES
    else:
        assert lines is not None and 400 <= lines <= 810 and record.weight == lines * LINE_BYTES


def test_ordinary_lines_count_as_their_bytes(intake: Intake, spool: Spool) -> None:
    line = stamped(0, "gx01", "sshd[1]: session opened for user alice") + b"\n"
    assert ask(intake, "POST", "/api/v1/ingest", line * 9, content_type="application/x-ndjson").status == 200
    assert lines_in(spool) == [None]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4), st.integers(0, 60))
@example([[5, 5], [], [5]], 60)
def test_messages_are_counted_as_the_library_finds_them(groups: list[list[int]], most: int) -> None:
    request = ExportLogsServiceRequest()
    for scopes in groups:
        group = request.resource_logs.add()
        group.resource.attributes.add(key="k").value.string_value = "\x12\x00"
        for records in scopes:
            scope = group.scope_logs.add()
            for number in range(records):
                scope.log_records.add(time_unix_nano=number).body.int_value = -number
    found = sum(map(sum, groups))
    data = request.SerializeToString()
    counted = protobuf_messages.count(data, (1, 2, 2), most)
    if found > most:
        assert counted > most
    elif found + len(groups) + sum(map(len, groups)) <= 3 * most:
        assert counted == found
    else:  # so many messages around them are too many themselves
        assert counted in (found, most + 1)
    assert protobuf_messages.at_most(data, 2) >= found


@pytest.mark.parametrize("around", [b"\x0a\x00" * 100, b"\x0a\x7e" + b"\x12\x00" * 63])
def test_messages_that_hold_no_records_are_too_many_as_well(around: bytes) -> None:
    """Each costs as much to find and to parse as a record."""
    assert protobuf_messages.count(around, (1, 2, 2), 20) > 20
    assert protobuf_messages.count(around, (1, 2, 2), 40) == 0


def _within(message: Message) -> int:
    """The messages in a message, at any depth, as the library has them."""
    values = (value for field, value in message.ListFields() if field.message_type is not None)
    found = [one for value in values for one in ([value] if isinstance(value, Message) else value)]
    return len(found) + sum(map(_within, found))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4), st.integers(0, 60))
@example([[4, 4], [], [4]], 12)
def test_all_messages_within_one_are_counted(groups: list[list[int]], most: int) -> None:
    request = ExportLogsServiceRequest()
    for scopes in groups:
        group = request.resource_logs.add()
        for records in scopes:
            record = group.scope_logs.add(schema_url="\n\n").log_records.add()
            record.body.array_value.values.add().kvlist_value.values.add().key = "\x12\x00"
            for _ in range(records):
                record.attributes.add()
    assert protobuf_messages.check_all(request.SerializeToString(), type(request), most) == (_within(request) <= most)


#: Bodies of very many messages and hardly a record: what a path names lies in the messages around it.
EMPTY = {
    "attributes of a resource": ("/v1/logs", (1, 1, 1)), "groups": ("/v1/logs", (1,)), "scopes": ("/v1/logs", (1, 2)),
    "attributes of a record": ("/v1/logs", (1, 2, 2, 6)), "points": ("/v1/metrics", (1, 2, 2, 5, 1)), "metrics": ("/v1/metrics", (1, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("what", EMPTY)
def test_very_many_messages_are_refused_whatever_they_are(
    what: str, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.receivers.otlp.MOST_MESSAGES", 100)
    path, numbers = EMPTY[what]
    for count, status in ((101 - len(numbers), 200), (102 - len(numbers), 413)):
        body = bytes((numbers[-1] << 3 | 2, 0)) * count
        for number in reversed(numbers[:-1]):
            size = bytes((len(body) & 127 | 128, len(body) >> 7)) if len(body) > 127 else bytes((len(body),))
            body = bytes((number << 3 | 2,)) + size + body
        answer = ask(intake, "POST", path, body, content_type="application/x-protobuf")
        assert answer.status == status, answer.body


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_looking_at_all_messages_ends_on_any_bytes(data: bytes) -> None:
    assert protobuf_messages.check_all(data, ExportLogsServiceRequest, len(data))


def test_messages_deeper_than_the_library_reads_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_messages, "_DEEPEST", 2)
    deep = ExportLogsServiceRequest()
    value = deep.resource_logs.add().resource.attributes.add().value
    for _ in range(8):
        value = value.array_value.values.add()
    assert protobuf_messages.check_all(deep.SerializeToString(), type(deep), 3)


@settings(deadline=None)
@given(st.binary(max_size=40))
@example(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
def test_counting_ends_on_any_bytes(data: bytes) -> None:
    assert 0 <= protobuf_messages.count(data, (1, 2, 2), 10) <= len(data)


def test_syslog_is_spooled_before_its_lines_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog_batches, "FLUSH_LINES", 100)
    spool = Spool(tmp_path, min_free_bytes=0)

    async def talk() -> None:
        gatherer = Gatherer(Intake(spool, receivers=[syslog.RECEIVER]))
        for _ in range(6):
            gatherer.add(b"a\n" * 40, Part("10.0.0.1", False, "tcp", 80, False, None), 40)
        await gatherer.drain()

    asyncio.run(talk())
    assert [record.payload_bytes for record in spool.read(Position(0, 0), 1 << 40)] == [240, 240]
    spool.close()


def test_a_file_of_short_lines_is_read_in_smaller_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's output, ``faultline ingest``: pieces are of limited numbers of lines, and together the file."""
    monkeypatch.setattr(files, "BLOCK", 100)
    monkeypatch.setattr(files, "CHUNK", 1000 * LINE_BYTES)
    text = b"y\n" * 5000 + b"a longer line, of more than twenty bytes\n" * 900
    (tmp_path / "yes.out").write_bytes(text)
    pieces = list(files.Pieces(tmp_path / "yes.out"))
    assert b"".join(pieces) == text
    assert [piece.count(b"\n") for piece in pieces[:3]] == [1000, 1000, 1000]
    assert max(len(piece) for piece in pieces) >= 1000 * LINE_BYTES


def test_files_of_short_lines_are_parsed_in_smaller_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "TASK_BYTES", 1000 * LINE_BYTES)
    asked: list[int] = []

    class Pool:
        workers = 1

        def submit_counted(self, *pieces: Piece) -> Future[Counted]:
            asked.append(sum(piece.data.count(b"\n") for piece in pieces))  # type: ignore[arg-type]
            return Future()

    work = line_files.LineFiles(Pool(), None)  # type: ignore[arg-type]
    for _ in range(2):
        for _ in range(5):
            work._append(line_files._Part(None, Piece(b"y\n" * 250, Origin()), 0, ""))  # type: ignore[arg-type]
    assert asked == [1000, 1000]
