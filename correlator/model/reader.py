"""What the correlator needs of a store: reading rows. A store has it, and so has a part of one."""

from __future__ import annotations

from typing import Any, Protocol

import polars as pl


class Reads(Protocol):
    """SQL over ``raw`` in, rows or a frame out."""

    def rows(self, sql: str, parameters: object = None) -> list[dict[str, Any]]: ...

    def frame(self, sql: str, parameters: object = None) -> pl.DataFrame: ...
