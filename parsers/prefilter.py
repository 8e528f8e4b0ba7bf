"""Which formats may read a line: the tests of all formats at once, in compiled code."""

from __future__ import annotations

from functools import cache

import numpy as np

from parsers.automata import Automata
from parsers.formats import BUILT_IN, job_output, plain, slurm
from parsers.formats.base import JOB_SOURCES, Format
from parsers.lines import Array, LineBuffer
from parsers.output_scanner import Readers
from parsers.record import Origin

#: A bit for each format, in the order in which they are tried. Plug-in formats, which have none, may read any line.
_BITS = {id(form): np.uint64(1 << number) for number, form in enumerate(BUILT_IN)}
ANY = ~np.uint64(0)
READERS = Readers(*(_BITS[id(form)] for form in (job_output.STAMPED, job_output.MARKED, plain.PLAIN)))
_FOR_JOBS = np.bitwise_or.reduce([_BITS[id(form)] for form in BUILT_IN if form.for_jobs])
#: These formats read nothing in a line of an unknown log.
_FOR_NOBODY = ~(_BITS[id(slurm.CLOCK)] | _BITS[id(plain.REST)])


@cache
def _tests() -> Automata:
    return Automata([form.accepts if isinstance(form.accepts, str) else None for form in BUILT_IN])


def bit(form: Format) -> np.uint64:
    return _BITS.get(id(form), ANY)


def formats_of(buffer: LineBuffer, lines: Array) -> Array:
    """For each of ``lines``, the bits of the formats that may read it."""
    return _tests().fitting(buffer.data, buffer.starts, buffer.ends, lines)


def asked(origin: Origin) -> np.uint64:
    """The bits of the formats that may read lines of a job, or of unknown origin."""
    return _FOR_JOBS if origin.source in JOB_SOURCES else _FOR_NOBODY
