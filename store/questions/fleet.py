"""Queries about all nodes at one moment: their states, places, incidents, temperatures and flaps.

Each is about every cluster. ``host`` and ``cluster`` are as stored: a row without a cluster may belong to any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.moments import later
from store.functions import const, counted, epoch, in_order, json_text, json_texts, last_by, listed, one_of, same
from store.questions.writers import DATED
from store.tables import CONCLUDED_FACTS as FACTS
from store.tables import EVENTS, INCIDENTS, LINKS, METRICS, MODEL_NODE_STATES, NODES, RUNS, STATES, TOPOLOGY

E, N, S = EVENTS.c, INCIDENTS.c, STATES.c


def span() -> sa.Select[Any]:
    """``first`` and ``last``: of all events that are not dated by users, and of states; of all events if there are no others;
    null in an empty store."""
    events = sa.select(
        func.coalesce(func.min(E.time).filter(DATED), func.min(E.time)).label("low"),
        func.coalesce(func.max(E.time).filter(DATED), func.max(E.time)).label("high"),
    )
    states = sa.select(func.min(MODEL_NODE_STATES.c.time), func.max(MODEL_NODE_STATES.c.time))
    times = sa.union_all(events, states).subquery("times")
    return sa.select(func.min(times.c.low).label("first"), func.max(times.c.high).label("last"))


def hosts() -> sa.Select[Any]:
    """``cluster``, ``host``, when it was first ``seen`` (by an event or a state; null: never), and whether Slurm has it as a
    node (``of_slurm``)."""
    runs = sa.select(RUNS.c.cluster, func.unnest(RUNS.c.nodes).label("host")).subquery("of_runs").c
    yes, no, never = sa.true(), sa.false(), sa.cast(sa.null(), sa.DateTime)
    parts = sa.union_all(
        sa.select(S.cluster, S.host, func.min(S.time).label("seen"), yes.label("of_slurm")).group_by(S.cluster, S.host),
        sa.select(E.cluster, E.host, func.min(E.time), no).group_by(E.cluster, E.host),
        sa.select(runs.cluster, runs.host, never, yes).distinct(),
        sa.select(TOPOLOGY.c.cluster, TOPOLOGY.c.child, never, yes).where(TOPOLOGY.c.kind == const("node")).distinct(),
        sa.select(LINKS.c.cluster, LINKS.c.host, never, no).distinct(),
    ).subquery("parts").c  # fmt: skip
    return in_order(
        sa.select(parts.cluster, parts.host, func.min(parts.seen).label("seen"), func.bool_or(parts.of_slurm).label("of_slurm"))
        .where(parts.host.is_not(None), parts.host != const("")).group_by(parts.cluster, parts.host)
    )  # fmt: skip


def switches() -> sa.Select[Any]:
    """``host``: the names of switches, in Slurm's topology and at the far ends of cables."""
    names = sa.union(sa.select(TOPOLOGY.c.switch.label("host")), sa.select(LINKS.c.switch))
    of = names.subquery("names")
    return sa.select(of.c.host).where(of.c.host.is_not(None)).order_by(of.c.host)


def tree() -> sa.Select[Any]:
    """``cluster``, ``host`` and ``switch``: the switches, or blocks, that nodes belong to in Slurm's topology."""
    t = TOPOLOGY.c
    asked = sa.select(t.cluster, t.child.label("host"), t.switch).where(t.kind == const("node"), t.switch.is_not(None))
    return in_order(asked.distinct())


def cables(at: datetime) -> sa.Select[Any]:
    """``cluster``, ``host``, ``switch`` and ``plane``: where the devices of nodes were connected at a moment, as it was last
    reported before it; where nothing was, as it was reported first."""
    c = LINKS.c
    track: dict[str, Any] = {"partition_by": (c.cluster, c.host, c.device)}
    later = sa.case((c.time > at, const(1)), else_=const(0))
    newest_first = sa.case((c.time > at, epoch(c.time)), else_=-epoch(func.coalesce(c.time, at)))
    rank = func.rank().over(order_by=(later, newest_first), **track).label("place")
    ranked = sa.select(c.cluster, c.host, c.switch, c.plane, rank).where(c.host.is_not(None)).subquery("ranked")
    r = ranked.c
    return in_order(sa.select(r.cluster, r.host, r.switch, r.plane).where(r.place == const(1)).distinct())


def _of(host: Any, hosts: Sequence[str] | None) -> list[Any]:
    return [] if hosts is None else [listed(host, hosts)]


def states(at: datetime, hosts: Sequence[str] | None = None) -> sa.Select[Any]:
    """The last states of each node up to a moment, several if they have the same time: ``time``, ``until``, ``state``, ``reason``,
    ``source``. ``hosts``: only of those."""
    # Ranking all of them takes twice as long as reading them twice.
    last = (
        sa.select(S.cluster, S.host, func.max(S.time).label("time"))
        .where(S.time <= at, *_of(S.host, hosts)).group_by(S.cluster, S.host)
    ).subquery("last")  # fmt: skip
    theirs = sa.and_(same(S.cluster, last.c.cluster), S.host == last.c.host, S.time == last.c.time)
    asked = sa.select(S.cluster, S.host, S.time, S.until, S.state, S.reason, S.source).join_from(STATES, last, theirs)
    return in_order(asked)


#: Accounting's rows are sent when they change, and jobs of a cluster change every few minutes.
SILENT = timedelta(minutes=15)


