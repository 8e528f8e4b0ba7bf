"""Queries about log lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.functions import holds, listed
from store.questions.conditions import of_cluster
from store.questions.writers import authority
from store.tables import LINES

L = LINES.c
#: The columns of a line that pages show.
SHOWN = (
    L.time, L.time_quality, L.received_time, L.cluster, L.host, L.source, L.unit, L.severity, L.event, L.job_id, L.message,
    L.raw, L.file, L.line, L.format, L.entities, authority(LINES).label("authority"),
)  # fmt: skip
#: Columns needed only to determine a line's writer (``store.disowned``).
NOT_SHOWN = ("format", "entities")
#: Sources of lines that a job wrote.

_BLOCK = sa.select(L.file, L.line, L.raw, L.message, L.format, L.source, L.host, L.unit, L.event, L.tags).where(
    L.file == sa.bindparam("file"), L.line.between(sa.bindparam("low"), sa.bindparam("high"))
).order_by(L.line)  # fmt: skip


def between(file: str, low: int, high: int) -> sa.Select[Any]:
    """Lines ``low`` to ``high`` of a file, for ``store.blocks``."""
    return _BLOCK.params(file=file, low=low, high=high)


def found(
    *, start: datetime | None = None, end: datetime | None = None, hosts: Sequence[str] | None = None, source: str | None = None,
    job: int | None = None, file: str | None = None, search: str | None = None, cluster: str | None = None, limit: int,
) -> sa.Select[Any]:  # fmt: skip
    """Lines in a range, oldest first. ``cluster``: its lines and those without one; ``search``: a part of the
    message."""
    question = sa.select(*SHOWN).order_by(L.time, L.file, L.line).limit(limit)
    conditions = [
        of_cluster(L.cluster, cluster) if cluster else None, L.time >= start if start else None,
        L.time <= end if end else None, listed(L.host, hosts) if hosts is not None else None, L.source == source if source else None,
        L.job_id == job if job is not None else None, L.file == file if file else None,
        holds(L.message, search) if search else None,
    ]  # fmt: skip
    return question.where(*(condition for condition in conditions if condition is not None))


def around(file: str, line: int, radius: int) -> sa.Select[Any]:
    """The lines of one file around one of them, in the file's own order."""
    return sa.select(*SHOWN).where(L.file == file, L.line.between(line - radius, line + radius)).order_by(L.line)
