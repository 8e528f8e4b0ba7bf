"""Nodes that fall silent together: what they share was lost, though nothing that was collected tells of it."""

from __future__ import annotations

from correlator.facts import World
from correlator.facts.nodes import SAME_DOWN_S
from correlator.model import Fact

#: So many nodes of one switch, and such a share of them, that fall silent together lost what they share
#: (correlation.md, explaining away upwards).
SHARED_MIN, SHARED_SHARE = 4, 0.6


def common_silence(world: World) -> list[Fact]:
    """``switch.silent``: nearly all nodes under one switch were set DOWN within one ping round and nothing tells why.

    slurmctld sets DOWN whoever did not answer since two rounds: nodes that were lost in one moment go in one round or the next.
    Without a topology, nodes of one statement of slurmctld are taken together."""
    timeout = world.site.settings["SlurmdTimeout"]
    together = (timeout.high if timeout.known else 300.0) / 3 + 15.0
    explained = {
        h for f in world.facts_of("switch.outage", "power.outage") for h in f.attrs.get("under") or f.attrs["hosts"]
    }
    explained |= {f.host or "" for f in world.facts_of("link.outage", "node.reboot") if f.attrs.get("role") != "fabric"}
    cut = [f for f in world.facts_of("link.outage") if f.host in world.controllers and f.attrs.get("role") != "fabric"]
    downs = [
        f for f in world.facts_of("node.down") if f.host and f.host not in explained and not f.attrs.get("unresumed")
        and not any(c.start <= f.start <= (c.end if c.end is not None else world.last) + 1.0 for c in cut)
    ]  # fmt: skip
    facts: list[Fact] = []
    leaves = {s: m for s, m in sorted(world.site.members.items()) if any(world.site.leaf_of.get(n) == s for n in m)}
    for switch, members in leaves.items():
        for group in _within([f for f in downs if f.host in members], together):
            hosts = {f.host for f in group}
            if len(hosts) >= SHARED_MIN and len(hosts) >= SHARED_SHARE * len(members):
                facts.append(_silence(switch, group))
    named = {host for fact in facts for host in fact.attrs["hosts"]}
    # Nodes of several switches, or of switches that nobody names, in one statement: what all of them hang on.
    for group in _within([f for f in downs if f.host not in named], together):
        if any(len({f.host for f in said}) >= SHARED_MIN for said in _within(group, SAME_DOWN_S)):
            facts.append(_silence(None, group))
    return facts


def _within(downs: list[Fact], span: float) -> list[list[Fact]]:
    groups: list[list[Fact]] = []
    for fact in sorted(downs, key=lambda f: f.key[1:]):
        if groups and fact.start - groups[-1][0].start <= span:
            groups[-1].append(fact)
        else:
            groups.append([fact])
    return groups


def _silence(switch: str | None, group: list[Fact]) -> Fact:
    hosts = sorted({f.host or "" for f in group})
    ends = [f.end for f in group]
    end = None if None in ends else max(e for e in ends if e is not None)
    attrs = {"hosts": hosts, "until": group[-1].start}
    return Fact("switch.silent", group[0].start, end, group[0].sigma, switch, attrs=attrs, events=group[0].events)


KINDS = ("switch.silent",)
DETECTORS = [common_silence]
