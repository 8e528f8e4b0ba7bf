"""Definitions of tables and views, parsed once per process: parsing takes as long as everything else about them, and a
process that opens many stores would do it for each."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

_KNOWN: dict[str, list[duckdb.Statement]] = {}
#: A store with an archive has views of its own, anew for each closed day.
_MOST = 200


def run(connection: duckdb.DuckDBPyConnection, texts: Iterable[str]) -> None:
    """Executes statements without parameters; the engine runs copies of the parsed ones."""
    for text in texts:
        known = _KNOWN.get(text)
        if known is None:
            if len(_KNOWN) >= _MOST:
                _KNOWN.clear()
            known = _KNOWN[text] = connection.extract_statements(text)
        for statement in known:
            connection.execute(statement)
