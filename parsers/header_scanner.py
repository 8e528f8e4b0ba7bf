"""The compiled reader of headers: it executes the table of a header's grammar (parsers/header_grammar.py) byte by byte,
and interprets the fields.

Each reader gets the offset where its part begins, stores what it finds in ``row``, and returns whether the whole header
was there in its plain spelling.
"""

from __future__ import annotations

from parsers import stamps
from parsers.compiled import part
from parsers.formats.base import SEVERITY_WORDS
from parsers.formats.devices import NXOS_HEADER
from parsers.formats.fabric import OPENSM_BITS, OPENSM_HEADER
from parsers.formats.kernel import KMSG_HEADER
from parsers.formats.slurm import FILE_HEADER, STEP_NAMES
from parsers.formats.syslog import BSD_HEADER, ISO_HEADER, PRIORITY, RFC5424_HEADER, TAIL
from parsers.formats.syslog_tails import LEVEL_NAMES, LEVELLED_TAIL
from parsers.head import (
    DMESG,
    INFERRED,
    KERNEL,
    KMSG,
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
from parsers.header_grammar import BEGIN, BYTE, CLASSES, END, RUN
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
    PLUS,
    POINT,
    QUOTE,
    SEMICOLON,
    digits,
    is_capital,
    is_digit,
    is_printable,
    letters,
    meaning,
    number,
    reads,
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
#: Level words at the start of a Slurm message, each followed by a colon and a blank.
_SLURM_LEVELS = words({
    word: SEVERITIES.index(SEVERITY_WORDS.get(word, "info"))
    for word in ("error", "fatal", "warning", "info", "verbose", "debug", "debug1", "debug2", "debug3", "debug4", "debug5")
})  # fmt: skip
_STEPS = words(dict.fromkeys(STEP_NAMES, 1))
_BITS = words({bits: SEVERITIES.index(severity) for bits, severity in OPENSM_BITS.items()})

#: The tables of headers, and the numbers of their fields. Compiled code uses nothing else of a declaration.
_PRIORITY, _BSD, _ISO, _RFC5424, _SLURM = (
    PRIORITY.table, BSD_HEADER.table, ISO_HEADER.table, RFC5424_HEADER.table, FILE_HEADER.table,
)  # fmt: skip
_KMSG, _KMSG_MICROS = KMSG_HEADER.table, KMSG_HEADER.fields.index("micros")
_TAIL, _LEVELLED_TAIL, _OPENSM, _NXOS = TAIL.table, LEVELLED_TAIL.table, OPENSM_HEADER.table, NXOS_HEADER.table
_HEADERS = (
    PRIORITY,
    BSD_HEADER,
    ISO_HEADER,
    RFC5424_HEADER,
    FILE_HEADER,
    TAIL,
    LEVELLED_TAIL,
    OPENSM_HEADER,
    NXOS_HEADER,
)
#: The most fields of any header.
MOST_FIELDS = max(len(header.fields) for header in _HEADERS)
_HOST, _UNIT, _PROCESS = (TAIL.fields.index(name) for name in ("host", "unit", "procid"))
_LEVEL, _LEVELLED_UNIT, _LEVELLED_PROCESS = (LEVELLED_TAIL.fields.index(name) for name in ("level", "unit", "procid"))
_STAMP_5424, _HOST_5424, _UNIT_5424, _PROCESS_5424, _ID_5424 = (
    RFC5424_HEADER.fields.index(name) for name in ("iso", "host", "unit", "procid", "msgid")
)
_OPENSM_MICROS, _OPENSM_WORD = (OPENSM_HEADER.fields.index(name) for name in ("fraction", "word"))
_NXOS_YEAR, _NXOS_MONTH, _NXOS_CLOCK = (NXOS_HEADER.fields.index(name) for name in ("year", "month", "clock"))


@part
def scan(data: Array, at: int, table: Array, fields: Array) -> int:
    """Where the header of ``table`` that begins at ``at`` ends, below zero if it is not there; stores where its fields
    begin and end (-1 for fields of a missing part)."""
    fields[:] = NOWHERE
    step = 0
    while step < len(table):
        does, what = table[step, 0], table[step, 1]
        step += 1
        if does == BYTE:
            if data[at] != what:
                return NOWHERE
            at += 1
        elif does == RUN:
            end, most = at, at + table[step - 1, 3]
            while end < most and CLASSES[what, data[end]]:
                end += 1
            if end < at + table[step - 1, 2]:
                return NOWHERE
            at = end
        elif does == BEGIN:
            fields[what, 0] = at
        elif does == END:
            fields[what, 1] = at
        elif data[at] != what:  # an optional part is missing
            step += table[step - 1, 2]
    return at


@part
def priority(data: Array, start: int, row: Row, fields: Array) -> int:
    """The offset after ``<N>``; the line's start if there is no priority up to 191."""
    end = scan(data, start, _PRIORITY, fields)
    if end < 0 or _number(data, fields[0]) > _MOST_PRIORITY:
        return start
    row.priority = _number(data, fields[0])
    return end


@part
def bsd(data: Array, at: int, row: Row, clock: Clock, fields: Array) -> bool:
    """``Mon dd hh:mm:ss host program[pid]: message``."""
    rest = scan(data, at, _BSD, fields)
    if rest < 0 or is_digit(data[rest]) or data[rest] == BLANK:  # a digit might be a year, a blank anything
        return False
    row.time = stamps.bsd(data, at, 0, clock)
    row.stamp, row.stamp_length = at, 15
    row.quality, row.resolution = INFERRED, 1_000_000
    return row.time != NO_TIME and _host_and_tag(data, rest, row, fields)


@part
def iso(data: Array, at: int, row: Row, clock: Clock, fields: Array) -> bool:
    """``yyyy-mm-ddThh:mm:ss.ffffff+hh:mm host program[pid]: message``."""
    rest = scan(data, at, _ISO, fields)
    # Without zone and priority it is a program's own timestamp, not syslog.
    if rest < 0 or stamps.iso(data, at, row, clock) != fields[0, 1] or not (row.zoned or row.priority >= 0):
        return False
    return _host_and_tag(data, rest, row, fields)


@part
def _host_and_tag(data: Array, at: int, row: Row, fields: Array) -> bool:
    """``host program[pid]: message``, or with a level before the program."""
    message, unit, process = scan(data, at, _TAIL, fields), _UNIT, _PROCESS
    if message < 0:
        message, unit, process = scan(data, at, _LEVELLED_TAIL, fields), _LEVELLED_UNIT, _LEVELLED_PROCESS
        if message < 0:
            return False
        row.severity = _meaning(data, fields[_LEVEL], _LEVELS)
        if row.severity == 0:
            return False
    if data[at] == _BRACE:  # Loki's labels, not a host
        return False
    if is_capital(data[at]) and _meaning(data, fields[_HOST], _LEVELS) > 0:  # a logger's level, not a host
        return False
    row.host, row.host_length = at, fields[_HOST, 1] - at
    row.unit, row.unit_length = fields[unit, 0], fields[unit, 1] - fields[unit, 0]
    if fields[process, 0] >= 0:
        row.pid = _number(data, fields[process])
    row.message, row.format = message, RFC3164
    return True


@part
def _meaning(data: Array, place: Array, table: Array) -> int:
    return meaning(data, place[0], place[1] - place[0], table)


@part
def _number(data: Array, place: Array) -> int:
    return number(data, place[0], place[1] - place[0])


@part
def rfc5424(data: Array, at: int, end: int, row: Row, clock: Clock, fields: Array) -> bool:
    """``1 STAMP host program pid msgid DATA message``, with ``-`` for missing values."""
    rest = scan(data, at, _RFC5424, fields)
    if rest < 0 or stamps.iso(data, fields[_STAMP_5424, 0], row, clock) != fields[_STAMP_5424, 1]:
        return False
    unit, pid, msgid = fields[_UNIT_5424, 0], fields[_PROCESS_5424, 0], fields[_ID_5424, 0]
    row.host, row.host_length = fields[_HOST_5424, 0], _value_length(data, fields[_HOST_5424, 0], fields[_HOST_5424, 1])
    row.unit, row.unit_length = unit, _value_length(data, unit, fields[_UNIT_5424, 1])
    row.msgid, row.msgid_length = msgid, _value_length(data, msgid, fields[_ID_5424, 1])
    width = _value_length(data, pid, fields[_PROCESS_5424, 1])
    if width > 0:
        if width > _PID_DIGITS or digits(data, pid) != width:
            return False
        row.pid = number(data, pid, width)
    for place in range(msgid, rest):
        if data[place] == QUOTE or data[place] == BACKSLASH:  # it goes into JSON unchanged
            return False
    if data[rest] == OPEN:
        # "[junos@": the message ID belongs to the text, which the format assembles.
        if rest + 6 < end and data[rest + 1] == ord("j") and data[rest + 6] == ord("@"):
            return False
        row.data, row.data_length = rest, structured_data(data, rest, end) - rest
        rest += row.data_length
    elif data[rest] == DASH:
        rest += 1
    else:
        return False
    row.message, row.format = rest + 1, RFC5424
    # The format removes an extra blank or a byte order mark.
    return bool(data[rest] == BLANK and row.data_length != 0 and data[rest + 1] != BLANK and data[rest + 1] != 0xEF)


@part
def _value_length(data: Array, start: int, end: int) -> int:
    """The length of an RFC 5424 value; below zero for ``-``, which means missing."""
    return NOWHERE if end == start + 1 and data[start] == DASH else end - start


@part
def structured_data(data: Array, at: int, end: int) -> int:
    """Where RFC 5424's structured data ends, as in ``syslog.STRUCTURED_DATA``; its beginning if it is not one."""
    last = at
    while last < end and data[last] == OPEN:
        place = last + 1
        quoted = False
        while place < end and (quoted or data[place] != CLOSE):
            if data[place] == BACKSLASH:
                place += 1
            elif data[place] == QUOTE:
                quoted = not quoted
            place += 1
        if place >= end:
            break
        last = place + 1
    return last


@part
def slurm_file(data: Array, at: int, row: Row, clock: Clock, fields: Array) -> bool:
    """``[STAMP] message``, and ``[STAMP] [JOB.STEP] message`` of a step's daemon."""
    message = scan(data, at, _SLURM, fields)
    if message < 0 or stamps.iso(data, at + 1, row, clock) != fields[0, 1]:
        return False
    after = data[message]
    if after <= BLANK or after == 68 or is_digit(after):  # a digit or "Deleted" may be `ip monitor`
        return False
    if after == OPEN:
        end = _step_tag(data, message + 1)
        if end < 0 or data[end] != CLOSE or data[end + 1] != BLANK:
            return False
        row.tag, row.tag_length, row.program = message + 1, end - message - 1, SLURMSTEPD
        message = end + 2
    row.message, row.format = message, SLURM_FILE
    row.severity = slurm_level(data, message, _INFO)
    return True


@part
def _step_tag(data: Array, at: int) -> int:
    """Where a match of ``slurm.STEP_TAG`` ends."""
    end = at + digits(data, at)
    if end == at:
        return NOWHERE
    if (data[end] == 95 or data[end] == PLUS) and is_digit(data[end + 1]):
        end += 1 + digits(data, end + 1)
    if data[end] == POINT:
        step = end + 1
        end = step + digits(data, step)
        if end == step:
            end = step + letters(data, step)
            if not meaning(data, step, end - step, _STEPS):
                return NOWHERE
        if data[end] == PLUS and is_digit(data[end + 1]):
            end += 1 + digits(data, end + 1)
    return end


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
def _name_end(data: Array, at: int) -> int:
    """Where the name of a host or program ends: it contains neither colons nor brackets."""
    end = at
    while is_printable(data[end]) and data[end] != COLON and data[end] != OPEN and data[end] != CLOSE:
        end += 1
    return end


@part
def kmsg(data: Array, at: int, end: int, row: Row, clock: Clock, fields: Array) -> bool:
    """``priority,sequence,microseconds,flags;message`` in the format of /dev/kmsg."""
    text = scan(data, at, _KMSG, fields)
    if text < 0:
        return False
    while text < end and data[text] != SEMICOLON:
        text += 1
    if text == end:
        return False
    row.priority, row.uptime = _number(data, fields[0]), _number(data, fields[_KMSG_MICROS])
    row.msgid, row.msgid_length = at, fields[_KMSG_MICROS, 1] - at  # all three numbers
    row.message = text + 1
    stamps.since_boot(row, clock, 1)
    row.format, row.program = KMSG, KERNEL
    return True


@part
def dmesg(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``[seconds since boot] message``."""
    row.message = stamps.uptime(data, at, row)
    if row.message < 0 or _names_writer(data, row.message):
        return False
    stamps.since_boot(row, clock, 1_000)
    row.format, row.program = DMESG, KERNEL
    return True


@part
def _names_writer(data: Array, at: int) -> bool:
    """Whether a host and its program follow, as ``journalctl -o short-monotonic`` writes them."""
    end = _name_end(data, at)
    if end == at or data[end] != BLANK:
        return False
    unit = end + 1
    end = _name_end(data, unit)
    if data[end] == COLON:
        return end - unit == 6 and reads(data, unit, b"kernel")
    width = digits(data, end + 1)
    return bool(data[end] == OPEN and width > 0 and data[end + 1 + width] == CLOSE and data[end + 2 + width] == COLON)


@part
def mnemonic(data: Array, at: int) -> bool:
    """Whether ``%FACILITY-N-MNEMONIC:`` follows, as in ``syslog.VENDOR``: at least three parts, the last but one a
    digit."""
    if data[at] != PERCENT or not is_capital(data[at + 1]):
        return False
    parts, start, digit, place = 1, at + 1, False, at + 1
    while True:
        byte = data[place]
        if byte == DASH:
            if place == start:
                return False
            digit = parts > 1 and place == start + 1 and is_digit(data[start])
            parts += 1
            start = place + 1
        elif not (is_capital(byte) or is_digit(byte) or byte == 95):
            break
        place += 1
    if not digit or place == start:
        return False
    return bool(data[place] == COLON or (data[place] == BLANK and data[place + 1] == COLON))


@part
def opensm(data: Array, at: int, row: Row, clock: Clock, fields: Array) -> bool:
    """``Mon dd hh:mm:ss microseconds [thread] 0xNN -> message``."""
    message = scan(data, at, _OPENSM, fields)
    if message < 0:
        return False
    row.time = stamps.bsd(data, at, _number(data, fields[_OPENSM_MICROS]), clock)
    row.stamp, row.stamp_length = at, 15
    row.quality, row.resolution = INFERRED, 1
    row.severity = _meaning(data, fields[_OPENSM_WORD], _BITS)
    row.message, row.format, row.program = message, OPENSM, OPENSM_DAEMON
    return bool(row.time != NO_TIME)


@part
def nxos(data: Array, at: int, row: Row, fields: Array) -> bool:
    """``: yyyy Mon dd hh:mm:ss UTC: %FACILITY-N-MNEMONIC`` after a priority."""
    message = scan(data, at, _NXOS, fields)
    if message < 0 or data[message] != PERCENT:
        return False
    row.time = stamps.bsd_with_year(data, fields[_NXOS_MONTH, 0], fields[_NXOS_YEAR, 0], fields[_NXOS_CLOCK, 0])
    row.stamp, row.stamp_length = fields[_NXOS_YEAR, 0], fields[_NXOS_CLOCK, 1] - fields[_NXOS_YEAR, 0]
    row.quality, row.resolution = WRITTEN, 100_000
    row.message, row.system, row.format = message, NXOS, RFC3164
    return bool(row.time != NO_TIME and is_capital(data[message + 1]))
