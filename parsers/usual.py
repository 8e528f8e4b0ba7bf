"""Headers whose parts stand where they nearly always stand, read by position for a whole batch at once.

Syslog (RFC 3164, RFC 5424, RFC 3339 stamps), Slurm's own files and ``dmesg``: nine lines in ten have one of these
headers in its plainest spelling. Looking at fixed bytes costs a tenth of what a regex does. A line is taken only if
every byte of its header is as expected; all others, and every doubt, are left to the formats, which read these lines
the same way (tests/parsers/test_usual.py holds the two together).
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa

from parsers import regexes, stamps, usual_fabric
from parsers.clock import uptime
from parsers.formats import slurm, syslog
from parsers.formats.base import (
    HEADER,
    JOB_SOURCES,
    SEVERITY_WORDS,
    SLURM,
    nothing,
    source_of_program,
)
from parsers.formats.syslog import is_plain
from parsers.head import (
    DMESG,
    EOS,
    FABRIC,
    FACILITIES,
    FORMATS,
    JUNOS,
    KMSG,
    NXOS,
    OPENSM,
    QUALITIES,
    RFC3164,
    RFC5424,
    SEVERITIES,
    SLURM_FILE,
    SONIC,
    SYSTEMS,
    Head,
)
from parsers.lines import Array, LineBuffer, column
from parsers.record import Origin

_BLANK, _PERCENT, _DASH, _COLON, _LESS, _MORE, _OPEN, _CLOSE = b" %-:<>[]"
#: Host and program together are shorter than this, and so are the five words of RFC 5424; longer ones are not usual.
_TAIL, _WORDS = 64, 96
#: So many lines are looked at together that what is looked at stays in the processor's cache.
_AT_ONCE = 8_192
#: SONiC writes the level between host and program.
_LEVELS = {word: SEVERITIES.index(SEVERITY_WORDS[word.lower()]) for word in syslog.LEVEL_NAMES}
#: Level words that start a message of Slurm -> severity, as the first eight bytes and how many of them count.
_WORDS_OF_SLURM = tuple(
    (f"{word}: ".encode(), SEVERITIES.index(SEVERITY_WORDS.get(word, "info")))
    for word in ("error", "fatal", "warning", "info", "verbose", "debug", "debug1", "debug2", "debug3", "debug4", "debug5")
)  # fmt: skip


def read(buffer: LineBuffer, origin: Origin, *, header: bool = False) -> tuple[Array, pl.DataFrame]:
    """Which lines were taken (by line), and HEADER's columns of all lines; what they say of lines not taken means nothing.

    ``header``: also ``stamp`` and ``extra``, which only a reader of the whole header needs.
    """
    head = Head.of(len(buffer))
    if origin.source in JOB_SOURCES or not len(buffer):  # what a job prints may look like anything
        return head.format > 0, pl.DataFrame([nothing(name, kind, len(buffer)) for name, kind in HEADER.items()])
    at = _priorities(buffer, head)
    first = buffer.data[at]
    digit = (first >= 48) & (first <= 57)
    version = (head.priority >= 0) & digit & (buffer.data[at + 1] == _BLANK)
    dated = buffer.data[at + 4] == _DASH
    bracket = (first == _OPEN) & (head.priority < 0)
    slurms = bracket & (buffer.data[at + 5] == _DASH)
    second = buffer.data[at + 1]
    worded = bracket & (second >= 65) & (second <= 90)
    dated_first = (first >= 65) & (first <= 90)
    after = buffer.data[at + 16]
    micros = dated_first & (after >= 48) & (after <= 57)
    for reader, lines in (
        (_bsd, dated_first & ~micros), (_rfc5424, version), (_iso, digit & ~version & dated),
        (_kmsg, digit & ~dated & (head.priority < 0)), (_slurm, slurms), (_dmesg, bracket & ~slurms & ~worded),
        (usual_fabric.opensm, micros), (usual_fabric.fabric_manager, worded & ~slurms),
        (usual_fabric.nxos, (first == _COLON) & (head.priority >= 0)),
    ):  # fmt: skip
        rows = np.flatnonzero(lines)
        for start in range(0, len(rows), _AT_ONCE):
            reader(buffer, head, rows[start : start + _AT_ONCE], at, origin)
    units = _Units(buffer, head)
    taken = head.format > 0
    head.clear(np.flatnonzero(~taken))
    units.code[~taken] = 0
    return taken, _frame(buffer, head, units, origin, header)


def _priorities(buffer: LineBuffer, head: Head) -> Array:
    """Where each line goes on behind ``<N>``; sets the priority."""
    at = buffer.starts.copy()
    rows = np.flatnonzero(buffer.data[at] == _LESS)
    if not len(rows):
        return at
    window = buffer.windows(at[rows], 5)
    digits = window - np.uint8(48)
    number = np.zeros(len(rows), np.int16)
    fine = np.ones(len(rows), np.bool_)
    for width in (1, 2, 3):
        fine &= digits[:, width] < 10
        number = np.where(fine, number * 10 + digits[:, width], number)
        closed = fine & (window[:, width + 1] == _MORE) & (number <= 191)
        head.priority[rows[closed]] = number[closed]
        at[rows[closed]] += width + 2
    return at


def _bsd(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    rows, times = stamps.bsd(buffer, rows, at, origin)
    # A digit might be a year, a blank anything.
    after = buffer.data[at[rows] + 16]
    fine = ((after < 48) | (after > 57)) & (after != _BLANK)
    rows, times = rows[fine], times[fine]
    head.stamp[rows], head.stamp_length[rows] = at[rows], 15
    head.time[rows], head.quality[rows], head.resolution[rows] = times, 2, 1_000_000
    _host_and_tag(buffer, head, rows, at[rows] + 16)


def _iso(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    found = stamps.iso(buffer, rows, at[rows], origin)
    # Without zone and priority it is a program's own stamp, not syslog.
    fine = (buffer.data[found.end] == _BLANK) & (found.zoned | (head.priority[found.rows] >= 0))
    rows = _keep_stamp(head, found, fine, at)
    _host_and_tag(buffer, head, rows, found.end[fine] + 1)


def _keep_stamp(head: Head, found: stamps.Stamps, fine: Array, at: Array) -> Array:
    rows: Array = found.rows[fine]
    start = at[rows]
    head.stamp[rows], head.stamp_length[rows] = start, found.end[fine] - start
    head.time[rows], head.resolution[rows] = found.time[fine], found.resolution[fine]
    head.quality[rows] = np.where(found.certain[fine], 1, 2)
    return rows


def _host_and_tag(buffer: LineBuffer, head: Head, rows: Array, at: Array) -> None:
    """``host program[pid]: message`` from ``at``; takes the lines that read exactly so, or with a level after the host."""
    window = buffer.windows(at, _TAIL)
    special = (window <= 32) | (window >= 127) | (window == _COLON) | (window == _OPEN) | (window == _CLOSE)
    line = np.arange(len(rows))

    def next_special() -> tuple[Array, Array]:
        place = special.argmax(axis=1)
        found = special[line, place]
        special[line, place] = False
        return place, np.where(found, window[line, place], 0)

    blank, byte = next_special()
    hosted = (byte == _BLANK) & (blank > 0)
    host_length = blank
    tag, byte = next_special()
    level = _level_names(buffer, at + blank + 1, np.where(hosted & (byte == _BLANK), tag - blank - 1, 0))
    if level.any():
        blank = np.where(level > 0, tag, blank)
        further, next_byte = tag.copy(), byte.copy()
        rows_of = np.flatnonzero(level)
        further[rows_of] = special[rows_of].argmax(axis=1)
        next_byte[rows_of] = np.where(special[rows_of, further[rows_of]], window[rows_of, further[rows_of]], 0)
        special[rows_of, further[rows_of]] = False
        tag, byte = further, next_byte
    fine = hosted & (tag > blank + 1)
    bracket = byte == _OPEN
    close, closing = next_special()
    fine &= np.where(bracket, (closing == _CLOSE) & (close > tag + 1), byte == _COLON)
    end = at + np.where(bracket, close + 1, tag)
    fine &= (buffer.data[end] == _COLON) & (buffer.data[end + 1] == _BLANK)
    pid, numeric = stamps.number(buffer, at + tag + 1, np.where(bracket, close - tag - 1, 0))
    fine &= ~bracket | numeric
    rows, at, blank, tag, level = rows[fine], at[fine], blank[fine], tag[fine], level[fine]
    head.host[rows], head.host_length[rows] = at, host_length[fine]
    head.unit[rows], head.unit_length[rows] = at + blank + 1, tag - blank - 1
    head.pid[rows] = np.where(bracket, pid, -1)[fine]
    head.message[rows] = end[fine] + 2
    head.severity[rows] = level
    head.format[rows] = RFC3164


def _level_names(buffer: LineBuffer, at: Array, length: Array) -> Array:
    """The severities of the level names of ``length`` bytes at ``at``; 0 for anything else."""
    levels = np.zeros(len(at), np.uint8)
    likely = np.flatnonzero(length)
    if len(likely):
        words = buffer.texts(at[likely], length[likely])
        levels[likely] = words.replace_strict(_LEVELS, default=0, return_dtype=pl.UInt8).to_numpy()
    return levels


def _rfc5424(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    """``1 STAMP host program pid msgid - message``: without structured data every part lies between blanks."""
    rows = rows[buffer.data[at[rows]] == ord("1")]
    found = stamps.iso(buffer, rows, at[rows] + 2, origin)
    rows = _keep_stamp(head, found, buffer.data[found.end] == _BLANK, at + 2)
    at = head.stamp[rows] + head.stamp_length[rows] + 1
    window = buffer.windows(at, _WORDS)
    special = (window <= 32) | (window >= 127)
    line = np.arange(len(rows))
    fine = np.ones(len(rows), np.bool_)
    edges = [np.full(len(rows), -1)]
    for _ in range(4):
        place = special.argmax(axis=1)
        fine &= special[line, place] & (window[line, place] == _BLANK) & (place > edges[-1] + 1)
        special[line, place] = False
        edges.append(place)
    rest = at + edges[4] + 1
    structured = np.flatnonzero(fine & (buffer.data[rest] == _OPEN))
    end = rest + 1
    end[structured] = _structured_data(buffer, head, rows[structured], rest[structured])
    after = buffer.data[end + 1]
    fine &= (buffer.data[rest] == _DASH) | (head.data_length[rows] > 0)
    fine &= (buffer.data[end] == _BLANK) & (after != _BLANK) & (after != 0xEF)
    nil = [(buffer.data[at + start + 1] == _DASH) & (stop == start + 2) for start, stop in pairwise(edges)]
    pid, numeric = stamps.number(buffer, at + edges[2] + 1, np.where(nil[2], 0, edges[3] - edges[2] - 1))
    fine &= nil[2] | numeric
    # A message id goes into JSON as it is.
    words = buffer.windows(at + edges[3] + 1, 40)
    named = np.arange(40) < np.where(nil[3], 0, edges[4] - edges[3] - 1)[:, None]
    fine &= ~(named & ((words == ord('"')) | (words == ord("\\")))).any(axis=1) & (edges[4] - edges[3] <= 40)
    for place, length, part in (
        (head.host, head.host_length, 0), (head.unit, head.unit_length, 1), (head.msgid, head.msgid_length, 3),
    ):  # fmt: skip
        place[rows] = at + edges[part] + 1
        length[rows] = np.where(nil[part], -1, edges[part + 1] - edges[part] - 1)
    head.pid[rows] = np.where(nil[2], -1, pid)
    head.message[rows] = end + 1
    head.format[rows[fine]] = RFC5424


def _structured_data(buffer: LineBuffer, head: Head, rows: Array, at: Array) -> Array:
    """Where the structured data that begins ``at`` ends; at its beginning where it does not read well."""
    match = re.compile(syslog.STRUCTURED_DATA.encode(), re.DOTALL).match
    data = buffer.data.data
    for row, start in zip(rows.tolist(), at.tolist(), strict=True):
        found = match(data, start, int(buffer.ends[row]))
        if found:
            head.data[row], head.data_length[row] = start, found.end() - start
    ends: Array = at + np.maximum(head.data_length[rows], 0)
    return ends


def _slurm(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    """``[STAMP] message``, and ``[STAMP] [JOB.STEP] message`` of a step's daemon."""
    found = stamps.iso(buffer, rows, at[rows] + 1, origin)
    after = buffer.data[found.end + 2]
    fine = (buffer.data[found.end] == _CLOSE) & (buffer.data[found.end + 1] == _BLANK)
    # A digit or "Deleted" may be `ip monitor`.
    fine &= (after > _BLANK) & (after != ord("D")) & ((after < 48) | (after > 57))
    rows = _keep_stamp(head, found, fine, at + 1)
    head.message[rows] = found.end[fine] + 2
    head.format[rows] = SLURM_FILE
    _step_tags(buffer, head, rows[after[fine] == _OPEN])
    head.severity[rows] = _level(buffer, head.message[rows], SEVERITIES.index("info"))


