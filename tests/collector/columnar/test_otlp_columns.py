"""OTLP logs parsed as columns equal those parsed record by record with the library, for any request."""

from __future__ import annotations

import json
import math
from typing import Any

import otlp_by_record
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from collector.columnar import otlp_json, otlp_protobuf, otlp_tables
from collector.receivers import otlp
from collector.receivers.base import Decoded, Payload, Request, Run
from collector.receivers.refusals import Poison, Refused
from tests.examples import examples

NANOS = 1_795_255_200_123_456_789
RECEIVED = 1_795_255_300_000_000


def said(decoded: Decoded) -> list[tuple[Any, list[tuple[bytes, Run]]]]:
    """By the fields that lines are parsed together with, in order: every line, and its metadata."""
    found = []
    for key, group in decoded.groups.items():
        runs: list[Run] = []
        for run in group.runs:
            if isinstance(run, pl.DataFrame):
                runs += [Run(**{"lines": 1, **row}) for row in run.to_dicts()]
            else:
                runs.append(run)
        found.append((key, list(zip(group.lines, runs, strict=True))))
    return found


def both(form: str, body: bytes) -> tuple[Any, Any]:
    """The results of the columns and of the records; None for what is set aside."""
    answers = []
    payload = Payload(body, {"received": RECEIVED, "peer": "10.0.0.1", "form": form, "signal": "logs"})
    for decode in (otlp.RECEIVER.decode, otlp_by_record.decode):
        into = Decoded()
        try:
            decode(payload, into)
            answers.append(said(into))
        except Poison:
            answers.append(None)
    return answers[0], answers[1]


@pytest.fixture(scope="module", autouse=True)
def machine_code() -> None:
    """Compiled before the examples, each of which has a deadline."""
    otlp.QUICK.wait()
    for form, body in (("json", json.dumps(DOCUMENT).encode()), ("protobuf", REQUEST)):
        assert both(form, body)[0] is not None


# -- requests in general -------------------------------------------------------------------------------------------

_TEXTS = st.text(max_size=6) | st.sampled_from(["", "a", 'say "x"\\', "a\nb\tc\x00\x1f\x7f", "ü漢😀", "/jobs/slurm-17.out", "/var/log/syslog", "warn", "FATAL", "7"])  # fmt: skip
_KEYS = st.sampled_from([*otlp._COLUMNS, *otlp._COLUMNS, "rank", "a", "b", "ü", "log", 'q"', ""]) | st.text(max_size=3)
_WHOLE = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-12, 12)
_MOMENTS = st.sampled_from([0, 0, 1, 999, 1000, NANOS, (1 << 63) - 1])
_SEVERITIES = st.integers(-2, 26)


def any_values(leaves: Any = None) -> Any:
    one = st.builds(AnyValue)
    plain = (
        one | st.builds(AnyValue, string_value=_TEXTS) | st.builds(AnyValue, int_value=_WHOLE) | st.builds(AnyValue, bool_value=st.booleans())
        | st.builds(AnyValue, double_value=st.floats())
    )  # fmt: skip
    odd = st.builds(AnyValue, bytes_value=st.binary(max_size=4)) | st.recursive(plain, _nested, max_leaves=4)
    return st.one_of(plain, plain, plain, plain, odd) if leaves is None else leaves


def _nested(values: Any) -> Any:
    lists = st.lists(values, max_size=2).map(lambda items: _with(AnyValue(), "array_value", items))
    maps = st.lists(st.builds(KeyValue, key=_KEYS, value=values), max_size=2).map(
        lambda items: _with(AnyValue(), "kvlist_value", items)
    )
    return lists | maps


def _with(value: AnyValue, kind: str, items: list[Any]) -> AnyValue:
    held = getattr(value, kind)
    held.SetInParent()
    held.values.extend(items)
    return value


_ATTRIBUTES = st.lists(st.builds(KeyValue, key=_KEYS, value=any_values()), max_size=4)
_RECORD = st.fixed_dictionaries({"attributes": _ATTRIBUTES}, optional={
    "time_unix_nano": _MOMENTS | st.just((1 << 64) - 1), "observed_time_unix_nano": _MOMENTS, "severity_number": _SEVERITIES, "severity_text": _TEXTS,
    "body": any_values(), "trace_id": st.binary(max_size=16),
})  # fmt: skip


