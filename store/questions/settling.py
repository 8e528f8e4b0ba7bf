"""Late knowledge about stored rows: their cluster, the node that a host name means, when a machine booted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Double, Select, Table, Update, and_, func, or_, select, try_cast, union, update

from parsers.node_definitions import CONTROLLERS
from store.door import Question
from store.functions import PLACE, among, const, epoch, in_order, json_member, one_of, row_place, same, unnested
from store.questions.writers import authority
from store.tables import BOOTS, JOBS, LINE_CLUSTERS, LINKS, LOGS, NODE_STATES, RECENT_LINES, SETTINGS, TEXT, TOPOLOGY

#: The scope of settings that map another name to its node.
ALIAS = "alias"
#: The scope of settings that the service adds: ``name`` is an address of the controller ``value``.
ADDRESS = "address"


def named_clusters() -> Question:
    """``cluster``: each one that jobs, slurm.conf or lines name."""
    of_jobs, of_settings = (select(t.c.cluster).distinct().where(t.c.cluster.is_not(None)) for t in (JOBS, SETTINGS))
    return union(
        of_jobs, of_settings, select(LINE_CLUSTERS.c.cluster).distinct().where(LINE_CLUSTERS.c.cluster.is_not(None))
    )


def settings_about_hosts() -> Select[Any]:
    """The distinct settings that name nodes and controllers: ``cluster``, ``scope``, ``name``, ``value``."""
    setting = SETTINGS.c
    controllers = one_of(setting.name, tuple(CONTROLLERS))
    of_cluster = and_(setting.scope == const("cluster"), or_(setting.name.like(const("NodeName:%")), controllers))
    named = select(setting.cluster, setting.scope, setting.name, setting.value).distinct()
    return named.where(or_(of_cluster, setting.scope.like(const("node:%"))))


def hosts_of_inventory() -> Question:
    """``cluster`` and ``host`` of nodes and switches, as named by Slurm and the cable list."""
    lists = select(JOBS.c.cluster, JOBS.c.nodes).distinct().where(JOBS.c.nodes.is_not(None)).subquery("lists")
    return union(
        select(lists.c.cluster, func.unnest(lists.c.nodes).label("host")).distinct(),
        select(NODE_STATES.c.cluster, NODE_STATES.c.host).where(NODE_STATES.c.host.is_not(None)),
        select(TOPOLOGY.c.cluster, TOPOLOGY.c.child).where(TOPOLOGY.c.kind == const("node")),
        select(TOPOLOGY.c.cluster, TOPOLOGY.c.switch).where(TOPOLOGY.c.switch.is_not(None)),
        select(LINKS.c.cluster, LINKS.c.switch).where(LINKS.c.switch.is_not(None)),
    )


def hosts_in(table: Table) -> Select[Any]:
    """``cluster`` and ``host``: each pair in rows of a table; of lines, in those whose day is not closed."""
    table = RECENT_LINES if table is LOGS else table
    return select(table.c.cluster, table.c.host).distinct().where(table.c.host.is_not(None))


def known_addresses() -> Select[Any]:
    """Addresses of controllers that the service looked up: ``cluster``, ``name`` (the address), and the host as
    ``value``."""
    return select(SETTINGS.c.cluster, SETTINGS.c.name, SETTINGS.c.value).where(SETTINGS.c.scope == const(ADDRESS))


def known_aliases() -> Select[Any]:
    """Other names of hosts stored as settings: ``cluster``, ``name``, and the node as ``value``."""
    return select(SETTINGS.c.cluster, SETTINGS.c.name, SETTINGS.c.value).where(SETTINGS.c.scope == const(ALIAS))


def name_hosts(table: Table, names: Sequence[tuple[str | None, str, str]]) -> Update:
    """Renames the host in rows of a table to its node: (cluster, other name, node)."""
    columns = zip(("cluster", "host", "node"), zip(*names, strict=True), strict=True)
    meant = select(*(unnested(values, TEXT).label(name) for name, values in columns)).subquery("meant")
    return update(table).values(host=meant.c.node).where(
        table.c.host == meant.c.host, same(table.c.cluster, meant.c.cluster)
    )  # fmt: skip


def _uptime(table: Table) -> ColumnElement[float]:
    """A machine's uptime in seconds; null if it is no number: a sender may give a line any fields."""
    return try_cast(json_member(table.c.entities, "$.uptime_s"), Double())


_ONLY_UPTIME = and_(LOGS.c.time.is_(None), LOGS.c.entities.like(const("%uptime_s%")))


def _of_hosts(hosts: Sequence[str | None], column: ColumnElement[str]) -> ColumnElement[bool]:
    """Lines of these hosts; None: those without a host."""
    named = among(column, [host for host in hosts if host is not None])
    return or_(named, column.is_(None)) if None in hosts else named


def machines_with_uptime_only() -> Select[Any]:
    """``cluster`` and ``host`` of lines without a time that give the machine's uptime."""
    return select(LOGS.c.cluster, LOGS.c.host).distinct().where(_ONLY_UPTIME)


def lines_with_uptime_only(hosts: Sequence[str | None]) -> Select[Any]:
    """Lines of these hosts without a time that give the machine's uptime: their ``place``, ``cluster``, ``host``, ``file``,
    ``line`` and ``uptime`` (seconds)."""
    line = LOGS.c
    return select(
        row_place(LOGS).label(PLACE), line.cluster, line.host, line.file, line.line, _uptime(LOGS).label("uptime")
    ).where(_ONLY_UPTIME, _of_hosts(hosts, LOGS.c.host))


def boots_by_lines(hosts: Sequence[str | None]) -> Select[Any]:
    """When these hosts booted (``boot``, epoch seconds), from lines with both a certain time and the machine's own
    (``uptime``): ``cluster``, ``host``, the resolution of the time (``resolution_us``), and by whom it can have been written
    (``authority``)."""
    line = RECENT_LINES.c
    uptime = _uptime(RECENT_LINES)
    boot = epoch(line.time) - uptime
    written = authority(RECENT_LINES).label("authority")
    return in_order(
        select(line.cluster, line.host, boot.label("boot"), uptime.label("uptime"), line.resolution_us, written)
        .distinct()
        .where(
            line.time.is_not(None), line.time_quality == const("line"), line.entities.like(const("%uptime_s%")), _of_hosts(hosts, line.host)
        )
    )  # fmt: skip


def boots() -> Select[Any]:
    """The distinct reported boots: ``cluster``, ``host`` and ``boot`` (epoch seconds)."""
    row = BOOTS.c
    return in_order(
        select(row.cluster, row.host, epoch(row.boot_time).label("boot")).distinct().where(row.boot_time.is_not(None))
    )


def last_lines_of_hosts(hosts: Sequence[str | None]) -> Select[Any]:
    """``cluster``, ``host`` and the time of its ``last`` line (epoch seconds), of these hosts."""
    line = RECENT_LINES.c
    last = epoch(func.max(line.time)).label("last")
    return (
        select(line.cluster, line.host, last)
        .where(line.time.is_not(None), _of_hosts(hosts, line.host))
        .group_by(line.cluster, line.host)
    )
