"""JSON as a table of nodes: one row per value and per name, in document order. Each node gives the next one outside
itself. A body is one document, or one document per line.

Everything accepted is JSON in every byte; something rejected may still be JSON (more than sixty levels, lone
surrogates). Escapes in strings are decoded in place. The numbered names are those of OTLP's logs.
"""

from __future__ import annotations

import numpy as np

from collector.columnar import otlp_tables as t
from collector.columnar.otlp_tables import Array, padded
from parsers.compiled import compiled, part

#: Known names; the number of a name is its index.
_NAMES = (
    b"resourceLogs", b"resource", b"scopeLogs", b"instrumentationLibraryLogs", b"logRecords", b"timeUnixNano",
    b"observedTimeUnixNano", b"severityNumber", b"severityText", b"body", b"attributes", b"key", b"value", b"intValue",
    b"arrayValue", b"kvlistValue",
)  # fmt: skip
(GROUPS, RESOURCE, SCOPES, LIBRARIES, RECORDS, TIME, OBSERVED, SEVERITY, WORD, BODY, ATTRIBUTES, KEY, VALUE,
 INT_VALUE, ARRAY_VALUE, LIST_VALUE) = range(16)  # fmt: skip
_LETTERS = np.zeros((len(_NAMES), 32), np.uint8)
#: By a name's size: at most three names have it.
_OF_SIZE = np.full((32, 3), -1, np.int64)
for _at, _letters in enumerate(_NAMES):
    _LETTERS[_at, : len(_letters)] = np.frombuffer(_letters, np.uint8)
    _OF_SIZE[len(_letters), np.argmin(_OF_SIZE[len(_letters)])] = _at
#: Instead of a name's number: an unknown name, and a name with escapes.
ANOTHER, ESCAPED = -1, -2
#: Columns of the nodes: the kind; where it begins and its size (strings: without quotes, unescaped); the next node
#: outside it; the number of its name.
IS, BEGIN, SIZE, NEXT, NAMED = range(5)
#: Kinds of nodes besides those of values.
LIST, OBJECT = t.OTHER + 1, t.OTHER + 2
#: Estimated bytes per node; if there are more nodes, a second pass follows.
_NODE_BYTES = 6
#: What may come next: a value, a value or the list's end, a name, a name or the object's end, or what follows a value.
_A_VALUE, _FIRST_VALUE, _A_NAME, _FIRST_NAME, _BEHIND = range(5)
#: This many digits always fit into 64 bits. Today's nanosecond timestamps have one more.
DIGITS, _LEVELS = 18, 60
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _POINT = b'"\\,:-+.'
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_MINUS, _ZERO, _NINE, _SMALL_U, _SMALL_E, _BIG_E = b"-09ueE"
_N, _T = b"nt"
_WORDS = np.frombuffer(b"null true false", np.uint8)
NULL, TEXT, INTEGER, FRACTION, FALSE, TRUE, OTHER = (
    t.NULL, t.TEXT, t.INTEGER, t.FRACTION, t.FALSE, t.TRUE, t.OTHER,
)  # fmt: skip


def read(body: bytes) -> tuple[Array, Array] | None:
    """The nodes of ``body``, and its bytes with escapes decoded; None if it is not JSON, or not accepted."""
    if not _is_text(body):
        return None
    nodes, data, roots = _documents(body, np.array([[0, len(body)]], np.int64))
    return (nodes, data) if roots[0] >= 0 else None


def read_lines(body: bytes, lines: Array) -> tuple[Array, Array, Array] | None:
    """The nodes of all documents between the offsets in ``lines``, each up to the end of its line or of the body; the
    body's bytes; and per line its document's node, -1 if none is accepted. None if the body is not text."""
    return _documents(body, lines) if _is_text(body) else None


