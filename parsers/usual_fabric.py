"""As parsers/usual_headers.py for the network's own daemons: OpenSM's and the fabric manager's files, NX-OS's syslog."""

from __future__ import annotations

from parsers.compiled import part
from parsers.formats.base import SEVERITY_WORDS
from parsers.formats.fabric import OPENSM_BITS
from parsers.head import (
    FABRIC,
    FABRIC_MANAGER,
    INFERRED,
    NXOS,
    OPENSM,
    OPENSM_DAEMON,
    RFC3164,
    SEVERITIES,
    WRITTEN,
    Row,
)
from parsers.lines import Array
from parsers.scan import BLANK, CLOSE, digits, is_capital, is_digit, meaning, number, reads, words
from parsers.stamps import NO_TIME, Clock, bsd, bsd_with_year, to_utc

_LEVELS = words({word.upper(): SEVERITIES.index(severity) for word, severity in SEVERITY_WORDS.items()})
_BITS = words({bits: SEVERITIES.index(severity) for bits, severity in OPENSM_BITS.items()})
_TID_DIGITS = 10


@part
def opensm(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``Mon dd hh:mm:ss microseconds [thread] 0xNN -> message``."""
    if digits(data, at + 16) != 6 or not reads(data, at + 22, b" [") or data[at + 4] == BLANK:
        return False
    close = at + 24
    while is_digit(data[close]) or 65 <= data[close] <= 70:
        close += 1
    bits = close + 2
    if close == at + 24 or not reads(data, close, b"] 0x") or not reads(data, bits + 4, b" -> "):
        return False
    if not (_is_hexadecimal(data[bits + 2]) and _is_hexadecimal(data[bits + 3])):
        return False
    row.time = bsd(data, at, number(data, at + 16, 6), clock)
    row.stamp, row.stamp_length = at, 15
    row.quality, row.resolution = INFERRED, 1
    row.severity = meaning(data, bits, 4, _BITS)
    row.message, row.format, row.program = bits + 8, OPENSM, OPENSM_DAEMON
    return bool(row.time != NO_TIME)


@part
def _is_hexadecimal(byte: int) -> bool:
    return is_digit(byte) or 97 <= byte <= 102


@part
def fabric_manager(data: Array, at: int, row: Row, clock: Clock) -> bool:
    """``[Mon dd yyyy hh:mm:ss] [LEVEL] [tid N] message``."""
    stamp, word = at + 1, at + 24
    if data[stamp + 4] == BLANK or data[stamp + 11] != BLANK or not reads(data, stamp + 20, b"] ["):
        return False
    end = word
    while is_capital(data[end]):
        end += 1
    close = end
    while data[close] == BLANK:  # levels are padded
        close += 1
    thread = close + 7
    if end == word or not reads(data, close, b"] [tid "):
        return False
    width = digits(data, thread)
    message = thread + width + 2
    if not 1 <= width <= _TID_DIGITS or data[message - 2] != CLOSE or data[message - 1] != BLANK:
        return False
    wall = bsd_with_year(data, stamp, stamp + 7, stamp + 12)
    if wall == NO_TIME:
        return False
    row.time = to_utc(wall, clock.zone)
    row.stamp, row.stamp_length = stamp, 20
    row.quality = WRITTEN if clock.zone_known else INFERRED
    row.resolution, row.pid = 1_000_000, number(data, thread, width)
    row.severity = meaning(data, word, end - word, _LEVELS)
    row.message, row.format, row.program = message, FABRIC, FABRIC_MANAGER
    return bool(row.time != NO_TIME)


@part
def nxos(data: Array, at: int, row: Row) -> bool:
    """``: yyyy Mon dd hh:mm:ss UTC: %FACILITY-N-MNEMONIC`` behind a priority."""
    if not reads(data, at, b": ") or data[at + 6] != BLANK or not reads(data, at + 22, b" UTC: %"):
        return False
    row.time = bsd_with_year(data, at + 7, at + 2, at + 14)
    row.stamp, row.stamp_length = at + 2, 20
    row.quality, row.resolution = WRITTEN, 100_000
    row.message, row.system, row.format = at + 28, NXOS, RFC3164
    return bool(row.time != NO_TIME and is_capital(data[at + 29]))
