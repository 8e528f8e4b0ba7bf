"""Objects parsed many at once give the same result as one by one, for any body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collector.columnar import objects
from collector.columnar.moments import moments
from collector.receivers import base, elasticsearch, ndjson, wrapped
from collector.receivers.base import Decoded, Payload, Run, micros
from collector.receivers.refusals import Poison
from collector.receivers.wrapped import loads
from collector.receivers.wrapped_columns import plain_wrappers
from tests.examples import examples

RECEIVED = 1_795_255_300_000_000
NANOS = 1_795_255_200_123_456_789
DECODE = {
    "ingest": ndjson.RECEIVER.decode,
    "elasticsearch": elasticsearch.RECEIVER.decode,
}


def said(decoded: Decoded) -> list[tuple[Any, list[tuple[bytes, Run]]]]:
    """By the fields that lines are parsed together with, in order: every line, and its metadata."""
    found = []
    for key, group in decoded.groups.items():
        runs: list[Run] = []
        for run in group.runs:
            rows = run.to_dicts() if isinstance(run, pl.DataFrame) else [run._asdict()] * run.lines
            runs += [Run(**{**row, "lines": 1}) for row in rows]
        found.append((key, list(zip(group.lines, runs, strict=True))))
    return found


def both(kind: str, body: bytes, **meta: Any) -> tuple[Any, Any]:
    """The results of many at once and of one by one; the reason if it is set aside."""
    payload = Payload(body, {"received": RECEIVED, "peer": "10.0.0.1", **meta})
    return decoded(kind, payload, 1), decoded(kind, payload, 1 << 30)


def decoded(kind: str, payload: Payload, fewest: int) -> Any:
    """The result with ``fewest`` objects read at once; the reason if the payload is set aside."""
    into = Decoded()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "FEWEST", fewest)
        patch.setattr(base, "FEW", 2)
        try:
            DECODE[kind](payload, into)
        except (Poison, ValueError) as error:
            return str(error)
    tables = [{name: part.to_dicts() for name, part in parsed.tables.items()} for parsed in into.parsed]
    uncut = [(key, group.data, group.runs) for key, group in into.groups.items() if key.uncut]
    into.groups = {key: group for key, group in into.groups.items() if not key.uncut}
    return said(into), uncut, tables, into.blind, into.status


def same(kind: str, body: bytes, **meta: Any) -> None:
    many, single = both(kind, body, **meta)
    assert repr(many) == repr(single)  # which distinguishes 1 from true


@pytest.fixture(scope="module", autouse=True)
def machine_code() -> Iterator[None]:
    """Compiled before the examples, each of which has a deadline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "FEWEST", 1)
        yield


_ESCAPED = 'esc\u0061ped"\\/\b\f\n\r\t\u00fc\u6f22\U0001f600'
_TEXTS = st.sampled_from(["", "a", "b", "gpu1.site.example", "10.0.0.1", "/var/log/syslog", "/jobs/slurm-17.out", "slurmd[12]:", "sshd", "ERR", "3", "warn", _ESCAPED,
                          "2026-11-21T10:00:00.123456Z", "\u2028\x7f\x00", "²", "x[99999999999999999999]"]) | st.text(max_size=3)  # fmt: skip
