"""An OTLP logs request in JSON, walked node by node (:mod:`collector.columnar.json_tokens`).

Duplicate or escaped names, values whose type differs from the model, and numbers of more than 18 digits are left to the
general reader.
"""

from __future__ import annotations

from collector.columnar import json_tokens as n
from collector.columnar import otlp_tables as t
from collector.columnar.json_tokens import DIGITS, read, whole_number
from collector.columnar.otlp_tables import Array, Tables, walked
from parsers.compiled import compiled, part

_MINUS, _ZERO, _NINE = b"-09"
NULL, TEXT, INTEGER, FRACTION, FALSE, TRUE, OTHER = (
    t.NULL, t.TEXT, t.INTEGER, t.FRACTION, t.FALSE, t.TRUE, t.OTHER,
)  # fmt: skip


def tables(body: bytes) -> Tables | None:
    """None if ``body`` is not a request, or one for the general reader."""
    found = read(body)
    if found is None:
        return None
    nodes, texts = found
    return walked(body, texts, lambda *tables: _walk(texts, nodes, *tables))


def is_request(body: bytes) -> bool:
    """Whether ``body`` is JSON of the form that log exporters send. If not, it may still be a request in another
    form."""
    found = read(body)
    return found is not None and _has_groups(found[0])


@part
def _is_whole(data: Array, at: int, size: int) -> bool:
    """Whether a string is a number in JSON's syntax, without a fraction and with few digits."""
    first = at + (data[at] == _MINUS)
    digits = at + size - first
    for place in range(first, at + size):
        if not _ZERO <= data[place] <= _NINE:
            return False
    return 0 < digits <= DIGITS and (data[first] != _ZERO or (digits == 1 and size == 1))


@part
def _digits(data: Array, begin: int, size: int, most: int) -> int:
    """The digits of a string as a number; -1 if it holds anything else, or more than ``most`` digits."""
    value = 0
    for place in range(begin, begin + size):
        if not _ZERO <= data[place] <= _NINE:
            return -1
        value = 10 * value + int(data[place]) - _ZERO
    return value if 0 < size <= most and value >= 0 else -1


@part
def _any_value(data: Array, nodes: Array, node: int) -> tuple[int, int, int]:
    """The content of the AnyValue at a node: its kind, its number or offset, its size."""
    if nodes[node, n.IS] != n.OBJECT:
        return (NULL if nodes[node, n.IS] == NULL else OTHER), 0, 0
    held, name = node + 2, nodes[node + 1, n.NAMED]
    if nodes[node, n.NEXT] == node + 1:
        return NULL, 0, 0
    kind, begin, size = nodes[held, n.IS], nodes[held, n.BEGIN], nodes[held, n.SIZE]
    # If it holds several values, the general reader decides which one counts.
    if nodes[held, n.NEXT] != nodes[node, n.NEXT] or name in (n.ARRAY_VALUE, n.LIST_VALUE, n.ESCAPED):
        return OTHER, 0, 0
    if name == n.INT_VALUE and kind == TEXT:  # a 64-bit number is written as a string
        if not _is_whole(data, begin, size):
            return OTHER, 0, 0
        kind = INTEGER
    elif name == n.INT_VALUE and kind != INTEGER:
        return OTHER, 0, 0
    if kind == INTEGER:
        return (INTEGER, whole_number(data, begin, begin + size), 0)
    return (kind, begin, size) if kind < OTHER else (OTHER, 0, 0)


