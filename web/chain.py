"""The evidence chain of an incident as lists to read: its steps, numbered as on the time axis, and its events as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any

from correlator.facts.registry import kind_of
from web.axis_ends import Hop, first_evidence, hops_of
from web.lags import Lag, lag_of
from web.shaping import between
from web.timerange import rfc3339

Row = dict[str, Any]

#: Pages give the begin of an incident to this.
SHOWN = timedelta(seconds=1)
#: From this many steps of one kind on (the links of a switch, the errors of one kernel), one is shown and the rest
#: folded.
FOLD = 4


def chain_steps(document: Row, events: dict[str, Row]) -> list[Row]:
    """The chain as a list to read: the causes first, each effect with the lag and window that lead to it.

    Steps of one kind share a number; ``more`` are those after the first. ``mark`` is the id of its mark on the axis,
    ``lag`` what is drawn between it and the mark of its cause.
    """
    chain = document.get("chain") or []
    effects = {str(step.get("effect")) for step in chain}
    roots = [event for event in events.values() if event.get("role") == "cause"]
    roots += [events[str(step["cause"])] for step in chain if str(step.get("cause")) in events]
    listed: dict[str, Row] = {}
    for event in sorted(roots, key=lambda item: str(item.get("time"))):
        # An event that only explains a recovery is not a cause of the incident and gets no number.
        if str(event.get("id")) not in effects and event.get("role") != "recovery":
            listed.setdefault(str(event.get("id")), {"event": event, "step": None})
    hops = hops_of(document)
    steps = [{"event": events.get(str(step.get("effect")), {}), "step": step} for step in _in_time(chain, hops)]
    out = [*_concluded(hops), *listed.values(), *steps]
    marks, lags = {id(hop.step): hop.effect.id for hop in hops}, {id(hop.step): lag_of(hop) for hop in hops}
    out = [{**item, "lag": lags.get(id(item["step"]))} for item in out]
    numbered = [{**item, "n": number} for number, item in enumerate(_folded(out), 1)]
    return [{**item, "mark": marks.get(id(item["step"])) or item["event"].get("id")} for item in numbered]


def _in_time(chain: Sequence[Row], hops: Sequence[Hop]) -> list[Row]:
    """Steps in the order of their effects' marks on the axis, each behind those that lead to its cause; those without a mark come last."""
    led_to = Counter(hop.effect.id for hop in hops if hop.cause is not hop.effect)
    begin: dict[str, list[int]] = {}
    for place, hop in enumerate(hops):
        begin.setdefault(hop.cause.id, []).append(place)
    ready = [(hop.effect.at, place) for place, hop in enumerate(hops) if not led_to[hop.cause.id]]
    heapify(ready)
    found: dict[int, Row] = {}
    while ready:
        _, place = heappop(ready)
        effect, step = hops[place].effect.id, hops[place].step
        found[id(step)] = step
        led_to[effect] -= 1
        if not led_to[effect]:
            for following in begin.get(effect, ()):
                heappush(ready, (hops[following].effect.at, following))
    return [*found.values(), *(step for step in chain if id(step) not in found)]


def _concluded(hops: Iterable[Hop]) -> list[Row]:
    """First causes that no line tells of at their time, as they stand on the axis: heat of GPUs beside lines of a CPU, a switch
    without power before the line of its boot. ``until``: the last moment at which it can have begun."""
    hops = list(hops)
    effects = {hop.effect.id for hop in hops}
    found = {hop.cause.id: hop.cause for hop in hops if hop.cause.line is None and not hop.cause.ends_run}
    return [
        {"event": {"id": key, "event": end.kind, "host": end.host, "time": rfc3339(end.first), "until": rfc3339(end.last), "role": "cause",
                   "message": end.says or kind_of(end.kind).summary, "layer": kind_of(end.kind).layer}, "step": None}
        for key, end in found.items() if key not in effects
    ]  # fmt: skip


def first_before(document: Row, began: datetime | None) -> datetime | None:
    """When the first evidence is, T0 of the time axis, if that is earlier than when the incident ``began`` by more than pages show."""
    first = first_evidence(document, hops_of(document))
    return first if first and began and first < began - SHOWN else None


def unwritten(document: Row) -> list[Row]:
    """What the chain of a verdict begins with and no line of its evidence tells of at its time: events as ``chain_steps`` has them."""
    return [item["event"] for item in _concluded(hops_of({**document, "events": document.get("evidence") or []}))]


def _folded(items: list[Row]) -> list[Row]:
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for item in items:
        step = item["step"]
        kind = ("step", step.get("edge"), step.get("effect_fact")) if step else ("root", item["event"].get("event"))
        kinds.setdefault(kind, []).append({**item, "more": []})
    out: list[Row] = []
    for group in kinds.values():
        if len(group) < FOLD:
            out += group
        else:
            out.append({**group[0], "more": group[1:]})
    place = {id(item["event"]) if item["event"] else id(item["step"]): n for n, item in enumerate(items)}
    out.sort(key=lambda item: place[id(item["event"]) if item["event"] else id(item["step"])])
    return out


def hosts_of(steps: Iterable[Row]) -> int:
    """The number of hosts that wrote the lines of the chain, folded ones included."""
    return len({one["event"].get("host") for item in steps for one in (item, *item["more"])} - {None})


#: The maximum number of rows in an incident's table: more make it slow to open, and nobody reads them.
TABLE_ROWS = 500


def table_rows(document: Row, most: int = TABLE_ROWS) -> list[tuple[Row, Row | None, float | None, Lag | None]]:
    """The incident's events in order of time, each with the step that leads to it, its seconds after T0 of the time axis and
    the step's lag as it is drawn.

    If there are more than ``most``, those of the chain are chosen first, then the earliest.
    """
    steps: dict[str, Row] = {}
    for step in document.get("chain") or []:
        steps.setdefault(str(step.get("effect")), step)
    causes = {str(step.get("cause")) for step in document.get("chain") or []}
    events = sorted(document.get("events") or [], key=lambda item: str(item.get("time")))
    if len(events) > most:
        chained = [str(item.get("id")) in steps or str(item.get("id")) in causes for item in events]
        places = sorted(range(len(events)), key=lambda place: (not chained[place], place))[:most]
        events = [events[place] for place in sorted(places)]
    hops = hops_of(document)
    t0, lags = first_evidence(document, hops), {id(hop.step): lag_of(hop) for hop in hops}
    rows = [(item, steps.get(str(item.get("id")))) for item in events]
    return [(item, step, between(t0, item.get("time")), lags.get(id(step))) for item, step in rows]


def step_numbers(steps: Iterable[Row]) -> dict[int, int]:
    """The identity of a step of the document -> its number in the list, folded steps under their first."""
    return {id(one["step"]): item["n"] for item in steps for one in (item, *item["more"]) if one["step"]}
