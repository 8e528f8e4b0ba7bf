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


#: Entries per statement.
_AT_ONCE = 100
_ENTRY = "(?,?,?,?,?,?,?,?,?,?,?,?, now()::TIMESTAMP, ?)"


def enter(connection: duckdb.DuckDBPyConnection, files: Sequence[FileEntry]) -> None:
    """Replaces the files' entries; of two of the same file the last counts.

    Many files per statement: a capture has dozens, and planning takes most of the time that a statement does.
    """
    newest = {(entry.path, entry.cluster): entry for entry in files}
    entries = list(newest.values())
    for some in (entries[n : n + _AT_ONCE] for n in range(0, len(entries), _AT_ONCE)):
        keys = [value for entry in some for value in (entry.path, entry.cluster)]
        connection.execute(
            f"DELETE FROM raw.files USING (VALUES {_times('(?, ?)', some)}) AS given(path, cluster) "
            "WHERE files.path = given.path AND files.cluster IS NOT DISTINCT FROM given.cluster",
            keys,
        )
        connection.execute(
            f"INSERT INTO raw.files VALUES {_times(_ENTRY, some)}",
            [
                value for entry in some for value in (
                    entry.path, entry.cluster, entry.host, entry.kind, entry.source, entry.reason, entry.consumed,
                    entry.digest, entry.lines, entry.events, entry.unparsed, list(entry.warnings), entry.tail)
            ],
        )  # fmt: skip


def _times(row: str, entries: Sequence[FileEntry]) -> str:
    """A row's placeholders for each entry."""
    return ", ".join([row] * len(entries))