@part
def _attribute(data: Array, nodes: Array, node: int, found: Array) -> bool:
    """Writes a key and its value; false if they are unusual."""
    found[0], found[1], found[2], found[3], found[4] = 0, 0, NULL, 0, 0
    keys, values = 0, 0
    if nodes[node, n.IS] != n.OBJECT:
        return False
    end, node = nodes[node, n.NEXT], node + 1
    while node < end:
        name, held = nodes[node, n.NAMED], node + 1
        if name == n.KEY and nodes[held, n.IS] == TEXT:
            keys += 1
            found[0], found[1] = nodes[held, n.BEGIN], nodes[held, n.SIZE]
        elif name == n.VALUE:
            values += 1
            found[2], found[3], found[4] = _any_value(data, nodes, held)
        elif name in (n.KEY, n.ESCAPED):
            return False
        node = nodes[held, n.NEXT]
    return keys == 1 and values < 2 and found[2] != OTHER


@part
def _attributes(data: Array, nodes: Array, node: int, attributes: Array, count: int) -> tuple[int, bool]:
    """A record's attributes from row ``count`` on: the row after them, and whether all are regular."""
    is_plain, end, node = True, nodes[node, n.NEXT], node + 1
    while node < end:
        # Without a row left, the last one is overwritten: another walk with enough rows follows.
        row = attributes[min(count, len(attributes) - 1)]
        is_plain = _attribute(data, nodes, node, row) and is_plain
        count, node = count + 1, nodes[node, n.NEXT]
    return count, is_plain


@part
def _moment(data: Array, node: Array) -> int:
    """Nanoseconds as digits in a string, as a number, or absent; -1 for anything else."""
    if node[n.IS] == NULL or (node[n.IS] == TEXT and node[n.SIZE] == 0):
        return 0
    is_plain = node[n.IS] == TEXT or node[n.IS] == INTEGER or node[n.IS] == OTHER
    return _digits(data, node[n.BEGIN], node[n.SIZE], DIGITS + 1) if is_plain else -1


@part
def _severity(data: Array, node: Array) -> int:
    """The severity number, zero if invalid; -1 for the general reader."""
    kind, begin, size = node[n.IS], node[n.BEGIN], node[n.SIZE]
    if kind == INTEGER:
        return max(whole_number(data, begin, begin + size), 0)
    if kind == TEXT:
        for place in range(begin, begin + size):
            if data[place] >= 128:  # other scripts have digits, too
                return -1
        return max(_digits(data, begin, size, DIGITS), 0) if size <= DIGITS else -1
    return 0 if kind in (NULL, FRACTION, n.LIST, n.OBJECT) else -1


@part
def _record(data: Array, nodes: Array, node: int, found: Array, attributes: Array, count: int) -> int:
    """Writes a log record, its attributes from row ``count`` on; returns the row after them. ``found`` is zero except
    for what is already known."""
    found[t.FIRST] = count
    seen, is_plain, end = 0, nodes[node, n.IS] == n.OBJECT, nodes[node, n.NEXT]
    node = node + 1 if is_plain else end
    while node < end:
        name, held = nodes[node, n.NAMED], node + 1
        kind, begin, size = nodes[held, n.IS], nodes[held, n.BEGIN], nodes[held, n.SIZE]
        is_plain = is_plain and name != n.ESCAPED and not (name >= 0 and seen >> name & 1)
        seen |= 1 << name if name >= 0 else 0
        if name in (n.TIME, n.OBSERVED):
            moment = _moment(data, nodes[held])
            found[t.TIME if name == n.TIME else t.OBSERVED] = moment
            is_plain = is_plain and moment >= 0
        elif name == n.SEVERITY:
            found[t.NUMBER] = _severity(data, nodes[held])
            is_plain = is_plain and found[t.NUMBER] >= 0
        elif name == n.WORD:
            found[t.WORD], found[t.WORD_SIZE] = begin, size if kind == TEXT else 0
            is_plain = is_plain and (kind in (TEXT, NULL))
        elif name == n.BODY:
            kind, found[t.BODY], found[t.BODY_SIZE] = _any_value(data, nodes, held)
            is_plain = is_plain and (kind in (TEXT, NULL))
        elif name == n.ATTRIBUTES and kind == n.LIST:
            count, well = _attributes(data, nodes, held, attributes, count)
            is_plain = is_plain and well
        elif name == n.ATTRIBUTES:
            is_plain = is_plain and kind == NULL
        node = nodes[held, n.NEXT]
    found[t.COUNT], found[t.STRANGE] = count - found[t.FIRST], not is_plain
    return count


