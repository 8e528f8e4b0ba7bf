"""Decides which verdicts and incidents are final, and says until when the others wait, and for what.

A verdict is final once everything that could still change it (its ``Horizon``) has happened and its lines have had
``LATENESS_S`` to arrive. One whose cause still lasts, or that a silent node may explain, waits for that: at the longest
for the longest causal window. Lines that come even later reopen it; the history keeps both versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from correlator.live.awaited import LAST_WORDS_S, Silent, held, waiting, with_jobs_of
from correlator.live.frozen import Frozen, whole
from correlator.live.state import LiveConclusions, Touched, Wait, index_of
from correlator.model.time_texts import stamp
from correlator.verdicts.horizon import Horizon
from parsers.hostlist import fold

Document = Mapping[str, Any]

#: A verdict stays provisional for lines that are this late, seconds.
LATENESS_S = 600.0


def settled(
    known: LiveConclusions, longest: float, now: datetime, silent: Silent, former: LiveConclusions | None = None
) -> LiveConclusions:  # fmt: skip
    """Marks verdicts and incidents final or provisional, and holds back those that await a silent node (awaited.py).

    ``longest``: the longest causal window, seconds. ``former``: the conclusions before; a verdict that was final there
    stays so if it says the same. An incident is final when all its verdicts are and no further run can join it,
    ``longest`` after its end. A full pass over stored rows (``ingest``, ``correlate``) knows that nothing more will
    arrive and marks everything final. Returns the same object if nothing changes.
    """
    # Moments are RFC 3339 in UTC with microseconds, so they sort as text.
    border = (now - timedelta(seconds=LATENESS_S + longest)).isoformat(timespec="microseconds") + "Z"
    memory, before, incidents = known.memory, known.result.verdicts, known.result.incidents
    stories, horizons = memory.basis.stories, memory.horizons
    if memory.settled_until is None or border < memory.settled_until:
        keys: Iterable[str] = before
        places: Iterable[int] = range(len(incidents))
    else:
        keys = [k for k in memory.open_verdicts if k in before]
        places = _open_incidents(known)
    young = [
        k for k in keys if _is_young(before[k]["end"], border, k in horizons) and not _stands(former, k, before[k])
    ]
    names = {before[k]["incident_id"] for k in young}
    silences = waiting((stories[place] for place in places if incidents[place]["id"] in names), silent)
    waits = _waits(known, young, horizons, longest, now, silences, silent)
    turned = {}
    for key in keys:
        document, wait = before[key], waits.get(key)
        if wait is None or document["final"] or memory.shown.get(key) != wait:
            shown = (
                _final(document) if wait is None else _open(whole(document), wait, _horizon(horizons, key, document))
            )
            shown = held(shown, () if wait is None else silences.get(document["incident_id"], ()))
            if shown is not document:
                turned[key] = shown
    verdicts = {**before, **turned} if turned else before
    open_incidents, again = set(), {}
    for place in places:
        incident = incidents[place]
        end, jobs = incident["end"], [v.run.key for v in stories[place].verdicts]
        over = (end is None or end <= border) and not any(job in waits for job in jobs)
        if not over:
            open_incidents.add(incident["id"])
        if over:
            reported = _final(incident)
        elif incident["status"] == "final" or any(job in turned for job in jobs):
            reported = _open_incident(whole(incident), verdicts, longest, border)
        else:
            reported = incident
        reported = held(reported, silences.get(incident["id"], ()))
        if "awaited" in incident or "awaited" in reported:
            reported = with_jobs_of(reported, verdicts)
        if reported is not incident:
            again[place] = reported
    found = _turned(known, verdicts, turned.keys(), again) if turned or again else known
    still = {key: horizons[key] for key in waits if key in horizons}
    found.memory = replace(found.memory, settled_until=border, open_verdicts=frozenset(waits), open_incidents=frozenset(open_incidents), horizons=still, shown=waits)  # fmt: skip
    return found


def _is_young(end: str | None, border: str, has_horizon: bool) -> bool:
    """May a verdict still change by the rule for all, the longest window? ``end``: of its run, None if not known."""
    return has_horizon if end is None else end > border


def _stands(former: LiveConclusions | None, key: str, document: Document) -> bool:
    """Was a verdict final, and does it still say the same?"""
    former_verdict = former.result.verdicts.get(key) if former is not None else None
    return (
        former_verdict is not None
        and former_verdict["final"]
        and all(former_verdict[name] == document[name] for name in _STATED)
    )


#: What a verdict says: the rest of its document may change as an incident goes on.
_STATED = ("category", "root_cause", "incident_id", "end")


def _waits(
    known: LiveConclusions, keys: Iterable[str], horizons: Mapping[str, Horizon], longest: float, now: datetime,
    silences: Mapping[str, tuple[str, ...]], silent: Silent,
) -> dict[str, Wait]:  # fmt: skip
    """What each of these verdicts still waits for; those that wait for nothing are left out."""
    watermark = now.replace(tzinfo=UTC).timestamp() - LATENESS_S
    silent_nodes = _silent_nodes(keys, horizons, silent)
    found = {}
    for key in keys:
        document = known.result.verdicts[key]
        horizon = _horizon(horizons, key, document)
        hosts = silences.get(document["incident_id"], ()) or silent_nodes.get(key, ())
        latest = horizon.end + longest
        until = latest if hosts or horizon.lasting else min(horizon.until, latest)
        if until > watermark:
            found[key] = Wait(until, hosts)
    return found


def _horizon(horizons: Mapping[str, Horizon], key: str, document: Document) -> Horizon:
    """The horizon of a verdict; for one that ended too long ago to have any, that of any verdict."""
    if key in horizons:
        return horizons[key]
    end = datetime.fromisoformat(document["end"]).timestamp()
    return Horizon(end, math.inf, "its causes may be reported")


def _silent_nodes(keys: Iterable[str], horizons: Mapping[str, Horizon], silent: Silent) -> dict[str, tuple[str, ...]]:
    """The silent nodes of runs that ended for an unknown reason."""
    asked = {key: horizons[key] for key in keys if key in horizons and horizons[key].hosts}
    since: dict[str, float] = {}
    for horizon in asked.values():
        for host in horizon.hosts:
            since[host] = max(horizon.end + LAST_WORDS_S, since.get(host, 0.0))
    mute = silent(since) if since else frozenset()
    return {key: tuple(sorted(horizon.hosts & mute)) for key, horizon in asked.items()}


def _final(document: Document) -> Document:
    """A verdict or an incident to which nothing more can happen."""
    if isinstance(document, Frozen):
        return document
    if document.get("final", document.get("status") == "final"):
        return document
    over = {"status": "final"} if "status" in document else {"final": True}
    return {**document, **over, "final_at": None, "waits_for": []}


def _open(document: Document, wait: Wait, horizon: Horizon) -> Document:
    """A provisional verdict, with what it waits for."""
    at = wait.until + LATENESS_S
    reasons = [f"{_until(at)} for lines of {fold(wait.hosts)}"] if wait.hosts else []
    if horizon.lasting:
        reasons.append(f"{_until(at)} while this lasts: {horizon.lasting}")
    if not reasons:
        reasons.append(f"{_until(at)}: {horizon.what} {math.ceil((at - horizon.end) / 60.0)} min later")
    return {**document, "final": False, "final_at": stamp(at), "waits_for": reasons}


def _open_incident(incident: Document, verdicts: Mapping[str, Document], longest: float, border: str) -> Document:
    """A provisional incident, with what it waits for."""
    judged = [verdicts[j["job_id"]] for j in incident["jobs"] if j["job_id"] in verdicts]
    reasons = list(dict.fromkeys(reason for verdict in judged for reason in verdict["waits_for"]))
    moments = [verdict["final_at"] for verdict in judged if verdict["final_at"] is not None]
    if incident["end"] is not None and incident["end"] > border:
        at = datetime.fromisoformat(incident["end"]).timestamp() + longest + LATENESS_S
        moments.append(stamp(at))
        reasons.append(f"{_until(at)}: further jobs may turn out to have been hit by it")
    return {**incident, "status": "provisional", "final_at": max(moments, default=None), "waits_for": reasons}


def _until(at: float) -> str:
    """ "until 03:12 UTC", the first full minute at or after a moment."""
    minute = datetime.fromtimestamp(math.ceil(at / 60.0) * 60.0, UTC)
    return f"until {minute:%H:%M} UTC"


def _open_incidents(known: LiveConclusions) -> list[int]:
    """Indices of the incidents that are provisional or new, or have a run that is judged anew."""
    verdicts = known.result.verdicts
    names = known.memory.open_incidents | {
        verdicts[k]["incident_id"] for k in known.memory.open_verdicts if k in verdicts
    }
    found: list[int] = np.flatnonzero(index_of(known).spans.among(names)).tolist()
    return found


def _turned(
    known: LiveConclusions, verdicts: dict[str, Document], keys: Iterable[str], again: dict[int, Document]
) -> LiveConclusions:
    incidents = list(known.result.incidents)
    result = replace(known.result, verdicts=verdicts, incidents=incidents)
    if (
        known.change.touched is None and known.memory.settled_until is None
    ):  # concluded from scratch: all of it is compared later
        for place, document in again.items():
            incidents[place] = document
        return replace(known, result=result)
    before = known.change.touched or Touched([], {}, set())
    touched = Touched(list(before.incidents), dict(before.gone), {*before.verdicts, *keys})
    fresh = set(before.incidents)
    for place, document in again.items():
        if place not in fresh:
            touched.incidents.append(place)
            touched.gone[document["id"]] = (incidents[place], known.memory.basis.stories[place])
        incidents[place] = document
    return replace(known, result=result, change=replace(known.change, touched=touched))


__all__ = ["LATENESS_S", "settled"]
