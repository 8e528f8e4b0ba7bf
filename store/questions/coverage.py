"""Queries about the basis of a report: which kinds of evidence exist, and how complete lines are."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.record import JOB_OUTPUT
from store.functions import const, counted, one_of
from store.questions.sources import counts
from store.tables import EVENTS, JOBS, LINES, LINKS, METRICS, MODEL_NODE_STATES

L = LINES.c


def _lines(*conditions: Any) -> sa.Select[Any]:
    return sa.select(counted().label("n")).select_from(LINES).where(*conditions)


#: For each kind of evidence, the number of its lines or records (``n``).
EVIDENCE: dict[str, sa.Select[Any]] = {
    "slurmctld": _lines(L.source == const("slurmctld")),
    "slurmd": _lines(one_of(L.source, ("slurmd", "slurmstepd"))),
    "kernel": _lines(sa.or_(one_of(L.source, ("kernel", "dmesg")), L.unit == const("kernel"), L.facility == const("kern"))),
    "switches": counts(EVENTS).where(func.starts_with(EVENTS.c.event, const("switch."))),
    "output": _lines(one_of(L.source, JOB_OUTPUT)),
    "accounting": counts(JOBS), "states": counts(MODEL_NODE_STATES), "metrics": counts(METRICS), "cables": counts(LINKS),
}  # fmt: skip

_SOURCE = func.coalesce(L.source, L.format, const("not recognised"))
#: Sources of the whole store, the largest first.
SOURCES = (
    sa.select(
        _SOURCE.label("source"), counted().label("lines"), func.count(sa.distinct(L.host)).label("hosts"),
        counted(func.coalesce(L.event, const("other")) != const("other")).label("events"), func.min(L.time).label("first_seen"),
        func.max(L.time).label("last_seen"),
    ).group_by(_SOURCE).order_by(sa.desc("lines"), sa.asc("source"))
)  # fmt: skip
#: One row: lines with only their time of receipt (``received``), and lines without an event (``other``).
STAMPS = sa.select(
    counted(L.time_quality == const("received")).label("received"),
    counted(func.coalesce(L.event, const("other")) == const("other")).label("other"),
)