def _documents(body: bytes, lines: Array) -> tuple[Array, Array, Array]:
    roots = np.empty(len(lines), np.int64)
    nodes = np.empty((len(body) // _NODE_BYTES + 16, 5), np.int32)
    data = padded(body)
    count = _read(data, lines, nodes, roots)
    if count > len(nodes):
        data, nodes = padded(body), np.empty((count, 5), np.int32)
        count = _read(data, lines, nodes, roots)
    data.flags.writeable = False
    return nodes[:count], data, roots


def _is_text(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@part
def whole_number(data: Array, at: int, end: int) -> int:
    """The few digits between two offsets, as a number."""
    value = 0
    for place in range(at + (data[at] == _MINUS), end):
        value = 10 * value + int(data[place]) - _ZERO
    return -value if data[at] == _MINUS else value


@part
def _hex(data: Array, at: int) -> int:
    """Four hexadecimal digits; -1 if they are not."""
    value = 0
    for place in range(at, at + 4):
        letter = int(data[place])
        if 48 <= letter <= 57:
            digit = letter - 48
        elif 97 <= letter | 32 <= 102:
            digit = (letter | 32) - 87
        else:
            return -1
        value = value << 4 | digit
    return value


@part
def _escape(data: Array, at: int) -> tuple[int, int]:
    """The character that the escape at ``at`` encodes, and where it ends; -1 if it is invalid or a lone surrogate."""
    letter = data[at + 1]
    if letter != _SMALL_U:
        for sign, meant in ((34, 34), (92, 92), (47, 47), (98, 8), (102, 12), (110, 10), (114, 13), (116, 9)):
            if letter == sign:
                return meant, at + 2
        return 0, -1
    code = _hex(data, at + 2)
    if code < 0 or 0xDC00 <= code < 0xE000:
        return 0, -1
    if code < 0xD800 or code >= 0xE000:
        return code, at + 6
    if data[at + 6] != _BACKSLASH or data[at + 7] != _SMALL_U:
        return 0, -1
    other = _hex(data, at + 8)
    if not 0xDC00 <= other < 0xE000:
        return 0, -1
    return 0x10000 + ((code - 0xD800) << 10 | (other - 0xDC00)), at + 12


@part
def _plain(data: Array, begin: int, end: int) -> int:
    """Decodes the escapes between two offsets in place; returns the new end."""
    to = begin
    while begin < end:
        if data[begin] != _BACKSLASH:
            data[to] = data[begin]
            begin, to = begin + 1, to + 1
            continue
        code, begin = _escape(data, begin)
        if code < 0x80:
            data[to] = code
            to += 1
            continue
        more = 1 if code < 0x800 else 2 if code < 0x10000 else 3
        data[to] = (0xFF00 >> more + 1 & 0xFF) | code >> 6 * more
        for place in range(1, more + 1):
            data[to + place] = 0x80 | code >> 6 * (more - place) & 0x3F
        to += more + 1
    return to


@part
def _number(data: Array, at: int) -> tuple[int, int]:
    """Where the number at ``at`` ends (-1: there is none), and its kind: ``OTHER`` if it has too many digits."""
    begin = at
    at += data[at] == _MINUS
    first = at
    while _ZERO <= data[at] <= _NINE:
        at += 1
    if at == first or (data[first] == _ZERO and at > first + 1):
        return -1, OTHER
    kind = INTEGER if at - first <= DIGITS and not (data[begin] == _MINUS and data[first] == _ZERO) else OTHER
    if data[at] == _POINT:
        kind, at = FRACTION, at + 1
        first = at
        while _ZERO <= data[at] <= _NINE:
            at += 1
        if at == first:
            return -1, OTHER
    if data[at] == _SMALL_E or data[at] == _BIG_E:
        kind, at = FRACTION, at + 1
        at += data[at] == _PLUS or data[at] == _MINUS
        first = at
        while _ZERO <= data[at] <= _NINE:
            at += 1
        if at == first:
            return -1, OTHER
    return at, kind


@part
def _name(data: Array, begin: int, size: int) -> int:
    """The number of the name between two offsets."""
    for place in range(3 if size < 32 else 0):
        number = int(_OF_SIZE[size, place])
        at = 0
        while number >= 0 and at < size and data[begin + at] == _LETTERS[number, at]:
            at += 1
        if number >= 0 and at == size:
            return number
    return ANOTHER


@part
def _word(data: Array, at: int) -> tuple[int, int]:
    """Where one of JSON's three literals ends (-1: there is none), and its kind."""
    letter = data[at]
    kind, first, size = (NULL, 0, 4) if letter == _N else (TRUE, 5, 4) if letter == _T else (FALSE, 10, 5)
    for place in range(size):
        if data[at + place] != _WORDS[first + place]:
            return -1, OTHER
    return at + size, kind


@part
def _string_end(data: Array, at: int) -> tuple[int, bool]:
    """Where the closing quote of the string starting at ``at`` is (-1: nowhere), and whether the string has escapes."""
    escaped = False
    while data[at] != _QUOTE:
        if data[at] == _BACKSLASH:
            escaped = True
            _, at = _escape(data, at)
            if at < 0:
                return -1, True
        elif data[at] < 32:
            return -1, escaped
        else:
            at += 1
    return at, escaped


@part
def _document(
    data: Array, at: int, size: int, nodes: Array, count: int, open_nodes: Array, open_kinds: Array
) -> int:  # fmt: skip
    """Writes the nodes of the document between ``at`` and ``size`` from row ``count`` on; returns the row after
    them."""
    depth, next_is = 0, _A_VALUE
    while True:
        letter = data[at]
        if (letter == 32 or letter == 10 or letter == 13 or letter == 9) and at < size:
            at += 1
            continue
        if next_is in (_BEHIND, _FIRST_NAME, _FIRST_VALUE):
            if depth == 0:
                return count if at == size else -1
            of_object = open_kinds[depth - 1] == OBJECT
            if letter == (_CLOSE if of_object else _CLOSE_LIST):
                depth, at, next_is = depth - 1, at + 1, _BEHIND
                if open_nodes[depth] < len(nodes):
                    opened = nodes[open_nodes[depth]]
                    opened[SIZE], opened[NEXT] = at - opened[BEGIN], count
                continue
            if next_is == _BEHIND:
                if letter != _COMMA:
                    return -1
                next_is, at = _A_NAME if of_object else _A_VALUE, at + 1
                continue
        node = nodes[min(count, len(nodes) - 1)]  # without a row left, another pass with enough rows follows
        begin, is_name, kind = at, next_is in (_A_NAME, _FIRST_NAME), TEXT
        next_is = _BEHIND
        if letter == _QUOTE:
            begin = at + 1
            at, escaped = _string_end(data, begin)
            node[SIZE] = (_plain(data, begin, at) if escaped and at >= 0 else at) - begin
            at += at >= 0
            if is_name and at >= 0:
                node[NAMED] = ESCAPED if escaped else _name(data, begin, node[SIZE])
                while at < size and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
                    at += 1
                at, next_is = at + 1 if data[at] == _COLON else -1, _A_VALUE
        elif is_name:
            return -1
        elif letter in (_OPEN, _OPEN_LIST):
            if depth == _LEVELS:
                return -1
            kind, next_is = (OBJECT, _FIRST_NAME) if letter == _OPEN else (LIST, _FIRST_VALUE)
            open_nodes[depth], open_kinds[depth] = count, kind
            depth, at = depth + 1, at + 1
        else:
            at, kind = _number(data, at) if letter == _MINUS or _ZERO <= letter <= _NINE else _word(data, at)
            node[SIZE] = at - begin
        if at < 0:
            return -1
        count += 1
        node[IS], node[BEGIN], node[NEXT] = kind, begin, count


@compiled
def _read(data: Array, lines: Array, nodes: Array, roots: Array) -> int:
    """Fills ``nodes`` as far as they go and returns how many there are; ``roots`` gets the first node of each line, -1
    for what is not JSON or nested too deeply."""
    open_nodes, open_kinds = np.empty(_LEVELS, np.int64), np.zeros(_LEVELS, np.int64)
    count = 0
    for line in range(len(lines)):
        behind = _document(data, lines[line, 0], lines[line, 1], nodes, count, open_nodes, open_kinds)
        roots[line] = count if behind >= 0 else -1
        count = max(count, behind)
    return count