@st.composite
def protobuf(draw: Any) -> bytes:
    request = ExportLogsServiceRequest()
    for _ in range(draw(st.integers(0, 2))):
        group = request.resource_logs.add()
        group.resource.attributes.extend(draw(_ATTRIBUTES))
        for _ in range(draw(st.integers(0, 2))):
            scope = group.scope_logs.add()
            scope.scope.name = "x"
            for fields in draw(st.lists(_RECORD, max_size=4)):
                scope.log_records.add(**fields)
    return request.SerializeToString()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(6))
@given(protobuf())
def test_any_request_in_protobuf(body: bytes) -> None:
    ours, theirs = both("protobuf", body)
    assert ours == theirs is not None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(7))
@given(protobuf(), st.integers(0, 400), st.binary(max_size=6), st.integers(0, 6))
def test_protobuf_that_was_cut_or_written_over(body: bytes, at: int, other: bytes, gone: int) -> None:
    """Unknown fields, fields given twice, ends in the middle: the same rows, or the same refusal."""
    at = at % (len(body) + 1)
    for changed in (body[:at], body[:at] + other + body[at + gone :], body + body, body + other):
        ours, theirs = both("protobuf", changed)
        assert ours == theirs


# -- JSON ----------------------------------------------------------------------------------------------------------

_JSON_WHOLE = _WHOLE.map(str) | _WHOLE | st.sampled_from(["007", "-0", "+5", " 5 ", "1_0", "3.5", "", "x", True, None, 1.0, 10**30, "9" * 25])  # fmt: skip
_JSON_PLAIN = (
    _TEXTS.map(lambda value: {"stringValue": value}) | _JSON_WHOLE.map(lambda value: {"intValue": value}) | st.booleans().map(lambda value: {"boolValue": value})
    | (st.floats() | st.integers() | st.just("NaN")).map(lambda value: {"doubleValue": value}) | st.just({"bytesValue": "AAEC"})
)  # fmt: skip
_JSON_ODD = st.sampled_from([None, {}, [], "text", 5, {"stringValue": None}, {"stringValue": 5}, {"stringValue": "a", "intValue": "5"}, {"other": [1]},
                             {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "b"}]}}, {"arrayValue": {}},
                             {"kvlistValue": {"values": [{"key": "log", "value": {"stringValue": "wrapped"}}]}}, {"kvlistValue": {"values": []}}])  # fmt: skip
