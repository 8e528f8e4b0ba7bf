"""JSON objects as tables: a row for each object, and one for each of its members under its flat name, ``log.file.path`` for what is
two objects deep. They stand on a line each, or in one list.

What is out of the ordinary (names twice, with escapes, or that two members come to; empty objects; very large numbers) marks
its object, which is left to the thorough reader, as is what is no object at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from collector.columnar import json_tokens as n
from collector.columnar import otlp_tables as t
from collector.columnar.json_tokens import read, read_lines, whole_number
from collector.columnar.otlp_fields import MOST, Written
from collector.columnar.otlp_tables import Array, Tables, padded
from parsers.compiled import compiled, part
from parsers.lines import LineBuffer, codes, line_ends

#: Fewer objects are read one by one: what is done once for all of them takes as long as so many.
FEWEST = 300
#: Larger ones hold many lines each, which are what takes the time.
_MOST_BYTES = 4096
#: So many names are told apart (a power of two); senders who make names of numbers have more.
_NAMES, _SLOTS = 2048, 8192
#: Bytes of the longest name that is taken: the one around two others is in both.
_LONG_NAME = 256
#: Columns of the names: the one in whose object it stands, its place.
_PARENT, _BEGIN, _SIZE = range(3)
#: Members two objects deep have names of their own, deeper ones do not.
_DEPTH = 3
#: Where a member's value begins as it was sent. (OTLP's keys have a size there.)
PLACE = t.KEY_SIZE
#: A number as large as this one is written is no number of 64 bits.
_LARGE, _LONG = 20, 32
_MINUS, _ZERO, _SMALL_E, _BIG_E = b"-0eE"
TEXT, INTEGER, FRACTION, OTHER = t.TEXT, t.INTEGER, t.FRACTION, t.OTHER


@dataclass(frozen=True)
class Objects:
    """``tables``: a record for each object, an attribute for each member, whose key is a number of ``names``; ``tops``: by name,
    the one that it begins with, of the object itself. ``loads`` reads what was left, and is given its bytes."""

    tables: Tables
    names: list[str]
    tops: list[str]
    loads: Callable[[bytes], Any]

    def __len__(self) -> int:
        return len(self.tables.records)

    def text(self, row: int) -> bytes:
        """An object as it was sent."""
        return self.tables.body[self.tables.records[row, t.BEGIN] : self.tables.records[row, t.END]]

    def marked(self) -> Array:
        """Which objects are left to the thorough reader."""
        found: Array = self.tables.records[:, t.STRANGE] != 0
        return found

    def with_any(self, fitting: Sequence[bool]) -> Array:
        """Which objects have a member of one of the ``fitting`` names."""
        return self.owners(np.array([*fitting, False])[self.tables.attributes[:, t.KEY]])

    def owners(self, members: Array) -> Array:
        """Which objects have one of the ``members``, as a mask."""
        found: Array = np.zeros(len(self), np.bool_)
        found[np.repeat(np.arange(len(self)), self.tables.records[:, t.COUNT])[members]] = True
        return found

    def slots(self, wanted: Sequence[str]) -> dict[str, Array]:
        """By name, of those that occur: which member of each object has it; -1: none."""
        numbers = {name: at for at, name in enumerate(self.names)}
        occurring = [name for name in wanted if name in numbers]
        columns = np.full(max(len(self.names), 1), -1, np.int64)
        columns[[numbers[name] for name in occurring]] = np.arange(len(occurring))
        found = np.full((len(occurring), len(self)), -1, np.int64)
        _slots(self.tables.records, self.tables.attributes, columns, found)
        return dict(zip(occurring, found, strict=True))

    def kinds(self, slots: Array) -> Array:
        """What is in ``slots``; nulls where nothing is."""
        if not len(self.tables.attributes):
            return np.full(len(slots), t.NULL)
        found: Array = np.where(slots >= 0, self.tables.attributes[slots, t.KIND], t.NULL)
        return found

    def texts(self, slots: Array) -> pl.Series:
        """Texts, and whole numbers in their digits; null in empty slots."""
        if not len(self.tables.attributes):
            return pl.Series([None], dtype=pl.String).new_from_index(0, len(slots))
        held = self.tables.attributes[np.maximum(slots, 0)]
        places = np.where(slots >= 0, held[:, PLACE], 0)
        sizes = np.where(slots >= 0, held[:, t.VALUE_SIZE], -1)
        return LineBuffer(self.tables.texts, places, places).texts(places, sizes)

    def values(self, slots: Array) -> tuple[Array, list[Any]]:
        """What is in ``slots`` (none of them empty), read: which of the different values each is, and those."""
        held = self.tables.attributes[slots]
        is_text = held[:, t.KIND] == TEXT
        places, sizes = held[:, PLACE], held[:, t.VALUE_SIZE]
        letters = padded(self.tables.body)  # the texts of these have lost their escapes
        letters.flags.writeable = False
        as_sent, texts = LineBuffer(letters, places, places), LineBuffer(self.tables.texts, places, places)
        other, own = codes(as_sent.texts(places, np.where(is_text, -1, sizes))), codes(
            texts.texts(places, np.where(is_text, sizes, -1))
        )  # fmt: skip
        read = [None if text is None else self.loads(text.encode()) for text in other.names.to_list()]
        which = np.where(is_text, own.which.astype(np.int64) + len(read), other.which)
        return which, read + own.names.to_list()

    def written(self, members: Array) -> Written:
        """Members as their values are written: of fractions, lists and objects among the ``members`` (a mask)."""
        attributes = self.tables.attributes
        odd = np.flatnonzero(members & ((attributes[:, t.KIND] == FRACTION) | (attributes[:, t.KIND] >= OTHER)))
        if not len(odd):
            return Written(attributes, np.frombuffer(b" ", np.uint8))
        which, values = self.values(odd)
        parts = [json.dumps(v, ensure_ascii=False, sort_keys=True, default=str).encode() for v in values]
        sizes = np.array(list(map(len, parts)), np.int64)
        attributes = attributes.copy()
        attributes[odd, t.KIND] = FRACTION
        attributes[odd, t.VALUE], attributes[odd, t.VALUE_SIZE] = (np.cumsum(sizes) - sizes)[which], sizes[which]
        return Written(attributes, np.frombuffer(b"".join(parts), np.uint8))


def on_lines(body: bytes, loads: Callable[[bytes], Any]) -> Objects | None:
    """A line each; lines with nothing but blanks are none. None if it is not worth it, or no text."""
    count = body.count(b"\n")
    if count < FEWEST or len(body) > _MOST_BYTES * count:
        return None
    ends = line_ends(np.frombuffer(body, np.uint8))
    ends = np.append(ends, len(body))
    lines = np.column_stack((np.concatenate(([0], ends[:-1] + 1)), ends)).astype(np.int64)
    found = read_lines(body, lines[lines[:, 1] > lines[:, 0]])
    if found is None:
        return None
    nodes, texts, roots = found
    lines = lines[lines[:, 1] > lines[:, 0]]
    none = [at for at in np.flatnonzero(roots < 0).tolist() if body[lines[at, 0] : lines[at, 1]].isspace()]
    return _walked(body, texts, nodes, np.delete(roots, none), np.delete(lines, none, 0), loads)


def in_a_list(body: bytes, loads: Callable[[bytes], Any]) -> Objects | None:
    """Items of one list, all of them objects. None if it is none, or not worth it."""
    if not body[:64].lstrip().startswith(b"[") or len(body) < FEWEST * 16:
        return None
    found = read(body)
    if found is None or found[0][0, n.IS] != n.LIST:
        return None
    nodes, texts = found
    items = np.empty(len(nodes), np.int64)
    items = items[: _items(nodes, items)]
    if len(items) < FEWEST or (nodes[items, n.IS] != n.OBJECT).any():
        return None
    begins = nodes[items, n.BEGIN].astype(np.int64)
    return _walked(body, texts, nodes, items, np.column_stack((begins, begins + nodes[items, n.SIZE])), loads)


def _walked(
    body: bytes, texts: Array, nodes: Array, roots: Array, places: Array, loads: Callable[[bytes], Any]
) -> Objects:
    records = np.zeros((len(roots), t.RECORD_COLUMNS), np.int64)
    records[:, t.BEGIN : t.END + 1] = places
    attributes = np.empty((len(nodes) // 2 + 1, t.ATTRIBUTE_COLUMNS), np.int64)
    names = np.zeros((_NAMES, 3), np.int64)
    count, many = _walk(texts, nodes, roots, records, attributes, names)
    tables = Tables(body, texts, np.zeros((1, 2), np.int64), records, attributes[:count])
    flat: list[str] = []
    tops: list[str] = []
    for parent, begin, size in names[:many].tolist():
        own = tables.text(begin, size)
        flat.append(own if parent < 0 else f"{flat[parent]}.{own}")
        tops.append(own if parent < 0 else tops[parent])
    objects = Objects(tables, flat, tops, loads)
    if len(set(flat)) < len(flat):
        # An object's own name counts as little here as one that only two other objects come to: all of them are marked.
        twice = {name for name, times in Counter(flat).items() if times > 1}
        records[:, t.STRANGE] |= objects.with_any([name in twice for name in flat])
    return objects


@part
def _number_of(data: Array, parent: int, begin: int, size: int, names: Array, taken: Array, count: int) -> int:
    """The number of a name in an object, ``count`` if it is a new one; -1 if there are too many."""
    mixed = np.uint64(parent + 2) * np.uint64(0x9E3779B97F4A7C15)
    for place in range(begin, begin + size):
        mixed = (mixed ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
    slot = np.int64(mixed >> np.uint64(40)) & (_SLOTS - 1)
    while taken[slot] >= 0:
        name = names[taken[slot]]
        if name[_PARENT] == parent and name[_SIZE] == size:
            at = 0
            while at < size and data[begin + at] == data[name[_BEGIN] + at]:
                at += 1
            if at == size:
                return int(taken[slot])
        slot = (slot + 1) & (_SLOTS - 1)
    if count == len(names):
        return -1
    taken[slot] = count
    names[count, _PARENT], names[count, _BEGIN], names[count, _SIZE] = parent, begin, size
    return count


@part
def _is_large(data: Array, nodes: Array, node: int) -> bool:
    """Whether something in a node is a number that libraries read in different ways."""
    for at in range(node, nodes[node, n.NEXT]):
        kind, begin, size = nodes[at, n.IS], nodes[at, n.BEGIN], nodes[at, n.SIZE]
        if kind == OTHER and size >= _LARGE:
            return True
        if kind == FRACTION:
            if size > _LONG:
                return True
            for place in range(begin, begin + size):
                if data[place] == _SMALL_E or data[place] == _BIG_E:
                    return True
    return False


@compiled
def _walk(
    data: Array, nodes: Array, roots: Array, records: Array, attributes: Array, names: Array
) -> tuple[int, int]:  # fmt: skip
    """Writes objects down; says how many members they have, and how many names there are."""
    taken, seen = np.full(_SLOTS, -1, np.int32), np.full(len(names), -1, np.int64)
    parents, ends = np.full(_DEPTH + 1, -1, np.int64), np.zeros(_DEPTH + 1, np.int64)
    count, many = 0, 0
    for row in range(len(roots)):
        root, record = roots[row], records[row]
        record[t.FIRST] = count
        if root < 0 or nodes[root, n.IS] != n.OBJECT or _is_large(data, nodes, root):
            record[t.STRANGE] = 1
            continue
        depth, node = 1, root + 1
        ends[1] = nodes[root, n.NEXT]
        while True:
            while depth > 1 and node == ends[depth]:
                depth -= 1
            if node == ends[1]:
                break
            name = _number_of(data, parents[depth], nodes[node, n.BEGIN], nodes[node, n.SIZE], names, taken, many)
            long = nodes[node, n.SIZE] > _LONG_NAME
            if long or name < 0 or nodes[node, n.NAMED] == n.ESCAPED or seen[name] == row:
                record[t.STRANGE] = 1
                break
            many += name == many
            seen[name] = row
            held = node + 1
            kind, begin, size = nodes[held, n.IS], nodes[held, n.BEGIN], nodes[held, n.SIZE]
            if kind == n.OBJECT and depth < _DEPTH:
                if nodes[held, n.NEXT] == held + 1:
                    record[t.STRANGE] = 1
                    break
                depth, node = depth + 1, held + 1
                parents[depth], ends[depth] = name, nodes[held, n.NEXT]
                continue
            member = attributes[count]
            member[t.KEY], member[PLACE], member[t.KIND], member[t.VALUE], member[t.VALUE_SIZE] = (
                name, begin, kind, begin, size,
            )  # fmt: skip
            if kind == INTEGER:
                member[t.VALUE] = whole_number(data, begin, begin + size)
            count, node = count + 1, nodes[held, n.NEXT]
        if count - record[t.FIRST] > MOST:
            record[t.STRANGE] = 1
        record[t.COUNT] = count - record[t.FIRST]
    return count, many


@compiled
def _slots(records: Array, attributes: Array, columns: Array, found: Array) -> None:
    for row in range(len(records)):
        for at in range(records[row, t.FIRST], records[row, t.FIRST] + records[row, t.COUNT]):
            column = columns[attributes[at, t.KEY]]
            if column >= 0:
                found[column, row] = at


@compiled
def _items(nodes: Array, items: Array) -> int:
    """Writes down where the items of a list are, and says how many."""
    count, node = 0, 1
    while node < nodes[0, n.NEXT]:
        items[count] = node
        count, node = count + 1, nodes[node, n.NEXT]
    return count
