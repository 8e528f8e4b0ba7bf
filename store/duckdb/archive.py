"""The archive: days past the hot window move from ``raw.logs`` into Parquet files and stay visible to every query.

``close_days`` writes the lines of a closed day into files below ``archive/YYYY-MM-DD/``
(``store.duckdb.archive_file``). Then one transaction deletes them from ``raw.logs``, registers the files in
``raw.archive`` and recreates the views, which read both tiers: a reader sees a line in exactly one of them. A file is
registered in ``raw.archive`` before its first byte is written, so that anything a crash leaves behind is known and
removed at the next start; unregistered files are never touched.

What cannot be archived yet stays in DuckDB: lines without a time that did not arrive over a network, lines of a day
with fewer than ``LEAST_LINES`` (also those that arrived late for an archived day), and the unfinished last line of a
file that is still growing.

Lines that nothing is expected to change move earlier (``store.duckdb.early``), into files of the same form.

``drop_before`` is retention: whole days are deleted, with their files and text filters.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import structlog

from parsers.record import TABLES
from store.changes import Change
from store.door import Closed, Dropped
from store.duckdb import archive_file, archived_hosts, parsed, segments
from store.duckdb.archive_file import CLOCKS, ArchiveFile, Slice, Written, condition, digest_of, parts, slices
from store.duckdb.line_heads import head_of
from store.duckdb.logs_view import show_claims
from store.duckdb.open_store import OpenStore
from store.duckdb.quoting import quoted
from store.duckdb.schema import log_views
from store.errors import LinesChanged
from store.tables import LOGS

log = structlog.get_logger()

FOLDER = "archive"
#: A day with fewer lines stays in DuckDB: a file for them would cost more to read than it saves.
LEAST_LINES = 20_000
#: Most lines of a file of a day that is not closed: to delete them from DuckDB, writers wait for a second.
EARLY_LINES = 1_000_000
#: Attempts to write a part whose lines change meanwhile; the last attempt excludes other writers.
TRIES = 3

#: The text before the message, in files with lines.
HEAD = head_of()
#: Lines without a time stay until their day closes: they may get one.
EARLY_CLOCKS = ("time",)
#: A closed segment is dissolved once less than one in this many of its lines is left.
LONELY = 4
#: States of a file: being written, holding lines, or with its lines dropped while readers may still have it open.
WRITING, KEPT, DROPPED = "writing", "kept", "dropped"

#: Changes whenever a line does. A line's text never changes.
_FINGERPRINT = """SELECT count(*), coalesce(sum(hash(time, time_quality, sender_time, received_time, resolution_us, cluster, host,
  source, format, unit, pid, facility, severity, event, job_id, file, line)::HUGEINT), 0)"""


# -- closing days ----------------------------------------------------------------------------------------------------


def close_days(store: OpenStore, today: date, *, hot_days: int = 2, least: int = LEAST_LINES) -> Closed:
    """Archives every day that lies more than ``hot_days`` days before ``today`` (UTC). Cheap when there is nothing to do.

    Others may read and write meanwhile; the last step of each file excludes writers for about a second per million
    lines. Raises ``OSError`` and ``duckdb.Error``; what was closed before stays closed, and the next call continues
    after it.
    """
    done = Closed()
    if store.folder is None:
        return done
    with store.upkeep:
        sweep(store)
        until = today - timedelta(days=hot_days)
        for day in days(store, until, least):
            for written in close_day(store, day):
                done = done.and_then(Closed(0, 1, written.lines, written.bytes))
            done = done.and_then(Closed(days=1))
    return done


def days(store: OpenStore, until: date, least: int, settled: str | None = None) -> list[date]:
    """Days before ``until`` with at least ``least`` lines; with ``settled`` (SQL of ours), of those lines."""
    lines: dict[date, int] = {}
    for clock in CLOCKS if settled is None else EARLY_CLOCKS:
        found = store.rows(
            f"SELECT CAST({clock} AS DATE) AS day, count(*) AS n FROM raw.logs WHERE {condition(clock)} AND {settled or 'true'} GROUP BY ALL",
            [date(1970, 1, 1), until],
        )
        for row in found:
            lines[row["day"]] = lines.get(row["day"], 0) + row["n"]
    return sorted(day for day, count in lines.items() if count >= least)


def close_day(
    store: OpenStore, day: date, settled: str | None = None, is_wanted: Callable[[], bool] = lambda: True
) -> Iterator[Written]:
    """Moves one day, or those lines of it that are ``settled`` (SQL of ours) before it closes; lines that arrive meanwhile
    wait for the next call. ``is_wanted``: as of ``ArchiveFile``."""
    is_early, which = settled is not None, settled or "true"
    clocks, most = (EARLY_CLOCKS, EARLY_LINES) if is_early else (CLOCKS, archive_file.PART_LINES)
    found = [piece for clock in clocks for piece in slices(_seconds(store, day, clock, which), day, clock)]
    for part in parts(found, most):
        for attempt in range(1, TRIES + 1):
            # What does not have to move now is not worth that others wait until a file is written.
            exclusive = attempt == TRIES and not is_early
            try:
                with store.alone() if exclusive else nullcontext():
                    yield _move(store, day, part, which, is_early, is_wanted)
                break
            except LinesChanged:
                if attempt == TRIES:
                    raise


def _seconds(store: OpenStore, day: date, clock: str, which: str) -> list[tuple[int, int]]:
    found = store.rows(
        f"""SELECT CAST(epoch(date_trunc('second', {clock})) AS BIGINT) AS second, count(*) AS n {_settled(store.cursor(), which)}
        AND {condition(clock)} GROUP BY ALL ORDER BY ALL""",
        [day, day + timedelta(days=1)],
    )
    return [(row["second"], row["n"]) for row in found]


def _settled(cursor: duckdb.DuckDBPyConnection, which: str) -> str:
    """The current lines ``which``, as FROM and WHERE, without the unfinished last line of a file, which is replaced once
    the file is longer. It names them by number: a checkpoint after the caller's transaction may number them anew."""
    ((last, open_files),) = cursor.execute("""SELECT (SELECT coalesce(max(rowid), -1) FROM raw.logs),
        (SELECT count(*) FROM raw.files WHERE tail IS NOT NULL)""").fetchall()
    found = f"FROM raw.logs WHERE rowid <= {int(last)} AND {which}"
    # Looked up once and only if there are any: a join in every following query takes 130 MB even if it finds nothing.
    unfinished = cursor.execute("""SELECT l.rowid FROM raw.logs l JOIN raw.files f ON f.path = l.file AND l.line > f.lines
        AND f.cluster IS NOT DISTINCT FROM l.cluster WHERE f.tail IS NOT NULL""").fetchall() if open_files else []  # fmt: skip
    return found + (f" AND rowid NOT IN ({', '.join(str(int(row)) for (row,) in unfinished)})" if unfinished else "")


