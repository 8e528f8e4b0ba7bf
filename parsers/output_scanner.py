"""The compiled reader of program output: timestamps of its own, NCCL's ``host:pid:tid [gpu]``, torchrun's ranks, and
lines without any header.

Such a line may be anything. It is read here only if it is known which format would read it: the first whose test it
passes (parsers/automata.py), since the formats of jobs come last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parsers import stamps
from parsers.compiled import compiled, part
from parsers.expression_compiler import end_of
from parsers.formats.base import SEVERITY_WORDS
from parsers.formats.job_output import (
    BETWEEN,
    LEVEL,
    LEVEL_NAMES,
    LOGGER_HEADER,
    MPI_WRITER,
    NCCL_HEADER,
    NEMO_LEVELS,
    OWN,
    RANK_HEADER,
)
from parsers.head import OUTPUT, PLAIN, RECEIVED, SEVERITIES, Row, clear
from parsers.header_compiler import reader
from parsers.header_scanner import slurm_level
from parsers.lines import Array
from parsers.scan import (
    BLANK,
    CLOSE,
    COLON,
    DASH,
    LESS,
    OPEN,
    PLUS,
    is_digit,
    meaning,
    number,
    reads,
    words,
)
from parsers.stamps import Clock

#: Longer numbers are left to the formats.
_DIGITS = 10
_UNDERLINE, _TAB = ord("_"), ord("\t")
_BETWEEN = tuple(BETWEEN.encode())
_ONE = np.uint64(1)
_LEVELS = words({
    **{word: SEVERITIES.index(SEVERITY_WORDS[word.lower()]) for word in LEVEL_NAMES},
    **{f"NeMo {letter}": SEVERITIES.index(severity) for letter, severity in NEMO_LEVELS.items()},
})  # fmt: skip
_rank, _nccl, _logger = map(reader, (RANK_HEADER, NCCL_HEADER, LOGGER_HEADER))
_mpi, _own, _level_end = map(end_of, (MPI_WRITER, OWN, LEVEL))


class Readers(NamedTuple):
    """The bits of the formats whose plain lines are read here (parsers/formats/job_output.py, plain.py)."""

    stamped: np.uint64
    marked: np.uint64
    plain: np.uint64


@compiled
def read_output(
    data: Array, starts: Array, ends: Array, lines: Array, candidates: Array, readers: Readers, rows: Array, clock: Clock, of_job: bool
) -> None:  # fmt: skip
    """Reads those of ``lines`` that are plain. ``candidates``: for each line, a bit per format that may read it;
    ``of_job``: whether they are known job output."""
    for at in range(len(lines)):
        start, end, row = starts[lines[at]], ends[lines[at]], rows[lines[at]]
        format_ = candidates[at] & (~candidates[at] + _ONE)  # the lowest bit
        if format_ == readers.plain:
            taken = _plain(data, start, row, of_job)
        elif format_ == readers.marked:
            taken = _is_plain_ascii(data, start, end) and _marked(data, start, end, row)
        else:
            taken = (
                format_ == readers.stamped
                and _is_plain_ascii(data, start, end)
                and _stamped(data, start, end, row, clock)
            )
        if taken:
            row.message_end = end
        else:
            clear(row)


@part
def _is_plain_ascii(data: Array, start: int, end: int) -> bool:
    """Whether a line contains only ASCII, without colours and other terminal control, and begins with none of the
    blanks that some prepend."""
    at = start
    while at < end and (BLANK <= data[at] < 127 or data[at] == _TAB):
        at += 1
    return at == end and data[start] > BLANK


@part
def _plain(data: Array, start: int, row: Row, of_job: bool) -> bool:
    """A line without a known header, except for the level of a Slurm daemon."""
    row.severity = slurm_level(data, start, 0)
    row.message, row.quality = start, RECEIVED
    row.format = OUTPUT if of_job else PLAIN
    return not (data[start] == LESS or reads(data, start, b"kernel: "))


@part
def _marked(data: Array, start: int, end: int, row: Row) -> bool:
    """Words that only job output has."""
    row.message, row.quality, row.format = start, RECEIVED, OUTPUT
    if data[start] != OPEN:
        return not is_digit(data[start]) and _writer(data, start, end, row)
    places = _rank(data, start)
    if places.end < 0:
        return False
    behind = places.end
    behind += data[behind] == COLON
    behind += data[behind] == BLANK
    row.msgid, row.msgid_length = places.role, places.number_end - places.role
    return bool(data[behind] != OPEN)  # another of the kind


@part
def _writer(data: Array, at: int, end: int, row: Row) -> bool:
    """Reads NCCL's ``host:pid:tid [gpu] `` if it follows; false for other notations of the writer."""
    places = _nccl(data, at)
    if places.end < 0:
        return bool(_mpi(data, at, end) < 0 and _own(data, at, end) < 0)
    if places.pid_end - places.pid > _DIGITS or places.gpu_end - places.gpu > _DIGITS:
        return False
    row.host, row.host_length = at, places.host_end - at
    row.pid = number(data, places.pid, places.pid_end - places.pid)
    row.data, row.data_length = places.gpu, places.gpu_end - places.gpu
    return True


