"""The plainest spelling of syslog's, Slurm's and the kernel's headers: compiled, one function for each part of a line.

Each reader gets the place where its part begins, sets what it finds in ``row`` and says where the part ends (below zero:
it reads otherwise) or, for a whole header, whether it was there to the last byte.
"""

from __future__ import annotations

from parsers import stamps
from parsers.compiled import part
from parsers.formats.base import SEVERITY_WORDS
from parsers.formats.syslog_tails import LEVEL_NAMES
from parsers.head import DMESG, INFERRED, KERNEL, KMSG, RFC3164, RFC5424, SEVERITIES, SLURM_FILE, SLURMSTEPD, Row
from parsers.lines import Array
from parsers.scan import (
    BACKSLASH,
    BLANK,
    CLOSE,
    COLON,
    COMMA,
    DASH,
    LESS,
    MORE,
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
    is_printed,
    letters,
    meaning,
    number,
    printed,
    reads,
    words,
)
from parsers.stamps import NO_TIME, Clock

#: Numbers of more digits are left to the formats: of processes, and of microseconds since boot.
_PID_DIGITS, _MICROS_DIGITS = 10, 15
_INFO = SEVERITIES.index("info")
_BRACE = ord("{")
#: SONiC writes the level between host and program.
_LEVELS = words({name: SEVERITIES.index(SEVERITY_WORDS[name.lower()]) for name in LEVEL_NAMES})
#: What starts a message of Slurm, a colon and a blank behind it.
_SLURM_LEVELS = words({
    word: SEVERITIES.index(SEVERITY_WORDS.get(word, "info"))
    for word in ("error", "fatal", "warning", "info", "verbose", "debug", "debug1", "debug2", "debug3", "debug4", "debug5")
})  # fmt: skip
_STEPS = words(dict.fromkeys(("batch", "extern", "interactive", "TBD"), 1))


@part
def priority(data: Array, start: int, row: Row) -> int:
    """Where the line goes on behind ``<N>``; at its start if there is none up to 191."""
    if data[start] != LESS:
        return start
    width = digits(data, start + 1)
    if not 1 <= width <= 3 or data[start + 1 + width] != MORE or number(data, start + 1, width) > 191:
        return start
    row.priority = number(data, start + 1, width)
    return start + width + 2


