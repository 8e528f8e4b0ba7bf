"""Attributes of log records as JSON: the output of ``json.dumps(fields, sort_keys=True, ensure_ascii=False)`` for all
records at once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from collector.columnar import otlp_tables as t
from collector.columnar.otlp_tables import Array, Tables
from parsers.compiled import compiled, part
from parsers.lines import LineBuffer

#: Records with more attributes are left to the general reader.
MOST = 128
#: An offset in a text column has 32 bits. Only a resource of megabytes with thousands of records reaches this.
_MOST_BYTES = 1 << 31
#: Most characters of a 64-bit number or a literal.
_LONGEST = 24
_QUOTE, _BACKSLASH, _COMMA, _COLON, _SPACE, _MINUS = b'"\\,: -'
_OPEN, _CLOSE = b"{}"
#: The letter after the backslash for control characters that have a short escape.
_SHORT = np.zeros(32, np.uint8)
for _sign, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT[_sign] = ord(_letter)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_WORDS = np.frombuffer(b"nullfalsetrue", np.uint8)
_TEN = np.uint64(10)
NULL, TEXT, INTEGER, FRACTION, FALSE = t.NULL, t.TEXT, t.INTEGER, t.FRACTION, t.FALSE


class Written(NamedTuple):
    """Attributes whose JSON text is already written, with its offsets in ``texts``: those that are fractions, and
    possibly other kinds stored as fractions."""

    attributes: Array
    texts: Array


def fields(
    tables: Tables, rows: Array, names: Sequence[str | None], named: Array, about: Sequence[Mapping[str, Any]],
    written: Written | None = None,
) -> pl.Series:  # fmt: skip
    """The fields of the records ``rows``, null for those without.

    ``names[named[i]]`` is the key of attribute ``i``, None if it is not a field; ``about``: by resource number, the
    fields of all its records. A record's own attributes take precedence. Raises ``ValueError`` above the size limits.
    """
    every = sorted({name for name in names if name is not None}.union(*about))
    ranks = {name: rank for rank, name in enumerate(every)}
    name_texts, keys = _joined_texts([f"{json.dumps(name, ensure_ascii=False)}: " for name in every])
    members, spans = _joined_texts(
        [_member_text(name, resource[name]) for resource in about for name in sorted(resource)]
    )
    spans = np.column_stack(([ranks[name] for resource in about for name in sorted(resource)], spans)).astype(np.int64)
    edges = np.cumsum([0, *map(len, about)])
    rank = np.array([-1 if name is None else ranks[name] for name in names] or [-1], np.int64)[named]
    attributes, fractions = written or _with_fractions(tables)
    is_field = rank >= 0
    texts = np.where(is_field & (attributes[:, t.KIND] == TEXT), attributes[:, t.VALUE_SIZE], 0).sum()
    texts = 6 * texts + np.where(is_field & (attributes[:, t.KIND] == FRACTION), attributes[:, t.VALUE_SIZE], 0).sum()
    most = int(texts) + int(keys[rank[is_field], 1].sum()) + len(attributes) * (_LONGEST + 4)
    sizes = np.array([sum(size + 2 for _, _, size in spans[a:b]) for a, b in itertools.pairwise(edges)] or [0])
    most += int(sizes[tables.records[rows, t.RESOURCE]].sum()) + 2 * len(rows)
    if most > _MOST_BYTES:
        raise ValueError(f"the fields of {len(rows):,} records may come to {most:,} bytes")
    out, places = np.empty(most + t.BEHIND, np.uint8), np.empty((len(rows), 2), np.int64)
    _write(
        tables.texts,
        tables.records,
        attributes,
        rows,
        rank,
        name_texts,
        keys,
        members,
        spans,
        edges,
        fractions,
        out,
        places,
    )
    out.flags.writeable = False
    return LineBuffer(out, places[:, 0], places[:, 0] + places[:, 1]).texts(places[:, 0], places[:, 1])


def _member_text(name: str, value: Any) -> str:
    return json.dumps({name: value}, ensure_ascii=False, sort_keys=True)[1:-1]


def _joined_texts(texts: Sequence[str]) -> tuple[Array, Array]:
    """The texts concatenated, and the offset and size of each."""
    parts = [text.encode() for text in texts]
    sizes = np.array([len(part) for part in parts], np.int64)
    joined = np.frombuffer(b"".join(parts) + b" ", np.uint8)
    return joined, np.column_stack((np.cumsum(sizes) - sizes, sizes)).astype(np.int64)


def _with_fractions(tables: Tables) -> Written:
    at = np.flatnonzero(tables.attributes[:, t.KIND] == FRACTION)
    if not len(at):
        return Written(tables.attributes, np.frombuffer(b" ", np.uint8))
    attributes = tables.attributes.copy()
    values = attributes[at, t.VALUE]
    if attributes[at, t.VALUE_SIZE].any():  # JSON's are texts
        texts = LineBuffer(tables.texts, values, values).texts(values, attributes[at, t.VALUE_SIZE])
        numbers = list(map(float, texts.to_list()))
    else:
        numbers = values.view(np.float64).tolist()
    written = np.frombuffer(json.dumps(numbers)[1:].encode(), np.uint8)
    ends = np.append(np.flatnonzero(written == _COMMA), len(written) - 1)
    begins = np.concatenate(([0], ends[:-1] + 2))
    attributes[at, t.VALUE], attributes[at, t.VALUE_SIZE] = begins, ends - begins
    return Written(attributes, written)


@part
def _copied(source: Array, at: int, size: int, out: Array, to: int) -> int:
    for place in range(size):
        out[to + place] = source[at + place]
    return to + size


@part
def _text(source: Array, at: int, size: int, out: Array, to: int) -> int:
    """A quoted string."""
    out[to] = _QUOTE
    to += 1
    for place in range(at, at + size):
        letter = source[place]
        if letter >= 32 and letter != _QUOTE and letter != _BACKSLASH:
            out[to] = letter
            to += 1
            continue
        out[to] = _BACKSLASH
        if letter >= 32:
            out[to + 1] = letter
            to += 2
        elif _SHORT[letter]:
            out[to + 1] = _SHORT[letter]
            to += 2
        else:
            out[to + 1], out[to + 2], out[to + 3] = 117, 48, 48
            out[to + 4], out[to + 5] = _HEX[letter >> 4], _HEX[letter & 15]
            to += 6
    out[to] = _QUOTE
    return to + 1


@part
def _integer(value: int, out: Array, to: int) -> int:
    # Unsigned: the smallest number has no 64-bit negation.
    rest = np.uint64(value)
    if value < 0:
        rest = ~rest + np.uint64(1)
        out[to] = _MINUS
        to += 1
    digits, left = 1, rest
    while left >= _TEN:
        left = left // _TEN
        digits += 1
    for place in range(to + digits - 1, to - 1, -1):
        out[place] = 48 + np.uint8(rest % _TEN)
        rest = rest // _TEN
    return to + digits


@part
def _value(texts: Array, attribute: Array, fractions: Array, out: Array, to: int) -> int:
    kind, value, size = attribute[t.KIND], attribute[t.VALUE], attribute[t.VALUE_SIZE]
    if kind == TEXT:
        return _text(texts, value, size, out, to)
    if kind == INTEGER:
        return _integer(value, out, to)
    if kind == FRACTION:
        return _copied(fractions, value, size, out, to)
    begin, size = (0, 4) if kind == NULL else (4, 5) if kind == FALSE else (9, 4)
    return _copied(_WORDS, begin, size, out, to)


@part
def _ordered(record: Array, rank: Array, own: Array) -> int:
    """Sorts the numbers of a record's field attributes by name, keeping only the last of equal names; returns how many
    there are."""
    count = 0
    for number in range(record[t.FIRST], record[t.FIRST] + record[t.COUNT]):
        if rank[number] < 0:
            continue
        place = count
        while place > 0 and rank[own[place - 1]] > rank[number]:
            place -= 1
        if place > 0 and rank[own[place - 1]] == rank[number]:
            own[place - 1] = number
            continue
        for behind in range(count, place, -1):
            own[behind] = own[behind - 1]
        own[place] = number
        count += 1
    return count


@compiled
def _write(
    texts: Array, records: Array, attributes: Array, rows: Array, rank: Array, names: Array, keys: Array, members: Array, spans: Array,
    edges: Array, fractions: Array, out: Array, places: Array,
) -> None:  # fmt: skip
    own = np.empty(MOST, np.int64)
    to = 0
    for at in range(len(rows)):
        record = records[rows[at]]
        count = _ordered(record, rank, own)
        general, last = edges[record[t.RESOURCE]], edges[record[t.RESOURCE] + 1]
        begin, mine = to, 0
        while mine < count or general < last:
            out[to], out[to + 1] = (_OPEN, 0) if to == begin else (_COMMA, _SPACE)
            to += 1 if to == begin else 2
            if mine < count and general < last and rank[own[mine]] == spans[general, 0]:
                general += 1
            if mine == count or (general < last and spans[general, 0] < rank[own[mine]]):
                to = _copied(members, spans[general, 1], spans[general, 2], out, to)
                general += 1
            else:
                number = own[mine]
                to = _copied(names, keys[rank[number], 0], keys[rank[number], 1], out, to)
                to = _value(texts, attributes[number], fractions, out, to)
                mine += 1
        places[at, 0], places[at, 1] = begin, -1
        if to > begin:
            out[to] = _CLOSE
            to += 1
            places[at, 1] = to - begin
