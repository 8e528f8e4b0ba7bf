"""The entries of a stream of Loki's push API, in either form: moments and where their lines are, all at once.

A stream of which an entry is out of the ordinary (metadata of its own, a record of Fluent Bit for a line, fields given twice, no
moment) is left to the thorough reader.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from collector.columnar import otlp_nodes as n
from collector.columnar import otlp_tables as t
from collector.columnar.otlp_nodes import read
from collector.columnar.otlp_tables import Array, padded
from parsers.compiled import compiled, part
from parsers.lines import LineBuffer

#: Bytes of a smaller stream, which is read entry by entry.
LEAST = 4096
#: Columns of entries: nanoseconds since 1970; where the line is.
_STAMP, _LINE, _SIZE = range(3)
#: An entry of protobuf has at least so many bytes, one of JSON so many nodes.
_ENTRY_BYTES, _ENTRY_NODES = 2, 3
_LABELS, _ENTRY = 1 << 3 | 2, 2 << 3 | 2
_MOMENT, _TEXT = 1 << 3 | 2, 2 << 3 | 2
_SECONDS, _NANOS = 1 << 3, 2 << 3
#: Below this the nanoseconds of a moment fit 63 bits.
_MOST_SECONDS, _SECOND = 9_000_000_000, 1_000_000_000
_DIGITS = 19
_OPEN, _ZERO, _EIGHT, _NINE = b"{089"
_LOG = np.frombuffer(b'"log":', np.uint8)


class Entries(NamedTuple):
    """Microseconds since 1970, and lines; ``labels``: the bytes of the stream's labels, or what holds them."""

    labels: bytes
    times: pl.Series
    lines: list[bytes]


