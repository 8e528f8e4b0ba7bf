"""The compiled reader of headers. A function that is generated from the header's grammar (parsers/header_compiler.py) finds
the fields; this module interprets them.

Each reader gets the offset where its part begins, stores what it finds in ``row``, and returns whether the whole header
was there in its plain spelling.
"""

from __future__ import annotations

from parsers import stamps
from parsers.compiled import part
from parsers.expression_compiler import end_of
from parsers.formats.base import SEVERITY_WORDS, SLURM_LEVELS
from parsers.formats.devices import NXOS_HEADER
from parsers.formats.fabric import MANAGER_HEADER, OPENSM_BITS, OPENSM_HEADER
from parsers.formats.kernel import CALLER, KMSG_HEADER, MONOTONIC_WRITER, UPTIME_HEADER
from parsers.formats.mnemonics import TAG
from parsers.formats.slurm import FILE_HEADER, STEP_TAG
from parsers.formats.structured_data import STRUCTURED_DATA
from parsers.formats.syslog import BSD_HEADER, ISO_HEADER, PRIORITY, RFC5424_HEADER, TAIL
from parsers.formats.syslog_tails import LEVEL_NAMES, LEVELLED_TAIL
from parsers.head import (
    DMESG,
    FABRIC_MANAGER,
    INFERRED,
    KERNEL,
    KMSG,
    MANAGER,
    NXOS,
    OPENSM,
    OPENSM_DAEMON,
    RFC3164,
    RFC5424,
    SEVERITIES,
    SLURM_FILE,
    SLURMSTEPD,
    WRITTEN,
    Row,
)
from parsers.header_compiler import reader
from parsers.lines import Array
from parsers.scan import (
    BACKSLASH,
    BLANK,
    CLOSE,
    COLON,
    DASH,
    NOWHERE,
    OPEN,
    PERCENT,
    QUOTE,
    SEMICOLON,
    digits,
    is_capital,
    is_digit,
    letters,
    meaning,
    number,
    words,
)
from parsers.stamps import NO_TIME, Clock

#: Longer process IDs are left to the formats.
_PID_DIGITS = 10
_MOST_PRIORITY = 191
_INFO = SEVERITIES.index("info")
_BRACE = ord("{")
#: SONiC writes the level between host and program.
_LEVELS = words({name: SEVERITIES.index(SEVERITY_WORDS[name.lower()]) for name in LEVEL_NAMES})
_SLURM_LEVELS = words({word: SEVERITIES.index(severity) for word, severity in SLURM_LEVELS.items()})
_MANAGER_LEVELS = words({word.upper(): SEVERITIES.index(severity) for word, severity in SEVERITY_WORDS.items()})
_BITS = words({bits: SEVERITIES.index(severity) for bits, severity in OPENSM_BITS.items()})

_priority, _bsd, _iso, _tail, _levelled_tail = map(reader, (PRIORITY, BSD_HEADER, ISO_HEADER, TAIL, LEVELLED_TAIL))
_rfc5424, _slurm, _kmsg, _uptime, _opensm, _manager, _nxos = map(
    reader, (RFC5424_HEADER, FILE_HEADER, KMSG_HEADER, UPTIME_HEADER, OPENSM_HEADER, MANAGER_HEADER, NXOS_HEADER)
)
_structured_data, _step_tag, _mnemonic_tag = map(end_of, (f"(?s){STRUCTURED_DATA}", STEP_TAG, TAG))
_caller, _monotonic_writer = map(end_of, (CALLER, MONOTONIC_WRITER))


@part
def priority(data: Array, start: int, row: Row) -> int:
    """The offset after ``<N>``; the line's start if there is no priority up to 191."""
    places = _priority(data, start)
    if places.end < 0:
        return start
    value = number(data, places.pri, places.pri_end - places.pri)
    if value > _MOST_PRIORITY:
        return start
    row.priority = value
    return int(places.end)


