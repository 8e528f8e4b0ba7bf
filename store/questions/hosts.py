"""What hosts wrote themselves: their last lines, their boots, their bonded links."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Double, Select, and_, bindparam, cast, exists, func, not_, select

from parsers.record import JOB_OUTPUT
from store.boots import boot_before
from store.functions import among, const, counted, epoch, group_of, in_order, json_text, matches, one_of, same
from store.questions.source import ALL, CLUSTER, Rows, Source
from store.questions.writers import writer_columns
from store.tables import BOOTS, LINES, LOGS, TEXT

#: Sources written by others about a host, or by a run on several hosts: none of them is the host's own.
OF_OTHERS = ("slurmctld", "slurmdbd", "slurmrestd", "sacct", "opensm", "switch", *JOB_OUTPUT)

#: Slurm's answers about nodes carry their names as well.
_ANSWERS = "^(sacct|scontrol|sinfo|squeue|poll)"

#: slurmd's inventory of its machine, logged at its start (slurm src/slurmd/slurmd/slurmd.c).
_UPTIME = r"\bCPUs=\d+ .*\bUptime=(\d+)"


_HOST = bindparam("host", type_=TEXT)


def own_lines(cluster: str | None, host: str) -> Select[Any]:
    """When a host wrote lines itself: ``t`` (epoch seconds, whole), whether the timestamp's zone was ``inferred`` and
    whether ``slurm``'s daemons on it wrote them."""
    return _own_lines().params(cluster=cluster, host=host)


@cache
def _own_lines() -> Select[Any]:
    lines, source = LINES.c, func.coalesce(LINES.c.source, const(""))
    second = func.floor(epoch(lines.time))
    return (
        select(
            second.label("t"), lines.time_quality.is_not_distinct_from(const("inferred")).label("inferred"),
            one_of(source, ("slurmd", "slurmstepd")).label("slurm"),
        )
        .distinct()
        .where(
            lines.host == _HOST, same(lines.cluster, CLUSTER), lines.time.is_not(None), not_(one_of(source, OF_OTHERS))
        )
        .order_by("t")
    )  # fmt: skip


def last_lines(cluster: str | None, hosts: Collection[str], since: datetime) -> Select[Any]:
    """``t`` (epoch seconds) of the last line that each of these hosts wrote itself, if it wrote any since then."""
    lines, source = LINES.c, func.coalesce(LINES.c.source, const(""))
    return (
        select(lines.host, epoch(func.max(lines.time)).label("t"))
        .where(
            among(lines.host, hosts), same(lines.cluster, cluster), lines.time >= since, not_(one_of(source, OF_OTHERS)),
            not_(matches(source, _ANSWERS)),
        )
        .group_by(lines.host)
    )  # fmt: skip


def slurmd_starts(cluster: str | None, host: str) -> Select[Any]:
    """Starts of a host's slurmd that give the machine's ``uptime`` (seconds): ``t`` (epoch seconds), and whether the
    timestamp's zone was ``inferred``."""
    return _slurmd_starts().params(cluster=cluster, host=host)


@cache
def _slurmd_starts() -> Select[Any]:
    lines = LINES.c
    return in_order(
        select(
            epoch(lines.time).label("t"), cast(group_of(lines.raw, _UPTIME), Double).label("uptime"),
            lines.time_quality.is_not_distinct_from(const("inferred")).label("inferred"),
        )
        .distinct()
        .where(
            lines.host == _HOST, same(lines.cluster, CLUSTER), lines.time.is_not(None), lines.source == const("slurmd"),
            lines.raw.like(const("%Uptime=%")), matches(lines.raw, _UPTIME),
        )
    )  # fmt: skip


def bonded_ports(cluster: str | None, host: str) -> Select[Any]:
    """Lines in which the bonding driver names a port: when each pair first occurred (``t``, epoch seconds), ``bond``,
    ``port``."""
    return _bonded_ports().params(cluster=cluster, host=host)


@cache
def _bonded_ports() -> Select[Any]:
    lines = LINES.c
    bond, port = (json_text(lines.entities, path) for path in ("$.bond", "$.port"))
    return in_order(
        select(epoch(func.min(lines.time)).label("t"), bond.label("bond"), port.label("port"))
        .where(
            lines.host == _HOST, same(lines.cluster, CLUSTER), lines.time.is_not(None), lines.event.like(const("nic.%")),
            lines.entities.like(const('%"bond"%')),
        )
        .group_by(bond, port)
        .having(and_(bond.is_not(None), port.is_not(None)))
    )  # fmt: skip


def boots_again(cluster: str | None, sources: Sequence[str], source: Source = ALL) -> Select[Any]:
    """Boots (``t``, epoch seconds, and ``host``) from some sources, each of a host that one of them had seen in an earlier
    boot, however long ago."""
    return source.asked(_boots_again, cluster, tuple(sources))


def _boots_again(rows: Rows, sources: Sequence[str]) -> Select[Any]:
    boots, before = rows.boots, BOOTS.alias("before")
    earlier = exists().where(
        before.c.host == boots.c.host, before.c.cluster.is_not_distinct_from(boots.c.cluster),
        boot_before(before.c.boot_time, boots.c.boot_time), one_of(before.c.source, sources),
    )  # fmt: skip
    found = (
        select(epoch(boots.c.boot_time).label("t"), boots.c.host)
        .distinct()
        .where(
            same(boots.c.cluster, CLUSTER), one_of(boots.c.source, sources), boots.c.host.is_not(None), earlier
        )
    )  # fmt: skip
    return found.order_by(boots.c.host, "t")


def spans_by_writer(cluster: str | None, sources: Sequence[str], new: ColumnElement[bool] | None = None) -> Select[Any]:
    """The ``writers.writer_columns`` of lines of these sources, with the times of the ``first`` and ``last`` line, and how
    many are ``untimed``. With ``new``, of the stored lines that this condition selects."""
    lines = LINES if new is None else LOGS
    chosen = select(*writer_columns(lines), lines.c.time).where(
        same(lines.c.cluster, cluster), lines.c.host.is_not(None), one_of(lines.c.source, sources)
    )
    some = (chosen if new is None else chosen.where(new)).subquery("some")
    writers = [column for column in some.c if column.name != "time"]
    return select(
        *writers, func.min(some.c.time).label("first"), func.max(some.c.time).label("last"),
        counted(some.c.time.is_(None)).label("untimed"),
    ).group_by(*writers)  # fmt: skip
