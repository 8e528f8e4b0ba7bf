"""Queries about what speaks against a node: grave lines, incidents, states, silence. Each is about all nodes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.node_states import pattern_of
from parsers.writers import NO_USERS
from store.functions import (
    const,
    contains,
    counted,
    in_order,
    json_number,
    json_text,
    json_texts,
    last_by,
    listed,
    matches,
    one_of,
)
from store.questions.writers import authority
from store.tables import EVENTS, INCIDENTS, LINES, NODES, RUNS, SOURCES, STATES

E, L, N, S = EVENTS.c, LINES.c, INCIDENTS.c, STATES.c

#: Programs that validate a node.
VALIDATORS = ("healthagent", "nhc", "jetpack", "jetpackd")
_FAILED = ("error", "err", "critical", "crit", "alert", "emerg")
#: Sources whose lines are about other hosts than the one that writes them.
_ABOUT_OTHERS = ("slurmctld", "slurmdbd", "slurmrestd", "sacct", "sacct_json", "squeue", "scontrol", "jobcomp", "sinfo")


def grave_lines(events: Collection[str], since: datetime) -> sa.Select[Any]:
    """Lines of some events since a time, folded: per host, device, Xid, writer and incident the last ``time`` and its
    ``message``, the first time (``since``) and their number ``lines``."""
    xid = json_text(E.entities, "$.xid").label("xid")
    return _folded(xid, one_of(E.event, sorted(events)), E.time >= since)


def failed_validations(since: datetime) -> sa.Select[Any]:
    """Errors that ``VALIDATORS`` reported since a time, folded like ``grave_lines``, per ``check``; ``xid`` is null."""
    nothing = sa.cast(sa.null(), sa.String).label("xid")
    check = func.lower(func.coalesce(json_text(E.entities, "$.check"), json_text(E.entities, "$.service"))).label(
        "check"
    )
    # healthagent writes its reports at level INFO, whatever they say.
    failed = sa.or_(one_of(E.severity, _FAILED), E.event == const("slurm.node_error"))
    return _folded(nothing, one_of(E.source, VALIDATORS), failed, E.time >= since, check=check)


def later_reports(hosts: Collection[str], since: datetime) -> sa.Select[Any]:
    """Lines that ``VALIDATORS`` wrote about a check since a time, oldest first, on some hosts, if no user can have written them."""
    about_checks = sa.or_(contains(L.message, "Updated health report for "), contains(L.message, " Service Recovered"))
    written = one_of(authority(LINES), sorted(NO_USERS))
    asked = sa.select(L.cluster, L.host, L.source, L.time, L.message)
    return asked.where(
        listed(L.host, hosts), one_of(L.source, VALIDATORS), L.time >= since, about_checks, written
    ).order_by(L.time)


def _folded(xid: Any, *conditions: Any, check: Any = None) -> sa.Select[Any]:
    by = (
        E.cluster,
        E.host,
        E.source,
        E.event,
        E.device,
        xid,
        E.authority,
        E.incident_id,
        *(() if check is None else (check,)),
    )
    return in_order(
        sa.select(
            *by, func.max(E.time).label("time"), func.min(E.time).label("since"), last_by(E.message, E.time).label("message"),
            counted().label("lines"),
        ).where(E.host.is_not(None), *conditions).group_by(*by)
    )  # fmt: skip


def boots(since: datetime) -> sa.Select[Any]:
    """The last ``time`` at which each host's kernel started."""
    return in_order(
        sa.select(E.cluster, E.host, func.max(E.time).label("time"))
        .where(E.event == const("kernel.boot"), E.host.is_not(None), E.time >= since).group_by(E.cluster, E.host)
    )  # fmt: skip


def incidents_of_nodes(since: datetime) -> sa.Select[Any]:
    """Incidents that began or ended since a time and are not benign: place, root, title, ``status``, ``confidence``,
    and of each band on their axis host, end and text."""
    bands = {f"band_{name}": json_texts(N.document, f"$.spans[*].{name}") for name in ("host", "kind", "text")}
    return sa.select(
        N.incident_id, N.cluster, N.start, N.end, N.severity, N.category, N.root_event, N.root_host, N.root_device,
        json_text(N.document, "$.title").label("title"), json_text(N.document, "$.status").label("status"),
        json_number(N.document, "$.confidence").label("confidence"), *(column.label(name) for name, column in bands.items()),
    ).where(
        N.severity != const("benign"), func.greatest(N.start, func.coalesce(N.end, N.start)) >= since
    ).order_by(N.start, N.incident_id)  # fmt: skip


def ends_of_drains(since: datetime) -> sa.Select[Any]:
    """The last ``time`` since a moment at which each node left DRAIN."""
    track: dict[str, Any] = {"partition_by": (S.cluster, S.host), "order_by": (S.time, S.state)}
    drained = matches(func.coalesce(S.state, const("")), pattern_of({"DRAIN"}))
    before = func.lag(drained).over(**track).label("before")
    seen = sa.select(S.cluster, S.host, S.time, drained.label("drained"), before).subquery("seen")
    left = sa.and_(seen.c.before, sa.not_(seen.c.drained), seen.c.time >= since)
    by = (seen.c.cluster, seen.c.host)
    return in_order(sa.select(*by, func.max(seen.c.time).label("time")).where(left).group_by(*by))


def nodes_of_runs() -> sa.Select[Any]:
    """Cluster and ``host`` of each node that ever had a job."""
    return sa.select(RUNS.c.cluster, func.unnest(RUNS.c.nodes).label("host")).distinct()


def last_lines() -> sa.Select[Any]:
    """When each host last wrote a line of its own; by what the service received."""
    return sa.select(SOURCES.c.host, func.max(SOURCES.c.last_seen).label("time")).group_by(SOURCES.c.host)


def last_of_agents() -> sa.Select[Any]:
    """When each host's agent last reported."""
    n = NODES.c
    return sa.select(
        n.host, n.cluster, func.greatest(n.last_seen, func.coalesce(n.status_at, n.last_seen)).label("time")
    )


def last_events() -> sa.Select[Any]:
    """The last event of each host that it wrote itself."""
    return sa.select(E.host, E.cluster, func.max(E.time).label("time")).where(
        E.host.is_not(None), sa.not_(one_of(func.coalesce(E.source, const("")), _ABOUT_OTHERS))
    ).group_by(E.host, E.cluster)  # fmt: skip
