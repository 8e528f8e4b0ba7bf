"""``GET /api/v1/incidents/{id}/what-if``: which jobs would have lived with another SlurmdTimeout; also for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from correlator.engine import load_edges, read_inventory
from correlator.facts.links.kinds import LINK_OUTAGE, SWITCH_OUTAGE
from correlator.replay import what_if as rules
from correlator.replay.what_if import Loss
from correlator.site.site import build_site
from correlator.site.windows import Value
from store.errors import NoSuchTable
from store.questions import concluded_facts
from web.access.own import OwnReader
from web.access.own_documents import OwnDocuments
from web.api import Read, incident_jobs
from web.problems import ProblemError
from web.reading import Reader
from web.shaping import document, moment, wire

router = APIRouter(prefix="/api/v1")
Row = dict[str, Any]
Timeout = Annotated[int | None, Query(ge=rules.LEAST_S, le=rules.MOST_S, description="another SlurmdTimeout, seconds")]
#: Facts and steps of a chain have the same moment, up to what its text rounds.
SAME_MOMENT = timedelta(milliseconds=1)
#: The links behind a switch that fails go down within this.
WITH_IT = timedelta(seconds=30)


def losses_of(read: Reader, row: Row, edges: Mapping[str, str]) -> list[Loss]:
    """The nodes of an incident that slurmctld set DOWN because they did not answer for SlurmdTimeout."""
    steps = [one for one in row["document"].get("chain") or [] if one.get("edge") in edges and one.get("cause_fact") in rules.SURVIVABLE]  # fmt: skip
    timed = [(one, moment(one.get("cause_time")), moment(one.get("effect_time"))) for one in steps]
    placed = [(one, lost, down) for one, lost, down in timed if lost and down and one.get("effect_host")]
    if not placed:
        return []
    hosts = sorted({str(one[f"{end}_host"]) for one, _, _ in placed for end in ("cause", "effect")})
    times = [lost for _, lost, _ in placed]
    try:
        facts = read.ask(concluded_facts.begun(row["cluster"], rules.SURVIVABLE, hosts, min(times) - WITH_IT, max(times) + WITH_IT))  # fmt: skip
    except NoSuchTable:  # a store of an older version, opened for reading
        return []
    found: dict[str, Loss] = {}
    for one, lost, down in placed:
        if (fact := _loss_in(facts, one, lost)) is None:
            continue
        is_seen = fact["end"] is not None and not document(fact["attributes"]).get("end_unseen")
        away = (fact["end"] - lost).total_seconds() if is_seen else None
        host = str(one["effect_host"])
        found.setdefault(
            host, Loss(host, fact["kind"], fact["device"], lost, down, away, one["edge"], edges[one["edge"]])
        )
    return [found[host] for host in sorted(found)]


def _loss_in(facts: Sequence[Row], step: Row, lost: datetime) -> Row | None:
    """The fact that says how long the node of a step was away. Of a node behind a switch that failed, that is its own link, the
    last to come back; the switch, if no link of it is known."""
    if step["cause_fact"] == SWITCH_OUTAGE.name:
        behind = [
            one for one in facts
            if one["kind"] == LINK_OUTAGE.name and one["host"] == step["effect_host"] and abs(one["start"] - lost) <= WITH_IT
            and document(one["attributes"]).get("role") != "fabric"
        ]  # fmt: skip
        if behind:
            return max(behind, key=lambda one: one["end"] or datetime.max)
    place = [step[f"cause_{part}"] for part in ("fact", "host", "device")]
    same = (one for one in facts if [one["kind"], one["host"], one["device"]] == place)
    return next((one for one in same if abs(one["start"] - lost) <= SAME_MOMENT), None)


@cache
def _windows(edge_paths: tuple[Path, ...]) -> Mapping[str, str]:
    """Edge files are read once: a service takes changed ones with its next start."""
    return rules.timeout_windows(load_edges(edge_paths).edges)


def answer(request: Request, read: Reader, row: Row, asked: int | None) -> Row | None:
    """The answer about an incident for a reader; None if none of its nodes was given up for SlurmdTimeout. ``asked``: another
    SlurmdTimeout; None: twice the present one."""
    whole: Reader = request.app.state.reader
    subject = whole.incident(row["incident_id"]) if read.own else row
    engine = request.app.state.settings.get("correlating") or {}
    losses = losses_of(whole, subject, _windows(tuple(engine.get("edges") or ())))
    if not losses:
        return None
    settings = _settings(whole, row["cluster"], engine.get("settings"))
    timeout = asked or min(rules.MOST_S, round(2 * settings[rules.TIMEOUT].high))
    runs = whole.runs_by_key(incident_jobs(subject["document"], 0))
    outcomes = {one.host: rules.judged(one, timeout, settings) for one in losses}
    jobs = [_job(run, losses, outcomes) for run in runs]
    found = {
        "incident_id": row["incident_id"], "slurmd_timeout": rules.setting_in_words(settings[rules.TIMEOUT]), "asked": timeout,
        "given_up_s": list(rules.gives_up(losses, timeout, settings)),
        "nodes": [_node(one, outcomes[one.host], settings) for one in losses],
        "jobs": [one for one in jobs if one is not None], "assumes": rules.assumed(losses, timeout, settings),
    }  # fmt: skip
    if isinstance(read, OwnReader):
        found = OwnDocuments(read).what_if(row, found)
        if not found["jobs"]:
            return None
    for job in found["jobs"]:
        del job["own_key"]
    least = [one["least_s"] for one in found["nodes"]]
    made: Row = wire(found | {"least_s": None if None in least else max(least, default=None)})
    return made


def _settings(read: Reader, cluster: str | None, overrides: Mapping[str, object] | None) -> dict[str, Value]:
    inventory = read_inventory(read.store, cluster)
    site = build_site(cluster, inventory.settings, inventory.cabling, inventory.topology, (), overrides)
    return site.values_for(None)


def _node(one: Loss, outcome: str, settings: Mapping[str, Value]) -> Row:
    return {
        "host": one.host, "lost_by": one.kind, "device": one.device, "lost_at": one.start, "down_at": one.down, "down_after_s": one.lag_s,
        "away_s": one.away_s, "outcome": outcome, "least_s": rules.least_timeout([one], settings),
    }  # fmt: skip


def _job(run: Row, losses: Sequence[Loss], outcomes: Mapping[str, str]) -> Row | None:
    """A run that ended as its node was set DOWN; None if it ended otherwise."""
    by = [one.host for one in losses if rules.took(one, run["nodes"] or (), run["end"])]
    if not by:
        return None
    own_nodes = [host for host in run["nodes"] or () if host in outcomes]
    return {
        "job_id": run["run_key"], "own_key": run["own_key"], "state": run["state"], "nodes": own_nodes,
        "outcome": rules.worst(outcomes[host] for host in own_nodes),
    }  # fmt: skip


@router.get("/incidents/{incident_id}/what-if", tags=["incidents"])
def what_if(request: Request, read: Read, incident_id: str, slurmd_timeout: Timeout = None) -> Row:
    """Which of the jobs that a node took with it would have lived with another SlurmdTimeout, and what that assumes. 404 if no
    node of the incident was set DOWN because it did not answer for SlurmdTimeout."""
    found = answer(request, read, read.incident(incident_id), slurmd_timeout)
    if found is None:
        raise ProblemError(
            404, f"No node of incident {incident_id} was set DOWN because it did not answer for SlurmdTimeout.",
            do="See the incident for what ended its jobs.",
        )  # fmt: skip
    return found
