"""Files of days that are not closed: every question is answered as before, and what is learned later applies to their lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.identity import boots, hosts
from parsers.record import frame
from store import open_store
from store.changes import Change
from store.door import Closed, FileEntry
from store.duckdb import archive, archive_file, early, segments
from store.duckdb.archived_hosts import with_names
from store.duckdb.store import DuckStore
from store.errors import LinesChanged
from tests.store.duckdb.killing import KILLING
from tests.store.duckdb.test_archive import DAY, ROOT, answers, content, files, lines, registered, slice_small

#: In the middle of the 27th, by the clock and by arrival.
NOON = datetime(2026, 2, 27, 12)
LATER = datetime(2026, 2, 27, 23)
#: With two hot days, the 27th is closed.
TODAY = date(2026, 3, 2)

Content = list[dict[str, Any]]


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckStore]:
    """3,050 lines of the 27th, in segments and loose."""
    slice_small(monkeypatch)
    with open_store(tmp_path / "data") as store:
        store.add({"logs": lines(3000)})
        segments.seal(store, least=1)
        store.add({"logs": lines(50).with_columns(line=pl.col("line") + 9000)})
        yield store


def settle(store: DuckStore, until: datetime = NOON) -> Closed:
    return store.close_settled(until, least=1, hot_days=2)


def close(store: DuckStore) -> None:
    """As ``DuckStore.close_days``, also for few lines; and what was replaced leaves the disk."""
    archive.close_days(store, TODAY, least=1)
    early.close_early(store, TODAY - timedelta(days=2))
    archive.sweep(store)


def states(store: DuckStore) -> list[tuple[str, bool]]:
    rows = store.rows("SELECT state, early FROM raw.archive ORDER BY early, state")
    return [(row["state"], row["early"]) for row in rows]


def count(store: DuckStore, table: str) -> int:
    return int(store.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"])


def test_lines_that_arrived_a_while_ago_move_and_every_answer_stays(filled: DuckStore) -> None:
    before, mark = (content(filled), answers(filled)), filled.changes(("logs",)).until
    done = settle(filled)
    assert 0 < done.lines < 3050 and done.files == 1 and states(filled) == [("kept", True)]
    assert (content(filled), answers(filled)) == before
    (left,) = filled.rows(
        "SELECT count(*) FILTER (time < '2026-02-27 11:59:59') AS n, count(*) FILTER (time IS NULL) AS untimed FROM raw.logs"
    )
    assert left["n"] == 0 and left["untimed"] == 11
    assert count(filled, "raw.recent_logs") == 3050
    found = filled.changes(("logs",), mark)
    assert found.rows["logs"] == 3050 and found.tables["logs"].moved >= done.lines
    assert found.tables["logs"]._replace(moved=0) == Change()
    assert settle(filled) == Closed()
    assert archive.damaged(filled, thorough=True) == []


def test_later_lines_open_another_file_and_the_day_becomes_one(filled: DuckStore, tmp_path: Path) -> None:
    before = content(filled), answers(filled)
    settle(filled)
    filled.add({"logs": lines(100).with_columns(line=pl.col("line") + 20000)})  # late lines of the same hours
    late = content(filled), answers(filled)
    assert len(late[0]) == len(before[0]) + 100
    settle(filled)
    settle(filled, LATER)
    assert states(filled) == [("kept", True)] * 3 and (content(filled), answers(filled)) == late
    archive_file.PART_LINES = 5000
    close(filled)
    assert states(filled) == [("kept", False)] and (content(filled), answers(filled)) == late
    assert files(tmp_path / "data") == registered(filled) and archive.damaged(filled, thorough=True) == []
    assert count(filled, "raw.recent_logs") == count(filled, "raw.logs") == 0
    blocks = {row["block"] for row in filled.rows("SELECT DISTINCT block FROM raw.log_view")}
    spans = filled.rows("SELECT first_block, last_block, lines FROM raw.log_segments ORDER BY first_block")
    assert blocks == {n for span in spans for n in range(span["first_block"], span["last_block"] + 1)}
    assert sum(span["lines"] for span in spans) == 3150


def test_files_that_were_replaced_a_moment_ago_stay_for_those_who_read_them(filled: DuckStore, tmp_path: Path) -> None:
    settle(filled)
    settle(filled, LATER)
    replaced = set(registered(filled))
    early.close_early(filled, date(2026, 2, 28))
    settle(filled, LATER)
    assert len(replaced) == 2 and replaced < set(files(tmp_path / "data"))
    archive.close_days(filled, TODAY)
    assert not replaced & set(files(tmp_path / "data"))


@pytest.mark.long
def test_a_day_too_large_for_a_file_becomes_several(filled: DuckStore) -> None:
    before = content(filled), answers(filled)
    settle(filled)
    settle(filled, LATER)
    close(filled)
    assert states(filled) == [("kept", False)] * 2 and (content(filled), answers(filled)) == before


def test_a_day_with_one_file_keeps_it(filled: DuckStore) -> None:
    settle(filled, datetime(2026, 2, 28, 1))
    name = filled.rows("SELECT file FROM raw.archive WHERE lines > 1000 ORDER BY file")
    early.close_early(filled, date(2026, 2, 27))
    assert {is_early for _, is_early in states(filled)} == {True}, "its day is hot"
    assert filled.rows("SELECT file FROM raw.archive WHERE lines > 1000 ORDER BY file") == name


def test_lines_of_a_day_that_closes_anyway_do_not_move_twice(filled: DuckStore) -> None:
    assert filled.close_settled(datetime(2026, 3, 5), least=1, hot_days=2) == Closed()


def test_few_lines_stay(filled: DuckStore) -> None:
    assert filled.close_settled(NOON, least=2500, hot_days=2) == Closed()


def test_what_is_not_wanted_any_more_leaves_nothing(filled: DuckStore, tmp_path: Path) -> None:
    before, wanted = content(filled), iter([True, False])
    done = filled.close_settled(NOON, least=1, hot_days=2, is_wanted=lambda: next(wanted))
    assert done == Closed() and content(filled) == before
    assert files(tmp_path / "data") == registered(filled) == []


def test_the_unfinished_last_line_of_a_file_stays(tmp_path: Path) -> None:
    entry = FileEntry("/var/log/syslog", "mini", None, "lines", "syslog", "by name", 10, "ab", 99, 1, 0, (), tail="cd")
    with open_store(tmp_path) as store:
        store.add({"logs": lines(100, cluster="mini")}, [entry])
        assert settle(store).lines == 98  # and one without a time
        assert {row["line"] for row in store.rows("SELECT line FROM raw.logs")} == {10, 100}


@pytest.mark.long
def test_the_cluster_that_is_learned_later_is_that_of_these_lines(filled: DuckStore) -> None:
    settle(filled)
    settle(filled, LATER)
    filled.name_cluster("o'hara")
    assert filled.rows("SELECT DISTINCT cluster FROM raw.log_view") == [{"cluster": "o'hara"}]
    named = content(filled), answers(filled)
    close(filled)
    assert (content(filled), answers(filled)) == named


def rename(store: DuckStore, cluster: str | None = None) -> None:
    """Slurm's configuration is learned: gx03 is a node's address, and gx04 another."""
    rows = [("NodeName:n03", "NodeName=n03 NodeHostname=gx03"), ("NodeName:n'4", "NodeName=n'4 NodeHostname=gx04")]
    settings = frame(
        "settings",
        [{"cluster": cluster, "scope": "cluster", "name": name, "value": value} for name, value in rows],
    )
    store.add({"settings": settings})
    hosts.settle(store)


def test_the_node_that_a_host_is_learned_to_be_is_that_of_these_lines(filled: DuckStore, tmp_path: Path) -> None:
    with open_store(tmp_path / "plain") as plain:
        plain.add({"logs": lines(3000)})
        segments.seal(plain, least=1)
        plain.add({"logs": lines(50).with_columns(line=pl.col("line") + 9000)})
        rename(plain)
        meant = content(plain), answers(plain)
    assert {row["host"] for row in meant[0]} >= {"n03", "n'4"}
    settle(filled)
    mark = filled.changes(("logs",)).until
    rename(filled)
    assert (content(filled), answers(filled)) == meant, "texts have the name that was sent"
    assert filled.changes(("logs",), mark).tables["logs"] == Change(amended=306)
    settle(filled, LATER)
    assert (content(filled), answers(filled)) == meant
    filled.name_cluster("mini")
    named = content(filled), answers(filled)
    assert {row["host"] for row in named[0]} >= {"n03", "n'4"}
    close(filled)
    assert states(filled) == [("kept", False)] * 2 and (content(filled), answers(filled)) == named
    assert filled.rows("SELECT count(*) AS n FROM raw.archive WHERE hosts IS NOT NULL") == [{"n": 0}]


def hosts_of(store: DuckStore) -> set[tuple[str | None, str]]:
    return {(row["cluster"], row["host"]) for row in content(store)}


def test_a_host_is_its_node_whenever_its_cluster_is_learned(filled: DuckStore) -> None:
    settle(filled)
    rename(filled)
    filled.name_cluster("o'hara")
    meant = {("o'hara", host) for host in ("n03", "n'4")}
    assert hosts_of(filled) >= meant and not hosts_of(filled) & {("o'hara", "gx03"), ("o'hara", "gx04")}


def test_a_host_of_a_cluster_that_was_learned_is_its_node(filled: DuckStore) -> None:
    settle(filled)
    filled.name_cluster("mini")
    rename(filled, "mini")
    found = hosts_of(filled)
    assert found >= {("mini", "n03"), ("mini", "n'4")} and not found & {("mini", "gx03"), ("mini", "gx04")}
    hosts.settle(filled)
    assert not filled.rows("SELECT * FROM raw.logs WHERE host IN ('gx03', 'gx04')")
    assert filled.fact(hosts._FACT) is not None, "nothing is left to learn: the lines are not looked at again"


def test_a_node_that_turns_out_to_be_another_is_that_one() -> None:
    first = with_names(None, [(None, "a", "b")])
    found = json.loads(with_names(first, [(None, "b", "c"), ("east", "b", "d")]))
    assert sorted(found, key=str) == [["east", "b", "d"], [None, "a", "c"], [None, "b", "c"]]


def kernel(**columns: Any) -> pl.DataFrame:
    row = {
        "host": "n1",
        "source": "kernel",
        "format": "dmesg",
        "file": "/var/log/kern.log",
        "event": "other",
        "line": 1,
        "raw": "x",
        "message": "x",
    }
    return frame("logs", [{**row, **columns}])  # fmt: skip


def test_a_line_with_both_clocks_dates_those_that_come_later(tmp_path: Path) -> None:
    entities = '{"uptime_s": 100.0}'
    with open_store(tmp_path) as store:
        stamped = {
            "time": DAY + timedelta(seconds=100),
            "received_time": DAY,
            "time_quality": "line",
            "source": "kernel",
        }
        store.add({"logs": kernel(**stamped, entities=entities, format="kmsg", file=None, line=None)})
        store.add({"logs": kernel(entities='{"uptime_s": 160.0}', file="dmesg", line=7)})
        expected = settled_of(store, tmp_path / "copy")
        assert settle(store).lines == 1 and count(store, "raw.logs") == 1
        boots.settle(store)
        assert times(store) == expected == [DAY + timedelta(seconds=100), DAY + timedelta(seconds=160)]


def settled_of(store: DuckStore, folder: Path) -> list[datetime]:
    """The times of a store's lines once boots are settled, without early files."""
    with open_store(folder) as other:
        other.add({"logs": store.frame("SELECT * EXCLUDE (block) FROM raw.log_view")})
        boots.settle(other)
        return times(other)


