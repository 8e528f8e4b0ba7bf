"""Heat that many nodes share, with one cooling behind it instead of as many fans.

Nodes of one rack get hot within minutes of each other when their coolant, air or fan supply fails. So do the nodes of
one program when it begins to work: heat that follows the load has no common cause.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

from correlator.facts.gpus import COOLING_S, COOLING_WORDS, SOFTWARE, THERMAL
from correlator.facts.nodes.kinds import NODE_OVERHEATED
from correlator.facts.world import World
from correlator.model.attributes import COOLING
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Fact, in_order


class SharedHeat(TypedDict):
    """``hosts`` got hot together behind the switch ``near``; ``cooling``: what a controller reported about it."""

    hosts: list[str]
    near: str | None
    cooling: str | None


#: Attributes that are read in this file only.
NEAR: Attr[str | None] = attr("near")


def _whose(cause: Cause, fact: Fact) -> Cause:
    behind = ", behind {near}" if fact.attrs.get(NEAR) else ""
    warned = " ({cooling})" if fact.attrs.get(COOLING) else ""
    return replace(cause, title=cause.title + behind + warned)


_THROTTLED = Cause(
    "gpu.thermal", "infra.gpu", "GPUs of {count} nodes ({nodes}) were throttled by heat that began together", "many nodes were slowed by heat",
    (("Check the cooling that {nodes} share: coolant unit, pump, rack doors, air of the row.", None),),
    short="{count} nodes too hot together", unharmed="degraded", software=SOFTWARE,
    disproof="One of these nodes hot long before the others, or others behind the same cooling that stayed cool.",
)  # fmt: skip

COOLING_OUTAGE = Kind(
    "cooling.outage", "gpu", "Most of the working nodes of a room, or behind one switch, were throttled by heat that began together.", SharedHeat,
    witnesses=("kernel",),
    brief="nodes grew hot together", timed=True, cause=_THROTTLED, variant=lambda fact: _whose(_THROTTLED, fact),
)  # fmt: skip

_SHUT_DOWN = Cause(
    "node.overheated", "infra.node", "{count} nodes ({nodes}) shut themselves down because of heat, one after the other", "many nodes were too hot",
    (("Check the cooling that {nodes} share before they are started again.", None),
     ("When it is mended, put them back into service.", "scontrol update nodename={nodes} state=resume")),
    short="{count} nodes shut down by heat", unharmed="degraded",
)  # fmt: skip

COOLING_SHUTDOWN = Kind(
    "cooling.shutdown", "node", "Nodes that share their cooling shut themselves down because of heat.", SharedHeat,
    witnesses=("kernel",),
    brief="nodes shut down by heat together", cause=_SHUT_DOWN, variant=lambda fact: _whose(_SHUT_DOWN, fact),
)  # fmt: skip

#: Nodes behind one failing pump get hot within this of each other, as each is loaded (correlation.md, E30: 0 to 900 s).
TOGETHER_S = 900.0

#: If this share of the working nodes behind one switch, and at least this many, are hot, the cause is shared (as
#: promotion in facts/links/detector.py).
MOST, MANY = 0.6, 3

#: Without a topology only the whole room can be judged: at least this many nodes (as in facts/unnamed_causes.py).
ROOM_MIN = 4

#: A node that gets hot within this of the start of its load is hot from the load.
LOAD_S = 900.0


def shared_heat(world: World) -> list[Fact]:
    """``cooling.outage``: most working nodes of the cluster, or of one switch, were throttled by heat that began
    together.

    ``cooling.shutdown``: they shut down without an earlier line about it.
    """
    hot = [f for f in world.facts_of(THERMAL.name, NODE_OVERHEATED.name) if f.host and not _of_its_load(world, f)]
    if len({f.host for f in hot}) < MANY:
        return []
    hot.sort(key=lambda f: (f.start, f.key))
    facts: list[Fact] = []
    taken: set[int] = set()
    for members in [None, *sorted(set(world.site.members.values()), key=lambda m: (-len(m), sorted(m)))]:
        mine = [f for f in hot if id(f) not in taken and (members is None or f.host in members)]
        for group in _crowds(mine):
            if _share_it(world, group, members):
                facts.append(_fact(world, list(group.values())))
                taken.update(id(f) for f in mine if f.host in group and abs(f.start - facts[-1].start) <= TOGETHER_S)
    return facts


def _crowds(found: list[Fact]) -> Iterator[dict[str, Fact]]:
    """Hosts that got hot within ``TOGETHER_S``: the largest such groups, by each host's first heat."""
    starts = [f.start for f in found]
    spans = [found[n : bisect_right(starts, start + TOGETHER_S)] for n, start in enumerate(starts)]
    many = [len({f.host for f in span}) for span in spans]
    place = 0
    while place < len(found):
        if many[place] < MANY:
            place += 1
            continue
        # A host that was hot already must not cut off the last of those that follow.
        best = max(range(place, place + len(spans[place])), key=lambda n: (many[n], -n))
        yield {f.host or "": f for f in reversed(spans[best])}
        place = best + len(spans[best])


def _of_its_load(world: World, fact: Fact) -> bool:
    """Had the host's load just begun?"""
    began = [r.start for r in world.runs_at(fact.host or "", fact.start, slack=fact.sigma) if r.start is not None]
    return bool(began) and min(began) >= fact.start - LOAD_S


def _share_it(world: World, hot: dict[str, Fact], members: frozenset[str] | None) -> bool:
    if len(hot) < (ROOM_MIN if members is None else MANY):
        return False
    start = min(f.start for f in hot.values())
    runs = list(world.in_time.overlapping(start - LOAD_S, start))
    working = {n for r in runs for n in r.nodes if members is None or n in members}
    if len(hot) < MOST * len(working | hot.keys()):
        return False
    # One program heats all its nodes; if its nodes elsewhere stayed cool, the place is the cause.
    loads = [set(r.nodes) for r in runs if not hot.keys().isdisjoint(r.nodes)]
    return not any(hot.keys() <= nodes and 2 * len(nodes - hot.keys()) < len(hot) for nodes in loads)


def _fact(world: World, members: list[Fact]) -> Fact:
    first = min(members, key=lambda f: (f.start, f.key))
    hosts = sorted(f.host or "" for f in members)
    behind = [(len(nodes), switch) for switch, nodes in world.site.members.items() if nodes.issuperset(hosts)]
    near = min(behind)[1] if behind else None
    asked = [*hosts, near] if near else hosts
    alarms = [e for host in asked for e in world.by_host.get(host, ()) if e.kind in ("platform.alarm", "switch.alarm")
            and COOLING_WORDS.search(e.message) and -COOLING_S - first.sigma <= e.time - first.start <= COOLING_S]  # fmt: skip
    alarms.sort(key=lambda e: (e.time, e.id))
    ends = [f.end for f in members]
    kind = COOLING_OUTAGE if any(f.kind == THERMAL.name for f in members) else COOLING_SHUTDOWN
    events = in_order(alarms, (e for f in members for e in f.events[:1]))
    attrs: SharedHeat = {"hosts": hosts, "near": near, "cooling": alarms[0].message if alarms else None}
    end = None if None in ends else max(e for e in ends if e is not None)
    return kind.fact(first.start, end, first.sigma, None, attrs=attrs, events=events)


KINDS = (COOLING_OUTAGE, COOLING_SHUTDOWN)
DETECTORS = [shared_heat]
