"""Compares the conclusions before with those of now: which documents differ, and which have become final.

A tick knows where it concluded anew, and documents are compared only there. A document that is the same object was
published and stored already and is not compared again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from correlator.live.awaited import Silent, held, waiting, with_jobs_of
from correlator.live.state import LiveConclusions, Memory, Touched

Document = dict[str, Any]


def everything(found: LiveConclusions) -> Touched:
    """All documents, for a cluster without earlier conclusions."""
    return Touched(list(range(len(found.incidents))), {}, set(found.verdicts))


#: A verdict stays provisional for lines that are this late, seconds.
LATENESS_S = 600.0


def settled(known: LiveConclusions, longest: float, now: datetime, silent: Silent) -> LiveConclusions:
    """Marks verdicts and incidents final or provisional, and holds back those that await a silent node (awaited.py).

    A verdict is final when the watermark (``now`` less ``LATENESS_S``) has passed its run's end by ``longest``, the
    longest causal window in seconds. An incident is final when all its verdicts are. A full pass over stored rows
    (``ingest``, ``correlate``) knows that nothing more will arrive and marks everything final. Returns the same object
    if nothing changes.
    """
    # Moments are RFC 3339 in UTC with microseconds, so they sort as text.
    watermark = now - timedelta(seconds=LATENESS_S + longest)
    border = watermark.isoformat(timespec="microseconds") + "Z"
    if known.memory.settled_until is None or border < known.memory.settled_until:
        keys: Iterable[str] = known.verdicts
        places: Iterable[int] = range(len(known.incidents))
    else:
        keys = [k for k in known.memory.open_verdicts if k in known.verdicts]
        places = _open_incidents(known)
    verdicts_before = known.verdicts
    final = {k: verdicts_before[k]["end"] is None or verdicts_before[k]["end"] <= border for k in keys}
    waits = waiting((known.stories[place] for place in _provisional(known, places, final)), silent)
    shown = {
        k: _shown(verdicts_before[k], f, () if f else waits.get(verdicts_before[k]["incident_id"], ()))
        for k, f in final.items()
    }
    turned = {k: document for k, document in shown.items() if document is not verdicts_before[k]}
    verdicts = {**verdicts_before, **turned} if turned else verdicts_before
    open_incidents, again = set(), {}
    for place in places:
        incident = known.incidents[place]
        end, jobs = incident["end"], incident["jobs"]
        over = (end is None or end <= border) and all(
            verdicts[j["job_id"]]["final"] for j in jobs if j["job_id"] in verdicts
        )
        if not over:
            open_incidents.add(incident["id"])
        status = "final" if over else "provisional"
        reported = incident if incident["status"] == status else {**incident, "status": status}
        reported = held(reported, waits.get(incident["id"], ()))
        if "awaited" in incident or "awaited" in reported:
            reported = with_jobs_of(reported, verdicts)
        if reported is not incident:
            again[place] = reported
    found = _turned(known, verdicts, turned.keys(), again) if turned or again else known
    open_verdicts = frozenset(k for k, over in final.items() if not over)
    found.memory = Memory(border, open_verdicts, frozenset(open_incidents), known.memory.index)
    return found


def _provisional(known: LiveConclusions, places: Iterable[int], final: Mapping[str, bool]) -> list[int]:
    """Indices of the incidents that have a verdict which is not final."""
    names = {known.verdicts[k]["incident_id"] for k, over in final.items() if not over}
    return [place for place in places if known.incidents[place]["id"] in names]


def _shown(document: Document, final: bool, hosts: tuple[str, ...]) -> Document:
    document = held(document, hosts)
    return document if document["final"] == final else {**document, "final": final}


def _open_incidents(known: LiveConclusions) -> list[int]:
    """Indices of the incidents that are provisional or new, or have a run that is judged anew."""
    names = known.memory.open_incidents | {
        known.verdicts[k]["incident_id"] for k in known.memory.open_verdicts if k in known.verdicts
    }
    return [n for n, i in enumerate(known.incidents) if i["id"] in names] if names - {None} else []


def _turned(
    known: LiveConclusions, verdicts: dict[str, Document], keys: Iterable[str], again: dict[int, Document]
) -> LiveConclusions:
    incidents = list(known.incidents)
    if (
        known.change.touched is None and known.memory.settled_until is None
    ):  # concluded from scratch: all of it is compared later
        for place, document in again.items():
            incidents[place] = document
        return replace(known, verdicts=verdicts, incidents=incidents)
    before = known.change.touched or Touched([], {}, set())
    touched = Touched(list(before.incidents), dict(before.gone), {*before.verdicts, *keys})
    fresh = set(before.incidents)
    for place, document in again.items():
        if place not in fresh:
            touched.incidents.append(place)
            touched.gone[document["id"]] = (incidents[place], known.stories[place])
        incidents[place] = document
    return replace(known, verdicts=verdicts, incidents=incidents, change=replace(known.change, touched=touched))


def same_objects(found: LiveConclusions, before: LiveConclusions | None) -> LiveConclusions:
    """The conclusions, with the objects of ``before`` for all documents that are equal; ``touched`` keeps only those
    that differ.

    A new incident inherits its detection time. ``found`` is modified in place: no other thread has it yet.
    """
    if before is None or found is before:
        return found
    touched = found.change.touched or _compared(found, before)
    again = []
    for place in touched.incidents:
        document = found.incidents[place]
        old, _ = touched.gone.get(document["id"], (None, None))
        found.incidents[place] = _same(document, old)
        if found.incidents[place] is old:
            del touched.gone[document["id"]]
        else:
            again.append(place)
    verdicts = {}
    for key in touched.verdicts:
        now, then = found.verdicts.get(key), before.verdicts.get(key)
        if now is not None and now is not then:
            verdicts[key] = _same(now, then)
    found.verdicts.update(verdicts)
    keys = {k for k in touched.verdicts if found.verdicts.get(k) is not before.verdicts.get(k)}
    found.change = replace(found.change, touched=Touched(again, touched.gone, keys))
    return found


def _compared(found: LiveConclusions, before: LiveConclusions) -> Touched:
    """The changes between two sets of conclusions where everything was concluded anew."""
    gone = {i["id"]: (i, s) for i, s in zip(before.incidents, before.stories, strict=True)}
    return Touched(list(range(len(found.incidents))), gone, {*found.verdicts, *before.verdicts})


def _same(document: Document, old: Document | None) -> Document:
    if old is None or document is old:
        return document
    if "detected_at" in old:
        document = {**document, "detected_at": old["detected_at"]}
    return old if document == old else document


__all__ = ["Touched", "everything", "same_objects", "settled"]
