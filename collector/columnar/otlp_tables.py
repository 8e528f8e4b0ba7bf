"""The tables of a walked OTLP request: one row per log record, and one per attribute.

Strings are offsets into the request's bytes. Unusual content (lists, objects, bytes, duplicate fields) is not parsed:
its record is marked, and the general reader parses that record from the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Columns of ``records``: the resource; the record's offsets; timestamps in nanoseconds; the severity number; offsets
#: of the severity text and the body; the attributes; and whether it is left to the general reader.
(RESOURCE, BEGIN, END, TIME, OBSERVED, NUMBER, WORD, WORD_SIZE, BODY, BODY_SIZE, FIRST, COUNT, STRANGE) = range(13)
RECORD_COLUMNS = 13
#: Columns of ``attributes``: the key's offset and size; the kind of the value; the number itself or the string's
#: offset; its size.
KEY, KEY_SIZE, KIND, VALUE, VALUE_SIZE = range(5)
ATTRIBUTE_COLUMNS = 5
#: Kinds of values. A ``FRACTION`` is the bits of a double in protobuf, an offset in JSON. ``OTHER``: for the general
#: reader.
NULL, TEXT, INTEGER, FRACTION, FALSE, TRUE, OTHER = range(7)
#: Zero bytes after the request: a read past the end sees no text.
BEHIND = 16
#: Estimated bytes per record and per attribute; if there are more of them, a second walk follows.
_RECORD_BYTES, _ATTRIBUTE_BYTES = 64, 24


@dataclass(frozen=True)
class Tables:
    """``resources``: the offsets of each, by number. ``texts``: the bytes that offsets point into; ``body``: the
    request."""

    body: bytes
    texts: Array
    resources: Array
    records: Array
    attributes: Array

    def text(self, at: int, size: int) -> str:
        return bytes(self.texts[at : at + size]).decode()


def padded(body: bytes) -> Array:
    texts = np.zeros(len(body) + BEHIND, np.uint8)
    texts[: len(body)] = np.frombuffer(body, np.uint8)
    return texts


def walked(body: bytes, texts: Array, walk: Callable[[Array, Array, Array, Array], None]) -> Tables | None:
    """The tables of a request; None if it must be left to the general reader as a whole.

    ``walk(resources, records, attributes, counts)`` fills the tables as far as they go and returns the number of rows,
    -1 for a request that it cannot walk. ``texts``: the bytes that its offsets point into.
    """
    guess = (len(body) // _RECORD_BYTES + 16, len(body) // _RECORD_BYTES + 16, len(body) // _ATTRIBUTE_BYTES + 16)
    while True:
        widths = (2, RECORD_COLUMNS, ATTRIBUTE_COLUMNS)
        resources, records, attributes = (
            np.empty((size, width), np.int64) for size, width in zip(guess, widths, strict=True)
        )
        counts = np.zeros(3, np.int64)
        walk(resources, records, attributes, counts)
        if counts[0] < 0:
            return None
        if all(count <= size for count, size in zip(counts, guess, strict=True)):
            texts.flags.writeable = False
            return Tables(body, texts, resources[: counts[0]], records[: counts[1]], attributes[: counts[2]])
        guess = (int(counts[0]), int(counts[1]), int(counts[2]))
