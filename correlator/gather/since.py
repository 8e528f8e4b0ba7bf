"""What a stretch of time needs of the store: what was said in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator.model.moments import moment_of

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore


class Recent:
    """A store seen from ``since`` (epoch seconds) on: log lines and samples before it are not there, nor are those without a time."""

    def __init__(self, store: DuckStore, since: float) -> None:
        self._store = store
        stamp = f"TIMESTAMP '{moment_of(since)}'"
        self._parts = {
            "raw.log_view": f"(SELECT * FROM raw.log_view WHERE time >= {stamp})",
            "raw.metrics": f"(SELECT * FROM raw.metrics WHERE time >= {stamp})",
            "raw.boots": f"(SELECT * FROM raw.boots WHERE boot_time >= {stamp})",
            "raw.node_states": f"(SELECT * FROM raw.node_states WHERE time >= {stamp})",
        }
        self._names = re.compile("|".join(re.escape(name) + r"\b" for name in self._parts))

    def _only(self, sql: str) -> str:
        return self._names.sub(lambda match: self._parts[match[0]], sql)

    def rows(self, sql: str, parameters: object = None) -> list[dict[str, Any]]:
        return self._store.rows(self._only(sql), parameters)

    def frame(self, sql: str, parameters: object = None) -> pl.DataFrame:
        return self._store.frame(self._only(sql), parameters)