_JSON_VALUES = st.one_of(_JSON_PLAIN, _JSON_PLAIN, _JSON_PLAIN, _JSON_ODD)
_JSON_PAIR = st.fixed_dictionaries({"key": _KEYS}, optional={"value": _JSON_VALUES, "also": _JSON_ODD})
_JSON_ATTRIBUTES = st.lists(_JSON_PAIR, max_size=4)
_JSON_MOMENTS = _MOMENTS.map(str) | _MOMENTS | st.sampled_from([None, "", NANOS])
_JSON_BAD_MOMENTS = st.sampled_from(["-1", "x", "1.5", 1.5e18, True, "99999999999999999999", 1 << 63, {}, " 7 "])
_ESCAPED = 'esc\u0061ped"\\/\b\f\n\r\t\u00fc\u6f22\ud83d\ude00'
_JSON_SEVERITIES = _SEVERITIES | st.sampled_from(
    [None, "17", "x", 9.0, 1e3, "SEVERITY_NUMBER_INFO", True, 10**20, "-3", "9" * 20]
)
_JSON_RECORD = st.fixed_dictionaries({}, optional={
    "timeUnixNano": _JSON_MOMENTS, "observedTimeUnixNano": _JSON_MOMENTS, "severityNumber": _JSON_SEVERITIES,
    "severityText": _TEXTS | st.sampled_from([None, 5]), "body": _JSON_VALUES, "attributes": _JSON_ATTRIBUTES | st.sampled_from([None, {}]),
    "traceId": st.just("00"), "flags": st.integers(0, 3), "other": _JSON_ODD,
})  # fmt: skip
_JSON_BAD_ATTRIBUTES = st.sampled_from([[5], [{}], 5, [{"key": 5, "value": None}]]).map(
    lambda attributes: {"attributes": attributes}
)
_JSON_BAD_RECORD = (
    st.sampled_from([None, 5, "x", []]) | _JSON_BAD_ATTRIBUTES | _JSON_BAD_MOMENTS.map(lambda moment: {"timeUnixNano": moment})
)  # fmt: skip
_JSON_RECORDS = st.lists(_JSON_RECORD, max_size=4) | st.sampled_from([None, []])
_JSON_SCOPES = st.lists(
    st.fixed_dictionaries({}, optional={"logRecords": _JSON_RECORDS, "scope": _JSON_ODD}), max_size=2
)
_JSON_GROUP = st.fixed_dictionaries({}, optional={
    "resource": st.fixed_dictionaries({}, optional={"attributes": _JSON_ATTRIBUTES}) | st.none(), "scopeLogs": _JSON_SCOPES | st.none(),
    "instrumentationLibraryLogs": _JSON_SCOPES, "schemaUrl": st.just("x"),
})  # fmt: skip
_JSON_DOCUMENT = st.fixed_dictionaries(
    {"resourceLogs": st.lists(_JSON_GROUP, max_size=2) | st.none()}, optional={"other": _JSON_ODD}
)
_STYLES = st.sampled_from([{}, {"ensure_ascii": False}, {"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True}])
DOCUMENT = {"resourceLogs": [{"resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "n1"}}, {"key": "zone", "value": {"intValue": "3"}}]},
    "scopeLogs": [{"logRecords": [
        {"timeUnixNano": str(NANOS), "severityNumber": 17, "body": {"stringValue": _ESCAPED}, "attributes": [
            {"key": "rank", "value": {"intValue": "-3"}}, {"key": "loss", "value": {"doubleValue": 0.25}}, {"key": "zone", "value": {"stringValue": _ESCAPED}},
            {"key": "log.file.path", "value": {"stringValue": "/var/log/syslog"}}, {"key": "process.pid", "value": {"intValue": 42}}]},
        {"severityText": "Err", "body": {"stringValue": "b"}},
    ]}]}]}  # fmt: skip
REQUEST = ExportLogsServiceRequest()
_scope = REQUEST.resource_logs.add().scope_logs.add()
_scope.log_records.add(time_unix_nano=NANOS, severity_text="Warn", attributes=[
    KeyValue(key="loss", value=AnyValue(double_value=0.5)), KeyValue(key="process.pid", value=AnyValue(int_value=4)),
]).body.string_value = "a"  # fmt: skip
REQUEST = REQUEST.SerializeToString()


def written(document: object, style: dict[str, Any]) -> bytes:
    return json.dumps(document, **style).encode("utf-8", "surrogatepass")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(12))
@given(_JSON_DOCUMENT, _STYLES)
@example({"resourceLogs": [{"resource": {"attributes": [{"key": "host.id", "value": {"intValue": "3.5"}}]}}]}, {})
def test_any_request_in_json(document: Any, style: dict[str, Any]) -> None:
    body = written(document, style)
    ours, theirs = both("json", body)
    assert ours == theirs
    if otlp_json.is_request(body):  # never true for what the event loop would refuse
        otlp._check_json("logs", body)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(7))
@given(_JSON_BAD_RECORD, st.lists(_JSON_RECORD, max_size=2))
def test_records_that_are_none_refuse_the_request(bad: Any, others: list[Any]) -> None:
    body = written({"resourceLogs": [{"scopeLogs": [{"logRecords": [*others, bad]}]}]}, {})
    ours, theirs = both("json", body)
    assert ours == theirs


_PIECES = st.sampled_from([b"", b'"', b"\\", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud83d", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\x00", b"\xff", b"\xc3\xbc",
                           b"1", b"01", b"-", b".5", b"1e5", b"null", b"true", b"nul", b'"a":1,', b'"body":{},', b"[[[[", b"//"])  # fmt: skip


@settings(deadline=None, max_examples=examples(25))
@example(633, b"1e5", 1, False)  # a process number beyond all numbers
@example(633, b"1e5", 2, False)  # and one that no column holds
@given(st.integers(0, 1200), _PIECES, st.integers(0, 4), st.booleans())
def test_json_that_was_cut_or_written_over(at: int, other: bytes, gone: int, ends: bool) -> None:
    """What the walk accepts is JSON, and its result equals the library's."""
    whole = written(DOCUMENT, {})
    at = at % (len(whole) + 1)
    body = whole[:at] + other + (b"" if ends else whole[at + gone :])
    ours, theirs = both("json", body)
    assert ours == theirs
    if otlp_json.is_request(body):
        otlp._check_json("logs", body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"null", b'{"resourceLogs":[]}  ', b'\xef\xbb\xbf{"resourceLogs":[]}', b'{"resourceLogs":[]}{}', b'{"resourceLogs":[],"resourceLogs":[]}',
        '{"resourceLogs":[]}'.encode("utf-16"), b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"\\u0062ody":{"stringValue":"x"}}]}]}]}',
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"},"body":{"stringValue":"y"}}]}]}]}',
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"\\ud800"}}]}]}]}',
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"doubleValue":NaN}}]}]}]}',
        b'{"resourceLogs":[{"resource":"","scopeLogs":[{"logRecords":[{}]}]}]}', b'{"resourceLogs":[{"resource":5,"scopeLogs":[{"logRecords":[{}]}]}]}',
        b'{"resourceLogs":[' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"]}",
    ],
)  # fmt: skip
def test_json_out_of_the_ordinary(body: bytes) -> None:
    ours, theirs = both("json", body)
    assert ours == theirs
    if otlp_json.is_request(body):
        otlp._check_json("logs", body)


