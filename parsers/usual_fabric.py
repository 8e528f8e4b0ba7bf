"""As parsers/usual.py for the network's own daemons: OpenSM's and the fabric manager's files, NX-OS's syslog."""

from __future__ import annotations

import numpy as np
import polars as pl

from parsers import stamps
from parsers.formats.base import SEVERITY_WORDS
from parsers.formats.fabric import OPENSM_BITS
from parsers.head import FABRIC, NXOS, OPENSM, RFC3164, SEVERITIES, Head
from parsers.lines import Array, LineBuffer
from parsers.record import Origin

#: The fabric manager pads its levels to eight letters at most.
_LEVEL = 12
_LEVELS = {word.upper(): SEVERITIES.index(severity) for word, severity in SEVERITY_WORDS.items()}
_BITS = {bits[2:]: SEVERITIES.index(severity) for bits, severity in OPENSM_BITS.items()}
_THREAD = 20


def _is(window: Array, at: int, text: bytes) -> Array:
    """Which rows of ``window`` read ``text`` from the place ``at``."""
    same: Array = (window[:, at : at + len(text)] == np.frombuffer(text, np.uint8)).all(axis=1)
    return same


def opensm(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    """``Mon dd hh:mm:ss microseconds [thread] 0xNN -> message``."""
    rows = rows[at[rows] == buffer.starts[rows]]
    window = buffer.windows(at[rows], 24)
    micros, numeric = stamps.number(buffer, at[rows] + 16, np.full(len(rows), 6))
    fine = numeric & _is(window, 22, b" [") & (window[:, 4] != 32)
    rows, micros = rows[fine], micros[fine]
    close = (buffer.windows(at[rows] + 24, _THREAD) == ord("]")).argmax(axis=1)
    thread = buffer.windows(at[rows] + 24, _THREAD)
    hexadecimal = ((thread >= 48) & (thread <= 57)) | ((thread >= 65) & (thread <= 70))
    fine = (close > 0) & (hexadecimal | (np.arange(_THREAD) >= close[:, None])).all(axis=1)
    after = at[rows] + 25 + close
    words = buffer.windows(after, 9)
    low = ((words >= 48) & (words <= 57)) | ((words >= 97) & (words <= 102))
    fine &= _is(words, 0, b" 0x") & low[:, 3] & low[:, 4] & _is(words, 5, b" -> ")
    rows, micros, after = rows[fine], micros[fine], after[fine]
    kept, times = stamps.bsd(buffer, rows, at, origin, micros)
    here = np.isin(rows, kept, assume_unique=True)
    after = after[here]
    head.stamp[kept], head.stamp_length[kept] = at[kept], 15
    head.time[kept], head.quality[kept], head.resolution[kept] = times, 2, 1
    head.severity[kept] = _looked_up(buffer.texts(after + 3, np.full(len(kept), 2)), _BITS)
    head.message[kept] = after + 9
    head.format[kept] = OPENSM


def fabric_manager(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    """``[Mon dd yyyy hh:mm:ss] [LEVEL] [tid N] message``."""
    window = buffer.windows(at[rows] + 1, 24)
    fine = (window[:, 4] != 32) & (window[:, 11] == 32) & _is(window, 20, b"] [")
    rows = rows[fine]
    start = at[rows] + 24
    words = buffer.windows(start, _LEVEL)
    capital = (words >= 65) & (words <= 90)
    close = (words == ord("]")).argmax(axis=1)
    letters = np.logical_and.accumulate(capital, axis=1).sum(axis=1)
    blank = (words == 32) | (np.arange(_LEVEL) < letters[:, None]) | (np.arange(_LEVEL) >= close[:, None])
    tid = start + close
    fine = (close > 0) & (letters > 0) & blank.all(axis=1) & _is(buffer.windows(tid, 7), 0, b"] [tid ")
    end = (buffer.windows(tid + 7, 16) == ord("]")).argmax(axis=1)
    thread, numeric = stamps.number(buffer, tid + 7, np.where(fine, end, 0))
    fine &= numeric & (buffer.data[tid + 8 + end] == 32)
    rows, start, letters, thread, message = rows[fine], start[fine], letters[fine], thread[fine], (tid + 9 + end)[fine]
    times, well = stamps.bsd_with_year(buffer, at[rows] + 1, at[rows] + 8, at[rows] + 13, origin)
    rows, start, letters, thread, message = rows[well], start[well], letters[well], thread[well], message[well]
    head.stamp[rows], head.stamp_length[rows] = at[rows] + 1, 20
    head.time[rows], head.resolution[rows] = times[well], 1_000_000
    head.quality[rows] = 1 if origin.timezone_known else 2
    head.severity[rows] = _looked_up(buffer.texts(start, letters), _LEVELS)
    head.pid[rows] = thread
    head.message[rows] = message
    head.format[rows] = FABRIC


def nxos(buffer: LineBuffer, head: Head, rows: Array, at: Array, origin: Origin) -> None:
    """``<N>: yyyy Mon dd hh:mm:ss UTC: %FACILITY-N-MNEMONIC``."""
    rows = rows[head.priority[rows] >= 0]
    window = buffer.windows(at[rows], 32)
    capital = (window[:, 29] >= 65) & (window[:, 29] <= 90)
    rows = rows[_is(window, 0, b": ") & (window[:, 6] == 32) & _is(window, 22, b" UTC: %") & capital]
    times, well = stamps.bsd_with_year(buffer, at[rows] + 7, at[rows] + 2, at[rows] + 14, origin, utc=True)
    rows = rows[well]
    head.stamp[rows], head.stamp_length[rows] = at[rows] + 2, 20
    head.time[rows], head.quality[rows], head.resolution[rows] = times[well], 1, 100_000
    head.message[rows] = at[rows] + 28
    head.system[rows], head.format[rows] = NXOS, RFC3164


def _looked_up(words: pl.Series, table: dict[str, int]) -> Array:
    found: Array = words.replace_strict(table, default=0, return_dtype=pl.UInt8).to_numpy()
    return found
