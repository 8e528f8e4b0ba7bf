"""Closes a connection that another thread may be taking a cursor of at that moment: the engine refuses instead of waiting."""

from __future__ import annotations

import time

import duckdb

#: Taking a cursor lasts microseconds; whoever holds the connection longer than this (seconds) is a fault that should be seen.
PATIENCE_S, PAUSE_S = 5.0, 0.005


def close(connection: duckdb.DuckDBPyConnection) -> None:
    """Raises ``duckdb.ResourceInUseException`` if the connection stays busy for ``PATIENCE_S``."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.close()
            return
        except duckdb.ResourceInUseException:
            if time.monotonic() >= until:
                raise
            time.sleep(PAUSE_S)
