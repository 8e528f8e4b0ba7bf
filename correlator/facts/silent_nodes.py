"""Nodes that fall silent together: what they share was lost, although no collected line shows it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TypedDict

from correlator.facts.links.kinds import LINK_OUTAGE, SWITCH_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN, NODE_REBOOT, SAME_DOWN_S
from correlator.facts.unnamed_causes import POWER_OUTAGE
from correlator.facts.world import World
from correlator.model.attributes import HOSTS, ROLE, SILENT, UNDER, UNRESUMED, UNSAID, UNTIL
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Fact
from correlator.site.interfaces import FABRIC


class SwitchSilent(TypedDict):
    """``hosts`` fell silent, the last of them at ``until``; ``unsaid``: no line says that they fell silent."""

    hosts: list[str]
    until: float
    unsaid: bool


_CUT_OFF = Cause(
    "switch.failure", "infra.network", "{count} nodes ({nodes}) fell silent together, for a reason no log tells", "many nodes were cut off at once",
    (("Check what {nodes} share: switch, uplink and power.", None),),
    short="{count} nodes fell silent together", surest=0.75, placed=True,
)  # fmt: skip
_UNREPORTED = replace(
    _CUT_OFF,
    title="{count} nodes ({nodes}) were lost to Slurm together, for a reason no log tells",
    short="{count} nodes were lost to Slurm together",
)

SWITCH_SILENT = Kind(
    "switch.silent", "switch", "Nearly all nodes under one switch were set DOWN together, for an unknown reason.", SwitchSilent,
    witnesses=("slurmctld", "kernel", "switch"),
    brief="nodes fell silent together", awaits=lambda fact: True, cause=_CUT_OFF, variant=lambda fact: _UNREPORTED if fact.attrs.get(UNSAID) else None,
)  # fmt: skip

#: If this many nodes of one switch, and this share of them, fall silent together, they lost what they share
#: (correlation.md, explaining away upwards).
SHARED_MIN, SHARED_SHARE = 4, 0.6

#: A node's own loss this long before it was given up explains its silence (five thirds of a SlurmdTimeout of ten
#: minutes), and so does a boot seen this long after; one of an earlier day does not.
OWN_CAUSE_S, BOOTED_S = 1000.0, 1800.0


def common_silence(world: World) -> list[Fact]:
    """``switch.silent``: nearly all nodes under one switch were set DOWN within one ping round and no line shows why.

    slurmctld sets DOWN every node that has not answered for two rounds, so nodes lost at one moment go in one round or
    the next. Without a topology, the nodes of one line of slurmctld are taken together.
    """
    timeout = world.site.settings["SlurmdTimeout"]
    together = (timeout.high if timeout.known else 300.0) / 3 + 15.0
    own = _own_causes(world)
    cut = [f for f in world.facts_of(LINK_OUTAGE.name) if f.host in world.controllers and f.attrs.get(ROLE) != "fabric"]
    downs = [
        f for f in world.facts_of(NODE_DOWN.name) if f.host and not f.attrs.get(UNRESUMED)
        and not any(begin - BOOTED_S <= f.start <= max(end, begin + OWN_CAUSE_S) for begin, end in own.get(f.host, ()))
        and not any(c.start <= f.start <= (c.end if c.end is not None else world.last) + 1.0 for c in cut)
    ]  # fmt: skip
    facts: list[Fact] = []
    leaves = {s: m for s, m in sorted(world.site.members.items()) if any(world.site.leaf_of.get(n) == s for n in m)}
    for switch, members in leaves.items():
        for group in _within([f for f in downs if f.host in members], together):
            hosts = {f.host for f in group}
            if len(hosts) >= SHARED_MIN and len(hosts) >= SHARED_SHARE * len(members):
                carried = world.site.carried_by(switch)  # nodes fall silent by the network of Slurm's messages
                facts.append(_silence(None if carried == {FABRIC} or _saw_no_loss(world, hosts) else switch, group))
    facts = _of_whole_cluster(facts, len(leaves), together)
    named = {host for fact in facts for host in fact.attrs[HOSTS]}
    # Nodes of several switches, or of unknown switches, in one line: what all of them are connected to.
    for group in _within([f for f in downs if f.host not in named], together):
        if any(len({f.host for f in near}) >= SHARED_MIN for near in _within(group, SAME_DOWN_S)):
            facts.append(_silence(None, group))
    return facts


def _of_whole_cluster(facts: list[Fact], leaves: int, together: float) -> list[Fact]:
    """If all leaf switches fell silent at once, the controller may have been cut off instead: no switch is named."""
    if len(facts) != leaves or not facts or max(f.start for f in facts) - min(f.start for f in facts) > together:
        return facts
    first = min(facts, key=lambda f: f.key[1:])
    ends = [f.end for f in facts]
    attrs: SwitchSilent = {
        "hosts": sorted({h for f in facts for h in f.attrs[HOSTS]}),
        "until": max(f.attrs[UNTIL] for f in facts),
        "unsaid": all(f.attrs[UNSAID] for f in facts),
    }
    end = None if None in ends else max(e for e in ends if e is not None)
    return [SWITCH_SILENT.fact(first.start, end, first.sigma, None, attrs=attrs, events=first.events)]


def _saw_no_loss(world: World, hosts: set[str | None]) -> bool:
    """Did most hosts keep logging without a loss of carrier?

    A switch that dies takes down the carrier of its nodes' links, and their kernels log it. If most hosts log and none
    reports that, the shared component is behind the switch: its uplink, or the controller's own link.
    """
    return len(hosts & world.reporting_hosts) >= SHARED_SHARE * len(hosts)


def _own_causes(world: World) -> dict[str, list[tuple[float, float]]]:
    """Host -> time ranges in which it, or something it depends on, lost something that may have silenced it."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fact in world.facts_of(SWITCH_OUTAGE.name, POWER_OUTAGE.name, LINK_OUTAGE.name, NODE_REBOOT.name):
        if fact.attrs.get(ROLE) == "fabric":
            continue
        hosts = fact.attrs.get(HOSTS) or ([fact.host] if fact.host else [])
        if fact.kind == SWITCH_OUTAGE.name:  # nodes known to be cut off have outages of their own, each with its end
            hosts = sorted(set(fact.attrs[UNDER]) - set(hosts))
        span = (fact.start, fact.end if fact.end is not None else world.last)
        for host in hosts:
            found[host or ""].append(span)
    return found


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
    attrs: SwitchSilent = {
        "hosts": hosts,
        "until": group[-1].start,
        "unsaid": not any(f.events or f.attrs.get(SILENT) for f in group),
    }
    return SWITCH_SILENT.fact(group[0].start, end, group[0].sigma, switch, attrs=attrs, events=group[0].events)


KINDS = (SWITCH_SILENT,)
DETECTORS = [common_silence]
