"""Events, runs and bands on the time axis as rows of documents."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from correlator.facts.registry import kind_of
from correlator.incidents.incident import Incident, events_of
from correlator.model.kinds import Band
from correlator.model.nouns import Event, Fact, Run
from correlator.model.time_texts import lasting, stamp
from parsers.hostlist import fold

#: A line that arrived this much later than it was written is reported as late.
LATE_S = 10.0


def event_row(event: Event, role: str = "context") -> dict[str, Any]:
    return {
        "id": event.id, "time": stamp(event.time), "host": event.host, "event": event.kind, "message": event.message,
        "source": event.file or event.source, "line": event.line, "layer": event.layer, "device": event.device,
        "severity": event.severity, "role": role, "received_time": stamp(event.received), "time_quality": event.time_quality,
        "resolution_s": event.sigma * 2, "clock_offset_s": round(event.clock_offset, 3) if event.clock_offset else 0.0,
        "also": [{"source": f, "line": n} for f, n in event.also] if event.also else [],
        "authority": event.authority or None,
    }  # fmt: skip


def spans(incident: Incident) -> list[dict[str, Any]]:
    """Bands on the time axis: links without carrier, nodes DOWN, hosts whose lines came late."""
    rows = []
    for fact in [incident.root, *incident.members, *incident.flaps]:
        bands = kind_of(fact.kind).bands
        rows += [_span(band, fact) for band in (bands(fact) if bands else ())]
    by_host: dict[str, list[Event]] = {}
    for event in events_of(incident):
        if event.host and event.received is not None and event.received - event.time > LATE_S:
            by_host.setdefault(event.host, []).append(event)
    for host, events in sorted(by_host.items()):
        start, end = min(e.time for e in events), max(e.received or e.time for e in events)
        late = max((e.received or e.time) - e.time for e in events)
        rows.append({"lane": f"{host} kernel", "layer": "kernel", "host": host, "device": None, "start": stamp(start), "end": stamp(end),
                     "kind": "late", "text": f"{host} silent; its lines came {lasting(late)} late"})  # fmt: skip
    return rows


def _span(band: Band, fact: Fact) -> dict[str, Any]:
    length = f", {lasting(fact.duration)}" if fact.duration is not None else ", still so when the data ends"
    return {"lane": band.lane, "layer": band.layer, "host": band.host, "device": band.device, "start": stamp(fact.start), "end": stamp(fact.end),
            "kind": band.state, "text": band.text + length}  # fmt: skip


@lru_cache(maxsize=4096)
def folded(nodes: tuple[str, ...]) -> str:
    """A run with its folded node list, computed once for its verdict and its incident."""
    return nodes[0] if len(nodes) == 1 else fold(nodes)


def run_summary(run: Run) -> dict[str, Any]:
    disputed = {"disputed": run.row["disputed"]} if "disputed" in run.row else {}
    return {**disputed, "state": run.state, "user": run.row.get("user"), "name": run.row.get("name"), "nodes": folded(run.nodes), "gpus": run.gpus,
            "start": stamp(run.start), "end": stamp(run.end)}  # fmt: skip
