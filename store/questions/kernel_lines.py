"""Lines with the kernel's name: which of them any user of a host can write, and which clocks they show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, Double, FromClause, Select, and_, bindparam, case, cast, func, not_, or_, select

from store.functions import among, const, contains, epoch, group_of, matches, one_of, same
from store.questions.source import CLUSTER
from store.tables import LINES, TIME

#: Sources that only root can write: the kernel's ring buffer and journald's kernel transport.
OF_RING = ("kmsg", "dmesg", "klog", "journald")
#: Where a node's agent states what it found itself, in the kernel's name: NVML's Xids, ports, links.
OF_AGENT = r"^[^/:]+:(?:nvml|infiniband|links)$"
#: Files that a syslog daemon writes by facility (``kern.*``).
BY_FACILITY = r"(^|/)kern(el)?[^/]*\.log[^/]*$"
#: The kernel's clock in the format of ``printk``: seconds since boot with six decimals.
_UPTIME = r"\[ *([0-9]+\.[0-9]{6})\]"
#: The width of the groups of boot times (time less uptime) in ``clocks``: a kernel's clock drifts from the host's.
SAME_CLOCK_S = 10.0

_SINCE, _UNTIL = bindparam("kernel_since", type_=TIME), bindparam("kernel_until", type_=TIME)


def _of_ring(lines: FromClause) -> ColumnElement[bool]:
    """Whether a kernel line is in a place where no one else can write."""
    return one_of(func.coalesce(lines.c.format, const("")), OF_RING)


def _of_agent(lines: FromClause) -> ColumnElement[bool]:
    """Whether it is no line of a kernel's, but an agent's word: it shows no clock."""
    return matches(func.coalesce(lines.c.file, const("")), OF_AGENT)


def _by_facility(lines: FromClause) -> ColumnElement[bool]:
    """Whether a syslog daemon classifies a line as the kernel's."""
    line = lines.c
    return or_(line.facility.is_not(None), matches(func.coalesce(line.file, const("")), BY_FACILITY))


def clocks(cluster: str | None, hosts: Collection[str], since: datetime, until: datetime) -> Select[Any]:
    """The kernel's lines of some hosts in a time range, grouped by the clock that they show: ``host``, ``of_ring``,
    ``boot`` (boot time in units of ``SAME_CLOCK_S``; null: no line of the group has an uptime), the number of ``lines``
    and of distinct minutes, and the ``first`` and ``last`` (epoch seconds)."""
    return _clocks().where(among(LINES.c.host, hosts)).params(cluster=cluster, kernel_since=since, kernel_until=until)


def fits_clock(shown: float, boot: float) -> bool:
    """Does a line that puts its host's boot there (epoch seconds) go with the clock of a group of ``clocks``, whose ``boot``
    is ``shown``? It does in the group, and up to the width of one beside it.

    Not ``store.boots.is_same_boot``, which is wider. That says whether a machine booted again; a mistake would make up a
    reboot. This says whether the kernel can have written the line: who forges one has to know the uptime, and each second
    that is allowed makes that easier. A mistake makes a line count less.
    """
    return abs(shown + 0.5 - boot / SAME_CLOCK_S) <= 1.5


def ends_before(row: Mapping[str, Any], boot: float) -> bool:
    """Is a group of ``clocks`` of an earlier boot, and its last line older than this one (epoch seconds)?"""
    return bool(row["boot"] < boot / SAME_CLOCK_S and row["last"] < boot)


def any_clock(cluster: str | None) -> Select[Any]:
    """One row if any of the kernel's lines has an uptime, or is in a place where no one else can write."""
    return _any_clock(in_time=False).params(cluster=cluster)


def any_clock_in(cluster: str | None, since: datetime, until: datetime) -> Select[Any]:
    """The same for the lines of a time range."""
    return _any_clock(in_time=True).params(cluster=cluster, kernel_since=since, kernel_until=until)


def may_show_clock() -> pl.Expr:
    """Would ``any_clock`` find a row among lines on their way into the store? True also if a text only looks like it."""
    ours = pl.col("source") == "kernel"
    of_ring = pl.col("format").filter(ours).unique().cast(pl.String).is_in(OF_RING)
    return of_ring.any() | pl.col("raw").filter(ours).str.contains(_UPTIME).any()  # those of others are not searched


def without_ring() -> Select[Any]:
    """``host`` of each host whose lines have the kernel's name, but none from a place where no one else can write; and
    whether a syslog daemon's ``facility`` confirms any."""
    lines = LINES.c
    return (
        select(lines.host, func.bool_or(_by_facility(LINES)).label("facility"))
        .where(lines.source == const("kernel"), lines.host.is_not(None))
        .group_by(lines.cluster, lines.host)
        .having(not_(func.bool_or(_of_ring(LINES))))
        .order_by(lines.host)
    )


def _of_kernel(lines: FromClause) -> ColumnElement[bool]:
    return and_(lines.c.source == const("kernel"), same(lines.c.cluster, CLUSTER))


def _in_time(lines: FromClause) -> ColumnElement[bool]:
    return and_(lines.c.time >= _SINCE, lines.c.time <= _UNTIL)


@cache
def _any_clock(*, in_time: bool) -> Select[Any]:
    # Looking for the bracket first takes a fraction of what the pattern takes.
    has_uptime = and_(contains(LINES.c.raw, "["), matches(LINES.c.raw, _UPTIME))
    lines = [_of_kernel(LINES), *([_in_time(LINES)] if in_time else []), or_(_of_ring(LINES), has_uptime)]
    return select(const(1).label("found")).where(*lines).limit(1)


@cache
def _clocks() -> Select[Any]:
    line, moment = LINES.c, epoch(LINES.c.time)
    uptime = cast(func.nullif(group_of(line.raw, _UPTIME), const("")), Double)
    boot = func.floor((moment - uptime) / const(SAME_CLOCK_S))
    known = _of_ring(LINES)
    return (
        select(
            line.host, known.label("of_ring"), case((not_(known), boot)).label("boot"), func.count().label("lines"),
            func.min(moment).label("first"), func.max(moment).label("last"),
        )
        .where(_of_kernel(LINES), _in_time(LINES), not_(_of_agent(LINES)))
        .group_by(line.host, known, case((not_(known), boot)))
    )  # fmt: skip
