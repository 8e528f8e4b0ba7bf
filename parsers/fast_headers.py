"""Headers in their common spelling, read for a whole batch at once by compiled code.

Syslog (RFC 3164, RFC 5424, RFC 3339 timestamps), Slurm's own files, the journal as JSON, the kernel's records, OpenSM,
NX-OS and program output: nine lines in ten. benchmarks/readers.py measures the gain of each reader. A line is taken
only if every byte of its header matches its grammar (parsers/header_grammar.py); all others, and any doubtful ones, are
left to the formats, which read a line the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from parsers import header_scanner, journal_scanner, prefilter
from parsers.compiled import compiled, part
from parsers.formats import slurm
from parsers.formats.base import HEADER, JOB_SOURCES, SLURM, nothing, source_of_program
from parsers.formats.structured_data import parameters
from parsers.formats.syslog_fields import is_junos, is_plain, is_sonic
from parsers.head import (
    EOS,
    FACILITIES,
    FORMATS,
    JOURNALD,
    JUNOS,
    KERNEL,
    KMSG,
    NXOS,
    OUTPUT,
    PLAIN,
    PROGRAMS,
    QUALITIES,
    RECEIVED,
    RFC3164,
    RFC5424,
    ROW,
    SEVERITIES,
    SLURM_FILE,
    SONIC,
    SYSTEMS,
    Row,
    clear,
)
from parsers.lines import Array, LineBuffer, chosen, column, places_of
from parsers.output_scanner import read_output
from parsers.record import Origin
from parsers.scan import BLANK, BRACE, COLON, DASH, OPEN, is_capital, is_digit, reads
from parsers.stamps import Clock, clock_of

_ONE = ord("1")
_ESCAPE = 0x1B
#: The numbers before the text of a kernel record.
_RECORD = ("kmsg_pri", "kmsg_seq", "kmsg_usec")
_FIELDS = ROW.names or ()
#: Programs whose names collide more often than this are left to the formats.
_TRIES = 64
#: What follows from a program's name: whether it is a valid one, the prefix of its messages, the system it belongs to.
_KIND = np.dtype([("plain", np.bool_), ("kernel", np.bool_), ("slurm", np.bool_), ("system", np.uint8)])


@dataclass(frozen=True)
class FastHeaders:
    """The result of :func:`read`: per line whether it was ``taken``, and HEADER's columns of all lines, ``stamp`` only
    on request and ``extra`` only for single lines. The columns are undefined for lines that were not taken. ``formats``
    are the bits of the formats that may read such a line (parsers/prefilter.py). ``message`` is the offset of the
    message in the buffer."""

    taken: Array
    frame: pl.DataFrame
    buffer: LineBuffer
    rows: Array
    formats: Array

    @property
    def message(self) -> Array:
        places: Array = self.rows["message"]
        return places

    def has_extra(self, lines: Array) -> Array:
        """For which of these lines :meth:`extra` has more than a priority."""
        formats, rows = self.rows["format"][lines], self.rows
        data = (formats == RFC5424) & ((rows["msgid_length"][lines] >= 0) | (rows["data_length"][lines] > 0))
        data |= (formats == OUTPUT) & (
            (rows["pid"][lines] >= 0) | (rows["data_length"][lines] > 0) | (rows["msgid_length"][lines] > 0)
        )
        named = data | (formats == KMSG) | (formats == JOURNALD) | (rows["system"][lines] > 0)
        more: Array = self.taken[lines] & named
        return more

    def extra(self, line: int) -> dict[str, Any]:
        """Further values of a line's header. Called for few lines: only those with a meaning need it."""
        row = dict(zip(_FIELDS, self.rows[line].item(), strict=True))  # numpy takes as long for each field
        if row["format"] == KMSG:
            return dict(zip(_RECORD, map(int, self._text(row, "msgid").split(",")), strict=False))
        if row["format"] == JOURNALD:
            return self._of_journal(row)
        if row["format"] == OUTPUT:
            return self._of_output(row)
        stated: dict[str, Any] = {}
        priority = row["priority"]
        if priority >= 0:
            stated = {"pri": priority, "facility_num": priority // 8, "severity_num": priority % 8}
        if row["system"]:
            stated["device_os"] = SYSTEMS[row["system"]]
        if row["format"] == RFC5424:
            stated["version"] = 1
            if row["msgid_length"] >= 0:
                stated["msgid"] = self._text(row, "msgid")
            if row["data_length"] > 0:
                stated["sd"] = parameters(self._text(row, "data"))
        return stated

    def _of_journal(self, row: dict[str, int]) -> dict[str, Any]:
        places = {"program": "unit", "boot_id": "msgid", "unit": "data"}
        stated = {name: self._text(row, place) for name, place in places.items() if row[f"{place}_length"] > 0}
        return stated | {"program": "kernel"} if row["program"] == KERNEL else stated

    def _of_output(self, row: dict[str, int]) -> dict[str, Any]:
        stated = {"pid": row["pid"]} if row["pid"] >= 0 else {}
        if row["data_length"] > 0:
            stated["gpu"] = int(self._text(row, "data"))
        if row["msgid_length"] > 0:  # "rank3", or what the launcher calls it
            role = self._text(row, "msgid")
            kind = role.rstrip("0123456789")
            stated["rank" if kind == "rank" else "local_rank"] = int(role[len(kind) :])
        return stated

    def _text(self, row: dict[str, int], name: str) -> str:
        return self.buffer.text(row[name], row[f"{name}_length"])


def none_taken(buffer: LineBuffer) -> FastHeaders:
    """A result with no line taken."""
    rows = np.zeros(len(buffer), ROW)
    frame = pl.DataFrame([nothing(name, kind, len(buffer)) for name, kind in HEADER.items()])
    return FastHeaders(rows["format"] > 0, frame, buffer, rows, np.full(len(buffer), prefilter.ANY))


def read(buffer: LineBuffer, origin: Origin, *, header: bool = False) -> FastHeaders:
    """The headers of those of the buffer's lines that have a plain one.

    ``header``: includes ``stamp``, which only a reader of the whole header needs.
    """
    if not len(buffer):
        return none_taken(buffer)
    rows = np.zeros(len(buffer), ROW)
    _read_headers(buffer.data, buffer.starts, buffer.ends, rows, clock_of(origin), origin.source in JOB_SOURCES)
    _clear_all(rows, _with_escapes(buffer))
    formats = _read_others(buffer, rows, origin)
    programs = _programs(buffer, rows)
    _read_texts(buffer.data, rows, _kinds(programs))
    return FastHeaders(rows["format"] > 0, _frame(buffer, rows, programs, origin, header), buffer, rows, formats)


def _with_escapes(buffer: LineBuffer) -> Array:
    """The lines that contain a terminal escape: formats read those without their colours."""
    places = places_of(_ESCAPE, buffer.data)
    if not len(places):
        return places
    lines: Array = np.unique(np.searchsorted(buffer.starts, places, side="right") - 1)
    return lines


@compiled
def _clear_all(rows: Array, lines: Array) -> None:
    for line in lines:
        clear(rows[line])


def _read_others(buffer: LineBuffer, rows: Array, origin: Origin) -> Array:
    """Reads program output among the lines without a plain header; returns which formats may read the rest."""
    formats = np.full(len(buffer), prefilter.ANY)
    others = np.flatnonzero(rows["format"] == 0)
    if not len(others):
        return formats
    formats[others] = found = prefilter.formats_of(buffer, others)
    of_job = origin.source in JOB_SOURCES
    if of_job or origin.source is None:  # lines of a known other log mean something else
        found &= prefilter.asked(origin)
        read_output(
            buffer.data, buffer.starts, buffer.ends, others, found, prefilter.READERS, rows, clock_of(origin), of_job
        )
    return formats


@compiled
def _read_headers(data: Array, starts: Array, ends: Array, rows: Array, clock: Clock, of_job: bool) -> None:
    for line in range(len(rows)):
        row = rows[line]
        clear(row)
        if of_job:  # job output may look like anything
            continue
        if not _header(data, starts[line], ends[line], row, clock):
            clear(row)
        elif row.message_end == 0:
            row.message_end = ends[line]


@part
def _header(data: Array, start: int, end: int, row: Row, clock: Clock) -> bool:
    """Whether a line has a plain header; the first bytes show which kind it can be."""
    at = header_scanner.priority(data, start, row)
    first = data[at]
    if is_capital(first):
        if is_digit(data[at + 16]):
            return at == start and header_scanner.opensm(data, at, row, clock)
        return header_scanner.bsd(data, at, row, clock)
    if first == OPEN:
        return row.priority < 0 and _bracket(data, at, end, row, clock)
    if is_digit(first):
        if row.priority >= 0 and data[at + 1] == BLANK:
            return header_scanner.rfc5424(data, at, end, row, clock)
        if data[at + 4] == DASH:
            return header_scanner.iso(data, at, row, clock)
        return row.priority < 0 and header_scanner.kmsg(data, at, end, row, clock)
    if first == BRACE:
        return at == start and journal_scanner.journald(data, at, end, row)
    return first == COLON and row.priority >= 0 and header_scanner.nxos(data, at, row)


@part
def _bracket(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    if data[at + 5] == DASH:
        return header_scanner.slurm_file(data, at, end, row, clock)
    if is_capital(data[at + 1]):
        return header_scanner.fabric_manager(data, at, row, clock)
    return header_scanner.dmesg(data, at, end, row, clock)


def _programs(buffer: LineBuffer, rows: Array) -> list[str | None]:
    """The programs that lines name, each once, after PROGRAMS; sets ``program`` to their numbers."""
    slots = np.zeros(1 << (2 * len(rows)).bit_length(), np.int32)  # twice as many as lines, so that few collide
    firsts = np.zeros(len(rows), np.int64)
    count = _number_programs(buffer.data, rows, slots, firsts)
    start, length = rows["unit"], rows["unit_length"]
    named = [buffer.text(start[at], length[at]) for at in firsts[:count]]
    return [*PROGRAMS, *named]


@compiled
def _number_programs(data: Array, rows: Array, slots: Array, firsts: Array) -> int:
    """Numbers the programs with a hash table: ``slots`` hold numbers from 1, ``firsts`` the line where each first
    occurs."""
    count = 0
    for line in range(len(rows)):
        row = rows[line]
        if row.unit_length <= 0:
            continue
        slot = _hash(data, row.unit, row.unit_length) & (len(slots) - 1)
        for _ in range(_TRIES):
            if slots[slot] == 0:
                firsts[count] = line
                count += 1
                slots[slot] = count
            if _same_unit(data, row, rows[firsts[slots[slot] - 1]]):
                row.program = len(PROGRAMS) + slots[slot] - 1
                break
            slot = (slot + 1) & (len(slots) - 1)
        else:
            clear(row)
    return count


@part
def _hash(data: Array, at: int, length: int) -> int:
    """32-bit FNV-1a."""
    value = 2166136261
    for place in range(at, at + length):
        value = ((value ^ data[place]) * 16777619) & 0xFFFFFFFF
    return value


@part
def _same_unit(data: Array, row: Row, other: Row) -> bool:
    if row.unit_length != other.unit_length:
        return False
    place = 0
    while place < row.unit_length and data[row.unit + place] == data[other.unit + place]:
        place += 1
    return bool(place == row.unit_length)


def _kinds(programs: list[str | None]) -> Array:
    """Per program what follows from its name, computed once for each."""
    kinds = np.zeros(len(programs), _KIND)
    for kind, name in zip(kinds, programs, strict=True):
        source = source_of_program(name)
        kind["plain"] = name is None or is_plain(name)
        kind["kernel"], kind["slurm"] = source == "kernel", source in SLURM
        kind["system"] = 0 if name is None else SONIC if is_sonic(name) else JUNOS if is_junos(name) else 0
    return kinds


@compiled
def _read_texts(data: Array, rows: Array, kinds: Array) -> None:
    """Reads the prefixes that programs write before the text; gives up lines whose program or text needs a closer
    look."""
    for line in range(len(rows)):
        row = rows[line]
        syslogs = row.format == RFC3164 or row.format == RFC5424
        if syslogs and row.system != NXOS and not _text(data, row, kinds[row.program]):
            clear(row)


@part
def _text(data: Array, row: Row, kind: Row) -> bool:
    if not kind.plain:
        return False
    if kind.kernel and data[row.message] == OPEN and _begins_uptime(data[row.message + 1]):
        row.message = header_scanner.uptime(data, row.message, row.message_end, row)
        if row.message < 0:
            return False
    if kind.slurm:
        # Its own name once more, or the line of its file.
        if reads(data, row.message, b"slurm") or reads(data, row.message, b"[2"):
            return False
        if row.severity == 0:
            row.severity = header_scanner.slurm_level(data, row.message, 0)
    if kind.system == SONIC or (kind.system == JUNOS and row.priority >= 0):
        row.system = kind.system
    if not kind.slurm and header_scanner.mnemonic(data, row.message, row.message_end):
        row.system = EOS
    # "re0.leaf1": the device's name is part of it.
    return not (_begins_stamp(data, row.message) or (kind.system == JUNOS and reads(data, row.host, b"re")))


@part
def _begins_stamp(data: Array, at: int) -> bool:
    """Whether a text begins like ``Mon dd hh:mm:ss``: a whole line within a line. Never reads past the line."""
    if not (is_capital(data[at]) and data[at + 1] > BLANK and data[at + 2] > BLANK and data[at + 3] == BLANK):
        return False
    for place in range(4, 13):
        byte = data[at + place]
        if byte < BLANK or (place == 6 and byte != BLANK) or (place in (9, 12) and byte != COLON):
            return False
    return True


@part
def _begins_uptime(byte: int) -> bool:
    return byte == BLANK or is_digit(byte)


class _Columns(NamedTuple):
    """The raw material of HEADER's columns, per line. ``speaks`` is the number of its source; ``timed``, ``numbered``,
    ``booted`` and ``plain``: whether it has a time, a process ID and an uptime, and whether it has no header."""

    time: Array
    resolution: Array
    quality: Array
    host: Array
    host_length: Array
    speaks: Array
    format: Array
    program: Array
    pid: Array
    facility: Array
    severity: Array
    message: Array
    message_length: Array
    uptime: Array
    timed: Array
    numbered: Array
    booted: Array
    plain: Array


_NUMBERS = _Columns._fields.index("timed")


@compiled
def _read_columns(rows: Array, switch: int, output: int, columns: _Columns) -> bool:
    """Splits rows into columns in one pass, since each row is longer than a cache line. ``switch``, ``output``: the
    numbers of these sources. Returns whether any line has a tag."""
    tagged = False
    for line in range(len(rows)):
        row = rows[line]
        columns.time[line], columns.resolution[line], columns.quality[line] = row.time, row.resolution, row.quality
        columns.host[line], columns.host_length[line] = row.host, row.host_length
        columns.format[line], columns.program[line] = row.format, row.program
        columns.pid[line], columns.numbered[line] = row.pid, row.pid >= 0
        columns.uptime[line], columns.booted[line] = row.uptime, row.uptime >= 0
        columns.message[line], columns.message_length[line] = row.message, row.message_end - row.message
        columns.timed[line], columns.plain[line] = row.quality != RECEIVED, row.format == PLAIN
        columns.facility[line] = (row.priority >> 3) + 1 if 0 <= row.priority < 192 else 0
        columns.severity[line] = (row.priority & 7) + 1 if row.priority >= 0 else row.severity
        if row.format == PLAIN:
            columns.speaks[line] = 0
        elif row.format == OUTPUT:
            columns.speaks[line] = output
        elif row.system == EOS or row.system == SONIC or row.system == NXOS:
            columns.speaks[line] = switch
        else:
            columns.speaks[line] = row.program + 1
        tagged |= row.tag_length > 0
    return tagged


@compiled
def _unsigned(rows: Array) -> Array:
    """The lines of Slurm's files that do not name their daemon."""
    lines = np.empty(len(rows), np.int64)
    count = 0
    for line in range(len(rows)):
        if rows[line].format == SLURM_FILE and rows[line].tag_length < 0:
            lines[count] = line
            count += 1
    return lines[:count]


def _frame(buffer: LineBuffer, rows: Array, programs: list[str | None], origin: Origin, header: bool) -> pl.DataFrame:
    """All lines as HEADER's columns."""
    own = _unsigned(rows)
    if len(own):
        rows["program"][own] = _daemons(buffer, rows["message"][own], rows["message_end"][own], origin)
    sources = [
        None,
        *(source_of_program(name) or "syslog" for name in programs),
        "switch",
        origin.source or "job_stdout",
    ]
    kinds = [np.int64] * _NUMBERS + [np.bool_] * (len(_Columns._fields) - _NUMBERS)
    columns = _Columns(*(np.empty(len(rows), kind) for kind in kinds))
    tagged = _read_columns(rows, len(sources) - 2, len(sources) - 1, columns)
    values: dict[str, pl.Series] = {
        "i": pl.Series(np.arange(len(buffer), dtype=np.uint32)),
        "time": column(columns.time, columns.timed, pa.timestamp("us")),
        "quality": chosen(QUALITIES, columns.quality),
        "resolution_us": column(columns.resolution, None, pa.int64()),
        "host": buffer.texts(columns.host, columns.host_length),
        "source": chosen(sources, columns.speaks),
        "format": chosen(FORMATS, columns.format),
        "unit": chosen(programs, columns.program),
        "pid": column(columns.pid, columns.numbered, pa.int64()),
        "facility": chosen(FACILITIES, columns.facility),
        "severity": chosen(SEVERITIES, columns.severity),
        "message": buffer.texts(columns.message, columns.message_length),
        # One division of two exact numbers gives the nearest double, as parsing the text would.
        "uptime_s": column(columns.uptime / 1_000_000, columns.booted, pa.float64()),
    }
    if tagged:
        values["step_tag"] = buffer.texts(rows["tag"], rows["tag_length"])
    if columns.plain.any():
        values["tag"] = chosen((None, "unparsed"), columns.plain)
    if header:
        values["stamp"] = buffer.texts(rows["stamp"], rows["stamp_length"])
    return pl.DataFrame([
        values[name].alias(name) if name in values else nothing(name, kind, len(buffer)) for name, kind in HEADER.items()
    ])  # fmt: skip


def _daemons(buffer: LineBuffer, starts: Array, ends: Array, origin: Origin) -> Array:
    """The numbers of the daemons that wrote the untagged messages of Slurm's files."""
    if origin.source in SLURM:
        return np.full(len(starts), PROGRAMS.index(origin.source))
    numbers = np.array([PROGRAMS.index(name) for name in slurm.DAEMONS])
    named: Array = numbers[slurm.daemons_at(buffer.data, starts, ends)]
    return named