@part
def bsd(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``Mon dd hh:mm:ss host program[pid]: message``."""
    rest = _bsd(data, at).end
    if rest < 0 or is_digit(data[rest]) or data[rest] == BLANK:  # a digit might be a year, a blank anything
        return False
    row.time = stamps.bsd(data, at, 0, clock)
    row.stamp, row.stamp_length = at, 15
    row.quality, row.resolution = INFERRED, 1_000_000
    return row.time != NO_TIME and _host_and_tag(data, rest, row)


@part
def iso(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``yyyy-mm-ddThh:mm:ss.ffffff+hh:mm host program[pid]: message``."""
    places = _iso(data, at)
    # Without zone and priority it is a program's own timestamp, not syslog.
    if places.end < 0 or stamps.iso(data, at, row, clock) != places.iso_end or not (row.zoned or row.priority >= 0):
        return False
    return _host_and_tag(data, places.end, row)


@part
def _host_and_tag(data: Array, at: int, row: Row) -> bool:
    """``host program[pid]: message``, or with a level before the program."""
    if data[at] == _BRACE:  # Loki's labels, not a host
        return False
    places = _tail(data, at)
    if places.end < 0:
        return _host_level_and_tag(data, at, row)
    if _is_level(data, at, places.host_end):
        return False
    row.host, row.host_length = at, places.host_end - at
    row.unit, row.unit_length = places.unit, places.unit_end - places.unit
    if places.procid >= 0:
        row.pid = number(data, places.procid, places.procid_end - places.procid)
    row.message, row.format = places.end, RFC3164
    return True


@part
def _host_level_and_tag(data: Array, at: int, row: Row) -> bool:
    """``host LEVEL program[pid]: message``."""
    places = _levelled_tail(data, at)
    if places.end < 0 or _is_level(data, at, places.host_end):
        return False
    row.severity = meaning(data, places.level, places.level_end - places.level, _LEVELS)
    row.host, row.host_length = at, places.host_end - at
    row.unit, row.unit_length = places.unit, places.unit_end - places.unit
    if places.procid >= 0:
        row.pid = number(data, places.procid, places.procid_end - places.procid)
    row.message, row.format = places.end, RFC3164
    return bool(row.severity != 0)


@part
def _is_level(data: Array, start: int, end: int) -> bool:
    """Whether a logger's level stands where a host would."""
    return is_capital(data[start]) and meaning(data, start, end - start, _LEVELS) > 0


@part
def rfc5424(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    """``1 STAMP host program pid msgid DATA message``, with ``-`` for missing values."""
    places = _rfc5424(data, at)
    rest = places.end
    if rest < 0 or stamps.iso(data, places.iso, row, clock) != places.iso_end:
        return False
    row.host, row.host_length = places.host, _length(data, places.host, places.host_end)
    row.unit, row.unit_length = places.unit, _length(data, places.unit, places.unit_end)
    row.msgid, row.msgid_length = places.msgid, _length(data, places.msgid, places.msgid_end)
    width = _length(data, places.procid, places.procid_end)
    if width > 0:
        if width > _PID_DIGITS or digits(data, places.procid) != width:
            return False
        row.pid = number(data, places.procid, width)
    for place in range(places.msgid, places.msgid_end):
        if data[place] == QUOTE or data[place] == BACKSLASH:  # it goes into JSON unchanged
            return False
    if data[rest] == OPEN:
        # "[junos@": the message ID belongs to the text, which the format assembles.
        if rest + 6 < end and data[rest + 1] == ord("j") and data[rest + 6] == ord("@"):
            return False
        stop = _structured_data(data, rest, end)
        if stop < 0:
            return False
        row.data, row.data_length = rest, stop - rest
        rest = stop
    elif data[rest] == DASH:
        rest += 1
    else:
        return False
    row.message, row.format = rest + 1, RFC5424
    # The format removes an extra blank or a byte order mark.
    return bool(data[rest] == BLANK and data[rest + 1] != BLANK and data[rest + 1] != 0xEF)


@part
def _length(data: Array, start: int, end: int) -> int:
    """The length of an RFC 5424 value; below zero for ``-``, which means missing."""
    return NOWHERE if end == start + 1 and data[start] == DASH else end - start


@part
def slurm_file(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    """``[STAMP] message``, and ``[STAMP] [JOB.STEP] message`` of a step's daemon."""
    places = _slurm(data, at)
    message = places.end
    if message < 0 or stamps.iso(data, places.iso, row, clock) != places.iso_end:
        return False
    after = data[message]
    if after <= BLANK or after == 68 or is_digit(after):  # a digit or "Deleted" may be `ip monitor`
        return False
    if after == OPEN:
        stop = _step_tag(data, message + 1, end)
        if stop < 0 or data[stop] != CLOSE or data[stop + 1] != BLANK:
            return False
        row.tag, row.tag_length, row.program = message + 1, stop - message - 1, SLURMSTEPD
        message = stop + 2
    row.message, row.format = message, SLURM_FILE
    row.severity = slurm_level(data, message, _INFO)
    return True


@part
def slurm_level(data: Array, at: int, default: int) -> int:
    """Severity from the level word at the start of a Slurm message."""
    end = at + letters(data, at)
    if is_digit(data[end]):
        end += 1
    if data[end] != COLON or data[end + 1] != BLANK:
        return default
    level = meaning(data, at, end - at, _SLURM_LEVELS)
    return level if level > 0 else default


@part
def kmsg(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    """``priority,sequence,microseconds,flags;message`` in the format of /dev/kmsg."""
    places = _kmsg(data, at)
    text = places.end
    if text < 0:
        return False
    while text < end and data[text] != SEMICOLON:
        text += 1
    if text == end:
        return False
    row.priority = number(data, places.prio, places.prio_end - places.prio)
    row.uptime = number(data, places.micros, places.micros_end - places.micros)
    row.msgid, row.msgid_length = at, places.micros_end - at  # all three numbers
    row.message = text + 1
    stamps.since_boot(row, clock, 1)
    row.format, row.program = KMSG, KERNEL
    return True


@part
def dmesg(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    """``[seconds since boot] message``."""
    row.message = uptime(data, at, end, row)
    if row.message < 0 or _monotonic_writer(data, row.message, end) >= 0:
        return False
    stamps.since_boot(row, clock, 1_000)
    row.format, row.program = DMESG, KERNEL
    return True


@part
def uptime(data: Array, at: int, end: int, row: Row) -> int:
    """Where the text after ``[  123.456789] `` begins; sets the uptime."""
    places = _uptime(data, at)
    if places.end < 0 or _caller(data, places.end, end) >= 0:
        return NOWHERE
    point = places.uptime_end - 7
    seconds, micros = number(data, places.uptime, point - places.uptime), number(data, point + 1, 6)
    row.uptime = seconds * 1_000_000 + micros
    return int(places.end)


@part
def mnemonic(data: Array, at: int, end: int) -> bool:
    """Whether a switch's mnemonic and its colon follow."""
    behind = _mnemonic_tag(data, at, end)
    return bool(behind >= 0 and (data[behind] == COLON or (data[behind] == BLANK and data[behind + 1] == COLON)))


@part
def opensm(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``Mon dd hh:mm:ss microseconds [thread] 0xNN -> message``."""
    places = _opensm(data, at)
    if places.end < 0:
        return False
    micros = number(data, places.fraction, places.fraction_end - places.fraction)
    row.time = stamps.bsd(data, at, micros, clock)
    row.stamp, row.stamp_length = at, 15
    row.quality, row.resolution = INFERRED, 1
    row.severity = meaning(data, places.word, places.word_end - places.word, _BITS)
    row.message, row.format, row.program = places.end, OPENSM, OPENSM_DAEMON
    return bool(row.time != NO_TIME)


@part
def fabric_manager(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``[Mon dd yyyy hh:mm:ss] [LEVEL] [tid N] message``."""
    places = _manager(data, at)
    if places.end < 0:
        return False
    wall = stamps.bsd_with_year(data, places.month, places.year, places.clock)
    if wall == NO_TIME:
        return False
    row.time = stamps.to_utc(wall, clock.zone)
    row.stamp, row.stamp_length = places.month, places.clock_end - places.month
    row.quality, row.resolution = WRITTEN if clock.zone_known else INFERRED, 1_000_000
    row.pid = number(data, places.pid, places.pid_end - places.pid)
    row.severity = meaning(data, places.word, places.word_end - places.word, _MANAGER_LEVELS)
    row.message, row.format, row.program = places.end, MANAGER, FABRIC_MANAGER
    return bool(row.time != NO_TIME)


@part
def nxos(data: Array, at: int, row: Row) -> bool:
    """``: yyyy Mon dd hh:mm:ss UTC: %FACILITY-N-MNEMONIC`` after a priority."""
    places = _nxos(data, at)
    message = places.end
    if message < 0 or data[message] != PERCENT:
        return False
    row.time = stamps.bsd_with_year(data, places.month, places.year, places.clock)
    row.stamp, row.stamp_length = places.year, places.clock_end - places.year
    row.quality, row.resolution = WRITTEN, 100_000
    row.message, row.system, row.format = message, NXOS, RFC3164
    return bool(row.time != NO_TIME and is_capital(data[message + 1]))
