"""The ledger of input files (``raw.files``): how far each was read, and its last line if more of it may come."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from store.changes import Change
from store.door import FileEntry
from store.duckdb.open_store import OpenStore
from store.tables import LOGS


def drop_tails(store: OpenStore, connection: duckdb.DuckDBPyConnection, files: Sequence[FileEntry]) -> None:
    """Removes the incomplete last lines that the new lines of their files contain."""
    for entry in files:
        if entry.replaces_tail:
            gone = connection.execute(
                "DELETE FROM raw.logs WHERE file = ? AND line = ? AND cluster IS NOT DISTINCT FROM ?",
                [entry.path, entry.tail_line, entry.cluster],
            ).fetchone()
            store.note(LOGS.name, Change(removed=int(gone[0]) if gone else 0))


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
