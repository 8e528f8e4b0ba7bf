"""Shrinking a store that is open: the file becomes smaller, every row and answer stays, and it may be killed at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from parsers.record import frame
from queries import kql
from store.changes import NOTHING, Change
from store.duckdb import segments, shrinking
from store.duckdb.shrinking import Piece, _chosen, _File
from store.duckdb.store import DuckStore
from store.errors import StoreError
from store.line_order import SEGMENT_ROWS
from store.tables import LOGS
from tests.store.duckdb.killing import KILLING
from tests.store.duckdb.test_compacting import content
from tests.store.duckdb.test_filtered_segments import ordered

ROOT = Path(__file__).resolve().parents[3]
DATABASE = "faultline.duckdb"


def fill(folder: Path) -> None:
    """A file whose first half is free: behind that are two segments, loose lines, and rows of other tables."""
    with DuckStore(folder) as store:
        store.open_intake()
        with store.transaction() as connection:
            connection.execute("CREATE TABLE raw.ballast AS SELECT hash(range) AS h FROM range(3_000_000)")
        for at in (0, 3000):
            store.append({}, sealed=[ordered([f"word{n} at {n * 31}" for n in range(at, at + 3000)], at)])
        store.append(
            {
                "logs": frame(
                    "logs",
                    [{"raw": f"loose{n}", "message": f"loose{n}", "file": "f", "line": 9000 + n} for n in range(20)],
                )
            }
        )
        store.append({"jobs": frame("jobs", [{"job_id": 7, "source": "sacct", "state": "FAILED"}])})
        store.set_fact("known", "value")
    with DuckStore(folder) as store, store.transaction() as connection:
        connection.execute("DROP TABLE raw.ballast")


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


QUESTIONS = (
    'Logs | where Message has "word4007" | project Line',
    'Logs | where Message has "loose7" | project Line',
    "Logs | summarize count() by File",
    "Logs | order by Line asc | project Time, Host, Message, Line, Fields",
    "Jobs | count",
)


def state(store: DuckStore) -> tuple[dict[str, Any], list[Any], list[dict[str, Any]]]:
    """Digests of all tables, answers, and the lines with their blocks."""
    lines = store.rows("SELECT * FROM raw.log_view ORDER BY line, file")
    return content(store), [kql.run(store.cursor(), text).rows for text in QUESTIONS], lines


def test_the_file_of_an_open_store_shrinks_and_every_row_and_answer_stays(folder: Path) -> None:
    with DuckStore(folder) as store:
        before, size = state(store), (folder / DATABASE).stat().st_size
        assert before[1][0] == [[4007]] and before[1][1] == [[9007]]
        freed = store.shrink(share=0.1)
        assert freed >= shrinking.LEAST_BYTES
        assert (folder / DATABASE).stat().st_size == size - freed < size / 2
        assert state(store) == before
        assert store.shrink(share=0.1) == 0  # nothing is left to do
        assert segments.unsealed(store) == 20
    with DuckStore(folder) as store:
        assert state(store) == before and store.lost == []


def test_what_was_deleted_and_is_still_in_the_log_counts_as_free(tmp_path: Path) -> None:
    with DuckStore(tmp_path) as store:
        store.open_intake()  # the log may grow: no checkpoint of the engine's own
        with store.transaction() as connection:
            connection.execute("CREATE TABLE raw.ballast AS SELECT hash(range) AS h FROM range(3_000_000)")
        store.checkpoint()
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.ballast")
        assert store.shrink(share=0.1) >= shrinking.LEAST_BYTES


def test_it_does_not_wait_for_a_copy_that_is_being_made(folder: Path) -> None:
    """A copy takes minutes, and the thread that shrinks also says why jobs died."""
    with DuckStore(folder) as store, ThreadPoolExecutor(1) as other:
        other.submit(store.upkeep.__enter__).result()
        began = other.submit(store.shrink, share=0.1)  # the thread that holds it may
        assert began.result() >= shrinking.LEAST_BYTES
        with pytest.raises(StoreError, match="copy"):
            store.shrink(share=0.1)
        other.submit(store.upkeep.__exit__, None, None, None).result()
        assert store.shrink(share=0.1) == 0


def test_a_text_search_reads_the_same_blocks_as_before(folder: Path) -> None:
    with DuckStore(folder) as store:
        before = [str(p) for p in kql.run(store.cursor(), QUESTIONS[0]).pruned]
        assert store.shrink(share=0.1)
        assert [str(p) for p in kql.run(store.cursor(), QUESTIONS[0]).pruned] == before


def test_a_file_of_which_less_is_free_is_left_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (folder / DATABASE).stat().st_size
    with DuckStore(folder) as store:
        assert store.shrink(share=0.99) == 0
        monkeypatch.setattr(shrinking, "LEAST_BYTES", 2**40)
        assert store.shrink(share=0.1) == 0
        assert (folder / DATABASE).stat().st_size == size
    with DuckStore(folder, read_only=True) as store:
        assert store.shrink(share=0.0) == 0
    with DuckStore(None) as store:
        assert store.shrink(share=0.0) == 0


def test_whoever_follows_new_lines_sees_each_that_was_added(folder: Path) -> None:
    with DuckStore(folder) as store:
        mark = store.changes(("logs",)).until
        new = frame("logs", [{"raw": "new", "message": "new", "file": "g", "line": 1}])
        store.append({"logs": new})
        assert store.shrink(share=0.1)
        changes = store.changes(("logs",), mark)
        assert not changes.too_old and changes.rows["logs"] == 6021
        assert changes.tables["logs"].added == 1 and changes.tables["logs"].moved >= 6000
        found = store.ask(LOGS.select().where(store.stored_since(LOGS, changes), LOGS.c.file == "g"))
        assert [row["raw"] for row in found] == ["new"]
        later = store.changes(("logs",), changes.until)
        assert later.nothing


def test_a_reader_that_began_before_sees_all_rows_once(folder: Path) -> None:
    with DuckStore(folder) as store:
        reader = store.cursor()
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM raw.logs").fetchall() == [(6020,)]
        store.shrink(share=0.1)
        assert reader.execute("SELECT count(*), count(DISTINCT line) FROM raw.logs").fetchall() == [(6020, 6020)]
        reader.execute("COMMIT")
        store.shrink(share=0.1)
        assert store.rows("SELECT count(*) AS n FROM raw.logs") == [{"n": 6020}]
        assert (folder / DATABASE).stat().st_size < shrinking.LEAST_BYTES


def test_a_checkpoint_that_a_reader_is_in_the_way_of_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = DuckStore.checkpoint, []

    def refused(store: DuckStore, least: int = 0) -> None:
        asked.append(least)
        if len(asked) < 3:
            raise StoreError("other transactions are active")
        real(store, least)

    monkeypatch.setattr(shrinking, "PAUSE_S", 0)
    with DuckStore(folder) as store:
        monkeypatch.setattr(DuckStore, "checkpoint", refused)
        assert store.shrink(share=0.1) > 0 and len(asked) == 4
        monkeypatch.setattr(shrinking, "TRIES", 2)
        monkeypatch.setattr(shrinking, "LEAST_BYTES", 0)
        asked.clear()
        with pytest.raises(StoreError, match="active"):
            store.shrink(share=0.0)


def test_rows_that_would_be_delivered_again_are_not_moved(folder: Path) -> None:
    with DuckStore(folder) as store:
        mark = store.changes(("artifacts", "jobs")).until
        assert store.shrink(share=0.1)
        changes = store.changes(("artifacts", "jobs"), mark).tables
        assert changes == {"artifacts": NOTHING, "jobs": Change(moved=1)}
        assert all(piece.where is None for piece in shrinking._pieces(store) if piece.table == "raw.artifacts")


def test_the_lines_of_each_row_group_are_found(folder: Path) -> None:
    """Also where row groups before it are gone, and only some lines are in a segment."""
    with DuckStore(folder) as store:
        store.append({}, sealed=[ordered([f"more{n}" for n in range(SEGMENT_ROWS)], 20_000)])
        store.append({}, sealed=[ordered([f"rest{n}" for n in range(1000)], 200_000)])
        store.append({"logs": frame("logs", [{"raw": "late", "message": "late", "file": "f", "line": 300_000}])})
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.logs WHERE line BETWEEN 20_000 AND 190_000")
        store.checkpoint()
        before = state(store)
        wheres = [piece.where for piece in shrinking._pieces(store) if piece.table == "raw.logs"]
        counts = [store.rows(f"SELECT count(*) AS n FROM raw.logs WHERE {where}")[0]["n"] for where in wheres]
        assert sum(counts) >= 7_021 and all(counts)  # a loose line may be in several
        for found in shrinking._pieces(store):
            if found.where is not None:
                shrinking._move(store, found)
        assert state(store) == before


def test_which_lines_a_row_group_has() -> None:
    spans = {0: (1, 480), 1: (0, 500), 2: (0, 0), 3: (501, 980), 4: (None, None)}
    assert shrinking._lines_of(0, spans) == "block BETWEEN 1 AND 480"
    assert shrinking._lines_of(1, spans) == "(block = 0 OR block BETWEEN 481 AND 500)"
    assert shrinking._lines_of(2, spans) == "block BETWEEN 0 AND 0"
    assert shrinking._lines_of(3, spans) == "block BETWEEN 501 AND 980"
    assert shrinking._lines_of(4, spans) is None and shrinking._lines_of(5, spans) is None


def test_descriptions_of_tables_at_the_end_of_the_file_do_not_hold_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is to be moved, but the file does not end there: the engine keeps what it knows of tables in it, too."""
    monkeypatch.setattr(shrinking, "_pieces", lambda store: [])
    with DuckStore(folder) as store:
        with store.transaction() as connection:
            connection.execute("CREATE TABLE kept.odd AS SELECT 1 AS one")
            connection.execute("DROP TABLE kept.odd")
        set_to = "SELECT current_setting('experimental_metadata_reuse') AS it"
        before, asked = store.rows(set_to), []
        real = shrinking._checkpoint
        monkeypatch.setattr(
            shrinking, "_checkpoint", lambda store: (asked.append(store.rows(set_to)[0]["it"]), real(store))
        )
        store.shrink(share=0.1)
        assert asked == [True, False] and store.rows(set_to) == before == [{"it": True}]


