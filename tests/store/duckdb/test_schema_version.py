"""A store that a newer version wrote is refused by every way to open it, and stays unchanged; one that was not made
completely is made when it is opened."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from store import open_store
from store.duckdb import archive
from store.duckdb import store as whole_store
from store.duckdb.open_store import DATABASE, OpenStore
from store.duckdb.schema import VERSION, statements
from store.duckdb.store import DuckStore
from store.errors import StoreError
from tests import copied_schema


def told(folder: Path, value: str) -> None:
    """Makes the store report another version."""
    with duckdb.connect(str(folder / DATABASE)) as connection:
        connection.execute("UPDATE model.facts SET value = ? WHERE name = 'schema_version'", [value])


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "version", [str(VERSION + 1), *(pytest.param(name, marks=pytest.mark.long) for name in ("2.0", "next"))]
)
def test_a_newer_store_is_refused_and_left_alone(tmp_path: Path, version: str, read_only: bool) -> None:
    open_store(tmp_path).close()
    told(tmp_path, version)
    before = hashlib.sha256((tmp_path / DATABASE).read_bytes()).digest()
    with pytest.raises(StoreError, match=rf"schema {version}.*install that one.*--data"):
        open_store(tmp_path, read_only=read_only)
    assert hashlib.sha256((tmp_path / DATABASE).read_bytes()).digest() == before
    told(tmp_path, str(VERSION))  # no process holds it
    open_store(tmp_path, read_only=read_only).close()


def test_a_store_of_before_versions_is_given_one(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with duckdb.connect(str(tmp_path / DATABASE)) as connection:
        connection.execute("DELETE FROM model.facts WHERE name = 'schema_version'")
    with open_store(tmp_path) as store:
        assert store.fact("schema_version") == str(VERSION)


def test_a_process_killed_while_it_makes_a_store_leaves_one_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folder is what a kill at that moment leaves on disk."""
    made, left, whole = tmp_path / "made", [], statements()

    def killed(moment: str) -> None:
        left.append(shutil.copytree(made, tmp_path / moment))

    def in_steps() -> Iterator[str]:
        for number, statement in enumerate(whole):
            if number in (0, len(whole) // 2):
                killed(f"before statement {number}")
            yield statement

    def with_views(store: OpenStore, connection: duckdb.DuckDBPyConnection) -> None:
        make_views(store, connection)
        killed("before the commit")

    make_views = archive.make_views
    with monkeypatch.context() as patched:
        patched.setattr(DuckStore, "migrate", copied_schema.create)
        patched.setattr(whole_store, "statements", in_steps)
        patched.setattr(archive, "make_views", with_views)
        with open_store(made):
            killed("after the commit")
    assert len(left) == 4
    for folder in left:
        with open_store(folder) as store:
            assert store.fact("schema_version") == str(VERSION), folder.name
            assert store.rows('SELECT * FROM kql."Logs"') == store.rows("SELECT * FROM raw.batches") == []
            assert store.lost == [], folder.name


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_of_before_drains_and_facts_is_given_both(tmp_path: Path, read_only: bool) -> None:
    open_store(tmp_path).close()
    with duckdb.connect(str(tmp_path / DATABASE)) as connection:
        connection.execute(
            'DROP VIEW kql."Drains"; DROP VIEW kql."Facts"; DROP TABLE model.concluded_facts;'
            'DROP VIEW kql."Environments"; DROP TABLE raw.environments'
        )
    with open_store(tmp_path, read_only=read_only) as store:
        assert [store.rows(f'SELECT * FROM kql."{name}"') for name in ("Drains", "Facts", "Environments")] == [
            [],
            [],
            [],
        ]
