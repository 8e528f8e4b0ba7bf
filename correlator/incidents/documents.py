"""corr-result/1: incidents and verdicts as other programs read them (and pages, with more keys)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from correlator.evidence.weigh import Weigher
from correlator.facts.gpus import XID
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import cause_of, kind_of, root_event, title_of
from correlator.facts.world import World
from correlator.incidents import sentences
from correlator.incidents.incident import AFTERMATH_S, LISTED, Incident, Survivors, events_of
from correlator.incidents.incidents import survivors
from correlator.incidents.rivals import denials, rival_rows
from correlator.incidents.rows import event_row, folded, run_summary, spans
from correlator.incidents.steps import chain_rows, mind_changed_by
from correlator.model.attributes import CODE, INFERRED
from correlator.model.categories import category_of
from correlator.model.json_text import sorted_json
from correlator.model.nouns import Event, Fact, Run
from correlator.model.time_texts import stamp
from correlator.verdicts.cancellations import not_by_its_user
from correlator.verdicts.verdict import Verdict

#: How often the root of each incident came, by the identity of its fact; once if absent.
Times = Mapping[int, int]
_ONCE: Times = MappingProxyType({})


def times_of(incidents: Iterable[Incident]) -> Times:
    return {id(incident.root): incident.times for incident in incidents}


def incident_document(world: World, weigher: Weigher, incident: Incident, times: Times = _ONCE) -> dict[str, Any]:
    """The incident as JSON. ``times`` is of all incidents: other candidates are roots of those."""
    root = incident.root
    hosts = incident.hosts
    hit = set(hosts)
    code = root.attrs.get(CODE) if root.kind == XID.name else None
    over = incident.end
    undecided = {v.run.key for v in incident.left_open}
    untouched = (
        survivors(world, incident)
        if incident.verdicts
        else _on_hosts(
            r
            for h in hosts
            for r in world.runs_at(h, root.start)
            if r not in incident.slowed and r.key not in undecided
        )
    )
    return {
        "id": incident.id, "start": stamp(incident.start), "end": stamp(over), "detected_at": None,
        "severity": incident.severity, "category": incident.category,
        "root_cause": {"event": root_event(root, incident.times), "code": code, "host": root.host, "device": root.device},
        "candidates": _candidates(incident, times),
        "hosts": hosts, "jobs": [
            {"job_id": v.run.key, "confidence": round(v.confidence, 4), **run_summary(v.run), **({"ended_with": v.ended_with.key} if v.ended_with else {})}
            for v in incident.verdicts
        ],
        "slowed_jobs": [r.key for r in incident.slowed], "chain": chain_rows(incident.hops), "events": _events(incident),
        "headline": sentences.headline(incident), "title": sentences.title(world, incident), "confidence": round(incident.confidence, 4), "grounds": sentences.grounds(world, incident),
        "status": "final", "final_at": None, "waits_for": [], "spans": spans(incident), "rivals": rival_rows(world, weigher, incident.verdicts, root),
        "advice": sentences.advice(incident), "gpu_hours_lost": sentences.gpu_hours(world, incident), "doubts": sentences.doubts(incident),
        "unaffected_jobs": [
            {"job_id": r.key, "state": _state_after(r, over), "why": _why_survived(r.nodes, hit)} for r in untouched.named
        ],
        "unaffected_count": untouched.count,
    }  # fmt: skip


#: A document that was not published yet, in JSON. Quotes inside texts are escaped, so no text of a document contains it.
_UNDATED = '"detected_at":null,'


def undated(document: Mapping[str, Any], text: str) -> str:
    """``text``, the JSON of an incident, without when it was first published."""
    before, key, behind = text.partition(_UNDATED)
    return before + behind if key else sorted_json({k: v for k, v in document.items() if k != "detected_at"})


def dated(document: Mapping[str, Any], text: str, moment: datetime | None) -> str:
    """``text``, the JSON of an incident, with when the running service first published it; null if it did not."""
    if moment is None:
        return text
    stated = moment.isoformat(timespec="microseconds") + "Z"
    before, key, behind = text.partition(_UNDATED)
    return f'{before}"detected_at":"{stated}",{behind}' if key else sorted_json({**document, "detected_at": stated})


def _state_after(run: Run, over: float) -> str:
    """The state of a surviving run when the incident was ``over``; what became of it later is unrelated."""
    return run.state if run.end is not None and run.end <= over + AFTERMATH_S else "went on"


def _on_hosts(runs: Iterable[Run]) -> Survivors:
    found = sorted({r.key: r for r in runs}.values(), key=lambda r: (r.job_id, r.attempt, r.key))
    return Survivors(tuple(found[:LISTED]), len(found))


def _why_survived(nodes: tuple[str, ...], hosts: set[str]) -> str:
    return "ran on other nodes" if hosts.isdisjoint(nodes) else "ran on the same node and was not hurt"


def _candidates(incident: Incident, times: Times) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str | None, str | None], float] = {}
    key = (root_event(incident.root, incident.times), incident.root.host, incident.root.device)
    rows[key] = incident.confidence
    for verdict in incident.verdicts:
        total = sum(c.weight for c in verdict.others) + (verdict.chain.weight if verdict.chain else 0.0)
        for chain in verdict.others:
            name = (root_event(chain.root, times.get(id(chain.root), 1)), chain.root.host, chain.root.device)
            rows.setdefault(name, (1.0 - incident.confidence) * chain.weight / max(total, 1e-9))
    return [
        {"event": e, "host": h, "device": d, "probability": round(p, 4)}
        for (e, h, d), p in sorted(rows.items(), key=lambda i: (-i[1], str(i[0])))
    ]


def _events(incident: Incident) -> list[dict[str, Any]]:
    roles: dict[str, str] = {}

    def mark(fact: Fact, role: str) -> None:
        for event in fact.events:
            roles.setdefault(event.id, "recovery" if event.kind.endswith("_up") else role)

    mark(incident.root, "cause")
    for fact in incident.members:
        mark(fact, kind_of(fact.kind).role)
    for fact in incident.flaps:
        mark(fact, "context")
    return [event_row(e, roles.get(e.id, "context")) for e in events_of(incident)]


def verdict_document(world: World, weigher: Weigher, verdict: Verdict, incident: Incident | None) -> dict[str, Any]:
    root = verdict.root
    category = category_of(verdict.category)
    evidence = _evidence(verdict)
    return {
        "category": verdict.category, "incident_id": incident.id if incident else None, "confidence": round(verdict.confidence, 4),
        "summary": _summary(verdict, incident, world), "final": True, "final_at": None, "waits_for": [],
        "root_cause": None if root is None else {
            "event": root_event(root, incident.times if incident else 1), "code": root.attrs.get(CODE), "host": root.host, "device": root.device},
        "chain": chain_rows(list(verdict.chain.hops)) if verdict.chain else [],
        "evidence": [event_row(e, role) for e, role in evidence],
        "rivals": rival_rows(world, weigher, [verdict], root),
        "grounds": sentences.grounds(world, incident) if incident else ([verdict.reason[:1].upper() + verdict.reason[1:]] if verdict.reason else []),
        "doubts": list(dict.fromkeys([*(sentences.doubts(incident) if incident else []), *verdict.doubts, *_contradicted(verdict), *denials(verdict),
            *world.accounting_time.words(), *world.left_out])),
        "advice": _advice(verdict, incident),
        "headline": _headline(verdict),
        "your_code": category.your_code,
        "change_my_mind": " ".join(
            [
                cause_of(root).disproof if category.infra and root else category.change,
                *_proof_of_denied(verdict), *_minds_changed(verdict),
            ]
        ), **run_summary(verdict.run),
    }  # fmt: skip


def _contradicted(verdict: Verdict) -> list[str]:
    """What sources of accounting tell differently about the run."""
    return [
        f"The records of this run contradict each other: {contradiction}"
        for contradiction in verdict.run.row.get("contradicted", ())
    ]


def _proof_of_denied(verdict: Verdict) -> list[str]:
    """Where it would show who wrote the lines that count for nothing because users can have written them."""
    if not verdict.denied:
        return []
    hosts = {one.event.host for one in verdict.denied if one.users}
    # In the run's order: one text for all that name the same hosts.
    named = tuple(host for host in dict.fromkeys(verdict.run.nodes) if host in hosts)
    if not named:
        return []
    return [
        f"The kernel's ring (dmesg -T) or the journal of {folded(named)}: they show who wrote the lines that do not count. If no user can "
        "write to these files, users_can_write_syslog = false in the configuration makes them count; for a log host's, users_can_send_syslog = false as well."
    ]


def _minds_changed(verdict: Verdict) -> list[str]:
    """What would change the verdict: other runs' evidence on the best explanation, verdict or rival, and missing witnesses."""
    best = verdict.chain or next(iter(verdict.others), None)
    found = mind_changed_by(best.hops) if best else []
    if verdict.missing:
        found.append(f"It would be confirmed or refuted by {sentences.listed([one.words for one in verdict.missing])}.")
    return found