def _move(
    store: OpenStore, day: date, found: Sequence[Slice], which: str, is_early: bool, is_wanted: Callable[[], bool]
) -> Written:
    """Writes one file and deletes its lines from DuckDB."""
    spans = {
        clock: [min(s.start for s in found if s.clock == clock), max(s.end for s in found if s.clock == clock)]
        for clock in dict.fromkeys(piece.clock for piece in found)
    }
    name = f"{day.isoformat()}/{uuid.uuid4().hex}.parquet"
    with store.transaction() as connection:
        lines = _settled(connection, which)
        before = _fingerprint(connection, lines, spans)
        begin_file(connection, name, day, is_early=is_early)
        lowest = lowest_block(connection)
    file = ArchiveFile(folder_of(store) / name, lowest, is_wanted)
    try:
        written = file.write(store.cursor(), found, lines)
        with store.transaction() as connection:
            if _fingerprint(connection, lines, spans) != before or before[0] != written.lines:
                raise LinesChanged(
                    f"{store.folder}: lines of {day} changed while they were archived; they stay where they are"
                )
            for clock, span in spans.items():
                connection.execute(f"DELETE {lines} AND {condition(clock)}", span)
            store.note(LOGS.name, Change(moved=written.lines))
            register(connection, name, written)
            store.note(LOGS.name, Change(moved=_gather_rests(connection)))
            make_views(store, connection)
    except BaseException:
        file.discard()
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.archive WHERE file = ?", [name])
        raise
    return written


