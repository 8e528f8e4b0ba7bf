"""The input of the repair list: events of devices, cables, hosts, incidents and runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import CompoundSelect, Select, and_, func, literal, select, union

from store.functions import among, const, epoch, in_order, json_texts, one_of, same, unnested
from store.questions.writers import DATED
from store.tables import EVENTS, INCIDENTS, LINKS, MODEL_NODE_STATES, NUMBER, REAL, RUNS, TEXT


class Stretch(NamedTuple):
    """Trouble of the device at index ``place`` of a list: on ``host`` from ``begin`` to ``end`` (epoch seconds)."""

    place: int
    host: str
    begin: float
    end: float


def last_event() -> Select[Any]:
    """``last``: the time of the last event; ``dated``: of the last one whose time no user can have chosen, or of the last if
    there is no such. Null if there is none."""
    time = EVENTS.c.time
    last = func.max(time)
    return select(last.label("last"), func.coalesce(last.filter(DATED), last).label("dated"))


def events_of_devices(kinds: Iterable[str], since: datetime, until: datetime) -> Select[Any]:
    """Events of some kinds from ``since`` (inclusive) to ``until`` (exclusive), by cluster and time (epoch microseconds)."""
    event = EVENTS.c
    resolution, count = func.coalesce(event.resolution_us, const(0)), func.coalesce(event["count"], const(1))
    return (
        select(
            event.event_id, func.epoch_us(event.time).label("time"), resolution.label("resolution_us"), event.cluster, event.host, event.source,
            event.layer, event.event, event.severity, event.device, event.job_id, event.message, event.entities, count.label("count"),
            event.incident_id, event.file, event.line, event.authority,
        )
        .where(one_of(event.event, kinds), event.time >= since, event.time < until)
        .order_by(event.cluster, event.time, event.event, event.host, event.device, event.event_id)
    )  # fmt: skip


def cables(cluster: str | None) -> Select[Any]:
    """The distinct cables of a cluster."""
    names = ("host", "device", "switch", "switch_port", "plane", "rail", "source")
    return in_order(select(*(LINKS.c[name] for name in names)).distinct().where(same(LINKS.c.cluster, cluster)))


def hosts(cluster: str | None) -> CompoundSelect[Any]:
    """``host``: each one that an event or a run of the cluster names."""
    seen = select(EVENTS.c.host).distinct().where(EVENTS.c.host.is_not(None), same(EVENTS.c.cluster, cluster))
    used = select(func.unnest(RUNS.c.nodes).label("host")).distinct().where(same(RUNS.c.cluster, cluster))
    return union(seen, used).order_by("host")


def hosts_of_switch_events(cluster: str | None) -> Select[Any]:
    """``host``: each one that wrote a switch event."""
    event = EVENTS.c
    return select(event.host).distinct().where(
        event.event.like(const("switch.%")), event.host.is_not(None), same(event.cluster, cluster)
    )  # fmt: skip


def incidents(cluster: str | None, names: Collection[str]) -> Select[Any]:
    """For some incidents: ``incident_id``, ``root_event``, the ``jobs`` that they ended and those that they
    ``slowed``."""
    one = INCIDENTS.c
    ended, slowed = (json_texts(one.document, path) for path in ("$.jobs[*].job_id", "$.slowed_jobs[*]"))
    return select(one.incident_id, one.root_event, ended.label("jobs"), slowed.label("slowed")).where(
        same(one.cluster, cluster), among(one.incident_id, names)
    )


def hosts_of_slurm(cluster: str | None) -> CompoundSelect[Any]:
    """``host``: each one that Slurm has as a node, by its states or by a run on it."""
    state = MODEL_NODE_STATES.c
    asked = select(state.host).distinct().where(state.host.is_not(None), same(state.cluster, cluster))
    used = select(func.unnest(RUNS.c.nodes).label("host")).distinct().where(same(RUNS.c.cluster, cluster))
    return union(asked, used).order_by("host")


def ends(cluster: str | None, keys: Collection[str]) -> Select[Any]:
    """``run_key`` and ``end`` of some runs."""
    run = RUNS.c
    return select(run.run_key, run.end).where(same(run.cluster, cluster), among(run.run_key, keys))


def deaths(cluster: str | None) -> Select[Any]:
    """Runs that ended badly by an incident: ``run_key``, ``end``, and the ``host`` and ``device`` at which it is
    rooted."""
    run, one = RUNS.c, INCIDENTS.c
    of_it = and_(one.incident_id == run.incident_id, one.cluster.is_not_distinct_from(run.cluster))
    return (
        select(run.run_key, run.end, one.root_host.label("host"), one.root_device.label("device")).join_from(RUNS, INCIDENTS, of_it)
        .where(same(run.cluster, cluster), run.end.is_not(None), one.root_host.is_not(None), func.starts_with(run.category, const("infra.")))
        .order_by(run.end, run.run_key)
    )  # fmt: skip


def runs_in_trouble(cluster: str | None, stretches: Sequence[Stretch]) -> Select[Any]:
    """How many ``runs`` were on the hosts of some trouble at that time: one row for each ``place`` that had any."""
    columns = zip(
        ("place", "host", "begin", "end"), (NUMBER, TEXT, REAL, REAL), zip(*stretches, strict=True), strict=True
    )
    trouble = select(*(unnested(values, kind).label(name) for name, kind, values in columns)).cte("trouble")
    run = RUNS.c
    running = (
        select(
            run.run_key, func.unnest(run.nodes).label("host"), epoch(run.start).label("begin"),
            func.coalesce(epoch(run.end), literal(float("inf"), REAL)).label("end"),
        )
        .where(run.start.is_not(None), same(run.cluster, cluster))
        .cte("running")
    )  # fmt: skip
    meanwhile = and_(
        running.c.host == trouble.c.host, running.c.begin <= trouble.c.end, running.c.end >= trouble.c.begin
    )
    return (
        select(trouble.c.place, func.count(running.c.run_key.distinct()).label("runs"))
        .join_from(trouble, running, meanwhile)
        .group_by(trouble.c.place)
    )
