"""What made a run slower without ending it, as operators and its owner may both know it: about this run, nobody else's.

The owner of a run learns when it was slower, by how much, of what kind the cause was, and on which of the run's own nodes. The
incident itself, its lines and the other jobs in it are for those who run the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from correlator.facts.registry import kind_of
from correlator.facts.slow_runs import SLOW
from correlator.model.categories import category_of
from web.shaping import document, wire

Row = dict[str, Any]


def of_run(run: Row, incidents: Sequence[Row], facts: Sequence[Row]) -> list[Row]:
    """``start``, ``end``, ``ratio`` (seconds a step, to those before), ``lasting`` (to the run's end), ``category``, ``cause`` in words, ``nodes``
    and ``incident_id`` of each slowdown. ``incidents``: as ``Reader.slowing`` has them; ``facts``: those of the run.

    Incidents that operators marked wrong are left out.
    """
    pace = next((fact for fact in facts if fact["kind"] == SLOW.name), None)
    measured: Row = {"start": None, "end": None, "ratio": None, "lasting": False}
    if pace is not None:
        attributes = document(pace["attributes"])
        measured = {"start": wire(pace["start"]), "end": wire(pace["end"])} | {
            name: attributes.get(name) for name in ("ratio", "lasting")
        }
    return [
        {**measured, "category": row["category"], "cause": _cause(row), "nodes": _nodes(run, row), "incident_id": row["incident_id"]}
        for row in incidents if (row.get("triage") or {}).get("state") != "wrong"
    ]  # fmt: skip


def of_owner(slowed: Sequence[Row]) -> list[Row]:
    """The same for a user who sees only own runs: incidents that ended none of them are not theirs to read."""
    return [one | {"incident_id": None} for one in slowed]


def _cause(row: Row) -> str:
    """What broke, without a name: the clause that a job's headline would have."""
    event = row["root_event"]
    causes = [kind_of(str(step.get("cause_fact"))).cause for step in row["document"].get("chain") or ()]
    plain = next((one.plain for one in causes if one is not None and event in (one.event, one.repeated)), None)
    return plain or f"of a fault of the cluster ({category_of(str(row['category'] or 'unknown')).words})"


def _nodes(run: Row, row: Row) -> list[str]:
    """The run's own nodes that the causes are on; others, and switches, are not named."""
    steps: Sequence[Mapping[str, Any]] = row["document"].get("chain") or ()
    hosts = {row["root_host"]} | {step.get("cause_host") for step in steps if step.get("effect_run") == run["own_key"]}
    return [node for node in run["nodes"] or () if node in hosts]
