"""The store: all or nothing, texts unchanged, and a clear message if another process holds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.record import frame
from store import open_store
from store.door import FileEntry
from store.duckdb.store import DuckStore
from store.errors import StoreError, StoreHeld
from store.files import SERVICE_FILE
from tests.examples import examples
from tests.store.holder import held

ROOT = Path(__file__).resolve().parents[2]
ENTRY = FileEntry("/var/log/syslog", "mini", "gpu02", "lines", "syslog", "by name", 10, "ab", 1, 1, 0, ())


def logs(*pairs: tuple[str, str | None]) -> pl.DataFrame:
    """Lines as (raw, message)."""
    return frame("logs", [{"raw": raw, "message": message, "file": "f", "line": n, "time": datetime(2026, 1, 1), "event": "other"}
                          for n, (raw, message) in enumerate(pairs, 1)])  # fmt: skip


def count(store: DuckStore, table: str) -> int:
    return int(store.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"])


def test_a_failure_in_the_middle_stores_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(Exception, match="no_such_table"):
            store.add({"logs": logs(("a", "a")), "no_such_table": pl.DataFrame({"x": [1]})}, [ENTRY])
        assert count(store, "raw.logs") == count(store, "raw.files") == 0
        store.add({"logs": logs(("a", "a"))}, [ENTRY])
        assert (count(store, "raw.logs"), count(store, "raw.files")) == (1, 1)


def test_a_ledger_entry_that_fails_takes_its_rows_back(tmp_path: Path) -> None:
    wrong = FileEntry("/x", "mini", None, "lines", None, "by name", "not a number", "ab", 1, 1, 0, ())  # type: ignore[arg-type]
    with open_store(tmp_path) as store:
        with pytest.raises(Exception, match="not a number"):
            store.add({"logs": logs(("a", "a"))}, [ENTRY, wrong])
        assert count(store, "raw.logs") == count(store, "raw.files") == 0


def test_a_failed_replacement_leaves_the_old_conclusions() -> None:
    with open_store(None) as store:
        store.set_fact("lemons", '["gpu07"]')
        with pytest.raises(Exception, match="no_such_column"):
            store.replace_model({"facts": pl.DataFrame({"no_such_column": ["x"]})})
        assert store.fact("lemons") == '["gpu07"]'


def test_what_was_stored_is_there_after_reopening(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add({"logs": logs(("a b", "b"))}, [ENTRY])
    with open_store(tmp_path, read_only=True) as store:
        assert store.rows("SELECT raw, message FROM raw.log_view") == [{"raw": "a b", "message": "b"}]


ODD = [
    ("Jan  1 host k: text", "text"),
    ("héader: Ünïcode", "Ünïcode"),
    ("👩‍🚀🇩🇪 k: 🚀 lost", "🚀 lost"),
    ("e\u0301 combining: e\u0301 tail", "e\u0301 tail"),
    ("head\x00er: a\x00b", "a\x00b"),
    ("\ufffd\ufffd: \ufffd", "\ufffd"),
    ("mesg mesg", "mesg"),
    ("all of it", "all of it"),
    ("empty message: ", ""),
    ("rewritten: x", "not a tail of the line"),
    ("", ""),
    ("\u202eright to left: \u202eabc", "\u202eabc"),
]


@pytest.mark.parametrize(("raw", "message"), ODD)
def test_messages_come_back_as_they_were(raw: str, message: str) -> None:
    with open_store(None) as store:
        store.add({"logs": logs((raw, message))})
        assert store.rows("SELECT raw, message FROM raw.log_view") == [{"raw": raw, "message": message}]


@settings(max_examples=examples(5), deadline=None)
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=20))
def test_any_header_and_message_come_back(pairs: list[tuple[str, str]]) -> None:
    """The store keeps the message as an offset in the raw line: counted in characters by Polars, read by DuckDB."""
    lines = [(head + message, message) for head, message in pairs]
    with open_store(None) as store:
        store.add({"logs": logs(*lines)})
        back = store.rows("SELECT raw, message FROM raw.log_view ORDER BY line")
    assert [(r["raw"], r["message"]) for r in back] == lines


def test_a_held_store_names_its_service(tmp_path: Path) -> None:
    with held(tmp_path) as holder:
        with pytest.raises(StoreHeld) as anonymous:
            open_store(tmp_path)
        assert str(tmp_path) in str(anonymous.value) and "another --data" in str(anonymous.value)
        note = {"pid": holder.pid, "address": "http://127.0.0.1:8514"}
        (tmp_path / SERVICE_FILE).write_text(json.dumps(note))
        with pytest.raises(StoreHeld, match=r"http://127\.0\.0\.1:8514") as named:
            open_store(tmp_path)
        assert named.value.address == "http://127.0.0.1:8514"
    open_store(tmp_path).close()


def test_the_note_of_a_dead_service_is_not_believed(tmp_path: Path) -> None:
    from store.files import service_address

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / SERVICE_FILE).write_text(json.dumps({"pid": gone.pid, "address": "http://127.0.0.1:1"}))
    assert service_address(tmp_path) is None
    (tmp_path / SERVICE_FILE).write_text("{ half a no")
    assert service_address(tmp_path) is None
    (tmp_path / SERVICE_FILE).write_text(json.dumps({"pid": os.getpid(), "address": "here"}))
    assert service_address(tmp_path) == "here"


def test_a_folder_without_a_store_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="faultline ingest"):
        open_store(tmp_path / "nothing", read_only=True)


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "faultline.duckdb").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreError, match=str(tmp_path)):
        open_store(tmp_path)


def test_states_of_nodes_are_reported_by_the_log_where_slurm_was_not_asked(tmp_path: Path) -> None:
    stated = [
        (0, "slurm.node_reason", "update_node: node gpu02 reason set to: NHC: fan", {"nodes": ["gpu02"], "reason": "NHC: fan"}),
        (1, "slurm.node_drain", "update_node: node gpu02 state set to DRAINING", {"nodes": ["gpu02"], "state": "DRAINING"}),
        (9, "slurm.node_down", "error: Nodes gpu[03-04] not responding, setting DOWN", {"nodes": ["gpu03", "gpu04"]}),
    ]  # fmt: skip
    with open_store(tmp_path) as store:
        with store.cursor() as connection:
            connection.executemany(
                "INSERT INTO model.events (event_id, time, cluster, host, layer, event, message, entities) VALUES (?, ?, 'mini', 'ctl', 'slurmctld', ?, ?, ?)",
                [
                    [str(s), datetime(2026, 1, 1, 0, 0, s), event, text, json.dumps(reported)]
                    for s, event, text, reported in stated
                ],
            )
            connection.execute(  # another cluster's node of the same name was polled
                "INSERT INTO model.node_states (time, cluster, host, state) VALUES ('2026-01-01 00:00:05', 'other', 'gpu03', 'IDLE')"
            )
            connection.execute(
                "INSERT INTO model.node_states (time, cluster, host, state) VALUES ('2026-01-01 00:00:05', 'mini', 'gpu04', 'IDLE')"
            )
        states = store.rows(
            """SELECT "Host" AS host, "State" AS state, "Reason" AS reason FROM kql."NodeStates" ORDER BY ALL"""
        )
    assert [tuple(row.values()) for row in states] == [
        ("gpu02", "DRAINING", "NHC: fan"), ("gpu03", "DOWN", "Not responding"), ("gpu03", "IDLE", ""), ("gpu04", "IDLE", ""),
    ]  # fmt: skip