_STAMPS = st.sampled_from([
    "2026-11-21T10:00:00.123456789Z", "2026-11-21T10:00:00+01:00", "2026-11-21 10:00:00", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "20261121T100000Z",
    "2026-11-21", "0001-01-01T00:00:00-23:59", "9999-12-31T23:59:59.999999Z", "2026-11-21T24:00:00Z", "1795255200.5", "1795255200", "yesterday", "2026-11-21t10:00:00z",
    1795255200, 1795255200.123456, 1795255200123, 1795255200123456, NANOS, -NANOS, -1.5, 0, 0.1, 1e20, 99_999_999_999_999_999, 100_000_000_000_000_001, 10**19, 10**25, True, None, [], {"a": 1},
])  # fmt: skip
_NUMBERS = st.integers(-9, 9) | st.sampled_from(
    [10**18, 2**64 - 1, 2**64, -(2**63), 0.5, -0.0, 1e16, 1e-7, 1.50, 123456789.123456789]
)
_PLAIN = _TEXTS | _NUMBERS | st.sampled_from([True, False, None])
_NAMES = st.sampled_from([
    "message", "message", "msg", "log", "MESSAGE", "@timestamp", "timestamp", "time", "ts", "host", "host", "hostname", "host.name", "path", "file", "ident", "syslogtag",
    "severity", "level", "log.level", "PRIORITY", "facility", "pid", "rank", "tags", "a", "a.b", "b", "offset", "read", "name", "ü", 'q"', "", "raw", "stream",
])  # fmt: skip
_VALUES = st.one_of(_TEXTS, _TEXTS, _PLAIN, _STAMPS, st.recursive(_PLAIN, lambda held: st.lists(held, max_size=2) | st.dictionaries(_NAMES, held, max_size=2), max_leaves=4))  # fmt: skip
_WIRE = st.sampled_from(["raw", "lines", "raw_base64", "defaults", "status", "blind", "document", "source", "cluster", "timezone", "job_id", "restarts", "tags", "jobid",
                         "state", "@end", "__REALTIME_TIMESTAMP", "kmsg_us", "agent"])  # fmt: skip
_FOREIGN = st.dictionaries(_NAMES, _VALUES, max_size=5)
_SHIPPED = st.fixed_dictionaries({"message": _TEXTS}, optional={
    "@timestamp": _STAMPS, "host": st.fixed_dictionaries({"name": _TEXTS}, optional={"os": st.fixed_dictionaries({"kernel": _PLAIN, "more": _VALUES})}) | _TEXTS,
    "log": st.fixed_dictionaries({}, optional={"file": st.fixed_dictionaries({"path": _TEXTS}), "offset": _NUMBERS, "level": _TEXTS}), "ident": _TEXTS, "level": _PLAIN,
    "tags": st.lists(_PLAIN, max_size=2), "rank": _NUMBERS,
})  # fmt: skip
_ALIKE = st.fixed_dictionaries({"raw": _TEXTS}, optional={
    "time": _STAMPS, "read": _STAMPS, "offset": _PLAIN, "host": st.sampled_from(["n1", "n2"]), "path": st.sampled_from(["/var/log/syslog", "/jobs/slurm-17.out"]),
    "source": st.sampled_from(["kernel", "job_stdout", ""]), "severity": st.sampled_from(["error", "x"]), "job_id": st.sampled_from(["7", "x"]), "stream": st.just("kmsg"),
})  # fmt: skip
_DEFAULTS = st.fixed_dictionaries({"defaults": st.dictionaries(_NAMES | _WIRE, _TEXTS, max_size=3)})
_RECORD = st.one_of(
    _ALIKE,
    _ALIKE,
    _ALIKE,
    _SHIPPED,
    _SHIPPED,
    _FOREIGN,
    st.dictionaries(_NAMES | _WIRE, _VALUES, max_size=4),
    _DEFAULTS,
)
_LINE = st.sampled_from([b"", b" ", b"\r", b"\x0b", b"plain words", b'"text"', b"[1]", b"5", b'{"message":', b'{"message":"a","message":"b"}', b'{"m\\u0065ssage":"a"}',
                         b'{"message":"\\ud800"}', b'{"message":NaN,"log":"x"}', b'{"message":"x","a":1e999}', b'{"a":{},"message":"x"}', b'\xef\xbb\xbf{"message":"x"}',
                         b'{"message":"x"}{}', b'{"message":"x","a":' + b"[" * 70 + b"]" * 70 + b"}", b'{"a":{"b":1},"a.b":2,"message":"x"}', b'{"message":"x","a":-0,"b":1.0}\r'])  # fmt: skip
_STYLES = st.sampled_from([{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"sort_keys": True}])


