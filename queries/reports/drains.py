"""Drains: what the repair list would have drained and what became of those nodes, what the advisor did, and the ledger."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from correlator.repairs.drain_advice import HORIZON, Advice, Shadow, shadow
from correlator.repairs.repairs import DAYS
from queries.reports.model import Column, Figure, Section
from queries.reports.reader import Reader
from queries.reports.report import Report
from queries.reports.wording import stretch
from store.errors import NoSuchTable
from store.questions import drain_decisions, out_of_service

HOURS = HORIZON.total_seconds() / 3600

_ADVICE = (
    Column("node", "Node", "name"), Column("device", "Device", "name"), Column("at", "Would have drained", "time"),
    Column("drained", "Drained", "time"), Column("after_s", "After", "seconds"), Column("by", "By", "name"), Column("reason", "Reason"),
    Column("killed", "Killed first", "name"), Column("action", "Advice"),
)  # fmt: skip
_HELD = (
    Column("node", "Node", "name"), Column("device", "Device", "name"), Column("at", "Would have drained", "time"), Column("why", "Why not"),
)  # fmt: skip
_LEDGER = (
    Column("host", "Node", "name"), Column("state", "State", "name"), Column("begin", "From", "time"), Column("end", "Until", "time"),
    Column("seconds", "Lasted", "seconds", bar=True), Column("reason", "Reason"), Column("owner", "Reason of", "name"),
    Column("actor", "Set by", "name"), Column("undone_by", "Undone by", "name"), Column("times", "Times in 30 days", "count"),
)  # fmt: skip
_DECISIONS = (
    Column("at", "At", "time"), Column("host", "Node", "name"), Column("device", "Device", "name"), Column("step", "Decision", "name"),
    Column("guard", "Refused by", "name"), Column("detail", "Why"), Column("incident_id", "Incident", "name"), Column("reason", "Reason in Slurm"),
    Column("evidence", "Reported by"),
)  # fmt: skip
_REPEATED = (
    Column("host", "Node", "name"), Column("times", "Times in 30 days", "count", bar=True), Column("out_s", "Out of service", "seconds"),
    Column("reasons", "Reasons"), Column("last_seen", "Last", "time"),
)  # fmt: skip


def advice(reader: Reader) -> Section:
    """Nodes that the repair list would have drained, and whether people agreed."""
    found = shadow(reader.store, reader.since, reader.until)
    return Section(
        "advice", "Advice to drain, in shadow", _lead(found), figures=_figures(found),
        tables=(
            reader.table("", _ADVICE, [_row(one) for one in found.advice], empty="The repair list would have drained no node."),
            *([reader.table("Not advised again", _HELD, [asdict(one) for one in found.held])] if found.held else []),
        ),
        notes=(
            "This section only counts. The repair list was made again as it was then, "
            f"in steps of at least {found.step_min} min, from the {DAYS:g} days before. A node that was out of service already is no advice.",
            f"By: people, if the reason is in a person's words; the program that the reason names; unknown, if there is neither a reason nor a user. "
            f"A drain for another reason counts as well. Killed first: runs that an incident of the device ended before that, or within {HOURS:g} h. What was learned later counts "
            "in one respect: which incident a line belongs to.",
        ),
    )  # fmt: skip


def _lead(found: Shadow) -> str:
    when = f", {stretch(found.since, found.until)}" if found.since and found.until else ""
    many = len(found.advice)
    if not many:
        return f"No node would have been drained{when}."
    others = f" and {found.by_others} by others" if found.by_others else ""
    return (
        f"Of {many} {'node' if many == 1 else 'nodes'} that we would have drained{when}, {found.by_people} {_were(found.by_people)} drained by "
        f"people within {HOURS:g} h{others}; {found.killed_first} killed another job first."
    )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _figures(found: Shadow) -> tuple[Figure, ...]:
    many = len(found.advice)
    return (
        Figure("would have drained", many), Figure(f"drained by people within {HOURS:g} h", found.by_people),
        Figure("drained by others", found.by_others, note="a health check, Slurm itself, or unknown"),
        Figure("not drained", many - found.by_people - found.by_others), Figure("killed another job first", found.killed_first),
        Figure("hit rate", found.by_people / many if many else None, "share", "drained by people / would have drained"),
    )  # fmt: skip


def _row(one: Advice) -> dict[str, Any]:
    after = (one.drained - one.at).total_seconds() if one.drained else None
    return {"cluster": one.cluster, "node": one.node, "device": one.device, "at": one.at, "drained": one.drained, "after_s": after,
            "by": one.by, "reason": one.reason, "killed": list(one.killed), "action": one.action}  # fmt: skip


def decisions(reader: Reader) -> Section:
    """Every step of the acting mode: drains, resumes, and refusals with the guard."""
    try:
        rows = reader.rows(drain_decisions.in_period(reader.period))
    except NoSuchTable:  # a store of an older version, opened for reading
        rows = []
    shown = [
        row | {"host": reader.called(row["host"], row["cluster"]), "evidence": _witnesses(row["evidence"])}
        for row in rows
    ]
    steps = Counter(row["step"] for row in rows)
    return Section(
        "decisions", "What the drain advisor did", "Each drain and resume by the acting mode, what became of it, and each node that a guard kept "
        "it from draining. It is off unless [drain_advisor] says acting = true.",
        figures=tuple(Figure(step, steps[step]) for step in ("drained", "resumed", "undone", "taken over", "refused")),
        tables=(reader.table("", _DECISIONS, shown, empty="It decided nothing."),),
    )  # fmt: skip


def _witnesses(evidence: str | None) -> list[str]:
    """Each witness in words, with its last line."""
    return [
        f"{one['authority']} of {one['host']}, {one['lines']} lines until {one['time']}: {one['message']}"
        for one in json.loads(evidence or "[]")
    ]


def ledger(reader: Reader) -> Section:
    """Every period out of service, and the nodes with several."""
    rows = reader.rows(out_of_service.ledger(reader.period))
    repeated = reader.rows(out_of_service.repeated(reader.period))
    return Section(
        "ledger", "Drain ledger", "Every period out of service that ended in this period, or lasts: then it counts up to the cluster's newest "
        "record. Who set it is taken from accounting and scontrol; slurmctld's log names nobody unless it logs requests (DebugFlags=AuditRPCs since 23.11, SlurmctldDebug=debug2 in every release).",
        figures=(
            Figure("periods", len(rows)), Figure("nodes", len({(r["cluster"], r["host"]) for r in rows})),
            Figure("out of service now", len({(r["cluster"], r["host"]) for r in rows if r["end"] is None})),
            Figure("nodes more than once in 30 days", len(repeated)),
        ),
        tables=(
            reader.table("", _LEDGER, rows, empty="No node was out of service."),
            reader.table("More than once in 30 days", _REPEATED, repeated, empty="No node was out of service twice."),
        ),
    )  # fmt: skip


REPORT = Report(
    "drain-advice", "Drains and advice",
    f"What the repair list would have drained and whether people did within {HOURS:g} h; what the advisor did; the ledger of drains; the last {DAYS:g} days unless set otherwise.",
    lambda reader: [advice(reader), decisions(reader), ledger(reader)],
)  # fmt: skip