def of_protobuf(stream: bytes) -> Entries | None:
    """The entries of a message ``Stream``; None if they are for the thorough reader."""
    if len(stream) < LEAST:
        return None
    data = padded(stream)
    data.flags.writeable = False
    found, labels = np.empty((len(stream) // _ENTRY_BYTES, 3), np.int64), np.zeros(2, np.int64)
    count = _stream(data, len(stream), found, labels)
    return _made(stream[labels[0] : labels[1]], data, found[:count]) if count > 0 else None


def labels_of(stream: bytes) -> bytes | None:
    """The labels of a message ``Stream``, none of whose entries is out of the ordinary; else None."""
    found, labels = np.empty((len(stream) // _ENTRY_BYTES + 1, 3), np.int64), np.zeros(2, np.int64)
    data = padded(stream)
    data.flags.writeable = False
    return stream[labels[0] : labels[1]] if _stream(data, len(stream), found, labels) >= 0 else None


def prepare() -> None:
    """Calls what :func:`labels_of` is compiled of."""
    labels_of(b"")


def of_json(body: bytes) -> list[Entries] | None:
    """All streams of a request, their labels as JSON objects; None if one of them is for the thorough reader."""
    if len(body) < LEAST or (document := read(body)) is None:
        return None
    nodes, data = document
    top = _members(data, nodes, 0)
    if top is None or "streams" not in top or nodes[top["streams"], n.IS] != n.LIST:
        return None
    made, node, end = [], top["streams"] + 1, nodes[top["streams"], n.NEXT]
    while node < end:
        members = _members(data, nodes, node)
        if members is None or not {"stream", "values"} <= members.keys() or nodes[members["stream"], n.IS] != n.OBJECT:
            return None
        values, (begin, size) = members["values"], nodes[members["stream"], n.BEGIN : n.SIZE + 1].tolist()
        found = np.empty(((nodes[values, n.NEXT] - values) // _ENTRY_NODES, 3), np.int64)
        count = _values(data, nodes, values, found)
        entries = _made(body[begin : begin + size], data, found[:count]) if count >= 0 else None
        if entries is None:
            return None
        made.append(entries)
        node = nodes[node, n.NEXT]
    return made


def _made(labels: bytes, data: Array, found: Array) -> Entries | None:
    lines = LineBuffer(data, found[:, _LINE], found[:, _LINE]).texts(found[:, _LINE], found[:, _SIZE])
    held = lines.cast(pl.Binary).to_list()
    try:
        b"\n".join(held).decode()
    except UnicodeDecodeError:
        return None
    return Entries(labels, pl.Series(found[:, _STAMP] // 1000), held)


def _members(data: Array, nodes: Array, node: int) -> dict[str, int] | None:
    """By name the nodes of what an object holds; None for no object, and for names that are given twice or have escapes."""
    if nodes[node, n.IS] != n.OBJECT:
        return None
    found: dict[str, int] = {}
    node, end = node + 1, nodes[node, n.NEXT]
    while node < end:
        begin, size = nodes[node, n.BEGIN : n.SIZE + 1].tolist()
        name = bytes(data[begin : begin + size]).decode()
        if name in found or nodes[node, n.NAMED] == n.ESCAPED:
            return None
        found[name] = node + 1
        node = nodes[node + 1, n.NEXT]
    return found


@part
def _may_be_record(data: Array, at: int, size: int) -> bool:
    """Whether a line may be a record of Fluent Bit around a line."""
    if size == 0 or data[at] != _OPEN:
        return False
    for place in range(at, at + size - len(_LOG) + 1):
        same = 0
        while same < len(_LOG) and data[place + same] == _LOG[same]:
            same += 1
        if same == len(_LOG):
            return True
    return False


@part
def _varint(data: Array, at: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends; -1 if it does not before ``end``, or is very large."""
    value, shift = 0, 0
    while at < end and shift < 63:
        value |= (int(data[at]) & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
        shift += 7
    return 0, -1


@part
def _moment(data: Array, at: int, end: int) -> int:
    """Nanoseconds; -1 for the thorough reader."""
    seconds, nanos = 0, 0
    while at < end:
        tag, at = _varint(data, at, end)
        value, at = _varint(data, at, end) if at >= 0 and tag in (_SECONDS, _NANOS) else (0, -1)
        if at < 0:
            return -1
        if tag == _SECONDS:
            seconds = value
        else:
            nanos = value
    return seconds * _SECOND + nanos if seconds < _MOST_SECONDS and nanos < _SECOND else -1


@part
def _entry(data: Array, at: int, end: int, row: Array) -> bool:
    """Writes an entry down; false if it is out of the ordinary."""
    row[_STAMP], row[_LINE], row[_SIZE] = 0, at, 0
    while at < end:
        tag, at = _varint(data, at, end)
        size, at = _varint(data, at, end) if at >= 0 and tag in (_MOMENT, _TEXT) else (0, -1)
        if at < 0 or size > end - at:
            return False
        if tag == _MOMENT:
            row[_STAMP] = _moment(data, at, at + size)
        else:
            row[_LINE], row[_SIZE] = at, size
        at += size
    return row[_STAMP] >= 0 and not _may_be_record(data, row[_LINE], row[_SIZE])


@compiled
def _stream(data: Array, end: int, found: Array, labels: Array) -> int:
    """Writes the entries of a stream down and says how many there are; -1 for the thorough reader."""
    at, count = 0, 0
    while at < end:
        tag, at = _varint(data, at, end)
        size, at = _varint(data, at, end) if at >= 0 and tag in (_LABELS, _ENTRY) else (0, -1)
        if at < 0 or size > end - at:
            return -1
        if tag == _LABELS:
            if count or labels[1]:  # what stands before and behind others
                return -1
            labels[0], labels[1] = at, at + size
        else:
            if not _entry(data, at, at + size, found[count]):
                return -1
            count += 1
        at += size
    return count


@compiled
def _values(data: Array, nodes: Array, node: int, found: Array) -> int:
    """As :func:`_stream`, for a list of pairs: digits and a line."""
    if nodes[node, n.IS] != n.LIST:
        return -1
    count, end, node = 0, nodes[node, n.NEXT], node + 1
    while node < end:
        stamp, line = node + 1, node + 2
        if nodes[node, n.IS] != n.LIST or nodes[node, n.NEXT] != node + 3:
            return -1
        if nodes[stamp, n.IS] != t.TEXT or nodes[line, n.IS] != t.TEXT:
            return -1
        begin, size = nodes[stamp, n.BEGIN], nodes[stamp, n.SIZE]
        if not 0 < size <= _DIGITS or (size == _DIGITS and data[begin] > _EIGHT):
            return -1
        row, value = found[count], 0
        for place in range(begin, begin + size):
            if not _ZERO <= data[place] <= _NINE:
                return -1
            value = 10 * value + int(data[place]) - _ZERO
        row[_STAMP], row[_LINE], row[_SIZE] = value, nodes[line, n.BEGIN], nodes[line, n.SIZE]
        if _may_be_record(data, row[_LINE], row[_SIZE]):
            return -1
        count, node = count + 1, node + 3
    return count
