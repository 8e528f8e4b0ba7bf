"""The compiled reader of the journal's JSON export: one flat object of strings, read in place.

Anything that needs more than slicing is left to parsers/formats/jsonl.py: escapes in a wanted field, numbers, lists,
fields that occur twice or have an unusual value.
"""

from __future__ import annotations

from parsers import journal_fields as journal
from parsers.accounts import DAEMONS, FACILITY, PEOPLE, SERVICES_FROM, SERVICES_TO, SESSIONS
from parsers.compiled import part
from parsers.formats.base import FACILITIES
from parsers.head import JOURNALD, KERNEL, WRITTEN, Row
from parsers.lines import Array
from parsers.scan import (
    BACKSLASH,
    BLANK,
    COLON,
    COMMA,
    NOWHERE,
    PERCENT,
    QUOTE,
    begins,
    digits,
    is_digit,
    meaning,
    number,
    reads,
    words,
)

(
    _MESSAGE, _PRIORITY, _FACILITY, _IDENTIFIER, _COMMAND, _TRANSPORT, _SYSTEMD_UNIT, _UNIT, _BOOT, _HOST, _PID, _SYSLOG_PID,
    _SOURCE_TIME, _TIME, _ACCOUNT, _USER_UNIT, _OTHER,
) = range(1, 18)  # fmt: skip
_FIELDS = words({
    journal.MESSAGE: _MESSAGE, journal.PRIORITY: _PRIORITY, journal.FACILITY: _FACILITY, journal.IDENTIFIER: _IDENTIFIER,
    journal.COMMAND: _COMMAND, journal.TRANSPORT: _TRANSPORT, journal.SYSTEM_UNIT: _SYSTEMD_UNIT, journal.NAMED_UNIT: _UNIT,
    journal.BOOT: _BOOT, journal.HOST: _HOST, journal.OWN_PID: _PID, journal.SYSLOG_PID: _SYSLOG_PID,
    journal.SOURCE_TIME: _SOURCE_TIME, journal.RECEIVED_TIME: _TIME, journal.ACCOUNT: _ACCOUNT, journal.USER_UNIT: _USER_UNIT,
    "kmsg_us": _OTHER,
    # Fields that shippers add and syslog-ng writes.
    **dict.fromkeys((*journal.SHIPPERS_TIMES, journal.SYSLOG_NG_PROGRAM), _OTHER),
})  # fmt: skip
_SESSIONS, _DAEMONS = (words(dict.fromkeys(units, 1)) for units in (SESSIONS, DAEMONS))
_CLOSE = ord("}")
_ESCAPED = words(dict.fromkeys('"\\/bfnrt', 1))
_MICROS_DIGITS, _PID_DIGITS, _UID_DIGITS = 17, 17, 10
_USERS = FACILITIES.index(FACILITY)
_SEVERITIES, _FACILITIES = 8, 24


@part
def journald(data: Array, at: int, end: int, row: Row) -> bool:
    """``{"__REALTIME_TIMESTAMP": "...", "MESSAGE": "...", ...}``."""
    seen, uid = 0, NOWHERE
    place = _skipped(data, at + 1)
    while True:
        name, name_end = place + 1, _text_end(data, place, False)
        if name_end < 0:
            return False
        place = _skipped(data, name_end + 1)
        if data[place] != COLON:
            return False
        field = meaning(data, name, name_end - name, _FIELDS)
        place = _skipped(data, place + 1)
        stop = _text_end(data, place, field == 0)
        if stop < 0 or field == _OTHER or (field > 0 and seen >> field & 1):
            return False
        if not _take(data, row, field, seen, place + 1, stop - place - 1):
            return False
        if field == _ACCOUNT:
            uid = _small_number(data, place + 1, stop - place - 1, _UID_DIGITS, 0)
            if uid < 0:
                return False
        seen |= 1 << field
        place = _skipped(data, stop + 1)
        if data[place] != COMMA:
            break
        place = _skipped(data, place + 1)
    if data[place] != _CLOSE or place + 1 != end or data[row.message] == PERCENT:
        return False
    if seen >> _TRANSPORT & 1 and row.program != KERNEL and row.unit_length == 6 and reads(data, row.unit, b"kernel"):
        return False  # text of another program under the kernel's name
    if _of_person(data, row, seen, uid):
        if not seen >> _PRIORITY & 1:
            return False
        row.priority = _USERS
    row.quality, row.resolution, row.format = WRITTEN, 1, JOURNALD
    if row.priority >= 0:  # the facility's number so far
        row.priority = row.priority * 8 + row.severity - 1
    facility_alone = seen >> _FACILITY & 1 and not seen >> _PRIORITY & 1
    timed = seen >> _SOURCE_TIME & 1 or seen >> _TIME & 1
    return bool(seen >> _MESSAGE & 1 and timed and not facility_alone)