def reports_of_agents(sources: Collection[str]) -> sa.Select[Any]:
    """``cluster``, ``status`` (JSON) and ``status_at`` of the agents whose last report names one of some sources."""
    named = sa.or_(*(func.contains(NODES.c.status, f'"{name}"') for name in sources))
    return sa.select(NODES.c.cluster, NODES.c.status, NODES.c.status_at).where(named).order_by(NODES.c.host)


def running(
    at: datetime, collected_at: Collection[tuple[str | None, datetime]] = (), hosts: Sequence[str] | None = None
) -> sa.Select[Any]:
    """Of each host with runs of accounting's at a moment: ``run_key``, one of them, how many (``n``), and when the first ``began``.
    ``hosts``: only of those. slurmctld's log names no user, and a run whose end it did not log would run for ever; so would one that ended
    after accounting was last collected: without an end a run counts until ``SILENT`` after the last moment that accounting has of any run of
    its cluster, or at which it was collected (``collected_at``: clusters and moments)."""
    r = RUNS.c
    moments = func.max(func.greatest(r.submit, r.start, r.end)).label("at")
    newest = sa.select(r.cluster, moments).where(r.user.is_not(None)).group_by(r.cluster).subquery("newest")
    current = [same(r.cluster, cluster) for cluster, moment in collected_at if moment >= later(at, -SILENT)]
    collected = sa.and_(r.end.is_(None), sa.or_(newest.c.at >= later(at, -SILENT), *current))
    here = (
        sa.select(r.cluster, r.run_key, r.start, func.unnest(r.nodes).label("host"))
        .join_from(RUNS, newest, same(r.cluster, newest.c.cluster))
        .where(r.user.is_not(None), r.start <= at, sa.or_(r.end > at, collected))
    )
    on = here.subquery("here").c
    asked = sa.select(
        on.cluster, on.host, func.max(on.run_key).label("run_key"), counted().label("n"), func.min(on.start).label("began")
    ).where(*_of(on.host, hosts))  # fmt: skip
    return in_order(asked.group_by(on.cluster, on.host))


def open_incidents(at: datetime) -> sa.Select[Any]:
    """Incidents that had begun and were not over: ``cluster``, ``incident_id``, ``severity``, ``root_host`` and the ``hosts`` of their
    documents."""
    asked = sa.select(
        N.cluster, N.incident_id, N.severity, N.root_host, json_texts(N.document, "$.hosts[*]").label("hosts")
    )
    return asked.where(N.start <= at, sa.or_(N.end.is_(None), N.end >= at)).order_by(N.incident_id)


def rooted(
    causes: Collection[str], *, at: datetime | None = None, clusters: Sequence[str | None] = ()
) -> sa.Select[Any]:
    """Incidents that ended runs and are rooted in a host by one of some causes: their roots, severities, and ``job``, the
    least of the runs that they ended, null if that is not known. ``at``: they had begun by then. ``clusters``: one.

    The jobs are those of the runs: the documents of all incidents are long.
    """
    ended = sa.and_(RUNS.c.incident_id == N.incident_id, same(RUNS.c.cluster, N.cluster))
    columns = (N.cluster, N.incident_id, N.severity, N.root_event, N.root_host)
    wanted: list[Any] = [same(N.cluster, cluster) for cluster in clusters] + ([N.start <= at] if at else [])
    return (
        sa.select(*columns, func.min(RUNS.c.run_key).label("job")).join_from(INCIDENTS, RUNS, ended, isouter=True)
        .where(N.severity == const("impact"), N.root_host.is_not(None), one_of(N.root_event, sorted(causes)), *wanted)
        .group_by(*columns).order_by(N.incident_id)
    )  # fmt: skip


def hottest(metrics: Collection[str], since: datetime, at: datetime) -> sa.Select[Any]:
    """``value``: of each host the highest of its devices' last samples of some gauges since a time."""
    m = METRICS.c
    device = func.coalesce(json_text(m.labels, "$.pci_bus_id"), m.device, const(""))
    last = (
        sa.select(m.cluster, m.host, last_by(m.value, m.time).label("value"))
        .where(one_of(m.metric, metrics), m.time > since, m.time <= at, m.value.is_not(None))
        .group_by(m.cluster, m.host, device).subquery("last")
    )  # fmt: skip
    return in_order(
        sa.select(last.c.cluster, last.c.host, func.max(last.c.value).label("value")).group_by(
            last.c.cluster, last.c.host
        )
    )


def facts_by_host(kind: str, since: datetime, at: datetime) -> sa.Select[Any]:
    """``value``: how many facts of a kind began on each host after a time and up to a moment."""
    f = FACTS.c
    asked = sa.select(f.cluster, f.host, counted().label("value"))
    return in_order(
        asked.where(f.kind == kind, f.start > since, f.start <= at, f.host.is_not(None)).group_by(f.cluster, f.host)
    )


def place_of(host: str) -> sa.Select[Any]:
    """The cluster of a host that only a cable, Slurm's topology or a run's node list names."""
    runs = sa.select(RUNS.c.cluster, func.unnest(RUNS.c.nodes).label("host")).subquery("of_runs").c
    parts = sa.union(
        sa.select(TOPOLOGY.c.cluster).where(TOPOLOGY.c.child == host, TOPOLOGY.c.kind == const("node")),
        sa.select(LINKS.c.cluster).where(LINKS.c.host == host), sa.select(runs.cluster).where(runs.host == host),
    ).subquery("places")  # fmt: skip
    return sa.select(parts.c.cluster).order_by(parts.c.cluster).limit(1)
