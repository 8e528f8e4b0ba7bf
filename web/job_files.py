"""What one run brought with it: its script and other files, its environment, and what it printed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from web.reading import LINE_COLUMNS, OF_CLUSTER, Reader, Row, Where

#: A hook that brings a run's files runs so long behind its end at most: epilogs of lost nodes come late. Seconds.
BROUGHT_WITHIN = timedelta(seconds=600)


def artifacts(read: Reader, run: Row) -> list[Row]:
    """The own files of a run: of its restart, and where its number was used for several jobs, those that were taken in its
    time. A file without a time may be of any of them. Of one that several hooks brought what is longest."""
    once = "QUALIFY row_number() OVER (PARTITION BY kind, path ORDER BY length(content) DESC, host) = 1"
    attempt = int(run["attempt"] or 0)
    where = Where()
    where.add(f"job_id = ? AND {OF_CLUSTER} AND coalesce(restarts, 0) = ?", run["job_id"], run["cluster"], attempt)
    others = [o for o in read.attempts(run) if o["own_key"] != run["own_key"] and int(o["attempt"] or 0) == attempt]
    if others and (begin := run["submit"] or run["start"]):
        following = [start for o in others if (start := o["submit"] or o["start"]) and start > begin]
        end = run["end"] + BROUGHT_WITHIN if run["end"] else None
        until = min([*following, *([end] if end else [])], default=None)
        where.add("taken_at IS NULL OR taken_at >= ?", begin)
        where.when(until, "taken_at IS NULL OR taken_at < ?")
    sql = f"SELECT job_id, restarts, kind, path, host, content, truncated FROM raw.artifacts{where.sql}"
    return read.rows(f"{sql} {once} ORDER BY kind, path", where.values)


def environment(read: Reader, run: Row) -> list[Row]:
    """The environment of a run, which goes by Slurm's raw number also for a task of an array."""
    scope = f"job:{run['job_id']}" + (f"#{run['attempt']}" if run["attempt"] else "")
    sql = f"SELECT DISTINCT name, value FROM raw.settings WHERE scope = ? AND {OF_CLUSTER} ORDER BY name"
    return read.rows(sql, [scope, run["cluster"]])


def output(read: Reader, run: Row, prefer: Collection[str], *, files: int, lines: int) -> tuple[list[Row], int]:
    """What one run printed: for each file its last ``lines`` and how many there are, and how many files are left out.

    A file that was kept of another run is not this one's. Where all runs of a job print to one file, those lines are
    this run's that lie before the next run's start and not before its own. Files in ``prefer`` are shown first.
    """
    where = Where()
    where.add(f"job_id = ? AND {OF_CLUSTER} AND source IN ('job_stdout', 'job_stderr')", run["job_id"], run["cluster"])
    named = f"SELECT unnest([path, file]) AS name FROM raw.artifacts WHERE job_id = ? AND {OF_CLUSTER} AND restarts"
    job, attempt, cluster = run["job_id"], run["attempt"] or 0, run["cluster"]
    where.add(
        f"(file NOT IN (SELECT name FROM ({named} <> ?) WHERE name IS NOT NULL) OR file IN (SELECT name FROM ({named} = ?)))",
        job, cluster, attempt, job, cluster, attempt,
    )  # fmt: skip
    attempts = read.attempts(run)
    following = [other["start"] for other in attempts if _behind(other, run)]
    where.when(min((start for start in following if start), default=None), "time IS NULL OR time < ?")
    if any(_behind(run, other) for other in attempts):
        where.when(run["start"], "time IS NULL OR time >= ?")
    found = read.rows(
        f"SELECT file, count(*) AS total FROM raw.log_view{where.sql} GROUP BY file ORDER BY file", where.values
    )
    found.sort(key=lambda row: row["file"] not in prefer)
    shown = found[:files]
    for row in shown:
        where_file = f"{where.sql} AND file = ? ORDER BY line DESC LIMIT ?"
        tail = read.rows(f"SELECT {LINE_COLUMNS} FROM raw.log_view{where_file}", [*where.values, row["file"], lines])
        row |= {"lines": tail[::-1], "evidence": row["file"] in prefer}
    return shown, len(found) - len(shown)


def _behind(one: Row, other: Row) -> bool:
    """Whether a run of a number came behind another: a restart, or another job that the number was used for again."""
    if one["start"] and other["start"]:
        return bool(one["start"] > other["start"])
    return (one["attempt"] or 0) > (other["attempt"] or 0)