def _fingerprint(
    connection: duckdb.DuckDBPyConnection, lines: str, spans: Mapping[str, list[datetime]]
) -> tuple[int, int]:
    """Number of lines, and a value that changes when one of them does."""
    count = mixed = 0
    for clock, span in spans.items():
        ((more, hashes),) = connection.execute(f"{_FINGERPRINT} {lines} AND {condition(clock)}", span).fetchall()
        count, mixed = count + int(more), mixed + int(hashes)
    return count, mixed


def begin_file(connection: duckdb.DuckDBPyConnection, name: str, day: date, *, is_early: bool) -> None:
    """Registers a file before its first byte is written."""
    connection.execute(
        "INSERT INTO raw.archive (file, state, day, since, early) VALUES (?, ?, ?, now()::TIMESTAMP, ?)",
        [name, WRITING, day, is_early],
    )


def lowest_block(connection: duckdb.DuckDBPyConnection) -> int:
    """Blocks of a new file are numbered downwards from here."""
    ((lowest,),) = connection.execute("SELECT least(min(first_block), 0) FROM raw.log_segments").fetchall()
    return int(lowest)


def register(connection: duckdb.DuckDBPyConnection, name: str, written: Written) -> None:
    connection.execute(
        """UPDATE raw.archive SET state = ?, lines = ?, bytes = ?, digest = ?, first_time = ?, last_time = ?, last_received = ?,
        first_block = ?, last_block = ?, clusters = ? WHERE file = ?""",
        [KEPT, written.lines, written.bytes, written.digest, written.first_time, written.last_time, written.last_received,
         min(s.first for s in written.segments), max(s.last for s in written.segments), list(written.clusters), name],
    )  # fmt: skip
    complete = segments.learn(connection, written.words)
    for one in written.segments:
        connection.execute(
            "INSERT INTO raw.log_segments VALUES (uuid(), ?, ?, ?, ?, ?, ?, ?, ?, ?, true)",
            [one.first, one.last, one.lines, one.first_time, one.last_time, one.filter_rows, one.filter, one.always, complete],
        )  # fmt: skip


def _gather_rests(connection: duckdb.DuckDBPyConnection) -> int:
    """Dissolves segments with few lines left, with their filter: the lines wait with the fresh ones for another
    segment. Returns how many there are."""
    moved = 0
    segments.forget_empty(connection)
    # Block by block: a comparison of ranges would load all lines of the table into memory.
    connection.execute(f"""CREATE OR REPLACE TEMP TABLE rests AS SELECT unnest(range(first_block, last_block + 1))::INTEGER AS block
        FROM raw.log_segments s WHERE first_block > 0 AND lines > {LONELY} * (SELECT coalesce(sum(n), 0)
            FROM (SELECT block, count(*) AS n FROM raw.logs GROUP BY block) WHERE block BETWEEN s.first_block AND s.last_block)""")
    if connection.execute("SELECT 1 FROM rests LIMIT 1").fetchall():
        connection.execute("""CREATE OR REPLACE TEMP TABLE loose AS SELECT * REPLACE (0 AS block) FROM raw.logs
            WHERE block IN (SELECT block FROM rests)""")
        connection.execute("DELETE FROM raw.logs WHERE block IN (SELECT block FROM rests)")
        (moved,) = connection.execute("INSERT INTO raw.logs BY NAME SELECT * FROM loose").fetchone() or (0,)
        connection.execute("DELETE FROM raw.log_segments WHERE first_block IN (SELECT block FROM rests)")
        connection.execute("DROP TABLE loose")
    connection.execute("DROP TABLE rests")
    return int(moved)


# -- retention -------------------------------------------------------------------------------------------------------

#: A run and its records are deleted once its end is before ``$ended``. A verdict also rests on lines of the day before
#: the end, so runs are deleted a day before those lines.
_RUNS = """SELECT cluster, job_id FROM raw.jobs GROUP BY ALL
    HAVING max("end") IS NOT NULL AND max(greatest("end", observed_at, start, submit)) < $ended"""
