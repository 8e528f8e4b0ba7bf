"""Files of days that are not closed yet: lines that nothing is expected to change take a third of the space there.

``close_settled`` moves lines that arrived a while ago into files, in the same steps as a closing day
(``store.duckdb.archive``): after a kill at any moment, each line is in one place. Such a file is ``early`` in
``raw.archive``. Until its day closes, its lines count as recent (the view ``raw.recent_logs``), and what is learned about
their hosts and clusters applies to them (``store.duckdb.archived_hosts``). Lines without a time stay in DuckDB: they may
get one.

``close_early`` closes the days of such files. Several files of a day are written again as one, with what was learned;
then one transaction replaces them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import duckdb

from store.changes import Change
from store.door import Closed
from store.duckdb import archive, archive_file
from store.duckdb.archive import DROPPED, KEPT
from store.duckdb.archive_file import CLOCKS, ArchiveFile, Written, condition, parts, slices
from store.duckdb.archived_hosts import Name, node_of, with_names
from store.duckdb.open_store import OpenStore
from store.duckdb.quoting import quoted
from store.errors import LinesChanged, Unwanted
from store.tables import LOGS

#: A file of a closed day with fewer lines is written again together with early ones.
SMALL_LINES = 1_000_000

#: Columns of ``raw.logs`` that a file does not have as they are there, with their SQL over those of the file. A message that
#: is part of its line is not stored twice; ``msg_start`` is where it begins.
_AS_STORED = {
    "message": "CASE WHEN form = '' THEN message END",
    "msg_start": f"CASE WHEN form <> '' THEN length({archive.HEAD}) END",
    "form": "form",
}


def close_settled(
    store: OpenStore, until: datetime, *, least: int, hot_days: int, is_wanted: Callable[[], bool] = lambda: True
) -> Closed:
    """See ``Door.close_settled``. Others may read and write meanwhile, as with ``archive.close_days``; lines that change
    meanwhile stay until the next call. Raises ``OSError`` and ``duckdb.Error``."""
    done = Closed()
    if store.folder is None:
        return done
    moment = quoted(until.isoformat(" "))
    settled = f"coalesce(received_time, time) < {moment} AND time < {moment}"
    first, last = until.date() - timedelta(days=hot_days), until.date() + timedelta(days=1)
    with store.upkeep:
        archive.sweep(store, dropped=False)  # a closed day's files may be gone for a moment only: queries read them
        for day in archive.days(store, last, least, settled):
            if day < first:  # it closes anyway
                continue
            try:
                for written in archive.close_day(store, day, settled, is_wanted):
                    done = done.and_then(Closed(0, 1, written.lines, written.bytes))
            except Unwanted:
                break
            done = done.and_then(Closed(days=1))
    return done


@dataclass(frozen=True)
class _Source:
    """A file that is to be replaced: the columns of ``raw.archive`` that its lines depend on."""

    file: str
    cluster: str | None
    hosts: str | None
    lines: int
    is_early: bool


def close_early(store: OpenStore, until: date) -> None:
    """Closes the days before ``until`` that have early files. Others may read and write meanwhile; the last step excludes
    writers for a moment. Raises ``OSError`` and ``duckdb.Error``."""
    if store.folder is None:
        return
    with store.upkeep:
        found = store.rows(
            "SELECT DISTINCT day FROM raw.archive WHERE state = ? AND early AND day < ? ORDER BY day", [KEPT, until]
        )
        for row in found:
            sources = _sources(store, row["day"])
            if len(sources) == 1 and sources[0].hosts is None:
                _keep(store, sources[0])
            elif all((archive.folder_of(store) / one.file).is_file() for one in sources):
                _replace(store, row["day"], sources)


def _sources(store: OpenStore, day: date) -> list[_Source]:
    return [
        _Source(row["file"], row["cluster"], row["hosts"], row["lines"], row["early"])
        for row in store.rows(
            """SELECT file, CASE WHEN list_count(clusters) < len(clusters) THEN cluster END AS cluster, hosts, lines,
            coalesce(early, false) AS early FROM raw.archive WHERE state = ? AND day = ? AND (early OR lines < ?) ORDER BY file""",
            [KEPT, day, SMALL_LINES],
        )
    ]


def _keep(store: OpenStore, source: _Source) -> None:
    """Closes a day that has one file, which stays."""
    with store.transaction() as connection:
        connection.execute("UPDATE raw.archive SET early = false WHERE file = ?", [source.file])
        archive.make_views(store, connection)


def _replace(store: OpenStore, day: date, sources: Sequence[_Source]) -> None:
    """Writes the lines of some files into new ones, and replaces them."""
    has_forms = all(one.hosts is None for one in sources)  # a head may name the host
    lines = _lines(store, sources, has_forms=has_forms)
    found = [piece for clock in CLOCKS for piece in slices(_seconds(store, lines, clock), day, clock)]
    made: dict[str, Written] = {}
    files: list[ArchiveFile] = []
    try:
        for part in parts(found, archive_file.PART_LINES):
            name = f"{day.isoformat()}/{uuid.uuid4().hex}.parquet"
            with store.transaction() as connection:
                archive.begin_file(connection, name, day, is_early=False)
                lowest = archive.lowest_block(connection)
            lowest = min([lowest, *(segment.first for written in made.values() for segment in written.segments)])
            files.append(ArchiveFile(archive.folder_of(store) / name, lowest))
            made[name] = files[-1].write(store.cursor(), part, lines, has_forms=has_forms)
        with store.transaction() as connection:
            _swap(store, connection, day, sources, made)
    except BaseException:
        for file in files:
            file.discard()
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.archive WHERE state = ? AND day = ?", [archive.WRITING, day])
        raise


def _lines(store: OpenStore, sources: Sequence[_Source], *, has_forms: bool) -> str:
    """The lines of some files with the columns of ``raw.logs``, and their ``form`` if it is true of them, as FROM and
    WHERE."""
    more = {name: sql for name, sql in _AS_STORED.items() if has_forms or name != "form"}
    folder, groups = archive.folder_of(store), dict[tuple[str | None, str | None], list[str]]()
    for one in sources:
        groups.setdefault((one.cluster, one.hosts), []).append(str(folder / one.file))
    tiers = [archive.tier(paths, cluster, hosts, more) for (cluster, hosts), paths in groups.items()]
    return f"FROM ({' UNION ALL '.join(tiers)}) WHERE true"


def _seconds(store: OpenStore, lines: str, clock: str) -> list[tuple[int, int]]:
    found = store.rows(
        f"""SELECT CAST(epoch(date_trunc('second', {clock})) AS BIGINT) AS second, count(*) AS n {lines}
        AND {condition(clock)} GROUP BY ALL ORDER BY ALL""",
        [date(1, 1, 1), date(9999, 1, 1)],
    )
    return [(row["second"], row["n"]) for row in found]


def _swap(
    store: OpenStore, connection: duckdb.DuckDBPyConnection, day: date, sources: Sequence[_Source], made: Mapping[str, Written]
) -> None:  # fmt: skip
    """Replaces files by those that were made of them, inside the caller's transaction."""
    if _sources(store, day) != list(sources) or sum(one.lines for one in sources) != sum(
        w.lines for w in made.values()
    ):
        raise LinesChanged(
            f"{store.folder}: what is known of the lines of {day} changed while their files were written"
        )
    for one in sources:
        connection.execute(
            """DELETE FROM raw.log_segments USING raw.archive AS a
            WHERE a.file = ? AND log_segments.first_block BETWEEN a.first_block AND a.last_block""",
            [one.file],
        )
        connection.execute("UPDATE raw.archive SET state = ? WHERE file = ?", [DROPPED, one.file])
    for name, written in made.items():
        archive.register(connection, name, written)
    archive.make_views(store, connection)


def name_hosts(store: OpenStore, connection: duckdb.DuckDBPyConnection, names: Sequence[Name]) -> int:
    """Gives lines in early files the nodes that their hosts were learned to be, inside the caller's transaction; returns
    how many lines these are."""
    rows = connection.execute(
        "SELECT file, cluster, hosts FROM raw.archive WHERE state = ? AND early", [KEPT]
    ).fetchall()
    renamed, folder = 0, archive.folder_of(store) if rows else None
    for name, cluster, hosts in rows:
        assert folder is not None
        if not (folder / name).is_file():
            continue
        made = with_names(hosts, names)
        before = "host" if hosts is None else node_of(hosts, cluster)
        ((count,),) = connection.execute(
            f"SELECT count(*) FROM read_parquet(?) WHERE {node_of(made, cluster)} IS DISTINCT FROM {before}",
            [str(folder / name)],
        ).fetchall()
        if count:
            connection.execute("UPDATE raw.archive SET hosts = ? WHERE file = ?", [made, name])
            renamed += int(count)
    if renamed:
        archive.make_views(store, connection)
        store.note(LOGS.name, Change(amended=renamed))
    return renamed
