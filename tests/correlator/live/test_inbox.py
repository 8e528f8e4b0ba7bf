"""The inbox collects the same rows as a query returns, and ticks have the same result with either."""

from __future__ import annotations

import ast
import random
import re
import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
import sqlalchemy as sa

from correlator.engine import conclude_cluster, correlate
from correlator.gather import collected
from correlator.gather.collected import asked
from correlator.gather.collected import joined as joined_spans
from correlator.gather.events import coalesce, joined, prepared, stamped
from correlator.live import inbox
from correlator.live.inbox import Inbox, Recalled
from correlator.live.ticker import Ticker
from correlator.model.json_text import sorted_json
from correlator.model.moments import moment_of
from parsers.record import frame
from store import open_store, tables
from store.changes import Change, Changes, Mark
from store.duckdb.segments import insert_sealed, seal
from store.duckdb.store import DuckStore
from store.duckdb.writing import insert
from store.line_frames import coded, logs_for_storage
from store.questions import job_rows
from tests.correlator.live.test_streaming import add, made_rows, stored, with_settings
from tests.correlator.rows import CAPTURES, rows_of
from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[3]


def lines_of(capture: int) -> pl.DataFrame:
    with open_store(None) as store:
        rows = rows_of(CAPTURES[capture])
        store.add(rows)
        clusters = rows["logs"]["cluster"].unique().to_list()
        return pl.concat([stamped(store, cluster) for cluster in clusters])


@pytest.mark.parametrize(
    ("capture", "count"),
    [(0, 2), (2, 5), *(pytest.param(*case, marks=pytest.mark.long) for case in ((0, 5), (1, 2), (1, 5), (2, 2)))],
)
def test_lines_that_came_in_parts_show_the_same_events(capture: int, count: int) -> None:
    lines = lines_of(capture)
    rng = random.Random(count)
    places = pl.Series([rng.randrange(count) for _ in range(lines.height)])
    parts = [prepared(lines.filter(places == k)) for k in range(count)]
    events, single = joined(parts)
    assert list(map(told, events)) == list(map(told, coalesce(lines)))
    assert [e.id for e in single.events] == single.columns["id"].to_list()
    assert single.entities.to_list() == [sorted_json(e.entities) if e.entities else None for e in single.events]


def told(event: Any) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in event.__slots__)


