"""The archive: closed days are in files, and every question is answered as before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from parsers.record import frame
from queries import kql
from queries.kql.textindex import Pruner
from store import open_store
from store.door import FileEntry
from store.duckdb import archive, archive_file, segments
from store.duckdb.store import DuckStore

ROOT = Path(__file__).resolve().parents[3]
DAY = datetime(2026, 2, 27)
#: With two hot days, the 27th is closed and the 28th is not.
TODAY = date(2026, 3, 2)

QUESTIONS = [
    "Logs | count",
    "Logs | summarize n = count() by Host, Event | order by Host asc, Event asc",
    'Logs | where Message has "id77" | project Time, Host, Message, Line | order by Line asc',
    'Logs | where Message contains "planted phr" | project Line | order by Line asc',
    'syslog_raw_CL | where RawData has "gx03" | project RawData | order by RawData asc',
    'syslog_raw_CL | summarize n = count(), bytes = sum(strlen(RawData)) by Computer | order by Computer asc',
    "Syslog | where Computer == 'gx05' | project TimeGenerated, SyslogMessage, ProcessID | order by TimeGenerated asc, SyslogMessage asc, ProcessID asc",
    "Logs | where Time between (datetime(2026-02-27T05:00:00Z) .. datetime(2026-02-27T06:00:00Z)) | summarize count() by Unit | order by Unit asc",
]  # fmt: skip


def slice_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several slices, segments and files of a few thousand lines."""
    monkeypatch.setattr(archive_file, "SLICE_LINES", 700)
    monkeypatch.setattr(archive_file, "PART_LINES", 2000)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    slice_small(monkeypatch)


def lines(count: int, day: datetime = DAY, **columns: Any) -> pl.DataFrame:
    """Lines of 20 hosts over a day, as RFC 3164 and with a few oddities: no time, bytes that are not text, events."""
    rows = []
    for n in range(count):
        time = day + timedelta(seconds=n * 37 % 86400)
        host, message = f"gx{n % 20:02d}", f"session {n} of id{n % 997} ended"
        if n % 250 == 0:
            message += " with the planted phrase"
        rows.append({
            "time": time, "received_time": time + timedelta(seconds=1), "resolution_us": 1_000_000, "host": host, "unit": "sshd",
            "pid": n, "format": "rfc3164", "source": "syslog", "event": "gpu.xid" if n % 70 == 0 else "other", "message": message,
            "raw": f"<30>{time:%b} {time.day:2d} {time:%H:%M:%S} {host} sshd[{n}]: {message}", "file": "/var/log/syslog", "line": n + 1,
            "tags": ["storage"] if n % 9 == 0 else [], "entities": '{"xid": 79}' if n % 70 == 0 else None, **columns,
        })  # fmt: skip
        if n % 300 == 7:
            rows[-1].update(
                raw=rows[-1]["raw"] + "\ufffd", message=message + "\ufffd", raw_bytes=b"\xff\x00" + bytes([n % 256])
            )
        if n % 300 == 9:
            rows[-1].update(time=None, raw=f"line {n} without a time", message=f"line {n} without a time")
        if n % 300 == 11:
            rows[-1].update(message="not in the line")
    return frame("logs", rows)


def content(store: DuckStore) -> list[dict[str, Any]]:
    return store.rows("SELECT * EXCLUDE (block) FROM raw.log_view ORDER BY file, line, time")


def answers(store: DuckStore) -> list[Any]:
    return [kql.run(store.cursor(), question).rows for question in QUESTIONS]


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in (folder / "archive").rglob("*") if p.is_file())


def registered(store: DuckStore) -> list[str]:
    return sorted(f"archive/{r['file']}" for r in store.rows("SELECT file FROM raw.archive"))


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two days with some loose lines; each test has a copy."""
    folder = tmp_path_factory.mktemp("sealed")
    with open_store(folder) as store:
        days = [lines(3000), lines(500, DAY + timedelta(days=1)).with_columns(line=pl.col("line") + 3000)]
        store.add({"logs": pl.concat(days)})
        segments.seal(store, least=1)
        store.add({"logs": lines(50).with_columns(line=pl.col("line") + 9000)})
    return folder


@contextmanager
def copied(store_folder: Path, folder: Path) -> Iterator[DuckStore]:
    shutil.copytree(store_folder, folder, dirs_exist_ok=True)
    with open_store(folder) as store:
        yield store


@pytest.fixture
def filled(sealed: Path, tmp_path: Path) -> Iterator[DuckStore]:
    with copied(sealed, tmp_path) as store:
        yield store


@pytest.fixture(scope="module")
def archived(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store after the 27th was closed; each test has a copy."""
    folder = tmp_path_factory.mktemp("archived")
    with pytest.MonkeyPatch.context() as patched, copied(sealed, folder) as store:
        slice_small(patched)
        archive.close_days(store, TODAY, least=1)
    return folder