_SCOPE_JOB = "TRY_CAST(regexp_extract(t.scope, '^job:([0-9]+)', 1) AS BIGINT)"
_OF_THEM = "EXISTS (SELECT 1 FROM gone g WHERE g.job_id = t.job_id AND g.cluster IS NOT DISTINCT FROM t.cluster)"
#: Table -> the condition for old rows, with ``t`` for the table. A late line is as young as its arrival; one without
#: any time is deleted with the run that printed it. The newest state of a node stays: it may still apply.
_OLD = {
    "logs": f"greatest(time, received_time) < $day OR (time IS NULL AND {_OF_THEM})",
    "metrics": "time < $day",
    "node_states": """time < $day AND EXISTS (SELECT 1 FROM raw.node_states n WHERE n.host = t.host
        AND n.cluster IS NOT DISTINCT FROM t.cluster AND n.time > t.time)""",
    "steps": _OF_THEM,
    "artifacts": _OF_THEM,
    "environments": _OF_THEM,
    "settings": f"starts_with(scope, 'job:') AND {_OF_THEM.replace('t.job_id', _SCOPE_JOB)}",
    "jobs": _OF_THEM,
}


def drop_before(store: OpenStore, day: date) -> Dropped:
    """Drops everything older than ``day`` (UTC), in DuckDB and in the archive: all of it or nothing.

    The next call or the next start removes the files from disk, since readers may have them open.
    """
    with store.upkeep:
        if store.folder is not None:
            sweep(store)
        with store.transaction() as connection:
            values = {"day": day, "ended": day + timedelta(days=1)}
            connection.execute(f"CREATE OR REPLACE TEMP TABLE gone AS {_RUNS}", {"ended": values["ended"]})
            lines = 0
            for table, old in _OLD.items():
                ((count,),) = connection.execute(
                    f"DELETE FROM raw.{table} AS t WHERE {old}", {"day": day} if "$day" in old else {}
                ).fetchall()
                store.note(table, Change(removed=int(count)))
                lines += count if table == "logs" else 0
            connection.execute("DROP TABLE gone")
            files = connection.execute(
                """UPDATE raw.archive SET state = $dropped WHERE state = $kept AND greatest(last_time, last_received) < $day
                RETURNING lines, first_block, last_block""",
                {"dropped": DROPPED, "kept": KEPT, "day": day},
            ).fetchall()
            for _, first, last in files:
                connection.execute("DELETE FROM raw.log_segments WHERE first_block BETWEEN ? AND ?", [first, last])
            store.note(LOGS.name, Change(removed=sum(int(count) for count, _, _ in files)))
            segments.forget_empty(connection)
            if files:
                make_views(store, connection)
    return Dropped(len(files), lines + sum(count for count, _, _ in files))


# -- the files -------------------------------------------------------------------------------------------------------


def folder_of(store: OpenStore) -> Path:
    """The archive folder of a store. Views use absolute file paths."""
    assert store.folder is not None
    return (store.folder / FOLDER).resolve()


def make_views(store: OpenStore, connection: duckdb.DuckDBPyConnection) -> None:
    """Recreates the views over log lines, inside the caller's transaction. A registered file that is missing is omitted
    (``missing`` names it): one lost file must not make everything else unreadable."""
    every: dict[tuple[str | None, str | None], list[str]] = {}
    recent: dict[tuple[str | None, str | None], list[str]] = {}
    if store.folder is not None:
        folder = folder_of(store)
        rows = connection.execute(
            """SELECT file, coalesce(early, false), CASE WHEN list_count(clusters) < len(clusters) THEN cluster END, hosts
            FROM raw.archive WHERE state = ? ORDER BY day, first_time, file""",
            [KEPT],
        ).fetchall()
        for name, is_early, cluster, hosts in rows:
            if not (folder / name).is_file():
                log.error(
                    "a file of the archive is missing: its lines are not found", folder=str(folder), file=str(name)
                )
                continue
            for groups in (every, recent) if is_early else (every,):  # the fewer tiers, the shorter the planning
                groups.setdefault((cluster, hosts), []).append(str(folder / name))
    tiers = ([tier(paths, *group) for group, paths in groups.items()] for groups in (every, recent))
    parsed.run(connection, log_views(*tiers))
    show_claims(connection)


