"""Bytes -> lines -> text, without ever losing a byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

#: Zeros before the first and behind the last line, so that a window may be looked at on both sides of any place.
LEAD, MARGIN = 16, 128
#: Arrow's views hold texts up to so many bytes themselves.
_INLINE = 12
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SplitLines:
    """Lines of one input without their line ends; ``terminated`` is false when the last one had none."""

    lines: list[bytes] = field(default_factory=list)
    terminated: bool = True


def split(data: bytes) -> SplitLines:
    r"""Cuts at ``\n`` and ``\r\n``. A lone ``\r`` (a progress bar) and NULs stay inside their line."""
    if not data:
        return SplitLines()
    parts = data.split(b"\n")
    terminated = parts[-1] == b""
    if terminated:
        parts.pop()
    if b"\r" in data:
        last = len(parts) - 1
        # An unterminated last line keeps its \r: the \n may still be on its way.
        parts = [
            part[:-1] if part.endswith(b"\r") and (terminated or at != last) else part for at, part in enumerate(parts)
        ]
    return SplitLines(parts, terminated)


def decode(lines: list[bytes]) -> tuple[list[str], list[bytes | None]]:
    """Text of each line (undecodable bytes as U+FFFD), and the exact bytes of those whose text lost something."""
    texts: list[str] = []
    exact: list[bytes | None] = []
    for line in lines:
        try:
            texts.append(line.decode())
            exact.append(None)
        except UnicodeDecodeError:
            texts.append(line.decode(errors="replace"))
            exact.append(line)
    return texts, exact


@dataclass(frozen=True)
class LineBuffer:
    """All lines of a batch in one buffer of valid UTF-8: line ``i`` is ``data[starts[i]:ends[i]]``.

    ``data`` has zeros on both sides of the lines. ``exact`` holds, by line, the bytes that were no UTF-8. Texts made
    by :meth:`texts` are views into the buffer: nothing is copied, and the buffer lives as long as they do.
    """

    data: Array
    starts: Array
    ends: Array
    exact: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of_data(cls, data: bytes) -> LineBuffer:
        """The lines that :func:`split` makes of ``data``."""
        if not _is_text(data):
            return cls.of_lines(split(data).lines)
        padded = _padded(data)
        ends = np.flatnonzero(padded == 10)
        terminated = data.endswith(b"\n") or not data
        if not terminated:
            ends = np.append(ends, LEAD + len(data))
        starts = np.full(len(ends), LEAD, np.int64)
        starts[1:] = ends[:-1] + 1
        if b"\r" in data:
            cut = (ends > starts) & (padded[ends - 1] == 13)
            if not terminated:
                cut[-1] = False
            ends = ends - cut
        return cls(padded, starts, ends)

    @classmethod
    def of_lines(cls, lines: list[bytes]) -> LineBuffer:
        """Lines as they are; they may hold line ends inside (octet-counted syslog)."""
        joined = b"\n".join(lines)
        exact: dict[int, bytes] = {}
        if not _is_text(joined):
            texts, unfit = decode(lines)
            exact = {at: line for at, line in enumerate(unfit) if line is not None}
            lines = [text.encode() for text in texts]
            joined = b"\n".join(lines)
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        ends = np.cumsum(lengths + 1) - 1 + LEAD
        return cls(_padded(joined), ends - lengths, ends, exact)

    def windows(self, at: Array, width: int) -> Array:
        """The ``width`` bytes from each place ``at``, as rows of a matrix. They may reach into the next lines."""
        # Items of ``width`` bytes that overlap: taking one of them copies it in one go.
        items = np.ndarray((len(self.data) - width + 1,), dtype=f"V{width}", buffer=self.data, strides=(1,))
        rows: Array = items[at].view(np.uint8).reshape(len(at), width)
        return rows

    def texts(self, starts: Array, lengths: Array) -> pl.Series:
        """Texts of the buffer as a String column; a negative length is null."""
        null = lengths < 0
        size = np.where(null, 0, lengths)
        views = np.zeros((len(starts), 16), np.uint8)
        numbers = views.view(np.int32)
        numbers[:, 0] = size
        views[:, 4:] = self.windows(np.where(null, 0, starts), _INLINE) * (np.arange(_INLINE) < size[:, None])
        long = np.flatnonzero(size > _INLINE)  # these keep four bytes, which buffer, and where in it
        numbers[long, 2] = 0
        numbers[long, 3] = starts[long]
        known = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        array = pa.Array.from_buffers(pa.string_view(), len(starts), [known, pa.py_buffer(views), self._shared])
        return _series(array)

    def lines(self) -> pl.Series:
        """Every line's text."""
        return self.texts(self.starts, self.ends - self.starts)

    def unfit(self) -> pl.Series:
        """``raw_bytes``: the exact bytes of lines that are no UTF-8, null for all others."""
        if not self.exact:
            return pl.Series([None], dtype=pl.Binary).new_from_index(0, len(self))
        return pl.Series([self.exact.get(at) for at in range(len(self))], dtype=pl.Binary)

    @cached_property
    def _shared(self) -> pa.Buffer:
        return pa.py_buffer(self.data)


def joined(texts: pl.Series) -> tuple[Array, Array]:
    """All bytes of a String column in one piece: text ``i`` is ``data[edges[i]:edges[i + 1]]``, empty for null."""
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return edges, np.frombuffer(data, np.uint8) if data is not None and len(data) else np.zeros(0, np.uint8)


def each_once(ascending: Array) -> Array:
    """The different ones of sorted numbers, none of them below zero (np.unique takes thirty times as long)."""
    kept: Array = ascending[np.diff(ascending, prepend=-1) > 0]
    return kept


def _series(array: pa.Array) -> pl.Series:
    made = pl.from_arrow(array)
    assert isinstance(made, pl.Series)
    return made


def column(values: Array, known: Array | None, kind: pa.DataType) -> pl.Series:
    """Numbers as a column of the Arrow type ``kind``; null where not ``known``."""
    bits = None if known is None or known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return _series(pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))]))


def _padded(data: bytes) -> Array:
    return np.frombuffer(b"".join((bytes(LEAD), data, bytes(MARGIN))), dtype=np.uint8)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
