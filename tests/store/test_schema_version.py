"""A store that a newer version wrote is refused by every way to open it, and stays unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb
import pytest

from store import open_store
from store.duckdb.schema import VERSION
from store.duckdb.store import DATABASE, StoreError


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
