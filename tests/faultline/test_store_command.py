"""``faultline store info`` and ``compact``: sizes, freed bytes, and one line of refusal while another process holds the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from parsers.record import frame
from store import open_store
from store.files import SERVICE_FILE
from tests.faultline.command import faultline
from tests.store.test_compacting import ROOT, fill, state


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


@pytest.mark.parametrize("verb", ["info", "compact"])
def test_a_store_that_a_service_holds_is_refused_with_its_address(verb: str, tmp_path: Path) -> None:
    held = "import sys; from pathlib import Path; from store import open_store\nwith open_store(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        (tmp_path / SERVICE_FILE).write_text(json.dumps({"pid": os.getpid(), "address": "http://localhost:8514"}))
        done = faultline("store", verb, "--data", tmp_path)
        other.communicate()
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert b"the service at http://localhost:8514" in done.stderr and b"stop it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("infos",), "did you mean info?"),
        (("info", "--format", "yaml"), "one of table, json"),
        (("info", "--data", "/nowhere/at/all"), "no store here"),
        (("compact", "--data", "/nowhere/at/all"), "no store here"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = faultline("store", *arguments)
    assert done.returncode == 2 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1