@part
def bsd(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``Mon dd hh:mm:ss host program[pid]: message``."""
    after = data[at + 16]
    if is_digit(after) or after == BLANK:  # a digit might be a year, a blank anything
        return False
    row.time = stamps.bsd(data, at, 0, clock)
    row.stamp, row.stamp_length = at, 15
    row.quality, row.resolution = INFERRED, 1_000_000
    return row.time != NO_TIME and _host_and_tag(data, at + 16, row)


@part
def iso(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``yyyy-mm-ddThh:mm:ss.ffffff+hh:mm host program[pid]: message``."""
    end = stamps.iso(data, at, row, clock)
    # Without zone and priority it is a program's own stamp, not syslog.
    if end < 0 or data[end] != BLANK or not (row.zoned or row.priority >= 0):
        return False
    return _host_and_tag(data, end + 1, row)


@part
def _name_end(data: Array, at: int) -> int:
    """Where a name ends, of host or program: neither colons nor brackets are part of one."""
    end = at
    while is_printed(data[end]) and data[end] != COLON and data[end] != OPEN and data[end] != CLOSE:
        end += 1
    return end


@part
def _host_and_tag(data: Array, at: int, row: Row) -> bool:
    """``host program[pid]: message``, or with a level before the program."""
    blank = _name_end(data, at)
    if blank == at or data[blank] != BLANK or data[at] == _BRACE:  # Loki's labels, not a host
        return False
    if is_capital(data[at]) and meaning(data, at, blank - at, _LEVELS) > 0:  # a logger's level, not a host
        return False
    row.host, row.host_length = at, blank - at
    unit = blank + 1
    end = _name_end(data, unit)
    if data[end] == BLANK:
        row.severity = meaning(data, unit, end - unit, _LEVELS)
        if row.severity == 0:
            return False
        unit = end + 1
        end = _name_end(data, unit)
    if end == unit:
        return False
    row.unit, row.unit_length = unit, end - unit
    if data[end] == OPEN:
        width = digits(data, end + 1)
        if not 1 <= width <= _PID_DIGITS or data[end + 1 + width] != CLOSE:
            return False
        row.pid = number(data, end + 1, width)
        end += width + 2
    row.message, row.format = end + 2, RFC3164
    return bool(data[end] == COLON and data[end + 1] == BLANK)


@part
def rfc5424(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    """``1 STAMP host program pid msgid DATA message``, ``-`` for what is not said."""
    at = stamps.iso(data, at + 2, row, clock)
    if at < 0 or data[at] != BLANK:
        return False
    host = at + 1
    unit = printed(data, host) + 1
    pid = printed(data, unit) + 1
    msgid = printed(data, pid) + 1
    rest = printed(data, msgid) + 1
    if unit == host + 1 or pid == unit + 1 or msgid == pid + 1 or rest == msgid + 1:
        return False
    if data[unit - 1] != BLANK or data[pid - 1] != BLANK or data[msgid - 1] != BLANK or data[rest - 1] != BLANK:
        return False
    row.host, row.host_length = host, _said(data, host, unit - 1)
    row.unit, row.unit_length = unit, _said(data, unit, pid - 1)
    row.msgid, row.msgid_length = msgid, _said(data, msgid, rest - 1)
    width = _said(data, pid, msgid - 1)
    if width > 0:
        if width > _PID_DIGITS or digits(data, pid) != width:
            return False
        row.pid = number(data, pid, width)
    for place in range(msgid, rest):
        if data[place] == QUOTE or data[place] == BACKSLASH:  # it goes into JSON as it is
            return False
    if data[rest] == OPEN:
        # "[junos@": the message id belongs to the text, which the format puts together.
        if rest + 6 < end and data[rest + 1] == ord("j") and data[rest + 6] == ord("@"):
            return False
        row.data, row.data_length = rest, structured_data(data, rest, end) - rest
        rest += row.data_length
    elif data[rest] == DASH:
        rest += 1
    else:
        return False
    row.message, row.format = rest + 1, RFC5424
    # A blank more or a byte order mark is taken off by the format.
    return bool(data[rest] == BLANK and row.data_length != 0 and data[rest + 1] != BLANK and data[rest + 1] != 0xEF)


@part
def _said(data: Array, start: int, end: int) -> int:
    """The length of a word of RFC 5424; below zero for ``-``, which says nothing."""
    return NOWHERE if end == start + 1 and data[start] == DASH else end - start


@part
def structured_data(data: Array, at: int, end: int) -> int:
    """Where RFC 5424's structured data ends, as ``syslog.STRUCTURED_DATA`` reads it; at its beginning if it is none."""
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
def slurm_file(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``[STAMP] message``, and ``[STAMP] [JOB.STEP] message`` of a step's daemon."""
    end = stamps.iso(data, at + 1, row, clock)
    if end < 0 or data[end] != CLOSE or data[end + 1] != BLANK:
        return False
    message = end + 2
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
    """Where ``slurm.STEP_TAG`` ends."""
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
    """Severity by the level word at the start of a message of Slurm."""
    end = at + letters(data, at)
    if is_digit(data[end]):
        end += 1
    if data[end] != COLON or data[end + 1] != BLANK:
        return default
    level = meaning(data, at, end - at, _SLURM_LEVELS)
    return level if level > 0 else default


@part
def kmsg(data: Array, at: int, end: int, row: Row, clock: Clock) -> bool:
    """``priority,sequence,microseconds,flags;message`` as /dev/kmsg gives it."""
    width = digits(data, at)
    sequence = at + width + 1
    micros = sequence + digits(data, sequence) + 1
    flags = micros + digits(data, micros) + 1
    if not 1 <= width <= 4 or micros == sequence + 1 or not 1 < flags - micros <= _MICROS_DIGITS + 1:
        return False
    if data[sequence - 1] != COMMA or data[micros - 1] != COMMA or data[flags - 1] != COMMA:
        return False
    text = flags
    while text < end and data[text] != SEMICOLON:
        text += 1
    if text == end:
        return False
    row.priority = number(data, at, width)
    row.msgid, row.msgid_length = at, flags - 1 - at  # all three numbers
    row.message, row.uptime = text + 1, number(data, micros, flags - 1 - micros)
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
    """Whether a host and its program stand there, as ``journalctl -o short-monotonic`` writes them."""
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
    """Whether ``%FACILITY-N-MNEMONIC:`` stands there, as ``syslog.VENDOR`` reads it: at least three parts, of which the
    last but one is a digit."""
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
