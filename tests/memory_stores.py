"""Stores in memory copy their tables and views from one that each test process makes once.

A run opens thousands of them, and creating the schema takes 40 ms of CPU, which is more than many a test does with it.
``store/test_memory_schema.py`` shows that the copy is what ``DuckStore.migrate`` creates. Stores in files create their
own.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from store.duckdb.schema import VERSION, VERSION_FACT
from store.duckdb.store import DuckStore

#: How the product creates a schema.
create = DuckStore.migrate


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="faultline-schema-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _migrate(store: DuckStore) -> None:
    if store.folder is not None:
        create(store)
        return
    schema, connection = _folder() / "schema.duckdb", store._connection
    if schema.exists():
        connection.execute(f"ATTACH '{schema}' AS made (READ_ONLY)")
        connection.execute("COPY FROM DATABASE made TO memory (SCHEMA)")
        with store.transaction() as writing:
            writing.execute("INSERT INTO model.facts VALUES (?, ?)", [VERSION_FACT, str(VERSION)])
    else:
        create(store)
        connection.execute(f"ATTACH '{schema}' AS made")
        connection.execute("COPY FROM DATABASE memory TO made (SCHEMA)")
    connection.execute("DETACH made")


def share_schema() -> None:
    """From now on, stores in memory copy their schema."""
    DuckStore.migrate = _migrate  # type: ignore[method-assign]
