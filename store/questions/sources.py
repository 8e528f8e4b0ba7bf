"""Queries about senders: streams, ingested files, named clusters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const, counted, epoch, has, listed
from store.questions.conditions import of_cluster
from store.tables import ARCHIVE, FILES, JOBS, LINES, LOGS, RECENT_LINES, SOURCES

L = LINES.c
#: The received data of each stream. A store of an older version, opened for reading, has no ``longest_s``.
RECEIVED = sa.select(*(column for column in SOURCES.c if column.name != "longest_s")).order_by(
    SOURCES.c.host, SOURCES.c.file, SOURCES.c.source
)
#: A row if any file was ingested.
ANY_FILE = sa.select(const(1).label("found")).select_from(FILES).limit(1)
#: Every stream of lines with its size and its largest lateness. Reads all lines.
OF_LINES = (
    sa.select(
        L.file, L.host, L.source, counted().label("lines"), func.min(L.time).label("first"), func.max(L.time).label("last"),
        (func.max(func.date_diff(const("microsecond"), L.time, L.received_time)) / sa.literal_column("1e6")).label("late_s"),
        counted(L.time_quality != const("line")).label("unsure"), counted(L.event != const("other")).label("events"),
        counted(has(L.tags, const("unparsed"))).label("unparsed"),
        counted(sa.and_(L.time_quality == const("received"), has(L.tags, const("future")))).label("ahead"),
    )
    .group_by(L.file, L.host, L.source).order_by(L.host, L.file).limit(5000)
)  # fmt: skip
#: Clusters named in job records; two rows mean that there are several.
JOB_CLUSTERS = sa.select(JOBS.c.cluster).where(JOBS.c.cluster.is_not(None)).distinct().limit(2)
#: Lines that lost their text: none, unless the store is damaged.
WITHOUT_TEXT = sa.select(counted().label("n")).select_from(LOGS).where(LOGS.c.raw.is_(None))

_HOT = sa.select(func.max(LOGS.c.received_time).label("arrived"))
_ARCHIVED = sa.select(func.max(ARCHIVE.c.last_received)).where(ARCHIVE.c.state == const("kept"))
_ARRIVED = sa.union_all(_HOT, _ARCHIVED).subquery("arrivals")
#: When the last line arrived.
LAST_ARRIVAL = sa.select(func.max(_ARRIVED.c.arrived).label("last"))


def agreeing(after: datetime, until: datetime, near_s: int) -> sa.Select[Any]:
    """For lines with a certain timestamp that arrived in a span: their number, and how many arrived within ``near_s``
    seconds of it."""
    off = func.abs(epoch(RECENT_LINES.c.received_time) - epoch(RECENT_LINES.c.time))
    asked = sa.select(counted().label("lines"), counted(off < const(near_s)).label("near")).select_from(RECENT_LINES)
    within = (RECENT_LINES.c.received_time > after, RECENT_LINES.c.received_time <= until)
    return asked.where(*within, RECENT_LINES.c.time_quality == const("line"))


def lines_at(files: Sequence[str], numbers: Sequence[int], cluster: str | None) -> sa.Select[Any]:
    """Lines of some files of a cluster with some numbers; ``device`` is null, since lines name none."""
    asked = sa.select(L.host, sa.cast(sa.null(), sa.String).label("device"), L.message, L.source, L.file, L.line)
    return asked.where(listed(L.file, files), listed(L.line, numbers), of_cluster(L.cluster, cluster))


def counts(table: sa.Table) -> sa.Select[Any]:
    """The number of rows of a table."""
    return sa.select(counted().label("n")).select_from(table)
