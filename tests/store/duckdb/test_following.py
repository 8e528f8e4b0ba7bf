"""New rows are found by DuckDB's row numbers, even if a checkpoint renumbers all rows."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

from store import open_store
from store.changes import Change, ChangeLog, Mark
from store.duckdb.following import Follower
from store.duckdb.store import DuckStore
from store.tables import METRICS

T0 = datetime(2026, 1, 1)
#: More than a row group of DuckDB: a checkpoint drops whole groups.
MANY = 300_000


def samples(first: int, count: int) -> pl.DataFrame:
    times = pl.datetime_range(
        T0 + timedelta(seconds=first), T0 + timedelta(seconds=first + count - 1), "1s", eager=True
    )
    return pl.DataFrame({"time": times.cast(pl.Datetime("us")), "host": "gpu01", "value": pl.int_range(first, first + count, eager=True)}).cast({"value": pl.Float64})  # fmt: skip


def new(store: DuckStore, since: Mark) -> list[float]:
    added = store.stored_since(METRICS, store.changes(("metrics",), since))
    return [row["value"] for row in store.ask(sa.select(METRICS.c.value).where(added).order_by(METRICS.c.value))]


def top(store: DuckStore) -> int:
    return int(store.rows("SELECT max(rowid) AS top FROM raw.metrics")[0]["top"])


@pytest.mark.parametrize("kept", [1, 1_000, 200_000])
def test_rows_that_a_checkpoint_numbers_anew_are_found(tmp_path: Path, kept: int) -> None:
    with DuckStore(tmp_path / "s") as store:
        store.append({"metrics": samples(0, MANY)})
        old = store.changes(("metrics",)).until
        with store.write() as writer:
            writer.change(sa.delete(METRICS).where(METRICS.c.value < MANY - kept))
        gone = store.changes(("metrics",), old).until
        store.append({"metrics": samples(MANY, 10)})
        before, first = top(store), store.changes(("metrics",), gone)
        store.checkpoint()
        assert top(store) < before, "the checkpoint leaves the numbers as they are: this test tests nothing"
        wanted = [float(n) for n in range(MANY, MANY + 10)]
        assert new(store, gone) == wanted
        assert set(wanted) <= set(new(store, old))
        store.append({"metrics": samples(MANY + 10, 5)})
        assert new(store, gone) == [*wanted, *(float(n) for n in range(MANY + 10, MANY + 15))]
        assert new(store, first.until) == [float(n) for n in range(MANY + 10, MANY + 15)]


def test_batches_are_forgotten_and_older_marks_are_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.changes.ChangeLog.shorten.__defaults__", (4,))
    with DuckStore(tmp_path / "s") as store:
        marks = []
        for number in range(9):
            marks.append(store.changes(("metrics",)).until)
            store.append({"metrics": samples(number, 1)})
        reported = [store.changes(("metrics",), mark).too_old for mark in marks]
        assert reported[0] and not reported[-1] and reported == sorted(reported, reverse=True)
        assert new(store, marks[-2]) == [7.0, 8.0]
        held = store.rows("SELECT count(*) AS n FROM raw.batches")[0]["n"]
        assert held == reported.count(False)
    with DuckStore(tmp_path / "s") as again:
        assert [again.changes(("metrics",), mark).too_old for mark in marks] == reported


def test_another_version_that_wrote_in_between_makes_marks_too_old(tmp_path: Path) -> None:
    """One version that counts transactions and knows no batches; and an older one, whose store has no log of either."""
    with DuckStore(tmp_path / "s") as store:
        store.append({"metrics": samples(0, 1)})
        mark = store.changes(("metrics",)).until
        with store.transaction() as connection:  # as it wrote
            connection.execute("INSERT INTO raw.metrics (value) VALUES (1)")
    with DuckStore(tmp_path / "s") as store:
        store._connection.execute(
            "UPDATE model.facts SET value = (value::BIGINT + 1)::VARCHAR WHERE name = 'transactions'"
        )
    with open_store(tmp_path / "s") as store:
        assert store.changes(("metrics",), mark).too_old
        again = store.changes(("metrics",)).until
        store.append({"metrics": samples(1, 1)})
        assert store.changes(("metrics",), again).tables["metrics"].added == 1


def test_a_store_from_before_batches_begins_with_them(tmp_path: Path) -> None:
    with DuckStore(tmp_path / "s") as store:
        store.append({"metrics": samples(0, 3)})
        store._connection.execute("DROP TABLE raw.batches")
        store._connection.execute("DELETE FROM model.facts WHERE name IN ('batch', 'instance')")
    with DuckStore(tmp_path / "s", read_only=True) as store:
        assert store.changes(("metrics",)).too_old
    with open_store(tmp_path / "s") as store:
        found = store.changes(("metrics",))
        assert (found.too_old, found.rows) == (True, {"metrics": 3})
        assert store.changes(("metrics",), found.until).nothing


def test_a_store_that_lost_commits_is_another_instance(tmp_path: Path) -> None:
    with DuckStore(tmp_path / "s") as store:
        store.append({"metrics": samples(0, 1)})
        mark = store.changes(("metrics",)).until
    files = {path: path.read_bytes() for path in (tmp_path / "s").iterdir() if not path.name.endswith(".mark")}
    with DuckStore(tmp_path / "s") as store:
        store.append({"metrics": samples(1, 5)})
        lost = store.changes(("metrics",)).until
    for path, content in files.items():
        path.write_bytes(content)  # an older copy replaces it
    with DuckStore(tmp_path / "s") as store:
        assert store.lost
        assert all(store.changes(("metrics",), one).too_old for one in (mark, lost))


def test_a_writer_in_a_hurry_leaves_checkpoints_to_others_only_meanwhile() -> None:
    with DuckStore(None) as store:

        def threshold() -> object:
            return store.cursor().execute("SELECT current_setting('wal_autocheckpoint')").fetchone()

        before = threshold()
        with pytest.raises(KeyError), store.others_tidy():
            assert threshold() != before
            raise KeyError
        assert threshold() == before


def test_rows_that_are_committed_while_it_is_looked_at_are_not_left_out() -> None:
    """The answer is of the moment of the look, and so are the row numbers, even of a table that changed just before it."""
    log = ChangeLog("store", 0, [(1, {"logs": Change(1)})])
    asked: list[str] = []

    def rows(sql: str, _: object) -> list[dict[str, Any]]:
        asked.append(sql)
        if len(asked) == 2:  # the first query counts, the second finds the end of lines; another writer was faster
            log.add(2, {"jobs": Change(3)})
        numbers = {"batch": 1 if len(asked) < 2 else 2}
        return [{"name": name, "n": numbers.get(name, 5)} for name in re.findall(r"'([a-z ]+)' AS name", sql)]

    found = Follower(rows, log).changes(1, ("logs", "jobs"), Mark("store", 0))
    assert found.until == Mark("store", 2)
    assert found.tables == {"logs": Change(1), "jobs": Change(3)} and found.places == {"logs": 4, "jobs": 2}
