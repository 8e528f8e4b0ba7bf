"""``faultline store``: making and migrating, sizes, freed bytes, and one line of refusal while another process holds the store."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pytest

from parsers.record import frame
from store import open_store
from store.files import SERVICE_FILE
from tests.faultline.command import faultline
from tests.store.duckdb.test_compacting import fill, state
from tests.store.holder import held


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    fill(folder)
    return folder


def test_info_has_rows_and_bytes_by_table_and_kind(data: Path) -> None:
    done = faultline("store", "info", "--data", data, "--format", "json")
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["engine"].startswith("DuckDB ") and found["schema"] == found["known_schema"] >= 1
    tables = {row["table"]: row for row in found["tables"]}
    assert tables["raw.logs"]["rows"] == 3031 and tables["raw.logs"]["kind"] == "segments"
    assert tables["raw.log_segments"]["rows"] == 2 and all(row["bytes"] >= 0 for row in found["tables"])
    assert found["lines"] == {"all": 3031, "segments": 3030, "loose": 1, "closed days": 0, "unfiltered": 1}
    assert found["filtered"] == pytest.approx(3030 / 3031)
    assert found["bytes"]["database"] == (data / "faultline.duckdb").stat().st_size
    assert 20 < found["raw_bytes"] / 3031 < 40 and found["bytes_per_raw_byte"] > 0
    text = faultline("store", "info", "--data", data).stdout.decode()
    assert "raw.logs" in text and "text filters" in text and "100.0 % of 3,031 lines" in text


def test_info_counts_the_files_of_closed_days(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_store(tmp_path) as store:
        store.append({"logs": day_of_lines()})
    before = json.loads(faultline("store", "info", "--data", tmp_path, "--format", "json").stdout)
    archived = faultline("archive", "--data", tmp_path)
    assert archived.returncode == 0, archived.stderr.decode()
    found = json.loads(faultline("store", "info", "--data", tmp_path, "--format", "json").stdout)
    assert found["lines"]["closed days"] == 21_000 and found["lines"]["all"] == before["lines"]["all"]
    kinds = {(row["table"], row["kind"]): row["rows"] for row in found["tables"]}
    assert kinds["raw.logs", "parquet"] == 21_000 and found["bytes"]["parquet"] > 0


def day_of_lines() -> pl.DataFrame:
    begin = datetime(2026, 2, 27)
    return frame("logs", [
        {"time": begin + timedelta(seconds=n), "host": "gx1", "raw": f"line {n}", "message": f"line {n}", "file": "g", "line": n}
        for n in range(21_000)
    ])  # fmt: skip


def test_compact_says_what_it_freed_and_loses_no_row(tmp_path: Path) -> None:
    fill(tmp_path)
    before = state(tmp_path)
    done = faultline("store", "compact", "--data", tmp_path)
    assert done.returncode == 0 and b" freed" in done.stdout and done.stderr == b""
    assert state(tmp_path) == before
    sizes = json.loads(faultline("store", "compact", "--data", tmp_path, "--format", "json").stdout)
    assert sizes.keys() == {"before", "after"}


def test_a_store_that_a_service_holds_is_refused_with_its_address(tmp_path: Path) -> None:
    with held(tmp_path):
        (tmp_path / SERVICE_FILE).write_text(json.dumps({"pid": os.getpid(), "address": "http://localhost:8514"}))
        for verb in ("info", "compact", "init", "migrate"):
            done = faultline("store", verb, "--data", tmp_path)
            assert done.returncode == 2 and done.stdout == b"" and done.stderr.count(b"\n") == 1, verb
            assert b"the service at http://localhost:8514" in done.stderr and b"stop it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("infos",), "did you mean info?"),
        (("info", "--format", "yaml"), "one of table, json"),
        (("info", "--data", "/nowhere/at/all"), "no store here"),
        (("compact", "--data", "/nowhere/at/all"), "no store here"),
        (("migrate", "--data", "/nowhere/at/all"), "no store here"),
        (("migrate", "--engine", "clickhouse"), "this version has one engine, duckdb"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = faultline("store", *arguments)
    assert done.returncode == 2 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_init_makes_a_store_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "store"
    done = faultline("store", "init", "--data", folder)
    assert done.returncode == 0 and b"made a store of schema" in done.stdout and done.stderr == b""
    assert folder.stat().st_mode & 0o777 == 0o700
    with open_store(folder) as store:
        store.append({"logs": day_of_lines().head(1)})
    again = faultline("store", "init", "--data", folder)
    assert again.returncode == 0 and b"nothing to do" in again.stdout
    with open_store(folder, read_only=True) as store:
        assert store.info()["lines"] == 1


def test_init_leaves_a_folder_with_other_things_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = faultline("store", "init", "--data", tmp_path)
    assert done.returncode == 2 and b"is not empty (file)" in done.stderr and done.stderr.count(b"\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_migrate_gives_an_older_store_what_it_lacks_and_names_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append({"logs": day_of_lines().head(1)})
    older(tmp_path)
    found = json.loads(faultline("store", "migrate", "--data", tmp_path, "--format", "json").stdout)
    assert found["before"] == found["after"]
    assert {"table raw.environments", "column model.events.authority", "view kql.Environments"} <= set(found["added"])
    assert b"nothing to do" in faultline("store", "migrate", "--data", tmp_path).stdout
    older(tmp_path)
    text = faultline("store", "migrate", "--data", tmp_path).stdout.decode()
    assert "additions" in text and "  column model.events.authority" in text
    with open_store(tmp_path, read_only=True) as store:
        assert store.info()["lines"] == 1


def older(folder: Path) -> None:
    """The store lacks what later versions added."""
    with duckdb.connect(str(folder / "faultline.duckdb")) as connection:
        connection.execute(
            'DROP VIEW kql."Environments"; DROP TABLE raw.environments; ALTER TABLE model.events DROP authority'
        )


@pytest.mark.parametrize("verb", ["init", "migrate"])
def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path, verb: str) -> None:
    open_store(tmp_path).close()
    with duckdb.connect(str(tmp_path / "faultline.duckdb")) as connection:
        connection.execute("UPDATE model.facts SET value = '99' WHERE name = 'schema_version'")
    before = (tmp_path / "faultline.duckdb").read_bytes()
    done = faultline("store", verb, "--data", tmp_path)
    assert done.returncode == 2 and b"schema 99" in done.stderr and done.stderr.count(b"\n") == 1
    assert (tmp_path / "faultline.duckdb").read_bytes() == before
