"""Loki's push API: both forms of the same push give the same lines, and invalid ones are set aside."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.loki_messages import PushRequest
from collector.receivers import loki
from collector.receivers.base import Decoded, Payload, Request, Run
from collector.receivers.refusals import Poison, Refused

RECEIVED = 1_795_255_300_000_000
NANOS = 1_795_255_200_123_456_789
Stream = tuple[dict[str, str], list[tuple[int, str, dict[str, str]]]]

_LABELS = st.sampled_from([
    {}, {"host": "n1"}, {"filename": "/var/log/syslog", "host": "n2", "rank": "3"}, {"job": "fluent-bit", "level": "WARN", "app": "\u00fc"},
])  # fmt: skip
_LINES = st.sampled_from(
    ["", "a", "x\ny", '{"log":"x"}', '{"log": "x", "host": "n9"}', '{"message":"x"}', "{", '{"log":', "\u6f22"]
)
_METADATA = st.sampled_from([{}, {}, {}, {"level": "error"}, {"host": "n3"}])
_ENTRIES = st.lists(st.tuples(st.sampled_from([0, 1, NANOS, (1 << 63) - 1]), _LINES, _METADATA), max_size=5)
_STREAMS = st.lists(st.tuples(_LABELS, _ENTRIES | _ENTRIES.map(lambda some: some * 20)), max_size=3)


def in_json(streams: list[Stream]) -> bytes:
    pushed = [
        {"stream": labels, "values": [[str(stamp), line, *([more] if more else [])] for stamp, line, more in entries]}
        for labels, entries in streams
    ]
    return json.dumps({"streams": pushed}).encode()


def in_protobuf(streams: list[Stream]) -> bytes:
    request = PushRequest()
    for labels, entries in streams:
        stream = request.streams.add(labels=("{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}").encode())
        for stamp, line, more in entries:
            entry = stream.entries.add(line=line.encode())
            entry.timestamp.seconds, entry.timestamp.nanos = divmod(stamp, 1_000_000_000)
            for name, value in more.items():
                entry.metadata.add(name=name.encode(), value=value.encode())
    return packed(request.SerializeToString())


def packed(message: bytes) -> bytes:
    return bytes(pa.compress(message, codec="snappy", asbytes=True))


def decoded(form: str, body: bytes) -> list[Any]:
    """By the fields that lines are parsed together with, in order: every line, and its metadata."""
    into = Decoded()
    loki.RECEIVER.decode(Payload(body, {"received": RECEIVED, "peer": "10.0.0.1", "form": form}), into)
    found = []
    for key, group in into.groups.items():
        runs: list[Run] = []
        for run in group.runs:
            runs += [Run(**{"lines": 1, **row}) for row in run.to_dicts()] if isinstance(run, pl.DataFrame) else [run]
        found.append((key, list(zip(group.lines, runs, strict=True))))
    return found


@settings(deadline=None)
@given(_STREAMS)
def test_both_forms_say_the_same(streams: list[Stream]) -> None:
    found = decoded("json", in_json(streams))
    assert found == decoded("protobuf", in_protobuf(streams))
    plain = [line for _, entries in streams for _, line, _ in entries if '"log":' not in line]
    assert sorted(
        line.decode() for _, lines in found for line, _ in lines if b'"log":' not in line and line != b"x"
    ) == sorted(plain)


def test_a_line_that_is_no_text_is_kept_with_marks() -> None:
    request = PushRequest()
    request.streams.add(labels=b'{host="n1"}').entries.add(line=b"a\xffb").timestamp.seconds = NANOS // 1_000_000_000
    (((_, ((line, run),))),) = decoded("protobuf", packed(request.SerializeToString()))
    assert (line, run.host, run.time) == ("a\ufffdb".encode(), "n1", NANOS // 1_000_000_000 * 1_000_000)


def test_fields_that_nobody_knows_are_passed_over() -> None:
    """Loki's own clients send a hash of the stream, and newer ones more."""
    stream = b'\x0a\x0b{host="n1"}' + b"\x12\x05\x12\x01a\x20\x07" + b"\x18\x05" + b"\x52\x01x"
    (((_, ((line, run),))),) = decoded("protobuf", packed(b"\x0a" + bytes([len(stream)]) + stream + b"\x10\x07"))
    assert (line, run.host, run.time) == (b"a", "n1", 0)


@pytest.mark.parametrize("message", [b"\x0a\x50", b"\x0a\x02\x12\x7f", b"\x0a\x05\x0a\x03{\xff}", b"\xff" * 12])
def test_what_is_cut_or_no_text_is_refused_at_the_door_and_set_aside_later(message: bytes) -> None:
    body = packed(message)
    request = Request("POST", "/loki/api/v1/push", {}, {"content-type": "application/x-protobuf"}, body)
    with pytest.raises(Refused):
        loki.RECEIVER.routes[0].accept(request)
    with pytest.raises(Poison):
        decoded("protobuf", body)


@pytest.mark.parametrize("moment", [(-1, 0), (1 << 40, 0), (0, -1)])
def test_a_moment_beyond_all_bounds_sets_the_push_aside(moment: tuple[int, int]) -> None:
    request = PushRequest()
    stamp = request.streams.add(labels=b"{}").entries.add(line=b"a").timestamp
    stamp.seconds, stamp.nanos = moment
    with pytest.raises(Poison, match="time stamp"):
        decoded("protobuf", packed(request.SerializeToString()))


@pytest.mark.parametrize(
    "document",
    [{}, [], {"streams": 5}, {"streams": [5]}, {"streams": [{"stream": {"a": {}}, "values": [["1"]]}]}, {"streams": [{"stream": {}, "values": [["x", "a"]]}]}],
)  # fmt: skip
def test_json_that_is_no_push_is_set_aside(document: Any) -> None:
    with pytest.raises(Poison):
        decoded("json", json.dumps(document).encode())
