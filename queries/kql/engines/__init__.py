"""Engines that compiled queries run on, by name. A third party's is registered by an entry point of the same group."""

from __future__ import annotations

from functools import cache

from parsers import extensions
from queries.kql.engines.clickhouse import CLICKHOUSE
from queries.kql.engines.duckdb import DUCKDB
from queries.kql.engines.engine import Engine

GROUP = "faultline.kql_engines"


@cache
def engines() -> dict[str, Engine]:
    """Every engine by name: ours and those of installed packages (entry points whose object is an `Engine`)."""
    return extensions.named(GROUP, Engine, (DUCKDB, CLICKHOUSE))


__all__ = ["CLICKHOUSE", "DUCKDB", "Engine", "engines"]
