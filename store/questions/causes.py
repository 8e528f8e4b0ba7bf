"""Queries about root causes: the harm each did, what was full or too hot, how certain incidents are."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const, counted, has, json_count, json_number, json_text, json_texts, listed, one_of
from store.questions.ended import BADLY, CATEGORY, GPU_HOURS, GPU_HOURS_LOST, JOBS_HURT, Period, total, whole
from store.questions.incidents import OVER
from store.tables import EVENTS, INCIDENTS, NUMBER, RUNS

R, N = RUNS.c, INCIDENTS.c
#: The label for the cause of a run whose verdict names no root.
_UNROOTED = sa.case((func.starts_with(R.category, const("infra.")), const("root not found")), else_=CATEGORY)


def by_harm(of: Period) -> sa.Select[Any]:
    """Incidents by root, and ended runs outside any incident by the root in their verdict, else by category."""
    hurt = func.coalesce(JOBS_HURT, const(0))
    rooted = sa.select(
        N.cluster, N.root_event.label("cause"), N.category, N.root_host.label("host"), N.root_device.label("device"), N.start,
        OVER.label("end"), const(1).label("incidents"), N.severity, hurt.label("jobs"),
        func.coalesce(GPU_HOURS_LOST, const(0)).label("gpu_hours"),
    ).where(*of.incidents)  # fmt: skip
    blames = sa.exists(sa.select(const(1)).where(N.incident_id == R.incident_id).correlate(RUNS))
    others = sa.select(
        R.cluster, func.coalesce(json_text(R.document, "$.root_cause.event"), _UNROOTED), R.category,
        json_text(R.document, "$.root_cause.host"), json_text(R.document, "$.root_cause.device"),
        func.coalesce(R.start, R.end), R.end, const(0), sa.null(), const(1), GPU_HOURS,
    ).where(BADLY, *of.holds(R.end), sa.not_(blames))  # fmt: skip
    c = sa.union_all(rooted, others).subquery("causes").c
    category = func.coalesce(c.category, const("without a verdict"))
    asked = sa.select(
        c.cluster, c.cause, category.label("category"), c.host, c.device,
        sa.cast(func.sum(c.incidents), NUMBER).label("incidents"),
        sa.cast(counted(c.severity == const("impact")), NUMBER).label("impact"), sa.cast(func.sum(c.jobs), NUMBER).label("jobs"),
        func.round(func.sum(c.gpu_hours), const(6)).label("gpu_hours"), func.min(c.start).label("first_seen"),
        func.max(c.end).label("last_seen"),
    ).group_by(c.cluster, c.cause, category, c.host, c.device)  # fmt: skip
    return asked.order_by(
        sa.desc("gpu_hours"), sa.desc("jobs"), sa.desc("incidents"), c.cause, c.host.nulls_last(), c.device.nulls_last(), c.cluster
    )  # fmt: skip


def link_outages(of: Period) -> sa.Select[Any]:
    """Link outages within the spans of a link's incidents, each once."""
    spans = func.unnest(func.json_extract(N.document, const("$.spans[*]"))).label("span")
    each = (
        sa.select(N.cluster, N.root_event, N.root_host, N.root_device, spans)
        .where(*of.incidents)
        .subquery("each_span")
        .c
    )
    own = sa.select(
        each.cluster, each.root_event, each.root_host, each.root_device, json_text(each.span, "$.start").label("start")
    ).where(
        json_text(each.span, "$.kind") == const("no_carrier"), json_text(each.span, "$.host") == each.root_host,
        json_text(each.span, "$.device") == each.root_device,
    ).distinct().subquery("own_spans").c  # fmt: skip
    cause, host, device = own.root_event.label("cause"), own.root_host.label("host"), own.root_device.label("device")
    asked = sa.select(own.cluster, cause, host, device, counted().label("outages"))
    return asked.group_by(own.cluster, own.root_event, own.root_host, own.root_device)


def harmful(of: Period) -> sa.Select[Any]:
    """Root causes of incidents that did harm: their number, jobs hurt, GPU-hours lost."""
    asked = sa.select(
        N.cluster, N.root_event.label("cause"), N.root_host.label("host"), N.root_device.label("device"),
        counted().label("incidents"), whole(JOBS_HURT).label("jobs"), total(GPU_HOURS_LOST).label("gpu_hours"),
    ).where(N.severity != const("benign"), *of.incidents)  # fmt: skip
    return asked.group_by(N.cluster, N.root_event, N.root_host, N.root_device)