def test_rows_that_do_not_come_back_stay_where_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DuckStore(folder) as store:
        before = state(store)
        with store.transaction() as connection:
            connection.execute("CREATE TABLE kept.odd AS SELECT 1 AS one")
            connection.execute("CREATE SEQUENCE kept.once")
        odd = Piece("kept.odd", "nextval('kept.once') <= 2", 10**6, 1)  # holds when it is counted and copied, no longer
        monkeypatch.setattr(shrinking, "_chosen", lambda file, pieces: [odd])
        with pytest.raises(StoreError, match="0 were taken and 1 put back: nothing was moved"):
            store.shrink(share=0.1)
        assert store.rows("SELECT count(*) AS n FROM kept.odd") == [{"n": 1}]
        with store.transaction() as connection:
            connection.execute("DROP TABLE kept.odd")
            connection.execute("DROP SEQUENCE kept.once")
        assert state(store) == before


def piece(last: int, blocks: int, *, stays: bool = False) -> Piece:
    return Piece("raw.logs", None if stays else str(last), last, blocks)


def test_what_is_moved_ends_at_the_first_piece_that_stays_or_does_not_fit_before_it() -> None:
    def file(total: int, used: int) -> _File:
        return _File(total, used, total - used, 262_144)

    segment, events, jobs, low = piece(199, 30), piece(150, 9), piece(140, 1, stays=True), piece(50, 30)
    assert _chosen(file(200, 100), [low, events, segment]) == [segment, events]
    assert _chosen(file(200, 100), [low, events, segment, jobs]) == [segment, events]  # 39 blocks for 59
    assert _chosen(file(200, 100), [piece(190, 1, stays=True), segment]) is None  # 30 blocks for 9
    assert _chosen(file(200, 160), [segment, piece(170, 60)]) is None  # 30 blocks for 29, and then
    assert _chosen(file(200, 180), [segment]) is None  # no room before it
    assert _chosen(file(2_000, 500), [piece(1_999, 900), piece(1_000, 300)]) == [piece(1_999, 900)]
    many = [piece(10_000 - 31 * n, 30) for n in range(100)]
    assert len(_chosen(file(10_001, 3_000), many) or ()) == shrinking.MOST_BYTES // 262_144 // 30


