"""Lanes of the time axis with the same behaviour: the canvas draws them as one until the reader opens them.

A switch that fails takes the links of sixteen nodes with it, and thirty equal lanes push the answer off the screen.
Lanes of the chain (its causes, and the first effect of each kind) are never folded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

Row = dict[str, Any]

#: From this many equal lanes on, one lane shows it better than each by itself.
ALIKE = 4

#: The plural name of each layer's lanes.
NOUNS = {
    "switch": "ports", "link": "links", "gpu": "GPUs", "storage": "devices", "kernel": "hosts", "slurmd": "slurmd",
    "slurmctld": "controllers", "node": "nodes", "job": "jobs",
}  # fmt: skip

#: The bands that show a fault or a gap in what could be seen, the worst first, in the words of the fold.
TROUBLE_WORDS = {
    "down": "DOWN", "no_carrier": "no carrier", "disabled": "port down", "silent": "not responding", "drain": "draining",
    "bad": "trouble", "blind": "not seen", "late": "lines came late",
}  # fmt: skip


def behaviour(lane: Row, marks: Iterable[Row], bands: Iterable[Row]) -> str:
    """What happened on a lane in a few words; lanes with the same words may be folded. Empty: nothing happened."""
    kinds = {band["kind"] for band in bands}
    if lane["layer"] == "job":
        states = ", ".join(sorted({str(band["state"]) for band in bands if band["kind"] == "job"}))
        # A job that this incident ended never folds with one that ended meanwhile.
        return f"{lane['part']} by this: {states}" if lane.get("part") else states
    words_of_kinds = [words for kind, words in TROUBLE_WORDS.items() if kind in kinds]
    if words_of_kinds:
        return ", ".join(words_of_kinds)
    return ", ".join(sorted({str(mark["event"]) for mark in marks if mark["role"] != "context"}))


def folds(lanes: Iterable[Row], marks: Iterable[Row], bands: Iterable[Row], keep: Collection[str]) -> list[Row]:
    """Lanes of one layer and behaviour that may be drawn as one, in the order of their first; ``keep`` are never."""
    by_lane: dict[str, tuple[list[Row], list[Row]]] = {}
    for place, items in enumerate((marks, bands)):
        for item in items:
            by_lane.setdefault(item["lane"], ([], []))[place].append(item)
    alike: dict[tuple[str, str], list[str]] = {}
    for lane in lanes:
        words = behaviour(lane, *by_lane.get(lane["id"], ([], [])))
        if words and lane["id"] not in keep:
            alike.setdefault((lane["layer"], words), []).append(lane["id"])
    return [
        {"id": f"{layer}|{words}", "layer": layer, "noun": NOUNS.get(layer, layer), "says": words, "lanes": members}
        for (layer, words), members in alike.items()
        if len(members) >= ALIKE
    ]