def of_root_events(of: Period, events: tuple[str, ...]) -> sa.Select[Any]:
    """Incidents with one of some roots, by location."""
    asked = sa.select(
        N.cluster, N.root_host.label("host"), N.root_device.label("device"), N.root_event.label("cause"),
        counted().label("incidents"), whole(JOBS_HURT).label("jobs"), func.max(OVER).label("last_seen"),
    ).where(listed(N.root_event, events), *of.incidents)  # fmt: skip
    asked = asked.group_by(N.cluster, N.root_host, N.root_device, N.root_event)
    return asked.order_by(sa.desc("incidents"), N.root_host, N.root_device, N.cluster)


def events_of_kinds(of: Period, kinds: tuple[str, ...]) -> sa.Select[Any]:
    """Lines of some kinds of events (constants of ours), by host."""
    e = EVENTS.c
    host = func.coalesce(e.host, const("host not told"))
    lines = func.sum(func.greatest(func.coalesce(e["count"], const(1)), const(1)))
    asked = sa.select(
        e.cluster, host.label("host"), e.event, sa.cast(lines, NUMBER).label("events"),
        func.count(sa.distinct(e.job_id)).label("jobs"), func.min(e.time).label("first_seen"), func.max(e.time).label("last_seen"),
    ).where(one_of(e.event, kinds), *of.holds(e.time))  # fmt: skip
    return asked.group_by(e.cluster, host, e.event).order_by(sa.desc("events"), sa.asc("host"), e.event, e.cluster)


def of_network(of: Period) -> sa.Select[Any]:
    """Network incidents by start."""
    return sa.select(
        N.cluster, N.root_event.label("cause"), N.root_host.label("host"), N.root_device.label("device"), N.start, N.severity,
        func.coalesce(JOBS_HURT, const(0)).label("jobs"), json_text(N.document, "$.title").label("title"),
    ).where(N.category == const("infra.network"), *of.incidents).order_by(N.start, N.incident_id)  # fmt: skip


def doubtful(of: Period) -> sa.Select[Any]:
    """One row: incidents with doubts (``blind``), and those whose lines arrived late."""
    doubts = func.coalesce(json_count(N.document, "$.doubts"), const(0)) > const(0)
    late = has(json_texts(N.document, "$.spans[*].kind"), const("late"))
    return sa.select(counted(doubts).label("blind"), counted(late).label("late")).where(*of.incidents)


def doubts(of: Period) -> sa.Select[Any]:
    """The doubts that incidents state."""
    each = sa.select(N.incident_id, func.unnest(json_texts(N.document, "$.doubts[*]")).label("doubt")).where(
        *of.incidents
    )
    c = each.subquery("each_doubt").c
    ids = func.list_sort(func.list(sa.distinct(c.incident_id))).label("ids")
    asked = sa.select(c.doubt, counted().label("incidents"), ids).group_by(c.doubt)
    return asked.order_by(sa.desc("incidents"), c.doubt)


def by_node(of: Period) -> sa.Select[Any]:
    """Nodes by incidents that began on them or affected them."""
    root = sa.select(*INCIDENTS.columns, N.root_host.label("host"), sa.true().label("root"))
    root = root.where(N.root_host.is_not(None), *of.incidents)
    hosts = func.unnest(json_texts(N.document, "$.hosts[*]")).label("host")
    each = sa.select(*INCIDENTS.columns, hosts, sa.false().label("root")).where(*of.incidents).subquery("each_host")
    touched = sa.select(each).where(each.c.host.is_distinct_from(each.c.root_host))
    c = sa.union_all(root, touched).subquery("concerned").c
    over = func.coalesce(c.end, c.start)
    jobs = sa.cast(func.coalesce(func.sum(json_count(c.document, "$.jobs")).filter(c.root), const(0)), NUMBER)
    lost = func.coalesce(func.sum(json_number(c.document, "$.gpu_hours_lost")).filter(c.root), const(0))
    causes = func.coalesce(func.list_sort(func.list(sa.distinct(c.root_event)).filter(c.root)), func.list_value())
    asked = sa.select(
        c.cluster, c.host, counted(c.root).label("rooted"),
        counted(sa.and_(c.root, c.severity == const("impact"))).label("impact"), counted(sa.not_(c.root)).label("touched"),
        jobs.label("jobs"), lost.label("gpu_hours"), causes.label("causes"), func.max(over).label("last_seen"),
    ).group_by(c.cluster, c.host)  # fmt: skip
    return asked.order_by(
        sa.desc("rooted"), sa.desc("impact"), sa.desc("jobs"), sa.desc("touched"), c.host, c.cluster
    )  # fmt: skip