def tier(paths: Sequence[str], cluster: str | None, hosts: str | None, more: Mapping[str, str] | None = None) -> str:
    """SELECT of the lines in files; ``cluster`` is the name for those that had none when they were archived, ``hosts`` the
    column of ``raw.archive``. ``more``: the columns beside ``block``, with their SQL over those of the file."""
    made = {"raw": f"CASE WHEN form = '' THEN raw ELSE concat({HEAD}, message) END", **(more or {})}
    if cluster is not None:
        made["cluster"] = f"coalesce(cluster, {quoted(cluster)})"
    if hosts is not None:
        made["host"] = archived_hosts.node_of(hosts, cluster)
    names = dict.fromkeys((*TABLES["logs"], *(more or {}), "block"))
    columns = ", ".join(f'{made[c]} AS "{c}"' if c in made else f'"{c}"' for c in names)
    return f"SELECT {columns} FROM read_parquet([{', '.join(map(quoted, paths))}])"


def held(store: OpenStore) -> dict[str, Any]:
    """Figures of the archive: lines, first and last time, bytes."""
    if not _known(store):
        return {"lines": 0, "first": None, "last": None, "bytes": 0}
    return store.rows(
        """SELECT CAST(coalesce(sum(lines), 0) AS BIGINT) AS lines, min(first_time) AS first, max(last_time) AS last,
        CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes FROM raw.archive WHERE state = ?""",
        [KEPT],
    )[0]


def _known(store: OpenStore) -> bool:
    """False for a store last written by a version without an archive."""
    return bool(store.rows("SELECT 1 FROM duckdb_tables() WHERE schema_name = 'raw' AND table_name = 'archive'"))


def moved(store: OpenStore) -> bool:
    """Whether the views refer to an archive at another location."""
    if store.folder is None:
        return False
    views = store.rows("SELECT sql FROM duckdb_views() WHERE schema_name = 'raw' AND view_name = 'log_view'")
    return any("read_parquet(" in v["sql"] and quoted(f"{folder_of(store)}/")[:-1] not in v["sql"] for v in views)


def name_cluster(store: OpenStore, connection: duckdb.DuckDBPyConnection, cluster: str) -> None:
    """Assigns archived lines without a cluster to this one; inside the caller's transaction."""
    unnamed = connection.execute(
        "SELECT 1 FROM raw.archive WHERE state = ? AND list_count(clusters) < len(clusters) AND cluster IS NULL LIMIT 1",
        [KEPT],
    ).fetchall()
    if unnamed:
        connection.execute("UPDATE raw.archive SET cluster = ? WHERE state = ? AND cluster IS NULL", [cluster, KEPT])
        archived_hosts.name_cluster(connection, cluster)
        make_views(store, connection)


def sweep(store: OpenStore, *, dropped: bool = True) -> None:
    """Removes files that were not completely written, and (``dropped``) files whose lines were dropped."""
    states = [WRITING, DROPPED] if dropped else [WRITING]
    rows = store.rows("SELECT file FROM raw.archive WHERE state IN (SELECT unnest(?))", [states])
    for row in rows:
        ArchiveFile(folder_of(store) / row["file"], 0).discard()
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.archive WHERE file = ?", [row["file"]])


def damaged(store: OpenStore, *, thorough: bool = False) -> list[str]:
    """Problems of the archive's files: missing, of another size, or (``thorough``: reads them all) with other content;
    and files unknown to the store."""
    if store.folder is None or not _known(store):
        return []
    folder = folder_of(store)
    wrong = []
    rows = store.rows("SELECT file, state, bytes, digest, lines FROM raw.archive ORDER BY file")
    for row in rows:
        path = folder / row["file"]
        if row["state"] != KEPT:
            continue
        if not path.is_file():
            wrong.append(f"{path}: missing; its {row['lines']:,} lines are not found: bring it back from a copy")
        elif path.stat().st_size != row["bytes"] or (thorough and digest_of(path) != row["digest"]):
            wrong.append(f"{path}: is not what was written: bring it back from a copy")
    known = {row["file"] for row in rows}
    for path in sorted(folder.glob("*/*.parquet")):
        if path.relative_to(folder).as_posix() not in known:
            wrong.append(f"{path}: not a file of this store; move it away")
    return wrong
