"""The content of rows stored since the last look. ``new`` is the condition of the store's ``stored_since``.

Each query reads one column or two: a columnar engine groups by one ten times as fast as by several."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, not_, or_, select

from store.boots import same_boot
from store.functions import const, epoch, json_member, same
from store.tables import BOOTS, LOGS, STEPS

Condition = ColumnElement[bool]


def further_clusters(table: Table, new: Condition, known: Collection[str | None]) -> Select[Any]:
    """``cluster`` of new rows of a table, other than the known ones."""
    # A comparison per cluster is vectorised; a list look-up is not.
    return select(table.c.cluster).distinct().where(new, *(not_(same(table.c.cluster, one)) for one in known))


def span(cluster: str | None, new: Condition) -> Select[Any]:
    """For the new lines: the earliest time ``t`` (epoch seconds), their number (``n``) and how many have a time
    (``timed``)."""
    first, timed = epoch(func.min(LOGS.c.time)), func.count(LOGS.c.time)
    return select(first.label("t"), func.count().label("n"), timed.label("timed")).select_from(LOGS).where(
        new, same(LOGS.c.cluster, cluster)
    )  # fmt: skip


def jobs_of_lines(cluster: str | None, new: Condition, *, unstamped: bool = False) -> Select[Any]:
    """``job_id`` of the jobs that new lines name; with ``unstamped``, only lines without a time."""
    found = select(LOGS.c.job_id).distinct().where(new, same(LOGS.c.cluster, cluster), LOGS.c.job_id.is_not(None))
    return found.where(LOGS.c.time.is_(None)) if unstamped else found


def jobs_of_steps(cluster: str | None, new: Condition) -> Select[Any]:
    """``job_id`` of the jobs in new rows about steps."""
    return select(STEPS.c.job_id).distinct().where(new, same(STEPS.c.cluster, cluster))


def hosts_of_events(cluster: str | None, new: Condition, families: Iterable[str]) -> Select[Any]:
    """``host`` and the entity ``nodes`` (JSON) of new event lines of some families ("nic.", "slurm.node_")."""
    nodes = json_member(LOGS.c.entities, "$.nodes")
    of_families = or_(*(func.starts_with(LOGS.c.event, const(family)) for family in families))
    return select(LOGS.c.host, nodes.label("nodes")).distinct().where(
        new, same(LOGS.c.cluster, cluster), LOGS.c.event.is_not(None), of_families
    )  # fmt: skip


def first_moment(cluster: str | None, new: Condition, table: Table) -> Select[Any]:
    """``t``: the earliest time in new rows of a table (epoch seconds)."""
    return select(epoch(func.min(table.c.time)).label("t")).where(new, same(table.c.cluster, cluster))


#: The table of boots under another name, for those already known.
KNOWN_BOOTS = BOOTS.alias("known")


def first_boot(cluster: str | None, new: Condition, known: Condition) -> Select[Any]:
    """``t``: the earliest new boot (epoch seconds) that is the same as none of ``KNOWN_BOOTS`` for which the condition
    ``known`` is true."""
    boot, before = BOOTS.c, KNOWN_BOOTS.c
    known_boots = select(const(1)).select_from(KNOWN_BOOTS).where(
        known, before.host == boot.host, same(before.cluster, boot.cluster),
        same_boot(before.boot_time, boot.boot_time),
    )  # fmt: skip
    return select(epoch(func.min(boot.boot_time)).label("t")).where(
        and_(new, same(boot.cluster, cluster)), not_(known_boots.correlate(BOOTS).exists())
    )
