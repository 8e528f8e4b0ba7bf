"""New stores copy their tables and views from one that each test process makes once.

A run creates thousands of stores, and creating the schema takes more CPU than many a test does with it (docs/testing.md
has figures). ``store/duckdb/test_copied_schema.py`` shows that the copy is what ``DuckStore.migrate`` creates. A store that exists is
migrated as in the product, and so is one that another process opens.

A store in memory takes the engine that a closed one left (``idle_engines.py``), with its schema: starting and ending an
engine, and the copy, take CPU too.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from store.duckdb.schema import VERSION, VERSION_FACT, facts_of
from store.duckdb.store import DuckStore
from tests.idle_engines import has_schemas, keep_engines, made_schemas

#: How the product creates a schema.
create = DuckStore.migrate


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="faultline-schema-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _migrate(store: DuckStore) -> None:
    schema, connection = _folder() / "schema.duckdb", store._connection
    if not schema.exists():
        _make(schema)
    if facts_of(connection):
        create(store)
        return
    if not has_schemas(connection):
        ((name,),) = connection.execute("SELECT current_database()").fetchall()
        connection.execute(f"ATTACH '{schema}' AS made (READ_ONLY)")
        connection.execute(f'COPY FROM DATABASE made TO "{name}" (SCHEMA)')
        connection.execute("DETACH made")
        made_schemas(connection)
    with store.transaction() as writing:
        writing.execute("INSERT INTO model.facts VALUES (?, ?)", [VERSION_FACT, str(VERSION)])


def _make(schema: Path) -> None:
    """Writes the schema of a new store into a file."""
    DuckStore.migrate = create  # type: ignore[method-assign]
    try:
        with DuckStore(None) as store:
            store._connection.execute(f"ATTACH '{schema}' AS made")
            store._connection.execute("COPY FROM DATABASE memory TO made (SCHEMA)")
            store._connection.execute("DETACH made")
    finally:
        share_schema()


def share_schema() -> None:
    """From now on, new stores copy their schema, and those in memory keep their engines for the next ones."""
    DuckStore.migrate = _migrate  # type: ignore[method-assign]
    keep_engines()
