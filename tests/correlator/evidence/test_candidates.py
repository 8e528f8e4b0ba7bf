"""An edge's candidates are looked up by place (evidence/candidates.py): whatever is in scope is found there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.edges import scopes
from correlator.edges.scopes import SCOPES
from correlator.evidence import candidates
from correlator.evidence.candidates import places_of
from correlator.evidence.weigh import Weigher
from correlator.facts.world import World
from correlator.model.nouns import Edge, Event, Fact, Run
from correlator.site.site import Site
from tests.correlator.rows import CAPTURES, concluded

NODES = ("n1", "n2", "n3", "12")
nodes = st.lists(st.sampled_from(NODES), max_size=4, unique=True)
name = st.sampled_from([*NODES, "leaf1", None])
runs = st.sampled_from(["12", "7", None])
SAID = Event("e", 1.0, 0.5, "job.io_error", "n1", None, 7, "/work/x: Input/output error", "job_stdout", "job", None, None, None, None, "line", 1, 1.0)  # fmt: skip


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    attrs: dict[str, Any] = {
        "hosts": draw(nodes), "under": draw(nodes), "token": draw(name), "promoted": draw(name), "runs": draw(st.lists(runs.filter(bool), max_size=2)),
        "words": {"storage": draw(st.sampled_from([(), (SAID,)]))}, "server": None, "until": 2.0,
    }  # fmt: skip
    kind = draw(st.sampled_from(["link.outage", "switch.outage", "storage.outage", "node.down", "run.failed"]))
    return Fact(kind, 1.0, 2.0, 0.5, draw(name), draw(st.sampled_from(["work-OST0001", "ib0", None])), draw(runs), cast("Any", attrs))  # fmt: skip


@pytest.mark.parametrize("scope", sorted(name for name, scope in SCOPES.items() if scope.touching))
@given(cause=facts(), effect=facts(), on=nodes, controllers=nodes)
def test_what_is_in_scope_touches_a_place_that_the_scope_names(
    scope: str, cause: Fact, effect: Fact, on: list[str], controllers: list[str]
) -> None:
    there = {key: Run(key, int(key), 0, "FAILED", tuple(on), 0.0, 0.0, 1.0, {"work_dir": ""}) for key in ("12", "7")}
    world = cast("World", SimpleNamespace(run=there, controllers=frozenset(controllers), site=Site("c", {})))
    touching = SCOPES[scope].touching
    if touching and SCOPES[scope].test(world, cause, effect):
        places = touching(world, effect)
        assert places is None or not places_of(cause).isdisjoint(places)


def test_every_scope_but_two_is_looked_up_by_place() -> None:
    """A new scope that holds on certain hosts only should say so, in one way."""
    ways = {name: [bool(s.on_hosts), bool(s.touching), s.own_run].count(True) for name, s in SCOPES.items()}
    assert {name for name, count in ways.items() if not count} == {"whole cluster", "node or partition of the run"}
    assert max(ways.values()) == 1


@pytest.mark.parametrize(
    "capture",
    [pytest.param(c, id=c.name, marks=() if c.name == "disk_full" else pytest.mark.long) for c in CAPTURES[1::8]],
)
def test_looked_up_or_tested_one_by_one_the_conclusions_are_the_same(
    capture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> list[list[dict[str, Any]]]:
        with concluded(capture) as store:
            return [store.rows(f"SELECT * FROM model.{table} ORDER BY ALL") for table in ("incidents", "runs", "concluded_facts")]  # fmt: skip

    monkeypatch.setattr(candidates, "FEW", -1)
    looked_up = said()
    monkeypatch.setattr(candidates, "FEW", 10**9)
    assert looked_up == said() and any(looked_up)


def storm(jobs: int) -> World:
    """Each job on a node of its own, a storage target that this node alone lost, and its end."""
    each = [
        fact
        for n in range(jobs)
        for fact in (
            Fact("storage.outage", 1000.0, 1060.0, 0.5, f"n{n}", f"work-OST{n:04x}", None, cast("Any", {"hosts": [f"n{n}"]})),
            Fact("run.failed", 1050.0, 1050.0, 0.5, None, None, str(n), cast("Any", {})),
        )
    ]  # fmt: skip
    runs = [Run(str(n), n, 0, "FAILED", (f"n{n}",), 0.0, 0.0, 1050.0, {}) for n in range(jobs)]
    return World(Site("c", {}), [], runs, sorted(each, key=lambda f: f.key))


def test_a_storm_is_tested_in_proportion_to_its_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[int] = Counter()
    edge = Edge("e", ("storage.outage",), ("run.failed",), "run used the storage", "[0s, 600s]", 0.5, (), (), "", "", "start", "")  # fmt: skip
    real = scopes.scopes()["run used the storage"]
    for jobs in (100, 400):
        world = storm(jobs)

        def counted(there: World, cause: Fact, effect: Fact, jobs: int = jobs) -> bool:
            asked[jobs] += 1
            return real.test(there, cause, effect)

        monkeypatch.setattr("correlator.evidence.edge_fit.scopes", lambda counted=counted: {"run used the storage": replace(real, test=counted)})  # fmt: skip
        weigher = Weigher(world, [edge])
        found = [weigher.into(fact)[0] for fact in world.facts if fact.kind == "run.failed"]
        assert all(len(hops) == 1 and hops[0].cause.host == f"n{hops[0].effect.run}" for hops in found)
    assert asked[100] == 100 and asked[400] == 400