@pytest.fixture
def closed(archived: Path, tmp_path: Path) -> Iterator[DuckStore]:
    with copied(archived, tmp_path) as store:
        yield store


@pytest.fixture(scope="module")
def before(sealed: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """The lines and the answers of the store before the day was closed."""
    with open_store(sealed, read_only=True) as store:
        return content(store), answers(store)


def test_a_closed_day_moves_and_every_answer_stays(
    filled: DuckStore, tmp_path: Path, before: tuple[list[dict[str, Any]], list[Any]]
) -> None:
    closed = archive.close_days(filled, TODAY, least=1)
    assert (closed.days, closed.lines, closed.files) == (1, 3050, 2)
    assert filled.rows("SELECT count(*) AS n FROM raw.logs") == [{"n": 500}]
    assert (content(filled), answers(filled)) == before
    assert files(tmp_path) == registered(filled) and archive.damaged(filled, thorough=True) == []
    info = filled.info()
    assert (info["lines"], info["first"], info["archived"]) == (3550, DAY, closed.bytes)
    assert archive.close_days(filled, TODAY, least=1) == archive.Closed()


#: Conditions on the time, and hours of the 27th that they leave.
PERIODS = [
    ("Time between (datetime(2026-02-27T05:00:00Z) .. 1h)", 5, 6),
    *(
        pytest.param(*period, marks=pytest.mark.long)
        for period in (
            ("Time < from or Time > datetime(2026-02-27T20:00:00Z)", 0, 24),
            ("Time > datetime(2026-02-27T05:00:00Z) and datetime(2026-02-27T06:00:00Z) >= Time", 5, 6),
            ("Time < from", 0, 3),
            ("Time between (ago(7d) .. now() - 9h)", 0, 15),
            ("Time !between (datetime(2026-02-27T05:00:00Z) .. 1h)", 0, 24),
            ("Time > datetime(2027-01-01)", 9999, 9999),
            ("Time == datetime(2026-02-27T05:00:00Z) + 1h", 6, 6),
            ("Time < datetime(null)", 0, 24),
        )
    ),
]


@pytest.mark.parametrize(("condition", "low", "high"), PERIODS)
def test_filters_outside_the_wanted_time_are_not_read(
    filled: DuckStore, condition: str, low: int, high: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f'let from = datetime(2026-02-27T03:00:00Z); Logs | where Message has "session" | where {condition} | where Message has "planted" | project Line'
    before = kql.run(filled.cursor(), query, now=DAY + timedelta(days=1)).rows
    archive.close_days(filled, TODAY, least=1)
    asked: list[Any] = []
    filters = Pruner._filters
    monkeypatch.setattr(Pruner, "_filters", lambda self, found: (asked.extend(found), filters(self, found))[1])
    assert sorted(kql.run(filled.cursor(), query, now=DAY + timedelta(days=1)).rows) == sorted(before)
    archived = filled.rows(
        "SELECT segment::VARCHAR AS s, first_time, last_time FROM raw.log_segments WHERE first_block < 0 AND first_time IS NOT NULL"
    )
    hours = DAY + timedelta(hours=low), DAY + timedelta(hours=high)
    wanted = {row["s"] for row in archived if row["first_time"] <= hours[1] and row["last_time"] >= hours[0]}
    assert {segment for segment, first, _, _, time, *_ in asked if first < 0 and time is not None} == wanted
    assert (len(wanted) == len(archived)) == (high == 24)


def test_reopened_it_is_all_there(
    closed: DuckStore, tmp_path: Path, before: tuple[list[dict[str, Any]], list[Any]]
) -> None:
    assert content(closed) == before[0]
    closed.close()
    with open_store(tmp_path, read_only=True) as store:
        assert (content(store), answers(store)) == before


def test_a_copy_of_the_folder_reads_its_own_files(
    closed: DuckStore, tmp_path: Path, before: tuple[list[dict[str, Any]], list[Any]]
) -> None:
    closed.close()
    shutil.copytree(tmp_path, tmp_path / "it's a copy")
    shutil.rmtree(tmp_path / "archive")
    with open_store(tmp_path / "it's a copy", read_only=True) as store:
        assert content(store) == before[0]


def test_text_filters_find_archived_lines_and_skip_the_rest(filled: DuckStore) -> None:
    store = filled
    store.add({"logs": lines(1).with_columns(message=pl.lit("x zebra y"), raw=pl.lit("x zebra y"), line=pl.lit(77777))})
    archive.close_days(store, TODAY, least=1)
    result = kql.run(store.cursor(), 'Logs | where Message has "zebra" | project Line')
    assert result.rows == [[77777]]
    (pruned,) = result.pruned
    assert pruned.used and 1 <= pruned.blocks_left < pruned.blocks / 4
    spans = store.rows(
        "SELECT first_block, last_block, lines FROM raw.log_segments WHERE first_block < 0 ORDER BY first_block DESC"
    )
    assert sum(s["lines"] for s in spans) == 3051
    ends = [0, *(s["first_block"] for s in spans)]
    assert [s["last_block"] for s in spans] == [e - 1 for e in ends[:-1]]  # numbers are used once each
    counted = store.rows("SELECT block, count(*) AS n FROM raw.log_view WHERE block < 0 GROUP BY ALL")
    assert {r["block"] for r in counted} == set(range(ends[-1], 0))


def test_events_have_row_groups_of_their_own(closed: DuckStore) -> None:
    mixed = closed.rows("""SELECT block FROM raw.log_view WHERE block < 0 GROUP BY block
        HAVING count(DISTINCT event = 'other') > 1""")
    assert mixed == []
    assert closed.rows("SELECT count(*) AS n FROM raw.log_view WHERE block < 0 AND event <> 'other'")[0]["n"] == 44


def test_lines_left_alone_leave_their_segments(closed: DuckStore) -> None:
    """A midnight's segment: nearly all of its lines are archived, the rest moves to a new segment."""
    (loose,) = closed.rows("SELECT count(*) AS n FROM raw.logs WHERE block = 0")
    assert loose["n"] == 500 and closed.rows("SELECT * FROM raw.log_segments WHERE first_block > 0") == []
    segments.seal(closed, least=1)
    assert closed.rows("SELECT first_block, lines FROM raw.log_segments WHERE first_block > 0") == [
        {"first_block": 1, "lines": 500}
    ]


def test_late_lines_wait_until_a_file_is_worth_it(closed: DuckStore) -> None:
    closed.add({"logs": lines(90).with_columns(line=pl.col("line") + 20000)})
    before = content(closed)
    assert archive.close_days(closed, TODAY, least=100) == archive.Closed()
    closed.add({"logs": lines(10).with_columns(line=pl.col("line") + 30000)})
    assert archive.close_days(closed, TODAY, least=100).lines == 100
    assert len(content(closed)) == len(before) + 10


def test_the_unfinished_last_line_of_a_file_stays_and_is_replaced(tmp_path: Path) -> None:
    entry = FileEntry("/var/log/syslog", "mini", None, "lines", "syslog", "by name", 10, "ab", 99, 1, 0, (), tail="cd")
    with open_store(tmp_path) as store:
        store.add({"logs": lines(100, cluster="mini")}, [entry])
        assert archive.close_days(store, TODAY, least=1).lines == 99
        assert store.rows("SELECT line FROM raw.logs") == [{"line": 100}]
        changed = FileEntry(
            "/var/log/syslog", "mini", None, "lines", "syslog", "by name", 20, "ef", 100, 1, 0, (), None, True, 100
        )
        store.add({"logs": lines(100, cluster="mini").tail(1)}, [changed])
        assert [r["line"] for r in content(store)] == list(range(1, 101))
        assert archive.close_days(store, TODAY, least=1).lines == 1


@pytest.mark.long
def test_the_unfinished_line_stays_though_a_checkpoint_numbers_rows_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are named by number. A checkpoint of another thread numbers them anew where many before them are gone: it
    comes before the transaction that names them, or after it."""
    entry = FileEntry("/var/log/syslog", "mini", None, "lines", "syslog", "by name", 10, "ab", 99, 1, 0, (), tail="cd")
    named, calls = archive._settled, iter(range(9))
    with open_store(tmp_path) as store, ThreadPoolExecutor(1) as another:
        store.add({"logs": lines(100, cluster="gone")})
        with store.transaction() as connection:  # more than a row group: a checkpoint drops whole groups
            connection.execute("INSERT INTO raw.logs BY NAME SELECT l.* FROM raw.logs l, range(3000)")
        store.add({"logs": lines(100, cluster="mini")}, [entry])
        store.checkpoint()
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.logs WHERE cluster = 'gone'")
        store.add({"logs": lines(10, cluster="more")})

        def numbered_anew(*args: Any) -> str:
            found = named(*args)
            if next(calls) == len(archive.CLOCKS):  # the file begins
                wait([another.submit(store.checkpoint)], 1.0)  # it waits for us, or is done at once
            return found

        monkeypatch.setattr(archive, "_settled", numbered_anew)
        archive.close_days(store, TODAY, least=1)
        assert store.rows("SELECT line FROM raw.logs") == [{"line": 100}]


def test_lines_that_change_while_they_are_written_are_written_anew(
    filled: DuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, changes = archive_file.ArchiveFile.write, iter(["a", "b"])

    def changing(self: archive_file.ArchiveFile, *args: Any) -> archive_file.Written:
        done = write(self, *args)
        if name := next(changes, None):
            with filled.transaction() as connection:
                connection.execute("UPDATE raw.logs SET cluster = ? WHERE line = 5", [name])
        return done

    monkeypatch.setattr(archive_file.ArchiveFile, "write", changing)
    archive.close_days(filled, TODAY, least=1)
    assert filled.rows("SELECT cluster, count(*) AS n FROM raw.log_view WHERE line = 5 GROUP BY ALL") == [
        {"cluster": "b", "n": 1}
    ]
    assert filled.rows("SELECT count(*) AS n FROM raw.log_view")[0]["n"] == 3550
    assert archive.damaged(filled) == []  # nothing is left of the attempts


def test_a_failure_leaves_the_day_where_it_was(
    filled: DuckStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(filled)
    monkeypatch.setattr(archive, "make_views", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        archive.close_days(filled, TODAY, least=1)
    assert content(filled) == before and files(tmp_path) == [] and registered(filled) == []


KILLED = """
import os, signal, sys
from datetime import date
from pathlib import Path
from store import open_store
from store.duckdb import archive, archive_file
archive_file.SLICE_LINES, archive_file.PART_LINES = 700, 2000
where, when = sys.argv[2], int(sys.argv[3])
module = archive if hasattr(archive, where) else archive_file.ArchiveFile
real, calls = getattr(module, where), []
def killing(*args, **more):
    calls.append(1)
    if len(calls) == when:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
with open_store(Path(sys.argv[1])) as store:
    setattr(module, where, killing)
    archive.close_days(store, date(2026, 3, 2), least=1)
"""


@pytest.mark.parametrize(
    ("where", "when"),
    [
        ("_settle", 1),
        *(
            pytest.param(*at, marks=pytest.mark.long)
            for at in (
                *(("_segment", when) for when in (1, 3, 6)),
                ("register", 1),
                *(("make_views", when) for when in (1, 2)),
            )
        ),
    ],
)
def test_killed_at_any_moment_nothing_is_lost_or_doubled(
    filled: DuckStore, tmp_path: Path, where: str, when: int
) -> None:
    before = content(filled)
    filled.close()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), where, str(when)], cwd=ROOT, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    with open_store(tmp_path) as store:
        assert content(store) == before
        assert files(tmp_path) == registered(store)
        archive.close_days(store, TODAY, least=1)
        assert content(store) == before and archive.damaged(store, thorough=True) == []
        assert store.rows("SELECT count(*) AS n FROM raw.logs") == [{"n": 500}]


def test_the_cluster_that_is_learned_later_is_that_of_archived_lines(closed: DuckStore) -> None:
    with closed.transaction() as connection:
        archive.name_cluster(closed, connection, "o'hara")
    found = closed.rows("SELECT cluster, count(*) AS n FROM raw.log_view GROUP BY ALL ORDER BY n")
    assert found == [{"cluster": None, "n": 500}, {"cluster": "o'hara", "n": 3050}]


def test_queries_read_the_archive_and_no_other_file(closed: DuckStore, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    assert kql.run(closed.cursor(), "Logs | count").rows == [[3550]]  # which closes the database to files
    (path,) = closed.rows("SELECT min(file) AS file FROM raw.archive")
    known = tmp_path / "archive" / path["file"]
    for text in (
        "/etc/passwd",
        f"{tmp_path}/secret.csv",
        f"{known.parent}/../../secret.csv",
    ):
        with pytest.raises(duckdb.PermissionException):
            closed.cursor().execute("SELECT * FROM read_csv(?)", [text])
    archive.close_days(closed, TODAY + timedelta(days=1), least=1)  # writing continues
    assert closed.rows("SELECT count(*) AS n FROM raw.logs") == [{"n": 0}]


def test_a_lost_file_is_named_and_the_rest_is_read(closed: DuckStore, tmp_path: Path) -> None:
    rows = closed.rows("SELECT file, lines FROM raw.archive ORDER BY lines")
    closed.close()
    (tmp_path / "archive" / rows[0]["file"]).unlink()
    (tmp_path / "archive/2026-02-27/strange.parquet").write_bytes(b"")
    with (tmp_path / "archive" / rows[1]["file"]).open("r+b") as stream:
        stream.seek(2000)
        stream.write(b"????")
    with open_store(tmp_path) as store:
        wrong = archive.damaged(store, thorough=True)
        assert len(wrong) == 3
        assert rows[0]["file"] in wrong[0] + wrong[1] and "missing" in wrong[0] + wrong[1] and "strange" in wrong[2]
        assert store.rows("SELECT count(*) AS n FROM raw.log_view")[0]["n"] == 3550 - rows[0]["lines"]
    assert (tmp_path / "archive/2026-02-27/strange.parquet").exists()  # a foreign file is not touched


def test_retention_drops_whole_days_everywhere(filled: DuckStore, tmp_path: Path) -> None:
    runs = [{"cluster": "mini", "job_id": job, "state": "FAILED", "start": end, "end": end, "source": "sacct"}
            for job, end in ((1, DAY), (2, DAY + timedelta(days=1, hours=1)), (3, DAY + timedelta(days=9)), (4, None))]  # fmt: skip
    states = [
        {"time": DAY + timedelta(hours=h), "cluster": "mini", "host": "gx01", "state": s, "source": "sinfo"}
        for h, s in ((1, "down"), (2, "idle"))
    ]
    samples = [{"time": DAY + timedelta(hours=h), "host": "gx01", "metric": "up", "value": 1.0} for h in (1, 30, 60)]
    filled.add({"jobs": frame("jobs", runs), "node_states": frame("node_states", states), "metrics": frame("metrics", samples),
                "settings": frame("settings", [{"cluster": "mini", "scope": f"job:{n}", "name": "A", "value": "b"} for n in (1, 3)]),
                "steps": frame("steps", [{"cluster": "mini", "job_id": n, "step_id": "0"} for n in (1, 3)])})  # fmt: skip
    archive.close_days(filled, TODAY, least=1)
    dropped = archive.drop_before(filled, date(2026, 2, 28))
    assert (dropped.files, dropped.lines) == (2, 3050)
    assert filled.rows("SELECT count(*) AS n FROM raw.log_view") == [{"n": 500}]
    assert filled.rows("SELECT * FROM raw.log_segments WHERE first_block < 0") == []
    assert filled.rows("SELECT job_id FROM raw.jobs ORDER BY job_id") == [{"job_id": 3}, {"job_id": 4}]
    assert filled.rows("SELECT state FROM raw.node_states") == [{"state": "idle"}]
    assert len(filled.rows("SELECT * FROM raw.metrics")) == 2
    assert filled.rows("SELECT scope FROM raw.settings") == [{"scope": "job:3"}] and filled.rows(
        "SELECT job_id FROM raw.steps"
    ) == [{"job_id": 3}]
    assert kql.run(filled.cursor(), "Logs | count").rows == [[500]]
    assert len(files(tmp_path)) == 2  # readers may still have them open
    archive.close_days(filled, date(2026, 2, 27), least=1)
    assert files(tmp_path) == [] and registered(filled) == []
    assert archive.drop_before(filled, date(2026, 3, 9)).lines == 500


def test_a_day_is_divided_into_slices_that_fit() -> None:
    start = int((DAY - datetime(1970, 1, 1)).total_seconds())
    seconds = [(start + 1, 300), (start + 2, 300), (start + 3, 300), (start + 50, 2000), (start + 60, 10)]
    found = archive_file.slices(seconds, DAY.date(), "time")
    assert [(s.lines, s.share, s.of) for s in found] == [
        (600, 0, 1),
        (300, 0, 1),
        *((666, n, 3) for n in range(3)),
        (10, 0, 1),
    ]
    assert found[0].start == DAY and found[-1].end == DAY + timedelta(days=1)
    assert all(a.end == b.start or a.start == b.start for a, b in pairwise(found))
    made = archive_file.parts(found, archive_file.PART_LINES)
    # A second is not split: what follows it begins the next file.
    assert [[s.lines for s in part] for part in made] == [[600, 300, 666, 666, 666], [10]]
