"""The ledger of input files (``raw.files``): how far each was read, and its last line if more of it may come."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from store.door import FileEntry


def drop_tails(connection: duckdb.DuckDBPyConnection, files: Sequence[FileEntry]) -> int:
    """Removes the incomplete last lines that the new lines of their files contain; returns the number of rows."""
    removed = 0
    for entry in files:
        if entry.replaces_tail:
            gone = connection.execute(
                "DELETE FROM raw.logs WHERE file = ? AND line = ? AND cluster IS NOT DISTINCT FROM ?",
                [entry.path, entry.tail_line, entry.cluster],
            ).fetchone()
            removed += int(gone[0]) if gone else 0
    return removed


def enter(connection: duckdb.DuckDBPyConnection, files: Sequence[FileEntry]) -> None:
    """Replaces the files' entries."""
    for entry in files:
        connection.execute(
            "DELETE FROM raw.files WHERE path = ? AND cluster IS NOT DISTINCT FROM ?",
            [entry.path, entry.cluster],
        )
        connection.execute(
            "INSERT INTO raw.files VALUES (?,?,?,?,?,?,?,?,?,?,?,?, now()::TIMESTAMP, ?)",
            [entry.path, entry.cluster, entry.host, entry.kind, entry.source, entry.reason, entry.consumed,
             entry.digest, entry.lines, entry.events, entry.unparsed, list(entry.warnings), entry.tail],
        )  # fmt: skip
