"""An OTLP logs request in protobuf, walked field by field.

Field numbers are those of opentelemetry/proto/{collector/logs,logs,common}/v1. The library has already validated the
request: this module only locates its fields. For a field given twice the last one counts, and partial messages would
have to be merged: both are left to the general reader.
"""

from __future__ import annotations

from collector.columnar import otlp_tables as t
from collector.columnar.otlp_tables import Array, Tables, padded, walked
from parsers.compiled import compiled, part

#: A field's tag is its number and its wire type: a varint, eight bytes, length-prefixed bytes, or four bytes.
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_GROUP = 1 << 3 | _BYTES
_RESOURCE, _SCOPE = 1 << 3 | _BYTES, 2 << 3 | _BYTES
_RECORD = 2 << 3 | _BYTES
_TIME, _OBSERVED, _SEVERITY, _WORD = 1 << 3 | _EIGHT, 11 << 3 | _EIGHT, 2 << 3, 3 << 3 | _BYTES
_BODY, _ATTRIBUTE = 5 << 3 | _BYTES, 6 << 3 | _BYTES
_PAIR_KEY, _PAIR_VALUE = 1 << 3 | _BYTES, 2 << 3 | _BYTES
_TEXT, _BOOL, _INTEGER, _DOUBLE = 1 << 3 | _BYTES, 2 << 3, 3 << 3, 4 << 3 | _EIGHT
NULL, TEXT, INTEGER, FRACTION, FALSE, TRUE, OTHER = (
    t.NULL, t.TEXT, t.INTEGER, t.FRACTION, t.FALSE, t.TRUE, t.OTHER,
)  # fmt: skip


def tables(body: bytes) -> Tables | None:
    """``body`` must be a request that the library accepts."""
    texts = padded(body)
    return walked(body, texts, lambda *tables: _walk(texts, len(body), *tables))


@part
def _varint(data: Array, at: int, end: int) -> tuple[int, int]:
    """A varint (seven bits per byte) as 64 bits, and where it ends; -1 if it does not end before ``end``."""
    value, shift = 0, 0
    while at < end and shift < 70:
        byte = int(data[at])
        at += 1
        if shift < 64:
            value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


@part
def _field(data: Array, at: int, end: int) -> tuple[int, int, int, int]:
    """The field at ``at``: its tag, its value (or its number of bytes), where that begins, and where the next field
    begins; -1 if there is none."""
    tag, begin = _varint(data, at, end)
    if begin < 0:
        return 0, 0, 0, -1
    form = tag & 7
    if form == _NUMBER:
        value, then = _varint(data, begin, end)
        return tag, value, begin, then
    if form == _BYTES:
        size, begin = _varint(data, begin, end)
        if begin < 0 or size < 0 or size > end - begin:
            return 0, 0, 0, -1
        return tag, size, begin, begin + size
    size = 8 if form == _EIGHT else 4
    if form not in (_EIGHT, _FOUR) or size > end - begin:
        return 0, 0, 0, -1  # a group, which nobody has written for twenty years
    value = 0
    for place in range(size):
        value |= int(data[begin + place]) << (8 * place)
    return tag, value, begin, begin + size


@part
def _value(data: Array, at: int, end: int) -> tuple[int, int, int]:
    """An AnyValue between two offsets: its kind, its number or offset, and the size of a string."""
    kind, value, size = NULL, 0, 0
    while at < end:
        tag, held, begin, at = _field(data, at, end)
        if at < 0:
            return OTHER, 0, 0
        if tag == _TEXT:
            kind, value, size = TEXT, begin, held
        elif tag == _INTEGER:
            kind, value, size = INTEGER, held, 0
        elif tag == _BOOL:
            kind, value, size = (TRUE if held else FALSE), 0, 0
        elif tag == _DOUBLE:
            kind, value, size = FRACTION, held, 0
        else:
            return OTHER, 0, 0
    return kind, value, size


@part
def _attribute(data: Array, at: int, end: int, found: Array) -> bool:
    """Writes a KeyValue; false if it is unusual."""
    found[0], found[1], found[2], found[3], found[4] = at, 0, NULL, 0, 0
    values = 0
    while at < end:
        tag, held, begin, at = _field(data, at, end)
        if at < 0:
            return False
        if tag == _PAIR_KEY:
            found[0], found[1] = begin, held
        elif tag == _PAIR_VALUE:
            values += 1
            found[2], found[3], found[4] = _value(data, begin, begin + held)
    return values < 2 and found[2] != OTHER


@part
def _record(data: Array, at: int, end: int, found: Array, attributes: Array, count: int) -> int:
    """Writes a LogRecord, its attributes from row ``count`` on; returns the row after them, -1 if it cannot be walked.
    ``found`` is zero except for what is already known."""
    bodies, kind = 0, TEXT
    while at < end:
        tag, held, begin, at = _field(data, at, end)
        if at < 0:
            return -1
        if tag == _TIME:
            found[t.TIME] = held
        elif tag == _OBSERVED:
            found[t.OBSERVED] = held
        elif tag == _SEVERITY:
            found[t.NUMBER] = held & 0xFFFFFFFF
        elif tag == _WORD:
            found[t.WORD], found[t.WORD_SIZE] = begin, held
        elif tag == _BODY:
            bodies += 1
            kind, found[t.BODY], found[t.BODY_SIZE] = _value(data, begin, begin + held)
        elif tag == _ATTRIBUTE:
            # Without a row left, the last one is overwritten: another walk with enough rows follows.
            row = attributes[min(count, len(attributes) - 1)]
            if not _attribute(data, begin, begin + held, row):
                found[t.STRANGE] = 1
            count += 1
    if bodies > 1 or kind != TEXT:
        found[t.STRANGE] = 1
    found[t.COUNT] = count - found[t.FIRST]
    return count


@part
def _scope(data: Array, at: int, end: int, records: Array, attributes: Array, counts: Array) -> bool:
    while at < end:
        tag, held, begin, at = _field(data, at, end)
        if at < 0:
            return False
        if tag == _RECORD:
            row = records[min(counts[1], len(records) - 1)]
            row[:] = 0
            row[t.RESOURCE], row[t.BEGIN], row[t.END], row[t.FIRST] = counts[0], begin, begin + held, counts[2]
            counts[1] += 1
            counts[2] = _record(data, begin, begin + held, row, attributes, counts[2])
            if counts[2] < 0:
                return False
    return True


@part
def _group(data: Array, at: int, end: int, resource: Array, records: Array, attributes: Array, counts: Array) -> bool:
    resources = 0
    resource[:] = at
    while at < end:
        tag, held, begin, at = _field(data, at, end)
        if at < 0:
            return False
        if tag == _RESOURCE:
            resources += 1
            resource[0], resource[1] = begin, begin + held
        elif tag == _SCOPE and not _scope(data, begin, begin + held, records, attributes, counts):
            return False
    return resources < 2


@compiled
def _walk(data: Array, size: int, resources: Array, records: Array, attributes: Array, counts: Array) -> None:
    at = 0
    while at < size:
        tag, held, begin, at = _field(data, at, size)
        if at < 0:
            counts[0] = -1
            return
        if tag == _GROUP:
            row = resources[min(counts[0], len(resources) - 1)]
            if not _group(data, begin, begin + held, row, records, attributes, counts):
                counts[0] = -1
                return
            counts[0] += 1