def test_recalled_lines_show_what_was_stated_from_a_moment_on_or_that_they_do_not_know() -> None:
    lines = lines_of(0)
    times = sorted(lines["time"].dt.epoch("us").to_list())
    first, middle = times[0] / 1e6, times[len(times) // 2] / 1e6
    recalled = Recalled(first, [prepared(lines)])
    for cut in (first, middle, times[-1] / 1e6, times[-1] / 1e6 + 1.0):
        found = recalled.read(cut)
        assert found is not None
        assert list(map(told, found[0])) == list(map(told, coalesce(lines.filter(pl.col("time") >= moment_of(cut)))))
    assert recalled.read(first - 0.001) is None


def test_old_parts_are_let_go_and_what_they_covered_is_not_known_any_more() -> None:
    lines = lines_of(0).sort("time")
    half = lines.height // 2
    last = lines["time"].dt.epoch("us").max()
    assert isinstance(last, int)
    early = lines[:half].with_columns(pl.col("time") - timedelta(hours=1))
    kept = Recalled(0.0, [prepared(early), prepared(lines[half:])]).lately()
    assert [p.lines.height for p in kept.parts] == [lines.height - half]
    border = early["time"].dt.epoch("us").max()
    assert isinstance(border, int) and border / 1e6 < kept.since < border / 1e6 + 0.001
    assert Recalled(5.0, []).lately() == Recalled(5.0, [])


def grew(logs: int = 0, jobs: int = 0, amended: int = 0) -> Changes:
    """By how many rows the tables have gained since the last tick."""
    tables = {"logs": Change(logs, amended), "jobs": Change(jobs)}
    return Changes(Mark("store", 1), tables, {"logs": logs, "jobs": jobs})


def as_they_came(store: DuckStore, logs: pl.DataFrame) -> None:
    store.add({"logs": logs})


def segments_in(store: DuckStore, rows: pl.DataFrame) -> None:
    """Stores lines as the receiving side does."""
    lines = coded(logs_for_storage(rows))
    with store.transaction() as connection:
        insert_sealed(connection, lines)
        store.note("logs", Change(lines.height))
        store.announce([("logs", lines)])


@pytest.mark.parametrize(
    ("put", "few"),
    [
        pytest.param(as_they_came, 1, id="as they came-1"),
        pytest.param(as_they_came, 10_000, id="as they came-10000", marks=pytest.mark.long),
        pytest.param(segments_in, 1, id="segments-1", marks=pytest.mark.long),
        pytest.param(segments_in, 10_000, id="segments-10000"),
    ],
)
def test_what_is_logged_is_what_the_database_would_answer(
    put: Callable[[DuckStore, pl.DataFrame], None], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "FEW_LINES", few)
    rows = rows_of(CAPTURES[0])
    logs = rows["logs"].with_columns(
        cluster=pl.when(pl.int_range(pl.len()) % 3 == 0).then(None).otherwise(pl.lit("here")),
        time=pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise("time"),
    )
    jobs = rows["jobs"].with_columns(cluster=pl.lit("here"))
    with open_store(None) as store:
        listening = Inbox(store)
        assert listening.take(None, listening.mark(), grew()) is None
        begun = listening.mark()
        for part in (logs[:100], logs[100:]):
            put(store, part)
        store.add({"jobs": jobs})
        found = listening.take(begun, listening.mark(), grew(logs.height, jobs.height))
        assert found is not None and set(found) == {None, "here"}
        for cluster, received_of in found.items():
            new = "FROM raw.logs WHERE cluster IS NOT DISTINCT FROM ?"
            (row,) = store.rows(f"SELECT count(*) AS n, count(time) AS timed, epoch(min(time)) AS t {new}", [cluster])
            assert (received_of.lines, received_of.timed, received_of.earliest) == (row["n"], row["timed"], row["t"])
            jobs_named = store.rows(f"SELECT DISTINCT job_id AS j {new} AND job_id IS NOT NULL", [cluster])
            assert received_of.jobs == {r["j"] for r in jobs_named}
            untimed = store.rows(
                f"SELECT DISTINCT job_id AS j {new} AND job_id IS NOT NULL AND time IS NULL", [cluster]
            )
            assert received_of.unstamped == {r["j"] for r in untimed}
            assert joined_spans(received_of.collected) == asked(store, cluster)
            events, _ = joined(received_of.parts)
            assert list(map(told, events)) == list(map(told, coalesce(stamped(store, cluster))))
            if received_of.rows:
                all_of_them = job_rows.new_job_rows(cluster, sa.true())
                assert pl.concat(received_of.rows).equals(store.ask_frame(all_of_them))
        assert found["here"].rows and found["here"].ending


@pytest.mark.parametrize(
    ("changes", "whole"),
    [(grew(2), True), (grew(3), False), (grew(2, 1), False), (grew(2, amended=1), False)],
    ids=["all", "somebody else added a line", "somebody else added a job", "after a rewriting"],
)
def test_only_what_is_all_is_taken(changes: Changes, whole: bool) -> None:
    rows = rows_of(CAPTURES[0])["logs"][:2]
    with open_store(None) as store:
        listening = Inbox(store)
        listening.take(None, listening.mark(), grew())
        begun = listening.mark()
        store.add({"logs": rows})
        found = listening.take(begun, listening.mark(), changes)
        assert (found is not None) == whole
        # What was not taken is not returned the next time.
        store.add({"logs": rows})
        assert listening.take(begun, listening.mark(), grew(4)) is None


def test_rows_that_come_after_the_first_mark_are_collected() -> None:
    """A line that was stored between a service's first mark and its first take was in no later tick's lines."""
    rows = rows_of(CAPTURES[0])["logs"]
    with open_store(None) as store:
        listening = Inbox(store)
        begun = listening.mark()
        store.add({"logs": rows[:2]})
        assert listening.take(None, begun, grew()) is None
        store.add({"logs": rows[2:5]})
        found = listening.take(begun, listening.mark(), grew(5))
        assert found is not None and sum(new_rows.lines for new_rows in found.values()) == 5


def test_too_many_rows_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_ROWS", 5)
    rows = rows_of(CAPTURES[0])["logs"]
    with open_store(None) as store:
        listening = Inbox(store)
        listening.take(None, listening.mark(), grew())
        begun = listening.mark()
        store.add({"logs": rows})
        assert listening.take(begun, listening.mark(), grew(rows.height)) is None
        again = listening.mark()
        store.add({"logs": rows[:3]})
        assert listening.take(again, listening.mark(), grew(3)) is not None


def test_nobody_hears_of_what_was_rolled_back() -> None:
    rows = logs_for_storage(rows_of(CAPTURES[0])["logs"][:5])
    with open_store(None) as store:
        listening = Inbox(store)
        listening.take(None, listening.mark(), grew())
        begun = listening.mark()
        with pytest.raises(ZeroDivisionError), store.transaction() as connection:
            insert(connection, "raw.logs", rows)
            store.announce([("logs", rows)])
            raise ZeroDivisionError
        assert listening.mark() == begun == (0, 0)


def unannounced(store: DuckStore, part: list[Any]) -> None:
    lines = logs_for_storage(frame("logs", [r for _, name, r in part if name == "logs"]))
    with store.transaction() as connection:
        insert(connection, "raw.logs", lines)
        store.note("logs", Change(lines.height))
    store.add({"jobs": frame("jobs", [r for _, name, r in part if name == "jobs"])})


def rewritten(store: DuckStore, part: list[Any]) -> None:
    """Lines without a time that get one later."""
    add(store, part)
    ids = "SELECT max(rowid) - 20 FROM raw.logs"
    with store.transaction() as connection:
        connection.execute(f"UPDATE raw.logs SET time = time + INTERVAL 3 SECOND WHERE rowid > ({ids})")
        store.note("logs", Change(amended=20))


def besides(store: DuckStore, part: list[Any]) -> None:
    """Some are added from another thread."""
    thread = threading.Thread(target=add, args=(store, part[::2]))
    thread.start()
    add(store, part[1::2])
    thread.join()


def sealed(store: DuckStore, part: list[Any]) -> None:
    """Between them all loose lines are put into segments, that is, moved."""
    add(store, part[::2])
    assert seal(store, least=1).lines
    add(store, part[1::2])


@pytest.mark.parametrize(
    "way", [*(pytest.param(way, marks=pytest.mark.long) for way in (add, unannounced, rewritten, besides)), sealed]
)
def test_ticks_say_what_a_full_pass_says_however_rows_came_in(way: Callable[[DuckStore, list[Any]], None]) -> None:
    rows = sorted(made_rows(11, 900), key=lambda a: a[0])
    cuts = [0, *range(300, len(rows), 150), len(rows)]
    ways = [add, way, add, way]
    partly = 0
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        for n, (low, high) in enumerate(pairwise(cuts)):
            ways[n % 4](store, rows[low:high])
            partly += not ticker.tick().full
            whole = conclude_cluster(store, "made", ticker._rules)
            assert [e.id for e in ticker._known["made"].result.events] == [e.id for e in whole.result.events]
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)
    assert partly >= 4