def times(store: DuckStore) -> list[datetime]:
    return [row["time"] for row in store.rows("SELECT time FROM raw.log_view ORDER BY time")]


def test_lines_that_change_meanwhile_stay_and_nobody_waits(
    filled: DuckStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(filled)
    write, held = archive_file.ArchiveFile.write, []

    def changing(self: archive_file.ArchiveFile, *args: Any, **more: Any) -> archive_file.Written:
        held.append(filled._write_lock._is_owned())  # type: ignore[attr-defined]
        with filled.transaction() as connection:
            connection.execute("UPDATE raw.logs SET cluster = ? WHERE line = 5", [str(len(held))])
        return write(self, *args, **more)

    monkeypatch.setattr(archive_file.ArchiveFile, "write", changing)
    with pytest.raises(LinesChanged):
        settle(filled)
    assert held == [False] * archive.TRIES
    assert len(content(filled)) == len(before) and files(tmp_path / "data") == registered(filled) == []


@pytest.mark.long
def test_what_is_learned_while_a_day_is_written_again_is_not_lost(
    filled: DuckStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(filled)
    settle(filled, LATER)
    write = archive_file.ArchiveFile.write

    def learning(self: archive_file.ArchiveFile, *args: Any, **more: Any) -> archive_file.Written:
        done = write(self, *args, **more)
        rename(filled)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(archive_file.ArchiveFile, "write", learning)
        with pytest.raises(LinesChanged):
            early.close_early(filled, date(2026, 2, 28))
    assert states(filled) == [("kept", True)] * 2 and files(tmp_path / "data") == registered(filled)
    meant = content(filled), answers(filled)
    assert {row["host"] for row in meant[0]} >= {"n03", "n'4"}
    close(filled)
    assert (content(filled), answers(filled)) == meant


def test_a_day_of_which_a_file_is_lost_is_left_as_it_is(filled: DuckStore, tmp_path: Path) -> None:
    settle(filled)
    settle(filled, LATER)
    rest = count(filled, "raw.logs")
    (tmp_path / "data" / registered(filled)[0]).unlink()
    early.close_early(filled, date(2026, 2, 28))
    assert states(filled) == [("kept", True)] * 2
    filled.migrate()  # the views without it
    assert rest < count(filled, "raw.log_view") < 3050 and len(archive.damaged(filled)) == 1


def test_retention_drops_these_files_too(filled: DuckStore, tmp_path: Path) -> None:
    settle(filled)
    filled.drop_before(date(2026, 2, 28))
    assert content(filled) == [] and count(filled, "raw.log_segments") == 0
    archive.sweep(filled)
    assert files(tmp_path / "data") == []


def test_a_store_without_these_views_is_brought_up_to_date_to_be_read(filled: DuckStore, tmp_path: Path) -> None:
    filled.cursor().execute("DROP VIEW raw.recent_logs")
    filled.close()
    with open_store(tmp_path / "data", read_only=True) as store:
        assert count(store, "raw.recent_logs") == 3050


KILLED = f"""
import os, signal, sys
from datetime import date, datetime
from pathlib import Path
from store import open_store
from store.duckdb import archive, archive_file, early
archive_file.SLICE_LINES, archive_file.PART_LINES = 700, 2000
what, where, when, after = sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "after"
owner = next(one for one in (early, archive, archive_file.ArchiveFile) if hasattr(one, where))
real, calls = getattr(owner, where), []
{KILLING}
with open_store(Path(sys.argv[1])) as store:
    setattr(owner, where, killing)
    if what == "settle":
        store.close_settled(datetime(2026, 2, 27, 23), least=1, hot_days=2)
    elif what == "rename":
        with store.write() as writer:
            from store.tables import LOGS
            writer.name_hosts(LOGS, [(None, "gx03", "n03")])
    else:
        early.close_early(store, date(2026, 2, 28))
        archive.sweep(store)
"""

#: What is killed, in which function, at which call, before it or after it.
MOMENTS = [
    ("close", "_swap", 1, "after"),
    *(
        pytest.param(*at, marks=pytest.mark.long)
        for at in (
            ("settle", "register", 1, "after"),
            *(("settle", "_segment", when, "before") for when in (1, 3)),
            ("settle", "_settle", 1, "before"),
            ("settle", "_settle", 1, "after"),
            ("settle", "make_views", 1, "before"),
            ("settle", "make_views", 1, "after"),
            ("rename", "node_of", 1, "before"),
            ("rename", "make_views", 1, "after"),
            *(("close", "_settle", when, moment) for when in (1, 2) for moment in ("before", "after")),
            ("close", "_swap", 1, "before"),
            ("close", "register", 2, "before"),
            ("close", "make_views", 1, "after"),
            *(("close", "discard", when, moment) for when in (1, 2) for moment in ("before", "after")),
        )
    ),
]


@pytest.mark.parametrize(("what", "where", "when", "moment"), MOMENTS)
def test_killed_at_any_moment_nothing_is_lost_or_doubled(
    filled: DuckStore, tmp_path: Path, what: str, where: str, when: int, moment: str
) -> None:
    settle(filled)
    if what == "close":
        settle(filled, LATER)
    before, folder = (content(filled), answers(filled)), tmp_path / "data"
    filled.close()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), what, where, str(when), moment], cwd=ROOT, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    with open_store(folder) as store:
        assert (content(store), answers(store)) == before
        assert files(folder) == registered(store) and archive.damaged(store, thorough=True) == []
        settle(store, LATER)
        close(store)
        assert (content(store), answers(store)) == before and archive.damaged(store, thorough=True) == []
        assert {is_early for _, is_early in states(store)} == {False} and files(folder) == registered(store)


@pytest.mark.parametrize("failing", ["_swap", pytest.param("make_views", marks=pytest.mark.long)])
def test_a_failure_leaves_the_files_of_a_day_as_they_were(
    filled: DuckStore, tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(filled)
    settle(filled, LATER)
    before, named = content(filled), registered(filled)
    broken: Callable[..., object] = lambda *_, **__: 1 / 0  # noqa: E731
    monkeypatch.setattr(early if hasattr(early, failing) else archive, failing, broken)
    with pytest.raises(ZeroDivisionError):
        early.close_early(filled, date(2026, 2, 28))
    assert content(filled) == before and files(tmp_path / "data") == registered(filled) == named
