"""JSON objects as tables: a row per object, and one per member under its flat name: ``log.file.path`` for a member two
objects deep. The objects come one per line, or in one list.

Anything unusual (duplicate or escaped names, two members with the same flat name, empty objects, very large numbers)
marks its object, which is left to the general reader, like anything that is not an object.
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
from parsers.lines import LineBuffer, codes, count_of, line_ends

#: Fewer objects are parsed one by one: the fixed cost of a batch equals this many.
FEWEST = 300
#: Larger objects hold many lines each, and those take the time.
_MOST_BYTES = 4096
#: Most distinct names (a power of two); senders that put numbers into names have more.
_NAMES, _SLOTS = 2048, 8192
#: Longest accepted name in bytes; a name around two others is part of both.
_LONG_NAME = 256
#: Columns of the names: the name of the enclosing object, offset, size.
_PARENT, _BEGIN, _SIZE = range(3)
#: Members two objects deep have names of their own, deeper ones do not.
_DEPTH = 3
#: Offset of a member's value as sent. (OTLP's keys have a size in this column.)
PLACE = t.KEY_SIZE
#: A number this long does not fit into 64 bits.
_LARGE, _LONG = 20, 32
_MINUS, _ZERO, _SMALL_E, _BIG_E = b"-0eE"
TEXT, INTEGER, FRACTION, OTHER = t.TEXT, t.INTEGER, t.FRACTION, t.OTHER


@dataclass(frozen=True)
class Objects:
    """``tables``: a record per object, an attribute per member whose key is an index into ``names``; ``tops``: by name,
    the top-level name that it begins with. ``loads`` parses the bytes of what was left over."""

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
        """Which objects are left to the general reader."""
        found: Array = self.tables.records[:, t.STRANGE] != 0
        return found

    def with_any(self, fitting: Sequence[bool]) -> Array:
        """Which objects have a member with one of the ``fitting`` names."""
        return self.owners(np.array([*fitting, False])[self.tables.attributes[:, t.KEY]])

    def owners(self, members: Array) -> Array:
        """Which objects have one of the ``members``, as a mask."""
        found: Array = np.zeros(len(self), np.bool_)
        found[np.repeat(np.arange(len(self)), self.tables.records[:, t.COUNT])[members]] = True
        return found

    def slots(self, wanted: Sequence[str]) -> dict[str, Array]:
        """By name, of those that occur: the member of each object that has it; -1: none."""
        numbers = {name: at for at, name in enumerate(self.names)}
        occurring = [name for name in wanted if name in numbers]
        columns = np.full(max(len(self.names), 1), -1, np.int64)
        columns[[numbers[name] for name in occurring]] = np.arange(len(occurring))
        found = np.full((len(occurring), len(self)), -1, np.int64)
        _slots(self.tables.records, self.tables.attributes, columns, found)
        return dict(zip(occurring, found, strict=True))

    def kinds(self, slots: Array) -> Array:
        """The kinds of the values in ``slots``; null for empty slots."""
        if not len(self.tables.attributes):
            return np.full(len(slots), t.NULL)
        found: Array = np.where(slots >= 0, self.tables.attributes[slots, t.KIND], t.NULL)
        return found

    def texts(self, slots: Array) -> pl.Series:
        """Strings, and whole numbers as digits; null in empty slots."""
        if not len(self.tables.attributes):
            return pl.Series([None], dtype=pl.String).new_from_index(0, len(slots))
        held = self.tables.attributes[np.maximum(slots, 0)]
        places = np.where(slots >= 0, held[:, PLACE], 0)
        sizes = np.where(slots >= 0, held[:, t.VALUE_SIZE], -1)
        return LineBuffer(self.tables.texts, places, places).texts(places, sizes)

    def values(self, slots: Array) -> tuple[Array, list[Any]]:
        """The values in ``slots`` (none of them empty), parsed: an index per slot, and the distinct values."""
        held = self.tables.attributes[slots]
        is_text = held[:, t.KIND] == TEXT
        places, sizes = held[:, PLACE], held[:, t.VALUE_SIZE]
        letters = padded(self.tables.body)  # the strings here have their escapes decoded
        letters.flags.writeable = False
        as_sent, texts = LineBuffer(letters, places, places), LineBuffer(self.tables.texts, places, places)
        other, own = codes(as_sent.texts(places, np.where(is_text, -1, sizes))), codes(
            texts.texts(places, np.where(is_text, sizes, -1))
        )  # fmt: skip
        read = [None if text is None else self.loads(text.encode()) for text in other.names.to_list()]
        which = np.where(is_text, own.which.astype(np.int64) + len(read), other.which)
        return which, read + own.names.to_list()

    def written(self, members: Array) -> Written:
        """Members with their values as JSON text: the fractions, lists and objects among ``members`` (a mask)."""
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
    """Objects on one line each; blank lines are skipped. None if it does not pay, or for bytes that are not text."""
    count = count_of(b"\n", body)
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
    """The items of one list, all of them objects. None if it is not such a list, or it does not pay."""
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
        # An object's own name counts the same as one that two nested objects produce: all of them are marked.
        twice = {name for name, times in Counter(flat).items() if times > 1}
        records[:, t.STRANGE] |= objects.with_any([name in twice for name in flat])
    return objects


@part
def _number_of(data: Array, parent: int, begin: int, size: int, names: Array, taken: Array, count: int) -> int:
    """The number of a name in an object, ``count`` if it is new; -1 if there are too many."""
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
    """Whether a node contains a number that libraries parse differently."""
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
    """Writes the rows of objects; returns how many members and how many names there are."""
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
    """Writes the offsets of a list's items, and returns how many there are."""
    count, node = 0, 1
    while node < nodes[0, n.NEXT]:
        items[count] = node
        count, node = count + 1, nodes[node, n.NEXT]
    return count