def _headline(verdict: Verdict) -> str:
    category = category_of(verdict.category)
    root = verdict.root if category.infra else None
    blame = f"Your job died because {cause_of(root).plain}, not because of your code." if root else ""
    if verdict.unstarted:
        return f"Your program never started: {verdict.unstarted}. {blame}".rstrip()
    if blame:
        return blame
    if verdict.headline:
        return verdict.headline
    if category.by_others and not_by_its_user(verdict.run):
        return category.by_others.headline
    return category.headline


def _advice(verdict: Verdict, incident: Incident | None) -> list[dict[str, Any]]:
    if incident:
        return sentences.advice(incident)
    category = category_of(verdict.category)
    text = verdict.advice or category.advice
    if not verdict.advice and category.unprinted and not verdict.own:
        text = category.unprinted
    if category.by_others and not_by_its_user(verdict.run):
        text = category.by_others.advice
    return [{"text": text, "command": None}] if text else []


def _summary(verdict: Verdict, incident: Incident | None, world: World) -> str:
    run = verdict.run
    if verdict.root is not None:
        broke = title_of(verdict.root)
        down = (
            next((h.effect for h in verdict.chain.hops if h.effect.kind == NODE_DOWN.name), None)
            if verdict.chain
            else None
        )
        middle = f"; Slurm set {down.host} DOWN" if down else ""
        if down and not verdict.root.attrs.get(INFERRED) and down.start > verdict.root.start:
            middle += f" {down.start - verdict.root.start:.1f} s later"
        never = f": its program never started, {verdict.unstarted}" if verdict.unstarted else ""
        return f"{broke}{middle}; job {run.key} ended {run.state}{never}."
    return f"Job {run.key} ended {run.state}: {verdict.reason or 'no cause found'}."


def _evidence(verdict: Verdict) -> list[tuple[Event, str]]:
    found: dict[str, tuple[Event, str]] = {}
    if verdict.chain:
        for place, hop in enumerate(verdict.chain.hops):
            for fact, role in ((hop.cause, "cause" if place == 0 else "effect"), (hop.effect, "effect")):
                for event in fact.events[:6]:
                    found.setdefault(event.id, (event, role))
    for event in [*verdict.own, *verdict.end.events]:
        found.setdefault(event.id, (event, "effect"))
    return sorted(found.values(), key=lambda item: (item[0].time, item[0].id))