def _step_tags(buffer: LineBuffer, head: Head, rows: Array) -> None:
    """Takes ``[JOB.STEP] `` off the messages of ``rows``; gives up lines with other brackets."""
    if not len(rows):
        return
    at = head.message[rows] + 1
    close = (buffer.windows(at, 48) == _CLOSE).argmax(axis=1)
    tags = buffer.texts(at, close)
    fine = regexes.contains(tags, rf"^{slurm.STEP_TAG}$").to_numpy() & (buffer.data[at + close + 1] == _BLANK)
    head.format[rows[~fine]] = 0
    rows, at, close = rows[fine], at[fine], close[fine]
    head.tag[rows], head.tag_length[rows] = at, close
    head.message[rows] = at + close + 2


def _kmsg(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    """``priority,sequence,microseconds,flags;message`` as /dev/kmsg gives it."""
    at = at[rows]
    window = buffer.windows(at, _TAIL)
    special = (window < 48) | (window > 57)
    line = np.arange(len(rows))
    fine = np.ones(len(rows), np.bool_)
    edges = [np.full(len(rows), -1)]
    for _ in range(3):
        place = special.argmax(axis=1)
        fine &= special[line, place] & (window[line, place] == ord(",")) & (place > edges[-1] + 1)
        special[line, place] = False
        edges.append(place)
    semicolon = (window == ord(";")).argmax(axis=1)
    fine &= (semicolon > edges[3]) & (edges[1] <= 4)
    fine &= at + semicolon < buffer.ends[rows]
    micros, numeric = stamps.number(buffer, at + edges[2] + 1, np.where(fine, edges[3] - edges[2] - 1, 0), 15)
    priority, _ = stamps.number(buffer, at, np.where(fine, edges[1], 0))
    fine &= numeric
    rows, at = rows[fine], at[fine]
    head.priority[rows] = priority[fine]
    head.msgid[rows], head.msgid_length[rows] = at, edges[3][fine]  # all three numbers
    head.message[rows] = at + semicolon[fine] + 1
    head.uptime[rows] = micros[fine] / 1_000_000
    _since_boot(head, rows, origin, 1)
    head.format[rows] = KMSG


def _since_boot(head: Head, rows: Array, origin: Origin, resolution: int) -> None:
    """Times of lines that only say how long their host had been up."""
    head.quality[rows], head.resolution[rows] = 3, resolution
    if origin.boots:
        times = uptime(pl.Series(head.uptime[rows], dtype=pl.Float64), origin)
        head.time[rows] = times.to_physical().fill_null(0).to_numpy()
        head.quality[rows] = np.where(times.is_not_null().to_numpy(), 2, 3)


def _level(buffer: LineBuffer, at: Array, default: int) -> Array:
    """Severity by the level word at the start of a message of Slurm."""
    window = buffer.windows(at, 9)
    levels = np.full(len(at), default, np.uint8)
    for word, level in _WORDS_OF_SLURM:
        likely = np.flatnonzero(window[:, 0] == word[0])
        fits = likely[(window[likely, : len(word)] == np.frombuffer(word, np.uint8)).all(axis=1)]
        levels[fits] = level
    return levels


def _dmesg(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    fine, message, seconds = stamps.uptime(buffer, at[rows])
    rows = rows[fine]
    head.message[rows], head.uptime[rows] = message[fine], seconds[fine]
    _since_boot(head, rows, origin, 1_000)
    head.format[rows] = DMESG


def _distinct(texts: pl.Series) -> tuple[list[str | None], Array]:
    """The different ones of ``texts``, and for each text which of them it is."""
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode(null_encoding="encode")
    return array.dictionary.to_pylist(), array.indices.to_numpy()


class _Units:
    """Programs of a batch are few: what follows from a program's name is worked out once for each."""

    def __init__(self, buffer: LineBuffer, head: Head) -> None:
        """Also gives up lines whose program or message needs a closer look, and reads what stands before the text."""
        self.named = np.zeros(len(head.format), np.bool_)
        at = np.flatnonzero((head.format == RFC3164) | (head.format == RFC5424))
        texts, numbers = _distinct(buffer.texts(head.unit[at], head.unit_length[at]))
        known: dict[str | None, int] = {None: 0, "kernel": 1, "opensm": 2, "nv-fabricmanager": 3}
        self.code = np.zeros(len(head.format), np.uint32)
        self.code[at] = np.array([known.setdefault(name, len(known)) for name in texts], np.uint32)[numbers]
        self.names: list[str | None] = list(known)
        self.sources = [(source_of_program(name) or "syslog") if name else "syslog" for name in self.names]
        odd = np.array([name is not None and not is_plain(name) for name in self.names])
        head.format[at[odd[self.code[at]]]] = 0
        self._before_text(buffer, head)
        self._switches(buffer, head, at)
        self.code[(head.format == DMESG) | (head.format == KMSG)] = known["kernel"]
        self.code[head.format == OPENSM] = known["opensm"]
        self.code[head.format == FABRIC] = known["nv-fabricmanager"]

    def _before_text(self, buffer: LineBuffer, head: Head) -> None:
        """What the kernel and Slurm's daemons write once more before the text."""
        kinds = np.array([{"kernel": 1}.get(s, 2 if s in SLURM else 0) for s in self.sources])
        self.named = kinds[self.code] == 2
        syslog_ = (head.format == RFC3164) | (head.format == RFC5424)
        first, second = buffer.data[head.message], buffer.data[head.message + 1]
        likely = (first == _OPEN) & ((second == _BLANK) | ((second >= 48) & (second <= 57)))
        kernel = np.flatnonzero(syslog_ & (kinds[self.code] == 1) & likely)
        if len(kernel):
            fine, message, seconds = stamps.uptime(buffer, head.message[kernel])
            head.format[kernel[~fine]] = 0
            head.message[kernel[fine]], head.uptime[kernel[fine]] = message[fine], seconds[fine]
        daemon = np.flatnonzero(syslog_ & self.named)
        if not len(daemon):
            return
        again = (buffer.windows(head.message[daemon], 5) == np.frombuffer(b"slurm", np.uint8)).all(axis=1)
        head.format[daemon[again]] = 0  # its own name
        unsaid = daemon[head.severity[daemon] == 0]
        head.severity[unsaid] = _level(buffer, head.message[unsaid], 0)

    def _switches(self, buffer: LineBuffer, head: Head, at: Array) -> None:
        """Whose operating system wrote the lines ``at``: by program, and by %FACILITY-N-MNEMONIC before the text."""
        of_name = np.array(
            [SONIC if syslog.is_sonic(n or "") else JUNOS if syslog.is_junos(n or "") else 0 for n in self.names]
        )
        at = at[head.system[at] != NXOS]
        system = of_name[self.code[at]]
        head.system[at] = np.where((system == JUNOS) & (head.priority[at] < 0), 0, system)
        engines = (buffer.windows(head.host[at], 2) == np.frombuffer(b"re", np.uint8)).all(axis=1)
        head.format[at[engines & (system == JUNOS)]] = 0  # "re0.leaf1": the device's name is part of it
        likely = at[(buffer.data[head.message[at]] == _PERCENT) & ~self.named[at]]
        if len(likely):
            texts = buffer.texts(head.message[likely], np.maximum(buffer.ends[likely] - head.message[likely], 0))
            head.system[likely[regexes.contains(texts, syslog.VENDOR).to_numpy()]] = EOS


def _frame(buffer: LineBuffer, head: Head, units: _Units, origin: Origin, header: bool) -> pl.DataFrame:
    """All lines as HEADER's columns."""

    def chosen(names: tuple[str | None, ...] | list[str] | list[str | None], codes: Array) -> pl.Series:
        return pl.Series(names, dtype=pl.String)[codes]

    length = np.maximum(buffer.ends - head.message, 0)
    priority = head.priority
    severity = np.where(priority >= 0, priority % 8 + 1, head.severity)
    timeless = head.quality == 3
    tagged = head.tag_length > 0
    own = (head.format == SLURM_FILE) & ~tagged
    from_switch = np.isin(head.system, (EOS, SONIC, NXOS))
    values: dict[str, pl.Series] = {
        "i": pl.Series(np.arange(len(buffer), dtype=np.uint32)),
        "time": column(head.time, ~timeless, pa.timestamp("us")),
        "quality": chosen(QUALITIES, head.quality),
        "resolution_us": column(head.resolution, None, pa.int64()),
        "host": buffer.texts(head.host, head.host_length),
        "source": chosen(units.sources, units.code),
        "format": chosen(FORMATS, head.format),
        "unit": chosen(units.names, units.code),
        "pid": column(head.pid, head.pid >= 0, pa.int64()),
        "facility": chosen(FACILITIES, np.where((priority >= 0) & (priority < 192), priority // 8 + 1, 0)),
        "severity": chosen(SEVERITIES, severity),
        "message": buffer.texts(head.message, length),
        "uptime_s": column(head.uptime, ~np.isnan(head.uptime), pa.float64()),
    }
    if own.any():
        at = np.flatnonzero(own)
        daemons = slurm.daemons(values["message"][at], origin)
        values["source"], values["unit"] = values["source"].scatter(at, daemons), values["unit"].scatter(at, daemons)
    if tagged.any():
        at = np.flatnonzero(tagged)
        values["source"] = values["source"].scatter(at, "slurmstepd")
        values["unit"] = values["unit"].scatter(at, "slurmstepd")
        values["step_tag"] = buffer.texts(head.tag, head.tag_length)
    if from_switch.any():
        values["source"] = values["source"].scatter(np.flatnonzero(from_switch), "switch")
    told = (head.msgid_length > 0) | (head.system > 0) | (head.data_length > 0)
    if header:
        values["stamp"] = buffer.texts(head.stamp, head.stamp_length)
        values["extra"] = _extra(buffer, head, np.arange(len(buffer)))
    elif told.any():  # the numbers of a priority alone are columns already
        extra = nothing("extra", pl.String, len(buffer))
        values["extra"] = extra.scatter(np.flatnonzero(told), _extra(buffer, head, np.flatnonzero(told)))
    return pl.DataFrame([
        values[name].alias(name) if name in values else nothing(name, kind, len(buffer)) for name, kind in HEADER.items()
    ])  # fmt: skip


def _extra(buffer: LineBuffer, head: Head, rows: Array) -> pl.Series:
    """What else the header said, as JSON: the priority in numbers, a switch's system, version and message id of RFC 5424;
    of the kernel's records the numbers before the text."""
    kernel = head.format[rows] == KMSG
    newer = head.format[rows] == RFC5424
    priority = pl.Series(np.where(kernel, -1, head.priority[rows]))
    numbers = {
        number: f', "facility_num": {number // 8}, "pri": {number}, "severity_num": {number % 8}'
        for number in priority.unique().to_list()
        if number >= 0
    }
    systems = [None, *(f', "device_os": "{name}"' for name in SYSTEMS[1:])]
    parts = pl.DataFrame({
        "numbers": priority.replace_strict(numbers, default=None, return_dtype=pl.String),
        "version": pl.Series([None, ', "version": 1']).gather(newer.astype(np.uint32)),
        "system": pl.Series(systems).gather(head.system[rows].astype(np.uint32)),
        "msgid": buffer.texts(head.msgid[rows], np.where(newer, head.msgid_length[rows], -1)),
        "sd": _data_as_json(buffer, head, rows),
        "record": buffer.texts(head.msgid[rows], np.where(kernel, head.msgid_length[rows], -1)),
    })  # fmt: skip
    msgid = pl.concat_str(pl.lit(', "msgid": "'), "msgid", pl.lit('"'))
    of_record = pl.col("record").str.splitn(",", 3).struct

    def number(name: str) -> pl.Expr:  # JSON has no leading zeros
        return of_record.field(name).str.replace(r"^0+(\d)", "${1}")

    record = pl.concat_str(
        pl.lit('{"kmsg_pri": '), number("field_0"), pl.lit(', "kmsg_seq": '), number("field_1"),
        pl.lit(', "kmsg_usec": '), number("field_2"), pl.lit("}"),
    )  # fmt: skip
    said = pl.concat_str(msgid, "sd", "system", "numbers", "version", ignore_nulls=True)
    usual = pl.when(said != "").then(pl.concat_str(pl.lit("{"), said.str.slice(2), pl.lit("}")))
    return parts.select(pl.coalesce(record, usual).alias("extra")).to_series()


def _data_as_json(buffer: LineBuffer, head: Head, rows: Array) -> pl.Series:
    """The structured data of RFC 5424 as a member of a JSON object."""
    at = np.flatnonzero(head.data_length[rows] > 0)
    texts = buffer.texts(head.data[rows[at]], head.data_length[rows[at]]).to_list()
    said = [f', "sd": {json.dumps(syslog.structured_data(text), ensure_ascii=False)}' for text in texts]
    return nothing("sd", pl.String, len(rows)).scatter(at, pl.Series(said, dtype=pl.String))
