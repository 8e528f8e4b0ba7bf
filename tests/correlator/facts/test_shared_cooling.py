"""Heat of many nodes at once: the cooling that they share, unless their load or chance explains it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from correlator.evidence.weigh import Weigher
from correlator.facts.world import World
from correlator.incidents.documents import incident_document
from correlator.incidents.incidents import gather
from correlator.verdicts.judge import judge
from tests.correlator.making import event, facts, run, world
from tests.correlator.situations import EDGES, judged, node_fail, said, set_down, slowed

RACK, OTHER = [f"r1n{i}" for i in range(1, 7)], [f"r2n{i}" for i in range(1, 7)]
CABLES = [{"host": h, "device": "eth0", "switch": f"tor-{h[:2]}", "switch_port": f"Ethernet{h[3:]}"} for h in RACK + OTHER]  # fmt: skip

Spans = list[tuple[float, list[str]]]


def hot(at: float, host: str) -> list[Any]:
    text = "CPU3: Package temperature above threshold, cpu clock throttled"
    return [event("kernel.thermal", at + 300.0 * n, host, text) for n in range(4)]


def shut(at: float, host: str) -> list[Any]:
    return [event("kernel.thermal", at, host, "thermal_zone0: critical temperature reached (105 C), shutting down")]


@dataclass(frozen=True)
class Heat:
    """``onsets``: when each node became hot; ``runs``: (start, nodes) of the active runs.

    ``shared``: the nodes that have one cause in common.
    """

    name: str
    onsets: dict[str, float]
    runs: Spans
    shared: list[str] | None
    more: dict[str, Any] = field(default_factory=lambda: {"links": CABLES})


def _each(hosts: list[str], since: float = -9000.0) -> Spans:
    return [(since, [h]) for h in hosts]


def _at(hosts: list[str], *seconds: float) -> dict[str, float]:
    return {h: seconds[i % len(seconds)] + i for i, h in enumerate(hosts)}


HEATS = [
    Heat("a rack's pump stops", _at(RACK, 0, 200, 400), _each(RACK + OTHER), RACK),
    Heat("most of the rack", _at(RACK[:4], 0, 300), _each(RACK + OTHER), RACK[:4]),
    Heat("nodes without work stay cool", _at(RACK[:3], 0, 300), _each(RACK[:3] + OTHER), RACK[:3]),
    Heat("one program's nodes in the rack, its others elsewhere stay cool", _at(RACK[:5], 0, 100), [(-9000.0, RACK + OTHER)], RACK[:5]),
    Heat("the room", _at(RACK + OTHER, 0, 100), _each(RACK + OTHER), RACK + OTHER),
    Heat("the room, and no inventory", _at(RACK + OTHER, 0, 100), _each(RACK + OTHER), RACK + OTHER, {}),
    Heat("one that is hot anyway, and then the rack", {OTHER[0]: -700.0, **_at(RACK, 0, 120)}, _each(RACK + OTHER), RACK),
    Heat("one node", _at(RACK[:1], 0), _each(RACK + OTHER), None),
    Heat("two nodes", _at(RACK[:2], 0), _each(RACK + OTHER), None),
    Heat("a third of the rack", _at(RACK[:3], 0), _each([*RACK, *OTHER, "r1n7", "r1n8"]), None,
         {"links": [*CABLES, *({**CABLES[0], "host": h} for h in ("r1n7", "r1n8"))]}),
    Heat("one after the other, over a day", _at(RACK, 0, 20_000, 40_000), _each(RACK + OTHER), None),
    Heat("here and there", {**_at(RACK[:2], 0), **_at(OTHER[:2], 50)}, _each(RACK + OTHER), None),
    Heat("one program begins to compute on all its nodes", _at(RACK, 0), [(-9000.0, RACK)], None),
    Heat("an array of jobs that has just begun", _at(RACK, 0, 100), _each(RACK, -200.0), None),
    Heat("many nodes, and nothing tells what they share", _at(RACK, 0), _each(RACK + OTHER + [f"x{i}" for i in range(9)]), None, {}),
]  # fmt: skip


@pytest.mark.parametrize("heat", HEATS, ids=lambda h: h.name)
def test_heat_that_nodes_share(heat: Heat) -> None:
    runs = [run(n, nodes, start, 9000.0, "COMPLETED") for n, (start, nodes) in enumerate(heat.runs, 1)]
    where = world([e for h, at in heat.onsets.items() for e in hot(at, h)], runs, **heat.more)
    assert [f.attrs["hosts"] for f in facts(where, "cooling.outage")] == ([sorted(heat.shared)] if heat.shared else [])
    reported = gather(where, Weigher(where, EDGES), [])
    kinds = sorted(i.root.kind for i in reported)
    left = len(heat.onsets) - len(heat.shared or ())
    assert kinds == ["cooling.outage"] * bool(heat.shared) + ["gpu.thermal"] * left


def _slow_rack() -> World:
    job = run(1, RACK[:2], -2000, 1600, "TIMEOUT", time_limit_s=3600)
    warned = event("platform.alarm", -300, RACK[4], "BMC: coolant flow low", source="ipmi")
    lines = [warned, *(e for i, h in enumerate(RACK) for e in hot(-60 + 40 * i, h) + hot(1150, h))]
    return world(lines, [job, *(run(n, [h], -9000, 9000, "COMPLETED") for n, h in enumerate(RACK[2:], 2))],
                 links=CABLES, **slowed(job, 2000))  # fmt: skip


def test_a_run_that_the_rack_slows_down_is_the_racks() -> None:
    where = _slow_rack()
    verdicts = judged(where)
    assert said(verdicts["1"]) == ("infra.gpu", "cooling.outage", None)
    weigher = Weigher(where, EDGES)
    (incident,) = gather(where, weigher, judge(where, weigher))
    document = incident_document(where, weigher, incident)
    assert document["root_cause"] == {"event": "gpu.thermal", "code": None, "host": None, "device": None}
    assert document["hosts"] == RACK and "tor-r1" in document["title"] and "coolant flow low" in document["title"]
    assert "None" not in document["title"] + document["headline"]


def test_nodes_that_shut_themselves_down_one_after_the_other() -> None:
    lines = [e for i, h in enumerate(RACK) for e in shut(60.0 * i, h)]
    lines += [e for i, h in enumerate(RACK) for e in (*set_down(400 + 60.0 * i, h), *node_fail(400 + 60.0 * i, i + 1, h))]  # fmt: skip
    runs = [run(n, [h], -9000, 340 + 60.0 * n, "NODE_FAIL") for n, h in enumerate(RACK, 1)]
    found = judged(world(lines, runs, links=CABLES))
    assert {said(v) for v in found.values()} == {("infra.node", "cooling.shutdown", None)}
    alone = judged(world(lines[:1] + set_down(400, RACK[0]) + node_fail(400, 1, RACK[0]), runs[:1], links=CABLES))
    assert said(alone["1"]) == ("infra.node", "node.overheated", RACK[0])
