"""What the page of a node shows of its past: its states as a strip, what was measured of it, and its lemon score with reasons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from correlator.facts import registry
from correlator.incidents import lemons
from correlator.model.gauges import GAUGES, Gauge
from parsers.moments import later
from store.questions import fleet, measured, runs
from web.reading import Reader
from web.rooted import as_document
from web.shaping import stamp, state_kind, wire
from web.timerange import Range

Row = dict[str, Any]
#: The width and the height of the strip of states, in units of its picture; no state is thinner than it can be seen.
WIDE, HIGH, LEAST = 600.0, 20, 1.5
#: Measured values are those of this long before the end of the range.
MEASURED = timedelta(hours=24)
#: The risk of a node names so many of its incidents.
RECENT = 50
#: The source of states that are read from slurmctld's log.
FROM_LOG = "slurmctld"
#: Kinds of states in the words of the fleet map.
WORDS = {
    "down": "down", "drain": "drained", "silent": "not responding", "busy": "running jobs", "idle": "idle", "up": "in service",
    "off": "switched off", "unknown": "not known",
}  # fmt: skip
#: How a kind of state is drawn: the height of its bar.
_HIGH = {"down": HIGH, "drain": HIGH, "silent": HIGH * 0.7, "busy": HIGH, "up": HIGH * 0.7, "idle": HIGH * 0.4}


def strip(states: Sequence[Row], within: Range, newest: datetime | None) -> Row | None:
    """The states of one node (``Reader.node_states``) as bars over a range; None if there are none.

    ``parts``: ``x``, ``wide``, ``high``, ``kind`` and ``words`` of each; ``kinds``: each with ``words`` and ``seconds``. A part of the range of which no
    state is reported has no bar: it is not known.
    """
    if not states:
        return None
    start = max([states[0]["time"], *([within.start] if within.start else [])])
    ends = [row["until"] or row["time"] for row in states] + ([newest] if newest else [])
    end = min([max(ends), *([within.end] if within.end else [])])
    if end <= start:
        return None
    whole, parts, seconds = (end - start).total_seconds(), [], dict[str, float]()
    for row, following in zip(states, [*states[1:], None], strict=True):
        over = min(row["until"] or end, following["time"] if following else end, end)
        begun = max(row["time"], start)
        if over < begun or (over == begun and row["until"] is None):
            continue
        kind = state_kind(str(row["state"] or "unknown"))
        if kind == "idle" and row["source"] == FROM_LOG:  # the log does not say when jobs run
            kind = "up"
        lasted = (over - begun).total_seconds()
        seconds[kind] = seconds.get(kind, 0.0) + lasted
        wide = max(LEAST, lasted / whole * WIDE)
        words = " ".join(
            filter(None, [str(row["state"] or "unknown"), row["reason"], row["actor"] and f"by {row['actor']}"])
        )
        parts.append({
            "x": round(min((begun - start).total_seconds() / whole * WIDE, WIDE - wide), 2), "wide": round(wide, 2),
            "high": _HIGH.get(kind, HIGH * 0.2), "kind": kind, "words": f"{words}, from {stamp(begun)} to {stamp(over)}",
        })  # fmt: skip
    return {"parts": parts, "start": start, "end": end, "wide": WIDE, "top": HIGH,
            "kinds": [{"kind": kind, "words": WORDS[kind], "seconds": lasted} for kind, lasted in seconds.items()]}  # fmt: skip


def measures(read: Reader, node: Row, end: datetime | None) -> list[Row]:
    """What was measured of a node in the ``MEASURED`` before a moment: ``name``, ``unit``, ``devices``, the lowest and the highest of the
    devices' ``last`` values, of all values, and ``at``; of a counter ``grew``, what it grew by, null if it began again.

    Of a gauge that several sources report under names of their own, the source with the newest sample counts.
    """
    if end is None:
        return []
    within = (later(end, -MEASURED), end)
    names = [metric for gauge in GAUGES.values() for metric in gauge.metrics]
    rows: dict[str, list[Row]] = {}
    for row in read.ask(measured.latest(node["cluster"], node["host"], names, *within)):
        rows.setdefault(row["metric"], []).append(row)
    newest = {metric: max(row["at"] for row in series) for metric, series in rows.items()}
    chosen = {
        max(there, key=newest.__getitem__): gauge
        for gauge in GAUGES.values() if (there := [metric for metric in gauge.metrics if metric in rows])
    }  # fmt: skip
    rising = [m for m, gauge in chosen.items() if gauge.counter and any(row["low"] < row["high"] for row in rows[m])]
    fallen = read.ask(measured.fallen(node["cluster"], node["host"], rising, *within)) if rising else []
    began_again = {row["metric"] for row in fallen}
    return [_measure(gauge, _tracks(rows[metric]), metric in began_again) for metric, gauge in chosen.items()]


def _tracks(rows: Iterable[Row]) -> list[list[Row]]:
    """The series of a metric by what they are about, each in order of time. Series of one device at the same time are about
    different things, such as its ports; one that begins after another ended continues it, as when labels name the job."""
    tracks: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row["since"]):
        ended = [one for one in tracks if one[-1]["device"] == row["device"] and one[-1]["at"] < row["since"]]
        if ended:
            max(ended, key=lambda one: len(_labels(one[-1]) & _labels(row))).append(row)
        else:
            tracks.append([row])
    return tracks


def _labels(row: Row) -> set[tuple[str, str]]:
    return {(name, str(value)) for name, value in json.loads(row["labels"] or "{}").items()}


def _growth(tracks: Sequence[Sequence[Row]]) -> float:
    """What counters grew by together. A GPU that two sources report counts once."""
    grew: dict[Any, float] = {}
    for number, track in enumerate(tracks):
        counter = dict(_labels(track[-1])).get("UUID", number)
        grew[counter] = max(grew.get(counter, 0.0), track[-1]["last"] - track[0]["first"])
    return sum(grew.values())


def _measure(gauge: Gauge, tracks: Sequence[Sequence[Row]], began_again: bool) -> Row:
    rows = [row for track in tracks for row in track]
    last = [track[-1]["last"] for track in tracks]
    fell = began_again or any(b["first"] < a["last"] for track in tracks for a, b in pairwise(track))
    return {
        "name": gauge.name, "unit": gauge.unit, "counter": gauge.counter, "devices": len({row["device"] for row in rows}),
        "last": [min(last), max(last)], "all": [min(row["low"] for row in rows), max(row["high"] for row in rows)],
        "at": max(row["at"] for row in rows), "grew": None if fell else _growth(tracks),
    }  # fmt: skip


def families(read: Reader, node: Row) -> list[Row]:
    """Per family of faults how many incidents that ended jobs are rooted in a node, beside an ordinary node of its cluster."""
    rows = read.ask(fleet.rooted(registry.families(), clusters=[node["cluster"]]))
    nodes = int(read.ask(runs.node_count(node["cluster"]))[0]["n"])
    return lemons.risk(map(as_document, rows), max(nodes, 2)).get(node["host"], [])


def risk(read: Reader, node: Row) -> Row:
    """The answer of ``GET /api/v1/nodes/{name}/risk``: the ``families``, and the newest incidents rooted in the node."""
    found = families(read, node)
    rows, _ = read.incidents(Range(), root=node["host"], of=node, limit=RECENT)
    recent = [
        {"id": row["incident_id"], "start": wire(row["start"]), "title": row["document"].get("title"), "event": row["root_event"]}
        for row in rows
    ]  # fmt: skip
    return {"node": node["name"], "lemon": any(f["lemon"] for f in found), "families": found, "incidents": recent}
