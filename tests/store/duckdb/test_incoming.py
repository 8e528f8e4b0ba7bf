"""Frames as tables of statements (store/duckdb/incoming.py)."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext, suppress
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import sqlalchemy as sa

from parsers.record import frame
from store.duckdb import incoming
from store.duckdb.arrow import as_arrow
from store.duckdb.store import DuckStore
from store.errors import EngineError
from store.tables import BOOTS, LOGS


def boots(*hosts: str) -> pl.DataFrame:
    return frame("boots", [{"cluster": "c", "host": host} for host in hosts])


def hosts_in(store: DuckStore) -> list[str]:
    return [row["host"] for row in store.ask(sa.select(BOOTS.c.host).order_by(BOOTS.c.host))]


def test_frames_of_one_schema_share_a_view_and_each_is_stored_as_it_is(tmp_path: Path) -> None:
    with DuckStore(tmp_path) as store:
        for hosts in (["a"], ["b", "c"], [f"n{n:04d}" for n in range(1000)]):
            store.add({"boots": boots(*hosts)})
        assert hosts_in(store) == ["a", "b", "c", *(f"n{n:04d}" for n in range(1000))]
        assert len(incoming._views[store._connection]) == 1


def test_what_was_rolled_back_is_stored_by_the_next_transaction(tmp_path: Path) -> None:
    """The rollback drops the view as well."""
    with DuckStore(tmp_path) as store:
        with pytest.raises(ValueError, match="no"), store.write() as writer:
            writer.insert(BOOTS, boots("a"))
            raise ValueError("no")
        store.add({"boots": boots("b")})
        assert hosts_in(store) == ["b"]


def test_a_connection_with_too_many_views_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_MOST", 2)
    with DuckStore(tmp_path) as store, store.transaction() as connection:
        for n in range(5):
            with incoming.incoming(connection, pa.table({f"column_{n}": [n, n + 1]})) as name:
                assert connection.execute(f"SELECT * FROM {name}").fetchall() == [(n,), (n + 1,)]
            assert name in ("incoming_0", "incoming_1")


def test_a_view_of_before_a_rollback_is_made_anew_with_its_name(tmp_path: Path) -> None:
    with DuckStore(tmp_path) as store:
        store.add({"boots": boots("a")})  # incoming_0, committed
        with pytest.raises(ValueError, match="no"), store.transaction() as connection:
            with incoming.incoming(connection, pa.table({"n": [1]})):
                pass
            raise ValueError("no")
        with store.transaction() as connection, incoming.incoming(connection, pa.table({"other": [2]})) as name:
            assert name == "incoming_0" and connection.execute(f"SELECT other FROM {name}").fetchall() == [(2,)]
        store.add({"boots": boots("b")})
        assert hosts_in(store) == ["a", "b"]


def test_two_frames_at_a_time_are_refused(tmp_path: Path) -> None:
    with (
        DuckStore(tmp_path) as store,
        store.transaction() as connection,
        incoming.incoming(connection, pa.table({"n": [1]})),
    ):
        for other in (pa.table({"n": [2]}), pa.table({"m": [2]})):
            with pytest.raises(RuntimeError, match="while another"), incoming.incoming(connection, other):
                pass


@pytest.mark.parametrize(
    "sql",
    ["SELECT host FROM {}", "INSERT INTO raw.boots BY NAME FROM {}", "INSERT INTO raw.none BY NAME FROM {}",
     "INSERT INTO raw.boots BY NAME SELECT * EXCLUDE (one_row) FROM {} POSITIONAL JOIN (SELECT 1 AS one_row)"],
)  # fmt: skip
def test_no_frame_is_kept(tmp_path: Path, sql: str) -> None:
    with DuckStore(tmp_path) as store:
        table = as_arrow(boots("a"))
        held = weakref.ref(table)
        with (
            suppress(EngineError) if "none" in sql else nullcontext(),
            store.transaction() as connection,
            incoming.incoming(connection, table) as name,
        ):
            assert len(connection.execute(sql.format(name)).fetchall()) == 1
        del table
        gc.collect()
        assert held() is None


def test_a_column_of_nulls_is_null_and_not_its_default(tmp_path: Path) -> None:
    lines = frame("logs", [{"host": "a", "raw": "one"}]).with_columns(block=pl.lit(None, pl.Int32))
    with DuckStore(tmp_path) as store:
        with store.write() as writer:
            writer.insert(LOGS, lines)
            writer.insert(LOGS, lines.drop("block"))
        assert [row["block"] for row in store.ask(sa.select(LOGS.c.block).order_by(LOGS.c.block.nulls_first()))] == [
            None,
            0,
        ]
        assert store.ask(sa.select(LOGS.c.pid, LOGS.c.raw).limit(1)) == [{"pid": None, "raw": "one"}]


def test_a_view_is_read_within_its_statement_only(tmp_path: Path) -> None:
    with (
        DuckStore(tmp_path) as store,
        pytest.raises(EngineError, match="outside of its statement"),
        store.transaction() as connection,
    ):
        with incoming.incoming(connection, pa.table({"n": [1]})) as name:
            pass
        connection.execute(f"SELECT n FROM {name}").fetchall()
