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
from parsers.formats.base import SEVERITY_WORDS
from parsers.formats.job_output import LEVEL_NAMES, NEMO_LEVELS
from parsers.head import OUTPUT, PLAIN, RECEIVED, SEVERITIES, Row, clear
from parsers.header_scanner import slurm_level
from parsers.lines import Array
from parsers.scan import (
    BLANK,
    CLOSE,
    COLON,
    COMMA,
    DASH,
    LESS,
    OPEN,
    PLUS,
    POINT,
    digits,
    is_capital,
    is_digit,
    letters,
    meaning,
    number,
    reads,
    words,
)
from parsers.stamps import Clock

#: Longer numbers are left to the formats.
_DIGITS = 10
_BAR, _UNDERLINE, _TAB = ord("|"), ord("_"), ord("\t")
_ONE = np.uint64(1)
_LEVELS = words({word: SEVERITIES.index(SEVERITY_WORDS[word.lower()]) for word in LEVEL_NAMES})
_LETTERS = words({letter: SEVERITIES.index(severity) for letter, severity in NEMO_LEVELS.items()})


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
            taken = _is_plain_ascii(data, start, end) and _marked(data, start, row)
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
def _marked(data: Array, start: int, row: Row) -> bool:
    """Words that only job output has."""
    row.message, row.quality, row.format = start, RECEIVED, OUTPUT
    if data[start] != OPEN:
        return not is_digit(data[start]) and _writer(data, start, row)
    end = start + 1
    while _is_letter(data[end]) or (end > start + 1 and data[end] == _UNDERLINE):
        end += 1
    width = digits(data, end)
    if end == start + 1 or not 1 <= width <= _DIGITS or data[end + width] != CLOSE:
        return False
    behind = end + width + 1
    behind += data[behind] == COLON
    behind += data[behind] == BLANK
    row.msgid, row.msgid_length = start + 1, end + width - start - 1
    return bool(data[behind] != OPEN)  # another of the kind


@part
def _writer(data: Array, at: int, row: Row) -> bool:
    """Reads NCCL's ``host:pid:tid [gpu] `` if it follows; false for other notations of the writer."""
    end = at
    while _is_of_word(data[end]) or data[end] == POINT or data[end] == DASH:
        end += 1
    if end == at:
        return data[at] != OPEN or not _names_process(data, at + 1)
    pid = end + 1
    thread = pid + digits(data, pid) + 1
    gpu = thread + digits(data, thread) + 2
    width = digits(data, gpu)
    if data[end] != COLON or thread == pid + 1 or data[thread - 1] != COLON or gpu == thread + 2 or width == 0:
        return not (_is_letter(data[at]) and reads(data, end, b" rank"))
    if data[gpu - 2] != BLANK or data[gpu - 1] != OPEN or data[gpu + width] != CLOSE or data[gpu + width + 1] != BLANK:
        return True
    if thread - 1 - pid > _DIGITS or width > _DIGITS:
        return False
    row.host, row.host_length = at, end - at
    row.pid = number(data, pid, thread - 1 - pid)
    row.data, row.data_length = gpu, width
    return True


@part
def _names_process(data: Array, at: int) -> bool:
    """Whether ``host:pid`` follows, as UCX and Open MPI write it in brackets."""
    end = at
    while _is_of_word(data[end]) or data[end] == POINT or data[end] == DASH:
        end += 1
    return _is_letter(data[at]) and data[end] == COLON and is_digit(data[end + 1])


@part
def _stamped(data: Array, start: int, end: int, row: Row, clock: Clock) -> bool:
    """``2026-02-06 16:10:24,123 - name - LEVEL - text``, ``[2026-02-06 16:10:24] LEVEL: text``, ``[NeMo I 2026-02-06 16:10:24 ...] text``."""
    at = start + (data[start] == OPEN)
    word = 0
    if not is_digit(data[at]):
        word = _level(data, at)
        at = _behind_level(data, at)
        if word == 0:
            return False
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
    own = _level(data, at + (data[at] == OPEN))
    named = _named(data, at, row)
    row.severity = own if own > 0 else named if named > 0 else word
    return _writer(data, at, row) and not (row.unit_length > 0 and reads(data, at, b"healthagent"))


@part
def _named(data: Array, at: int, row: Row) -> int:
    """Reads a logger's name before its level, ``name - LEVEL``; returns the level, 0 for none."""
    end = at
    while _is_of_word(data[end]) or data[end] == POINT:
        end += 1
    if end == at or not reads(data, end, b" - "):
        return 0
    level = _level(data, end + 3 + (data[end + 3] == OPEN))
    if level > 0:
        row.unit, row.unit_length = at, end - at
    return level


@part
def _level(data: Array, at: int) -> int:
    """The severity of a level word that stands alone; 0 for none."""
    end = _behind_level(data, at)
    if _is_of_word(data[end]):
        return 0
    if end == at + 6 and reads(data, at, b"NeMo "):
        return meaning(data, at + 5, 1, _LETTERS)
    return meaning(data, at, end - at, _LEVELS)


@part
def _behind_level(data: Array, at: int) -> int:
    """Where a potential level word ends."""
    return at + 6 if reads(data, at, b"NeMo ") and is_capital(data[at + 5]) else at + letters(data, at)


@part
def _separates(byte: int) -> bool:
    """Whether the byte separates timestamp, level and text."""
    return byte in (BLANK, COMMA, COLON, _BAR, CLOSE, DASH)


@part
def _is_sign(byte: int) -> bool:
    return byte in (PLUS, DASH)


@part
def _is_letter(byte: int) -> bool:
    return 65 <= byte <= 90 or 97 <= byte <= 122


@part
def _is_of_word(byte: int) -> bool:
    return _is_letter(byte) or is_digit(byte) or byte == _UNDERLINE