# -- the tables ----------------------------------------------------------------------------------------------------


def many(records: int, attributes: int) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    for host in range(3):
        group = request.resource_logs.add()
        group.resource.attributes.add(key="host.name").value.string_value = f"n{host}"
        scope = group.scope_logs.add()
        for number in range(records):
            record = scope.log_records.add()
            if number % 7:
                record.body.string_value = f"line {number} of a job's output"
            else:
                record.body.int_value = number
            for at in range(attributes):
                record.attributes.add(key="" if at % 2 else "log.file.path").value.string_value = (
                    f"/x/{number % 5}.log" if at == 0 else ""
                )
    return request


@pytest.mark.parametrize(("records", "attributes"), [(300, 0), (300, 1), (200, 30), (3, 200)])
def test_more_rows_than_were_expected_and_strange_ones_between_them(records: int, attributes: int) -> None:
    body = many(records, attributes).SerializeToString()
    tables = otlp_protobuf.tables(body)
    assert (
        tables is not None and len(tables.records) == 3 * records and len(tables.attributes) == 3 * records * attributes
    )
    ours, theirs = both("protobuf", body)
    assert ours == theirs is not None


def test_small_json_of_many_records() -> None:
    record = {"attributes": [{"key": ""}] * 3}
    body = written(
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, {}] * 500}]}] * 3 + [{}] * 500},
        {"separators": (",", ":")},
    )
    tables = otlp_json.tables(body)
    assert tables is not None and (tables.records[:, otlp_tables.STRANGE] == 0).all()
    ours, theirs = both("json", body)
    assert ours == theirs is not None


def test_most_requests_are_not_left_to_the_thorough_reader() -> None:
    """Otherwise everything here would hold without any benefit."""
    for tables in (otlp_json.tables(written(DOCUMENT, {})), otlp_protobuf.tables(REQUEST)):
        assert tables is not None and not tables.records[:, otlp_tables.STRANGE].any()


def test_a_process_number_beyond_all_bounds_holds_nothing_up() -> None:
    for pid in ("9" * 40, "²"):
        pairs = [{"key": "process.pid", "value": {"stringValue": pid}}]
        document = {
            "resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "a"}, "attributes": pairs}]}]}]
        }
        into = Decoded()
        otlp.RECEIVER.decode(
            Payload(written(document, {}), {"received": RECEIVED, "form": "json", "signal": "logs"}), into
        )
        ((_, ((line, run),)),) = said(into)
        assert line == b"a" and run.pid is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"resourceLogs":[1]}',
        b'{"resourceLogs":"x"}',
        b'{"a":1}',
        b"[]",
        b'{"resourceLogs":[',
        b'{"resourceLogs":[{"a":tru}]}',
    ],
)
def test_what_is_refused_stays_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        otlp._accept("logs", Request("POST", "/v1/logs", {}, {"content-type": "application/json"}, body))


def test_fractions_are_written_as_the_library_writes_them() -> None:
    values = [0.1, 1e16, 1e-5, -0.0, 1.0, math.inf, -math.inf, math.nan, 5e-324, 123456789.123]
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.attributes.extend(
        KeyValue(key=f"k{at}", value=AnyValue(double_value=value)) for at, value in enumerate(values)
    )
    ours, theirs = both("protobuf", request.SerializeToString())
    assert ours == theirs is not None


def test_a_resource_that_would_come_to_gigabytes_is_set_aside_with_the_reason() -> None:
    """One megabyte for each of three thousand records: three gigabytes of fields."""
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    group.resource.attributes.add(key="note").value.string_value = "x" * (1 << 20)
    group.scope_logs.add().log_records.extend([LogRecord()] * 3_000)
    with pytest.raises(Poison, match="3,000 records"):
        otlp.RECEIVER.decode(
            Payload(request.SerializeToString(), {"received": RECEIVED, "form": "protobuf", "signal": "logs"}),
            Decoded(),
        )
