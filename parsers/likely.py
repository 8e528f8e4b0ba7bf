"""Which formats may read a line: the tests of all of them at once, in compiled code."""

from __future__ import annotations

from functools import cache

import numpy as np

from parsers.automata import Automata
from parsers.formats import BUILT_IN
from parsers.formats.base import Format
from parsers.lines import Array, LineBuffer

#: A bit for each format, in the order in which they are tried. Others (plug-ins) may read any line.
_BITS = {id(form): np.uint64(1 << number) for number, form in enumerate(BUILT_IN)}
ANY = ~np.uint64(0)


@cache
def _tests() -> Automata:
    return Automata([form.accepts if isinstance(form.accepts, str) else None for form in BUILT_IN])


def bit(form: Format) -> np.uint64:
    return _BITS.get(id(form), ANY)


def formats_of(buffer: LineBuffer, lines: Array) -> Array:
    """For each of ``lines`` a number with the bits of the formats that may read it."""
    return _tests().fitting(buffer.data, buffer.starts, buffer.ends, lines)