def written(document: object, style: dict[str, Any]) -> bytes:
    return json.dumps(document, **style).encode("utf-8", "surrogatepass")


@st.composite
def lines(draw: Any, records: Any = _RECORD) -> list[bytes]:
    style = draw(_STYLES)
    some = [written(record, style) for record in draw(st.lists(records, min_size=1, max_size=6))]
    others = draw(st.lists(_LINE, max_size=1))
    repeated = draw(st.lists(st.sampled_from([*some, *some, *some, *others]), min_size=1, max_size=14))
    return [*some, *repeated]


_QUICKLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(8))
_HEADERS = st.sampled_from([{}, {}, {}, {"host": "h", "source": "syslog"}, {"path": "/var/log/syslog", "cluster": "c", "timezone": "Europe/Berlin"}])  # fmt: skip


@_QUICKLY
@given(lines(), _HEADERS, st.booleans())
def test_any_records_on_lines(some: list[bytes], attributes: dict[str, str], ends: bool) -> None:
    same(
        "ingest", b"\n".join(some) + b"\n" * ends, form="records", **({"attributes": attributes} if attributes else {})
    )


@_QUICKLY
@given(lines(), _HEADERS, st.integers(1, 7), st.sampled_from([1, 3, 1 << 30]))
@example(
    [b'{"message":"x"}', b"plain", b'{"raw":"a","host":"n1"}', b'{"message":"y","a":{}}', b"plain", b"plain"], {}, 2, 1
)
def test_a_body_that_is_read_in_parts(some: list[bytes], attributes: dict[str, str], most: int, fewest: int) -> None:
    """Whatever lies at the end of a part: what a stream is shows in its first line here, which is always read whole."""
    meta = {
        "received": RECEIVED,
        "peer": "10.0.0.1",
        "form": "records",
        **({"attributes": attributes} if attributes else {}),
    }
    payload = Payload(b"\n".join(some), meta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapped, "HEAD_LINES", 1)
        whole = decoded("ingest", payload, fewest)
        patch.setattr(ndjson, "_AT_ONCE", most)
        assert repr(decoded("ingest", payload, fewest)) == repr(whole)


@_QUICKLY
@given(st.lists(_RECORD, min_size=2, max_size=8), _STYLES, st.sampled_from([b"", b"[", b"]", b'"', b"\\u00e9", b"\xff", b",5", b'{"a":', b"NaN"]), st.integers(0, 600))  # fmt: skip
def test_any_records_in_a_list(some: list[Any], style: dict[str, Any], other: bytes, at: int) -> None:
    body = written(some, style)
    same("ingest", body, form="json")
    at %= len(body)
    same("ingest", body[:at] + other + body[at:], form="json")


_ACTION = st.sampled_from([b'{"index":{}}', b'{"create":{"_index":"logs"}}', b'{"create":{"_index":"logs","_id":"1"}}', b'{"index":{"_index":"logs","_id":5}}\r', b'{"index":{"_index":5}}',
                           b'{"index":{"_index":null}}', b'{"index": {"_index": "o\\u0074her"}}', b'{"update":{"_id":"1"}}', b' {"create":{"_id":"2"}}', b'{"create":{"a":{"b":1}}}'])  # fmt: skip
_BAD_ACTION = st.sampled_from([b'{"delete":{"_id":"1"}}', b'{"other":{}}', b'{"index":5}', b'{"index":{},"create":{}}', b"x", b'{"create._index":"a"}', b""])  # fmt: skip


@_QUICKLY
@given(st.data(), lines(st.one_of(_SHIPPED, _SHIPPED, _FOREIGN, st.dictionaries(_NAMES | _WIRE, _VALUES, max_size=5))))
def test_any_bulk_request(data: Any, some: list[bytes]) -> None:
    actions = data.draw(st.lists(_ACTION, min_size=1, max_size=4)) + data.draw(st.lists(_BAD_ACTION, max_size=1))
    pairs = [part for at, line in enumerate(some) for part in (actions[at % len(actions)], line)]
    same("elasticsearch", b"\n".join(pairs) + b"\n", form="bulk", index=data.draw(st.sampled_from(["", "of-path"])))


