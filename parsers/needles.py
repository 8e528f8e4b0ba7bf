"""Which of many short texts stand in which of many long ones: one pass over all bytes, however many texts are sought.

Vectorscan (package ``hyperscan``) looks for hundreds of texts in a few nanoseconds a line and costs a third of a
microsecond for each that it finds. Where there is no wheel of it, Polars' automaton finds the same, more slowly.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from parsers.lines import Array, each_once, joined

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan = None  # type: ignore[assignment]

#: Rows that are searched in one go: their bytes must stay below the 4 GB that one scan can take.
_AT_ONCE = 65_536


class Needles:
    """``texts`` (small letters) to be found in any case of ASCII letters. Safe to use from several threads."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._encoded = [text.encode() for text in self.texts]
        self._lengths = np.array([len(text) for text in self._encoded], np.int64)
        self._of_thread = threading.local()
        self._database: Any = None
        if hyperscan is not None and self.texts:
            self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            self._database.compile(
                self._encoded, list(range(len(texts))), len(texts), hyperscan.HS_FLAG_CASELESS, literal=True
            )

    def find(self, haystacks: pl.Series) -> tuple[Array, Array]:
        """Which row of ``haystacks`` (String) holds which text: pairs by row and number of the text, each once."""
        if not self.texts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        search = self._scan if self._database is not None else self._automaton
        pairs = [
            search(haystacks.slice(start, _AT_ONCE)) + start * len(self.texts)
            for start in range(0, max(len(haystacks), 1), _AT_ONCE)
        ]
        rows, numbers = np.divmod(each_once(np.sort(np.concatenate(pairs))), len(self.texts))
        return rows, numbers

    def _scan(self, haystacks: pl.Series) -> Array:
        edges, data = joined(haystacks)
        if edges[0] == edges[-1]:
            return np.zeros(0, np.int64)
        numbers: list[int] = []
        ends: list[int] = []
        add_number, add_end = numbers.append, ends.append

        def met(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            add_number(number)
            add_end(end)

        self._database.scan(data.data, met, scratch=self._scratch())
        which, end = np.array(numbers, np.int64), np.array(ends, np.int64)
        row = np.searchsorted(edges, end - 1, side="right") - 1
        # What begins in one row and ends in the next is in neither.
        inside = end - self._lengths[which] >= edges[row]
        pairs: Array = row[inside] * len(self.texts) + which[inside]
        return pairs

    def _scratch(self) -> Any:
        """What a scan writes into: one for every thread."""
        if not hasattr(self._of_thread, "scratch"):
            self._of_thread.scratch = hyperscan.Scratch(self._database)
        return self._of_thread.scratch

    def _automaton(self, haystacks: pl.Series) -> Array:
        needles = pl.Series(self.texts, dtype=pl.String).implode()
        found = haystacks.fill_null("").str.extract_many(needles, ascii_case_insensitive=True, overlapping=True)
        met = pl.DataFrame({"row": pl.Series(np.arange(len(haystacks))), "text": found}).explode("text").drop_nulls()
        numbers = dict(zip(self.texts, range(len(self.texts)), strict=True))
        lower = met["text"].map_elements(_ascii_lower, pl.String)
        which = lower.replace_strict(numbers, return_dtype=pl.Int64).to_numpy()
        pairs: Array = met["row"].to_numpy() * len(self.texts) + which
        return pairs


def _ascii_lower(text: str) -> str:
    return text.encode().lower().decode()
