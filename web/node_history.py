"""What the page of a node shows of its past: its states as a strip, what was measured of it, and its lemon score with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

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
_EVER = datetime(9999, 1, 1)
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
    devices' ``last`` values, of all values, and ``at``; of a counter ``grew``, what it grew by, null if it began again."""
    if end is None:
        return []
    names = {metric: gauge for gauge in GAUGES.values() for metric in gauge.metrics}
    rows = read.ask(measured.latest(node["cluster"], node["host"], list(names), later(end, -MEASURED), end))
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(names[row["metric"]].name, []).append(row)
    return [_measure(gauge, found[gauge.name]) for gauge in GAUGES.values() if gauge.name in found]


def _measure(gauge: Gauge, rows: Sequence[Row]) -> Row:
    growth = [row["last"] - row["first"] for row in rows]
    return {
        "name": gauge.name, "unit": gauge.unit, "counter": gauge.counter, "devices": len({row["device"] for row in rows}),
        "last": [min(row["last"] for row in rows), max(row["last"] for row in rows)],
        "all": [min(row["low"] for row in rows), max(row["high"] for row in rows)], "at": max(row["at"] for row in rows),
        "grew": sum(growth) if min(growth) >= 0 else None,
    }  # fmt: skip


def families(read: Reader, node: Row) -> list[Row]:
    """Per family of faults how many incidents that ended jobs are rooted in a node, beside an ordinary node of its cluster."""
    rows = [row for row in read.ask(fleet.rooted(_EVER)) if row["cluster"] == node["cluster"]]
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