@part
def _of_person(data: Array, row: Row, seen: int, uid: int) -> bool:
    """Like ``of_person`` in parsers/accounts.py."""
    length = row.data_length if seen >> _SYSTEMD_UNIT & 1 else 0
    if uid < 0:
        return bool(seen >> _USER_UNIT & 1) or begins(data, row.data, length, _SESSIONS)
    if uid < PEOPLE or SERVICES_FROM <= uid <= SERVICES_TO:
        return False
    return meaning(data, row.data, length, _DAEMONS) == 0


@part
def _take(data: Array, row: Row, field: int, seen: int, start: int, length: int) -> bool:
    """Records a field, given those already ``seen``; returns whether its value is a plain one."""
    if field == _MESSAGE:
        row.message, row.message_end = start, start + length
    elif field == _HOST:
        row.host, row.host_length = start, length
    elif field == _BOOT:
        row.msgid, row.msgid_length = start, length
    elif field == _IDENTIFIER or (field == _COMMAND and row.unit_length <= 0):
        if length > 0:
            row.unit, row.unit_length = start, length
        return length > 0 or field == _IDENTIFIER
    elif field == _SYSTEMD_UNIT or (field == _UNIT and row.data_length <= 0):
        if length > 0:
            row.data, row.data_length = start, length
    elif field == _TRANSPORT:
        if length == 6 and reads(data, start, b"kernel"):
            row.program = KERNEL
    elif field == _PRIORITY:
        severity = _small_number(data, start, length, 1, _SEVERITIES)
        row.severity = severity + 1
        return severity >= 0
    elif field == _FACILITY:
        row.priority = _small_number(data, start, length, 2, _FACILITIES)
        return bool(row.priority >= 0)
    elif field == _PID or (field == _SYSLOG_PID and not seen >> _PID & 1):
        row.pid = _small_number(data, start, length, _PID_DIGITS, 0)
        return bool(row.pid >= 0)
    elif field == _SOURCE_TIME or (field == _TIME and not seen >> _SOURCE_TIME & 1):
        row.time = _small_number(data, start, length, _MICROS_DIGITS, 0)
        return bool(row.time >= 0)
    return True


@part
def _skipped(data: Array, at: int) -> int:
    """Where the blanks end."""
    while data[at] == BLANK:
        at += 1
    return at


@part
def _text_end(data: Array, at: int, escapes: bool) -> int:
    """Where the string whose opening quote should be here ends; below zero if there is none, or if it has escapes and
    they are not allowed."""
    if data[at] != QUOTE:
        return NOWHERE
    at += 1
    while data[at] != QUOTE:
        if data[at] < BLANK:
            return NOWHERE
        if data[at] == BACKSLASH:
            if not escapes or not (meaning(data, at + 1, 1, _ESCAPED) or _is_code(data, at + 1)):
                return NOWHERE
            at += 1
        at += 1
    return at


@part
def _is_code(data: Array, at: int) -> bool:
    """Whether ``uXXXX`` follows."""
    place = at + 1
    while place < at + 5 and (is_digit(data[place]) or 97 <= (data[place] | 32) <= 102):
        place += 1
    return bool(data[at] == 117 and place == at + 5)


@part
def _small_number(data: Array, at: int, length: int, width: int, limit: int) -> int:
    """A number of at most ``width`` digits below ``limit`` (0: any); below zero for anything else."""
    if not 1 <= length <= width or digits(data, at) != length:
        return NOWHERE
    value = number(data, at, length)
    return value if limit == 0 or value < limit else NOWHERE