def test_lines_that_were_only_moved_ask_for_no_full_pass() -> None:
    rows = sorted(made_rows(14, 700), key=lambda a: a[0])
    cut = len(rows) * 9 // 10
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        add(store, rows[:cut])
        ticker.tick()
        for part in ([], rows[cut:]):  # nothing else is new; more came in
            add(store, part)
            assert seal(store, least=1).lines
            assert not ticker.tick().full
            add(store, rows[cut - 1 : cut])  # a copy: one loose line
        ticker.tick()
        unannounced(store, rows[1:2])
        seal(store, least=1)
        assert ticker.tick().full, "by row ids nobody can tell what was moved from what is new"
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)


@pytest.mark.parametrize("announced", [True, False])
def test_a_whole_pass_over_added_lines_does_not_ask_for_what_was_collected(
    monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    """A flood of old lines is concluded with everything: what was collected is known of all lines but the new ones."""
    rows = sorted(made_rows(15, 900), key=lambda a: a[0])
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        add(store, rows[300:])
        ticker.tick()
        asked = Mock(side_effect=collected.asked)
        monkeypatch.setattr(collected, "asked", asked)
        (add if announced else unannounced)(store, rows[:300])
        assert ticker.tick().full
        assert not asked.called
        now, whole = ticker._known["made"].memory.basis, conclude_cluster(store, "made", ticker._rules).basis
        assert asked.called
        assert dict(now.collected.spans) == dict(whole.collected.spans)
        assert now.collected.reporting_hosts == whole.collected.reporting_hosts
        assert now.collected.log_host_folders == whole.collected.log_host_folders
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)