@part
def _stamped(data: Array, start: int, end: int, row: Row, clock: Clock) -> bool:
    """``2026-02-06 16:10:24,123 - name - LEVEL - text``, ``[2026-02-06 16:10:24] LEVEL: text``, ``[NeMo I 2026-02-06 16:10:24 ...] text``."""
    at = start + (data[start] == OPEN)
    word = 0
    if not is_digit(data[at]):
        word = _level(data, at, end)
        if word == 0:
            return False
        at = _level_end(data, at, end)
        at += data[at] == CLOSE
        begun = at
        while data[at] == BLANK or data[at] == COLON:
            at += 1
        if not 1 <= at - begun <= 3:
            return False
        at += data[at] == OPEN
    at = stamps.written(data, at, row, clock)
    if at < 0:
        return False
    zone = at + (data[at] == BLANK)  # a zone may follow a blank
    if reads(data, zone, b"Z") or reads(data, zone, b"UTC") or (_is_sign(data[zone]) and is_digit(data[zone + 1])):
        return False
    at += data[at] == CLOSE and (at + 1 == end or _separates(data[at + 1]))
    if at < end and not _separates(data[at]):
        return False
    while at < end and _separates(data[at]):
        at += 1
    row.message, row.format = at, OUTPUT
    own = _level(data, at + (data[at] == OPEN), end)
    named = _named(data, at, end, row)
    row.severity = own if own > 0 else named if named > 0 else word
    return _writer(data, at, end, row) and not (row.unit_length > 0 and reads(data, at, b"healthagent"))


@part
def _named(data: Array, at: int, end: int, row: Row) -> int:
    """Reads a logger's name before its level, ``name - LEVEL``; returns the level, 0 for none."""
    places = _logger(data, at)
    if places.end < 0:
        return 0
    level = _level(data, places.end + (data[places.end] == OPEN), end)
    if level > 0:
        row.unit, row.unit_length = at, places.logger_end - at
    return level


@part
def _level(data: Array, at: int, end: int) -> int:
    """The severity of a level word that stands alone; 0 for none."""
    stop = _level_end(data, at, end)
    return 0 if stop < 0 or _is_of_word(data[stop]) else meaning(data, at, stop - at, _LEVELS)


@part
def _separates(byte: int) -> bool:
    """Whether the byte separates timestamp, level and text."""
    return byte in _BETWEEN


@part
def _is_sign(byte: int) -> bool:
    return byte in (PLUS, DASH)


@part
def _is_of_word(byte: int) -> bool:
    return 65 <= byte <= 90 or 97 <= byte <= 122 or is_digit(byte) or byte == _UNDERLINE
