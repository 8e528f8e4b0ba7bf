"""Compacting keeps every row, frees what is free, and may be killed at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parsers.record import frame
from queries import kql
from store import compact, open_compacted, open_store
from store.duckdb import compacting, copies
from store.duckdb.store import DuckStore
from store.errors import StoreError, StoreHeld
from tests.store.duckdb.killing import KILLING
from tests.store.duckdb.test_filtered_segments import ordered
from tests.store.holder import held

ROOT = Path(__file__).resolve().parents[3]


def fill(folder: Path) -> None:
    """Two segments of which the first is gone, loose lines, and rows of other tables."""
    with DuckStore(folder) as store:
        store.open_intake()
        for at in (0, 3000):
            store.append({}, sealed=[ordered([f"word{n} at {n * 31}" for n in range(at, at + 3000)], at)])
        store.append({"logs": frame("logs", [{"raw": "loose", "message": "loose", "file": "f", "line": 9000}])})
        store.set_fact("known", "value")
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.logs WHERE line < 3000 AND line % 100 <> 0")


def content(store: DuckStore) -> dict[str, Any]:
    """All tables without those that count commits."""
    found: dict[str, Any] = dict(copies.digests(store.cursor()))
    found.pop("raw.batches", None)
    found["model.facts"] = store.rows(
        "SELECT name, value FROM model.facts WHERE name NOT IN ('batch', 'instance', 'transactions') ORDER BY name"
    )
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    fill(folder)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    """A copy of the filled store."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path


def state(folder: Path) -> dict[str, Any]:
    with DuckStore(folder) as store:
        assert kql.run(store.cursor(), 'Logs | where Message has "word4007" | project Line').rows == [[4007]]
        assert kql.run(store.cursor(), 'Logs | where Message has "loose" | count').rows == [[1]]
        return content(store)


def test_a_compacted_store_has_all_rows_and_is_followed_from_the_start(folder: Path) -> None:
    with DuckStore(folder) as store:
        before, mark = content(store), store.changes(("logs",)).until
    mode = stat.S_IMODE((folder / "faultline.duckdb").stat().st_mode)
    done = compact(folder)
    assert state(folder) == before
    with DuckStore(folder) as store:
        changes = store.changes(("logs",), mark)
        assert changes.too_old and changes.rows["logs"] == 3031
        assert store.lost == []
    database = folder / "faultline.duckdb"
    assert stat.S_IMODE(database.stat().st_mode) == mode and done.after <= done.before
    assert not any(path.exists() for path in compacting.unfinished(folder))


def test_freed_blocks_return_to_the_disk(folder: Path) -> None:
    with DuckStore(folder) as store, store.transaction() as connection:
        connection.execute("CREATE TABLE raw.ballast AS SELECT hash(range) AS h FROM range(2_000_000)")
    with DuckStore(folder) as store, store.transaction() as connection:
        connection.execute("DROP TABLE raw.ballast")
    done = compact(folder)
    assert done.after < done.before / 2 and done.after == (folder / "faultline.duckdb").stat().st_size


def test_a_compacted_store_is_packed_as_a_new_one_is(folder: Path) -> None:
    """A table keeps the compression of the version that made it, until it is written anew."""
    definitions = "SELECT schema_name, table_name, sql FROM duckdb_tables() WHERE NOT temporary ORDER BY ALL"
    with DuckStore(folder) as store:
        wanted = store.rows(definitions)
        with store.transaction() as connection:
            for row in wanted:
                if row["schema_name"] in ("kept", "model") and "USING" in row["sql"]:
                    connection.execute(f"DROP TABLE {row['schema_name']}.{row['table_name']}")
                    connection.execute(row["sql"].replace(" USING COMPRESSION ZSTD", ""))
        assert store.rows(definitions) != wanted
        before = content(store)
    compact(folder)
    with DuckStore(folder) as store:
        assert store.rows(definitions) == wanted and content(store) == before
        assert {"summary", "document"} == {
            row["column_name"]
            for name in ("kept.versions", "model.runs")
            for row in store.rows("SELECT regexp_extract(sql, '\"?(\\w+)\"? VARCHAR USING', 1) AS column_name FROM duckdb_tables()"
                                  " WHERE schema_name || '.' || table_name = ?", [name])
        }  # fmt: skip


def test_opening_compacts_a_store_that_is_mostly_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(folder)
    made: list[Path] = []
    real = compacting._copy
    monkeypatch.setattr(compacting, "_copy", lambda store, draft: (made.append(draft), real(store, draft)))
    open_compacted(folder).close()
    assert made == []
    monkeypatch.setattr(compacting, "WORTH_BYTES", -(2**40))
    monkeypatch.setattr(compacting, "WORTH_SHARE", -(2**40))
    open_compacted(folder).close()
    assert made == [folder / compacting.DRAFT] and state(folder) == before


def test_a_copy_that_differs_and_a_full_disk_leave_the_store_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(folder)
    with monkeypatch.context() as patch:
        real = compacting._digest
        patch.setattr(compacting, "_digest", lambda cursor, table: (real(cursor, table)[0], table))
        with pytest.raises(StoreError, match="is as it was"):
            compact(folder)
    with monkeypatch.context() as patch:
        patch.setattr(compacting, "SPARE_BYTES", 2**60)
        with pytest.raises(StoreError, match="make room"):
            compact(folder)
    assert state(folder) == before and not any(path.exists() for path in compacting.unfinished(folder))


def test_a_store_that_another_process_writes_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(folder), pytest.raises(StoreHeld):
        compact(folder)
    # One that writes between the copy and the change of names: its rows stay.
    real = compacting._put_in_place

    def late(folder: Path, mark: Any) -> None:
        with open_store(folder) as store:
            store.set_fact("late", "kept")
        real(folder, mark)

    monkeypatch.setattr(compacting, "_put_in_place", late)
    with pytest.raises(StoreError, match="another process wrote meanwhile"):
        compact(folder)
    with DuckStore(folder) as store:
        assert store.fact("late") == "kept"


KILLED = (
    """
import os, signal, sys
from pathlib import Path
from store import compact
from store.duckdb import compacting
where, when, after = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after"
owner = compacting if hasattr(compacting, where) else Path
real, calls = getattr(owner, where), []
"""
    + KILLING
    + """
setattr(owner, where, killing)
compact(Path(sys.argv[1]))
"""
)


@pytest.mark.parametrize(
    ("where", "when", "moment"),
    [
        ("replace", 1, "after"),
        *(
            pytest.param(*at, marks=pytest.mark.long)
            for at in (("_copy_table", 1, "before"), ("_copy_table", 9, "before"), ("_copy_table", 26, "after"), ("_copy", 1, "after"),
                       ("_put_in_place", 1, "before"), ("replace", 1, "before"), ("flush_folder", 2, "after"), ("_remove", 2, "before"))
        ),
    ],
)  # fmt: skip
def test_killed_at_any_moment_nothing_is_lost(folder: Path, where: str, when: int, moment: str) -> None:
    before = state(folder)
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), where, str(when), moment], cwd=ROOT, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    assert state(folder) == before  # opening it removes what is left
    assert not any(path.exists() for path in compacting.unfinished(folder))
    compact(folder)
    assert state(folder) == before
