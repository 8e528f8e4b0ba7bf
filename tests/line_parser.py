"""One parser for all tests of a process: its first batch of some length costs half a second of CPU."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache

import polars as pl

from parsers.engine import LineParser
from parsers.record import Origin

#: The bytes of lines whose rows ``Remembering`` keeps.
KEPT = 8 * 1024 * 1024
#: Stamps so long before the moment of reading are the same for any later moment (parsers.future).
LONG_AGO = timedelta(days=2)


@cache
def line_parser() -> LineParser:
    """The built-in patterns. No batch changes the result of another one."""
    return LineParser()


class Remembering(LineParser):
    """The same parser, for tests of what comes after it, which ingest the same lines of the same files many times: it
    parses these once.

    Rows depend on lines and origin. On the moment of reading they depend only if a stamp comes near to it, and then they
    are not kept."""

    def __init__(self) -> None:
        self.__dict__.update(line_parser().__dict__)
        self._kept: dict[tuple[bytes, Origin, int], pl.DataFrame] = {}
        self._bytes = 0

    def parse_data(self, data: bytes | Sequence[bytes], origin: Origin, first_line: int = 1) -> pl.DataFrame:
        if not isinstance(data, bytes) or origin.latest is None or origin.reference is None:
            return super().parse_data(data, origin, first_line)
        key = data, origin.but(latest=None), first_line
        rows = self._kept.get(key)
        if rows is None or not _is_long_ago(rows, origin.latest):
            rows = super().parse_data(data, origin, first_line)
            if key not in self._kept and _is_long_ago(rows, origin.latest):
                self._keep(key, rows)
        return rows

    def _keep(self, key: tuple[bytes, Origin, int], rows: pl.DataFrame) -> None:
        self._bytes += len(key[0])
        if self._bytes > KEPT:
            self._kept.clear()
            self._bytes = len(key[0])
        self._kept[key] = rows


def _is_long_ago(rows: pl.DataFrame, moment: datetime) -> bool:
    newest = [rows[name].max() for name in ("time", "received_time", "sender_time")]
    return all(not isinstance(one, datetime) or one <= moment - LONG_AGO for one in newest)


@cache
def remembering() -> Remembering:
    return Remembering()
