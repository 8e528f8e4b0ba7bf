"""The tables into which a request of OTLP is walked: one row for each log record, and one for each of its attributes.

Texts are places in the request's bytes. What is out of the ordinary (lists, objects, bytes, fields given twice) is not
read: its record is marked, and the thorough reader takes the record as it lies in the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Columns of ``records``: which resource; where the record lies; moments in nanoseconds; the severity's number; places
#: of the severity's and the body's texts; its attributes; and whether it is left to the thorough reader.
(RESOURCE, BEGIN, END, TIME, OBSERVED, NUMBER, WORD, WORD_SIZE, BODY, BODY_SIZE, FIRST, COUNT, STRANGE) = range(13)
RECORD_COLUMNS = 13
#: Columns of ``attributes``: the key's place; the kind of the value; the number itself or the text's place.
KEY, KEY_SIZE, KIND, VALUE, VALUE_SIZE = range(5)
ATTRIBUTE_COLUMNS = 5
#: Kinds of values. A ``FRACTION`` is the bits of a double in protobuf, a place in JSON. ``OTHER``: for the thorough reader.
NULL, TEXT, INTEGER, FRACTION, FALSE, TRUE, OTHER = range(7)
#: Zeros behind the request: whoever reads a byte too far sees none of a text.
BEHIND = 16
#: So many bytes make a record and an attribute, at least usually; of more there is a second walk.
_RECORD_BYTES, _ATTRIBUTE_BYTES = 64, 24


@dataclass(frozen=True)
class Tables:
    """``resources``: where each lies, by number. ``texts``: the bytes in which places are; ``body``: the request."""

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
    """The tables of a request; None if it must be left to the thorough reader as a whole.

    ``walk(resources, records, attributes, counts)`` fills the tables as far as they go and says how many rows there are, -1
    for a request that it cannot walk. ``texts``: the bytes in which it finds its places.
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
