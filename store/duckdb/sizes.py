"""What a store holds and how many bytes it takes, by table and by kind: segments, loose rows, files of closed days, log."""

from __future__ import annotations

from typing import Any

import duckdb

from store.duckdb import archive, segments
from store.duckdb.damage import wal_of
from store.duckdb.open_store import DATABASE, OpenStore
from store.duckdb.schema import VERSION, VERSION_FACT

#: The length of lines is measured in this many segments, spread evenly.
_MEASURED = 24


def of_store(store: OpenStore) -> dict[str, Any]:
    """``tables``: rows and bytes of each table, by kind. ``bytes``: files, and what is free in the database file.
    ``lines``: how many there are by kind. ``filtered``: the share that text filters cover. ``raw_bytes``: their length
    as text with line ends, from a sample. ``bytes_per_raw_byte``: of database (without its free part), log and archive."""
    tables, archived, loose = _tables(store), archive.held(store), segments.unsealed(store)
    kept = sum(row["rows"] for row in tables if row["table"] == "raw.logs")
    lines = {
        "all": kept + archived["lines"], "segments": kept - loose, "loose": loose, "closed days": archived["lines"],
        "unfiltered": segments.unfiltered(store),
    }  # fmt: skip
    if archived["lines"]:
        row = {"table": "raw.logs", "kind": "parquet", "rows": archived["lines"], "bytes": archived["bytes"]}
        tables.append(row)
    used = _bytes(store, archived["bytes"])
    raw = round(_mean_length(store) * lines["all"])
    taken = used["database"] - used["free"] + used["wal"] + used["parquet"]
    return {
        "folder": str(store.folder or ":memory:"), "engine": f"DuckDB {duckdb.__version__}",
        "schema": int(store.fact(VERSION_FACT) or 0), "known_schema": VERSION, "tables": tables, "bytes": used,
        "lines": lines, "filtered": 1 - lines["unfiltered"] / lines["all"] if lines["all"] else 1.0, "raw_bytes": raw,
        "bytes_per_raw_byte": taken / raw if raw else 0.0,
    }  # fmt: skip


def _tables(store: OpenStore) -> list[dict[str, Any]]:
    """Rows and bytes of each table in the database. A block that tables share counts for each."""
    size = store.rows("SELECT block_size FROM pragma_database_size()")[0]["block_size"]
    found = []
    for row in store.rows(
        "SELECT schema_name || '.' || table_name AS name FROM duckdb_tables() WHERE NOT temporary ORDER BY name"
    ):
        name = row["name"]
        count = store.rows(f"SELECT count(*) AS n FROM {name}")[0]["n"]
        blocks = store.rows(
            """SELECT count(DISTINCT block) AS n FROM (SELECT unnest(list_append(additional_block_ids, block_id)) AS block
            FROM pragma_storage_info(?) WHERE persistent) WHERE block >= 0""",
            [name],
        )[0]["n"]
        kind = "segments" if name in ("raw.logs", "raw.log_segments", "raw.log_words") else "rows"
        if count or blocks:
            found.append({"table": name, "kind": kind, "rows": int(count), "bytes": int(blocks * size)})
    return found


def _bytes(store: OpenStore, archived: int) -> dict[str, int]:
    """Bytes of the files; ``free`` is a part of the database file that new rows will use."""
    if store.folder is None:
        return {"database": 0, "free": 0, "wal": 0, "parquet": 0, "other files": 0}
    (free,) = store.rows("SELECT free_blocks * block_size AS n FROM pragma_database_size()")
    database, log = store.folder / DATABASE, wal_of(store.folder / DATABASE)
    known = {database, log}
    others = [
        path
        for path in store.folder.rglob("*")
        if path.is_file() and path not in known and path.suffix != ".parquet" and not path.is_symlink()
    ]
    return {
        "database": database.stat().st_size, "free": int(free["n"]), "wal": log.stat().st_size if log.exists() else 0,
        "parquet": archived, "other files": sum(path.stat().st_size for path in others),
    }  # fmt: skip


def _mean_length(store: OpenStore) -> float:
    """The average length of a line with its end in bytes: of some segments, or of all lines if there are few."""
    spans = store.rows(
        f"""SELECT first_block, last_block FROM (SELECT *, row_number() OVER (ORDER BY first_block) AS n, count(*) OVER () AS of
        FROM raw.log_segments) WHERE n % greatest(1, of // {_MEASURED}) = 0"""
    )
    where = " OR ".join(f"block BETWEEN {int(s['first_block'])} AND {int(s['last_block'])}" for s in spans) or "true"
    (found,) = store.rows(f"SELECT avg(strlen(raw) + 1) AS n FROM raw.log_view WHERE {where}")
    return float(found["n"] or 0.0)