def test_a_tick_after_one_that_failed_asks_for_what_that_one_had_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(made_rows(12, 700), key=lambda a: a[0])
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        add(store, rows[:400])
        ticker.tick()
        add(store, rows[400:500])
        with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
            patched.setattr("correlator.live.ticker.Ticker._say", lambda *_: 1 / 0)
            ticker.tick()
        add(store, rows[500:])
        ticker.tick()
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)


def test_lines_are_asked_for_only_where_not_all_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(made_rows(13, 700), key=lambda a: a[0])
    asked: list[str] = []
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        add(store, rows[:600])
        ticker.tick()
        monkeypatch.setattr("correlator.live.arrivals.stamped", lambda *_: asked.append("arrivals"))
        monkeypatch.setattr("correlator.gather.events.stamped", lambda *_: asked.append("window"))
        later = [(t + timedelta(hours=2), name, r) for t, name, r in rows[600:] if name == "logs"]
        for place in range(0, len(later), 40):
            part = [(t, name, {**r, "time": t}) for t, name, r in later[place : place + 40]]
            add(store, part)
            assert not ticker.tick().full
    assert asked == []


def functions_of(*rooms: str, of: str = "") -> list[tuple[str, ast.FunctionDef]]:
    """The functions of the files that contain such a text; the others need not be parsed."""
    paths = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return [
        (f"{path.name}:{node.name}", node)
        for path in paths
        if re.search(of, path.read_text(encoding="utf-8"))
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef)
    ]


def attributes(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


#: SQL that changes rows of a table with a follower, or of one that is named beside it.
CHANGES_ROWS = re.compile(
    r"(?:UPDATE|DELETE FROM|INSERT INTO) (?:raw\.(?!archive|batches|files|log_segments|log_words)|(?:raw\.)?$)|^DELETE $"
)
#: Functions that return the number of changed rows to a caller that announces it.
TELLS_CALLER = {"archive.py:_gather_rests", "writing.py:insert"}


def in_words_of_the_engine() -> list[tuple[str, ast.FunctionDef]]:
    """Functions that change rows of tables which the correlator reads, in SQL."""
    found = []
    for name, node in functions_of("collector", "store", "faultline", of="UPDATE |DELETE |INSERT "):
        texts = (t.value for t in ast.walk(node) if isinstance(t, ast.Constant) and isinstance(t.value, str))
        if any(CHANGES_ROWS.search(text) for text in texts):
            found.append((name, node))
    return found


def updates_of_rows(node: ast.AST, questions: Collection[str]) -> bool:
    """Is an expression an update in Core of rows other than those that only the service itself keeps?"""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if named in questions:
            return True
        if named == "update" and not (isinstance(call.args[0], ast.Name) and call.args[0].id in OWN):
            return True
    return False


#: Tables that the correlator does not read.
OWN = {
    name
    for name, table in vars(tables).items()
    if isinstance(table, sa.Table) and table.schema in ("kept", "intake", "model")
}


def test_whoever_changes_rows_says_so() -> None:
    found = in_words_of_the_engine()
    assert len(found) >= 7, [name for name, _ in found]
    says = {"note", "_note_of"}
    assert {name for name, node in found if not attributes(node) & says} == TELLS_CALLER


def test_changes_of_rows_in_core_are_amendments() -> None:
    questions = {node.name for _, node in functions_of("store/questions") if updates_of_rows(node, ())}
    calls = [
        (name, call)
        for name, node in functions_of(
            "collector", "correlator", "store", "faultline", "web", of=r"\b(?:change|amend)\b"
        )
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
        if call.func.attr in ("change", "amend") and any(updates_of_rows(a, questions) for a in call.args)  # type: ignore[attr-defined]
    ]
    assert questions == {"name_hosts", "rename"} and len(calls) >= 3
    assert [name for name, call in calls if call.func.attr == "change"] == []  # type: ignore[attr-defined]