KILLED = (
    """
import os, signal, sys
from pathlib import Path
from store.duckdb import shrinking
from store.duckdb.store import DuckStore
where, when, after = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after"
owner = DuckStore if hasattr(DuckStore, where) else shrinking
real, calls = getattr(owner, where), []
"""
    + KILLING
    + """
with DuckStore(Path(sys.argv[1])) as store:
    setattr(owner, where, killing)
    store.shrink(share=0.1)
"""
)


@pytest.mark.parametrize(
    ("where", "when", "moment"),
    [
        ("_move", 1, "after"),
        ("_commit", 2, "before"),
        *(
            pytest.param(*at, marks=pytest.mark.long)
            for at in (("_move", 2, "before"), ("_move", 3, "after"), ("note", 1, "before"), ("note", 1, "after"), ("_commit", 1, "before"),
                       ("_commit", 1, "after"), ("_commit", 3, "after"), ("checkpoint", 1, "after"), ("checkpoint", 2, "before"),
                       ("checkpoint", 2, "after"))
        ),
    ],
)  # fmt: skip
def test_killed_at_any_moment_nothing_is_lost_or_doubled(folder: Path, where: str, when: int, moment: str) -> None:
    with DuckStore(folder) as store:
        before = state(store)
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), where, str(when), moment], cwd=ROOT, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    with DuckStore(folder) as store:
        assert state(store) == before and store.lost == []
        store.shrink(share=0.1)
        assert state(store) == before
        assert (folder / DATABASE).stat().st_size < 2 * shrinking.LEAST_BYTES