@part
def _only(nodes: Array, node: int, wanted: int) -> int:
    """The list named ``wanted`` in the object at a node: its own node; 0 if there is none, or null; -1 if something is
    unusual."""
    found, end = 0, nodes[node, n.NEXT]
    if nodes[node, n.IS] != n.OBJECT:
        return -1
    node += 1
    while node < end:
        name, held = nodes[node, n.NAMED], node + 1
        if name in (n.ESCAPED, n.LIBRARIES):
            return -1
        if name == wanted:
            kind = nodes[held, n.IS]
            if found or (kind != n.LIST and kind != NULL):
                return -1
            found = held
        node = nodes[held, n.NEXT]
    return found if found and nodes[found, n.IS] == n.LIST else 0


@part
def _resource(nodes: Array, node: int, found: Array) -> bool:
    """Where the resource of a group is; false if there are several, or it is not an object."""
    found[0], found[1], many = 0, 0, 0
    end, node = nodes[node, n.NEXT], node + 1
    while node < end:
        if nodes[node, n.NAMED] == n.RESOURCE:
            kind = nodes[node + 1, n.IS]
            many += 1 if kind in (n.OBJECT, NULL) else 2
            if kind == n.OBJECT:
                found[0], found[1] = nodes[node + 1, n.BEGIN], nodes[node + 1, n.BEGIN] + nodes[node + 1, n.SIZE]
        node = nodes[node + 1, n.NEXT]
    return many < 2


@part
def _scope(
    data: Array, nodes: Array, node: int, resource: int, records: Array, attributes: Array, counts: Array
) -> bool:  # fmt: skip
    node = _only(nodes, node, n.RECORDS)
    if node < 0:
        return False
    end, node = (nodes[node, n.NEXT], node + 1) if node else (0, 0)
    while node < end:
        row = records[min(counts[1], len(records) - 1)]
        row[:] = 0
        row[t.RESOURCE], row[t.BEGIN], row[t.END] = (
            resource,
            nodes[node, n.BEGIN],
            nodes[node, n.BEGIN] + nodes[node, n.SIZE],
        )
        counts[1] += 1
        counts[2] = _record(data, nodes, node, row, attributes, counts[2])
        node = nodes[node, n.NEXT]
    return True


@compiled
def _has_groups(nodes: Array) -> bool:
    group = _only(nodes, 0, n.GROUPS)
    if group <= 0:
        return False
    end, group = nodes[group, n.NEXT], group + 1
    while group < end:
        if nodes[group, n.IS] != n.OBJECT:
            return False
        group = nodes[group, n.NEXT]
    return True


@compiled
def _walk(data: Array, nodes: Array, resources: Array, records: Array, attributes: Array, counts: Array) -> None:
    group = _only(nodes, 0, n.GROUPS)
    if group <= 0:
        counts[0] = -1
        return
    groups_end, group = nodes[group, n.NEXT], group + 1
    while group < groups_end:
        scope = _only(nodes, group, n.SCOPES)
        row = resources[min(counts[0], len(resources) - 1)]
        well = scope >= 0 and _resource(nodes, group, row)
        scopes_end, scope = (nodes[scope, n.NEXT], scope + 1) if scope > 0 else (0, 0)
        while well and scope < scopes_end:
            well = _scope(data, nodes, scope, counts[0], records, attributes, counts)
            scope = nodes[scope, n.NEXT]
        if not well:
            counts[0] = -1
            return
        counts[0] += 1
        group = nodes[group, n.NEXT]


def prepare_check() -> None:
    """Calls the functions that :func:`is_request` is compiled from."""
    is_request(b'{"resourceLogs":[]}')
