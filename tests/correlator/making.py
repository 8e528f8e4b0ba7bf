"""Small worlds for tests: events, runs and their context, with only the relevant fields given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from correlator.facts.registry import conclude
from correlator.facts.world import World
from correlator.gather.events import device_of, layer_of
from correlator.model.nouns import Event, Fact, Run
from correlator.site.cabling import cabling
from correlator.site.site import build_site

#: 2026-02-06 16:00:00 UTC, a Friday afternoon.
T0 = 1770393600.0


def event(kind: str, at: float, host: str | None = None, message: str = "", **more: Any) -> Event:
    """An event ``at`` seconds after T0; entities by name, ``source``, ``job_id`` and ``sigma`` unchanged."""
    source = more.pop("source", "kernel")
    job, sigma, received = more.pop("job_id", None), more.pop("sigma", 0.001), more.pop("received", None)
    count, last = more.pop("count", 1), more.pop("last", at)
    return Event(
        id=f"e{kind}{at}{host}{message}{job}", time=T0 + at, sigma=sigma, kind=kind, host=host, device=device_of(more), job_id=job,
        message=message, source=source, layer=layer_of(kind, source), severity=None, file="f", line=int(abs(at) * 10) + 1,
        received=None if received is None else T0 + received, time_quality="line", count=count, last=T0 + last, entities=more,
    )  # fmt: skip


def run(job: int, nodes: Iterable[str], start: float, end: float | None, state: str = "FAILED", **row: Any) -> Run:
    return Run(
        str(job), job, 0, state, tuple(nodes), T0 + start - 1, T0 + start, None if end is None else T0 + end, row
    )


def world(events: Iterable[Event], runs: Iterable[Run] = (), *, settings: Mapping[str, object] | None = None,
          links: Iterable[Mapping[str, Any]] = (), hosts: Iterable[str] = (), topology: Iterable[Mapping[str, Any]] = (), **more: Any) -> World:  # fmt: skip
    """Concluded: all detectors have run."""
    events = sorted(events, key=lambda e: (e.time, e.kind, e.host or "", e.device or "", e.id))
    runs = list(runs)
    known = {e.host for e in events if e.host} | {n for r in runs for n in r.nodes} | set(hosts)
    cables = [{"plane": "", "rail": "", **row} for row in links]
    found = World(
        build_site("c", [], cabling(cables), topology, known, settings or {"SlurmdTimeout": 300}), events, runs, **more
    )
    conclude(found)
    return found


def facts(where: World, kind: str) -> list[Fact]:
    return [f for f in where.facts if f.kind == kind]