_PIECES = st.sampled_from([b"", b'"', b"\\", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud83d", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\r\n", b"\x00", b"\xff", b"\xc3\xbc", b"1", b"01",
                           b"-", b".5", b"1e5", b"null", b'"a":1,', b'"a":{},', b'"host":"x",', b"[[["])  # fmt: skip
DOCUMENTS = [
    {"@timestamp": "2026-11-21T10:00:00.123Z", "host": {"name": "n1.x", "ip": ["10.0.0.1", "::1"]}, "log": {"file": {"path": "/var/log/syslog"}, "offset": 7}, "message": _ESCAPED},
    {"date": 1795255200.5, "log": "GET /", "rank": -3, "loss": 0.25, "pri": "4", "ident": "sshd[7]"},
    {"raw": "a", "host": "n1", "time": "2026-11-21T10:00:00Z"}, {"raw": "b", "host": "n1", "read": NANOS},
]  # fmt: skip


@_QUICKLY
@given(st.integers(0, 5000), _PIECES, st.integers(0, 4))
def test_bodies_that_were_written_over(at: int, other: bytes, gone: int) -> None:
    whole = b"".join(written(document, {}) + b"\n" for document in DOCUMENTS * 3)
    at %= len(whole)
    same("ingest", whole[:at] + other + whole[at + gone :], form="records")
    pairs = b"".join(b'{"create":{"_index":"x"}}\n' + written(document, {}) + b"\n" for document in DOCUMENTS * 2)
    at %= len(pairs)
    same("elasticsearch", pairs[:at] + other + pairs[at + gone :], form="bulk", index="")


@_QUICKLY
@given(
    st.lists(
        _STAMPS | _TEXTS | _NUMBERS | st.datetimes().map(str) | st.floats(allow_nan=False, allow_infinity=False),
        min_size=1,
        max_size=20,
    )
)
def test_moments(values: list[Any]) -> None:
    body = b"".join(written({"at": value, "x": 1}, {}) + b"\n" for value in values)
    found = objects.on_lines(body, loads)
    assert found is not None
    slots = found.slots(("at",)).get("at")
    if slots is not None:
        read = moments(found, slots, micros).to_list()
        expected = [micros(loads(found.text(row))["at"]) for row in range(len(found))]
        assert [(a, b) for at, a, b in zip(slots, read, expected, strict=True) if at >= 0 and a != b] == []


def test_most_objects_are_read_with_others() -> None:
    """Otherwise everything here would hold without any benefit."""
    found = objects.on_lines(b"".join(written(document, {}) + b"\n" for document in DOCUMENTS), loads)
    assert found is not None and not found.marked().any()
    assert plain_wrappers(found).tolist() == [True, True, False, False]
    assert ndjson.AlikeColumns(found).fits.tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    "body",
    [
        b"".join(b'{"message":"%d","host":"n%d","path":"/var/log/%d"}\n' % (at, at % 7, at % 5) for at in range(300)),
        b"".join(b'{"raw":"%d","host":"n%d","path":"/jobs/slurm-%d.out"}\n' % (at, at % 7, at // 40) for at in range(300)),
        b"".join(b'{"message":"%d","name %d":{"b":{"c":{"d":[%d, {"z": 1, "a": 2}]}}}}\n' % (at, at, at % 3) for at in range(3_000)),
        b"".join(b'{"message":"%d","%s":1}\n' % (at, b"x" * at) for at in range(250, 270)),
        b'{"message":"x",%s}\n' % b",".join(b'"n%d":%d' % (at, at) for at in range(200)) * 3,
        b'{"message":"x"}\nplain\n' * 200,
    ],
)  # fmt: skip
def test_many(body: bytes) -> None:
    """Many files, many names, long names, many members, and neighbours one of which is no object."""
    same("ingest", body, form="records")
