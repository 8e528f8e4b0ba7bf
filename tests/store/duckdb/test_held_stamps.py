"""A store of an older version has rows of the year 2099.

Opened for writing, it no longer believes them, and reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from structlog.testing import capture_logs

from correlator.engine import correlate
from parsers.record import TABLES
from queries.kql import run
from store import open_store
from store.door import FileEntry
from store.duckdb.held_stamps import FACT
from store.duckdb.store import DuckStore
from web.reading import Reader

LATER, THEN = datetime(2099, 1, 1), datetime(2026, 2, 28, 10)


def line(number: int, time: datetime, received: datetime | None, file: str = "syslog:n1") -> dict[str, Any]:
    return {
        "time": time, "time_quality": "line", "resolution_us": 1, "received_time": received, "host": "n1", "source": "kernel",
        "format": "rfc3339", "event": "nic.link_down", "severity": "error", "message": f"Link is down {number}", "raw": f"Link is down {number}",
        "file": file, "line": number, "tags": [], "cluster": "c", "entities": '{"interface": "eth0"}',
    }  # fmt: skip


def rows(table: str, *reported: dict[str, Any]) -> pl.DataFrame:
    schema = TABLES[table]
    return pl.DataFrame([{c: one.get(c) for c in schema} for one in reported], schema=schema, infer_schema_length=None)


def older(folder: Path) -> None:
    """As written by a version without that check."""
    with open_store(folder) as store:
        entries = [FileEntry(path=name, cluster="c", host="n1", kind="lines", source="kernel", reason="", consumed=1, digest="x", lines=3,
                             events=3, unparsed=0, warnings=[]) for name in ("n1/syslog", "n1/ahead")]  # fmt: skip
        store.add(
            {
                "logs": rows(
                    "logs", line(1, THEN, THEN), line(2, LATER, THEN + timedelta(seconds=1)),
                    line(3, THEN + timedelta(hours=20), THEN + timedelta(seconds=2)),
                    line(1, THEN, None, "n1/syslog"), line(2, LATER, None, "n1/syslog"),
                    line(1, datetime(2027, 1, 1), None, "n1/ahead"),
                ),
                "metrics": rows("metrics", {"time": LATER, "metric": "m", "value": 1.0, "host": "n1", "cluster": "c"}),
            },
            entries,
        )  # fmt: skip
        with store.transaction() as connection:
            connection.execute("UPDATE raw.files SET ingested_at = ?", [THEN + timedelta(hours=1)])
            connection.execute("DELETE FROM model.facts WHERE name = ?", [FACT])


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """The entries of the log since the test began."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def opened(tmp_path: Path, logged: list[Any]) -> DuckStore:
    older(tmp_path)
    logged.clear()
    return open_store(tmp_path)


def test_stamps_that_came_before_they_were_are_held(opened: DuckStore) -> None:
    with opened as store:
        found = store.rows("SELECT file, line, time, sender_time, time_quality, tags FROM raw.logs ORDER BY file, line")
    held = {(r["file"], r["line"]): r["time"] for r in found if "future" in r["tags"]}
    assert held == {("syslog:n1", 2): THEN + timedelta(seconds=1), ("n1/syslog", 2): None}
    assert all(r["sender_time"] == LATER and r["time_quality"] == "received" for r in found if "future" in r["tags"])
    # A day ahead may be a zone; for a file that is wholly ahead, the clock of the loading machine may have been wrong.
    assert {r["time"] for r in found if "future" not in r["tags"]} == {
        THEN,
        THEN + timedelta(hours=20),
        datetime(2027, 1, 1),
    }


def test_nothing_of_2099_tops_a_list_and_it_is_reported(opened: DuckStore, logged: list[Any]) -> None:
    with opened as store:
        correlate(store)
        assert store.info()["last"] < LATER
        assert [r["ahead"] for r in Reader(store).sources() if r["file"] == "n1/syslog"] == [1]
        connection = store.cursor()
        for table in ("Logs", "Events", "Metrics"):
            newest = run(connection, f"{table} | summarize max(Time)").rows[0][0]
            assert newest is None or "2099" not in str(newest), table
        connection.close()
    assert [(entry["lines"], "stamped after they came" in entry["event"]) for entry in logged] == [(2, True)]


def test_it_is_done_once(opened: DuckStore, tmp_path: Path, logged: list[Any]) -> None:
    with opened as store:
        assert store.fact(FACT) == "2"
    logged.clear()
    with open_store(tmp_path) as store:
        assert store.rows("SELECT count(*) AS n FROM raw.logs WHERE list_contains(tags, 'future')") == [{"n": 2}]
    assert not logged
