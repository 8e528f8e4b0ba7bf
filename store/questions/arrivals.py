"""What rows tell that were stored since the last look. ``new`` is the condition of the door's ``stored_since``.

Each question is for one column or two: an engine of columns groups by one ten times as fast as by several."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, not_, or_, select

from store.functions import const, epoch, json_member, listed, one_of, same
from store.tables import BOOTS, LOGS, STEPS

Condition = ColumnElement[bool]


def further_clusters(table: Table, new: Condition, known: Collection[str | None]) -> Select[Any]:
    """``cluster`` of new rows of a table, other than those that are known."""
    # A comparison for each cluster is vectorised; looking a name up in a list is not.
    return select(table.c.cluster).distinct().where(new, *(not_(same(table.c.cluster, one)) for one in known))


def span(cluster: str | None, new: Condition) -> Select[Any]:
    """Of the new lines: the earliest time ``t`` (epoch seconds), how many they are (``n``) and how many have a time (``timed``)."""
    first, timed = epoch(func.min(LOGS.c.time)), func.count(LOGS.c.time)
    return select(first.label("t"), func.count().label("n"), timed.label("timed")).select_from(LOGS).where(
        new, same(LOGS.c.cluster, cluster)
    )  # fmt: skip


def jobs_of_lines(cluster: str | None, new: Condition, *, unstamped: bool = False) -> Select[Any]:
    """``job_id`` of the jobs that new lines name; of lines without a time only (``unstamped``)."""
    found = select(LOGS.c.job_id).distinct().where(new, same(LOGS.c.cluster, cluster), LOGS.c.job_id.is_not(None))
    return found.where(LOGS.c.time.is_(None)) if unstamped else found


def jobs_of_steps(cluster: str | None, new: Condition) -> Select[Any]:
    """``job_id`` of the jobs of which new rows about steps tell."""
    return select(STEPS.c.job_id).distinct().where(new, same(STEPS.c.cluster, cluster))


def hosts_of_events(cluster: str | None, new: Condition, families: Iterable[str]) -> Select[Any]:
    """``host`` and the entity ``nodes`` (JSON) of new event lines of some families ("nic.", "slurm.node_")."""
    nodes = json_member(LOGS.c.entities, "$.nodes")
    of_families = or_(*(func.starts_with(LOGS.c.event, const(family)) for family in families))
    return select(LOGS.c.host, nodes.label("nodes")).distinct().where(
        new, same(LOGS.c.cluster, cluster), LOGS.c.event.is_not(None), of_families
    )  # fmt: skip


def hosts_of_lines(cluster: str | None, new: Condition) -> Select[Any]:
    """``host`` of each host of which a new line is."""
    return select(LOGS.c.host).distinct().where(new, same(LOGS.c.cluster, cluster))


def hosts_with_own_log(
    cluster: str | None, new: Condition, hosts: Collection[str], sources: Iterable[str]
) -> Select[Any]:
    """``host`` of those of some hosts of which a new line of some sources is."""
    return hosts_of_lines(cluster, new).where(listed(LOGS.c.host, hosts), one_of(LOGS.c.source, sources))


def first_moment(cluster: str | None, new: Condition, table: Table) -> Select[Any]:
    """``t``: the earliest time in new rows of a table (epoch seconds)."""
    return select(epoch(func.min(table.c.time)).label("t")).where(new, same(table.c.cluster, cluster))


#: The table of boots under another name: those that were known before.
KNOWN_BOOTS = BOOTS.alias("known")


def first_boot(cluster: str | None, new: Condition, known: Condition, least_gap_s: float) -> Select[Any]:
    """``t``: the earliest boot (epoch seconds) that new rows tell of, of those that no row of ``KNOWN_BOOTS`` for which the condition
    ``known`` holds tells of as well: within ``least_gap_s`` seconds it is the same boot."""
    boot, before = BOOTS.c, KNOWN_BOOTS.c
    known_boots = select(const(1)).select_from(KNOWN_BOOTS).where(
        known, before.host == boot.host, same(before.cluster, boot.cluster),
        func.abs(epoch(before.boot_time) - epoch(boot.boot_time)) <= const(least_gap_s),
    )  # fmt: skip
    return select(epoch(func.min(boot.boot_time)).label("t")).where(
        and_(new, same(boot.cluster, cluster)), not_(known_boots.correlate(BOOTS).exists())
    )
