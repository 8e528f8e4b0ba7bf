"""Shared causes that no source names: a switch or plane behind lost links, power behind lost machines.

An inventory, a topology or the switches' own logs name what broke (links.py). If none of them was collected, many nodes
hit at one moment still show that there is one cause, which is concluded without a name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import TypedDict

from correlator.clocks.clocks import CLOCK_OFF_S, strays
from correlator.facts.links.kinds import LINK_OUTAGE, SWITCH_OUTAGE, SwitchOutage
from correlator.facts.links.together import TOGETHER_S, UNCABLED_MIN, in_time_with, together
from correlator.facts.nodes.kinds import (
    FRESH_BOOT_S,
    NODE_DEAD,
    NODE_DOWN,
    NODE_OVERHEATED,
    NODE_PANIC,
    NODE_REBOOT,
    SAME_PANIC_S,
)
from correlator.facts.world import BOOT_STAMPS_S, World, word_between
from correlator.model.attributes import BOOT, BOOTED, HOSTS, LAST_RESPONSE, PLANNED, PROMOTED, SWITCH
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Draft, Event, Fact, Revision, in_order
from parsers.hostlist import fold


class PowerOutage(TypedDict):
    """``hosts`` were lost, after the ``last_word`` of all; ``nameless``: what they share is unknown."""

    hosts: list[str]
    last_word: float
    nameless: bool


POWER_OUTAGE = Kind(
    "power.outage", "node", "Many machines disappeared at the same moment, without a message.", PowerOutage,
    witnesses=("kernel", "slurmctld"),
    brief="nodes went down together", timed=True,
    cause=Cause(
        "node.power", "infra.node", "{count} nodes ({nodes}) went down together without a word", "many nodes lost power or were reset at once",
        (("Check what {nodes} share: power feed, PDU, chassis, coolant trip; see their BMC event logs.", None),
         ("When it is mended, put them back into service.", "scontrol update nodename={nodes} state=resume")),
        short="{count} nodes went down together", unharmed="degraded", words="peers",
        nameless="What these nodes share is not named: the event logs of their BMCs or of the power distribution would",
        disproof="A line that one of the nodes wrote after the others had gone, or an order to reboot them.",
    ),
)  # fmt: skip

#: At least this many machines that fail at one moment had one cause; fewer may be a coincidence.
POWER_MIN = 4

#: Machines that lost power together come back one after the other: memory tests and boot orders differ by minutes.
BACK_WITHIN_S = 900.0

#: Groups of interfaces that have this share of their nodes in common were lost by one cause.
MOST = 0.6

#: The kernel of a live machine logs a lost link at once, and goes on: a line this long after it shows that it was up.
STILL_SPEAKS_S = 90.0

#: Machines that go down with their links boot within this (edge E33).
BOOTS_WITHIN_S = 1200.0


def power_losses(world: World) -> list[Fact]:
    """``power.outage``: machines that were all up at one moment and all gone at the next, without a line about it.

    A panic would have been logged, and a shutdown ends slurmd; a drained node that boots does so on purpose.
    """
    lost = [f for f in world.facts_of(NODE_REBOOT.name, NODE_DEAD.name) if not f.attrs.get(PLANNED)]
    lost.sort(key=lambda f: (_back(f), f.key))
    facts: list[Fact] = []
    near: list[Fact] = []
    for fact in lost:
        if near and _back(fact) - _back(near[-1]) > BACK_WITHIN_S:
            facts += _gone_together(world, near)
            near = []
        near.append(fact)
    return facts + _gone_together(world, near)


def _back(fact: Fact) -> float:
    """When the machine was back, as far as is known."""
    boot, booted = fact.attrs.get(BOOT), fact.attrs.get(BOOTED)
    return float(boot or booted or fact.end or fact.start)


def _gone_together(world: World, near: list[Fact]) -> list[Fact]:
    """Groups machines that may have gone together.

    Last lines are read only where enough machines were back at about the same time.
    """
    if len({f.host for f in near}) < POWER_MIN:
        return []
    gone = [(*span, fact) for fact in near if (span := _gone_between(world, fact)) is not None]
    gone.sort(key=lambda g: (g[0], g[2].key))
    facts: list[Fact] = []
    group: list[tuple[float, float, Fact]] = []
    for item in gone:
        # All that were still up at the latest last line, and gone at the earliest sign of it, may have gone together.
        if group and item[0] > min(g[1] for g in group):
            facts += _power(world, group)
            group = []
        group.append(item)
    return facts + _power(world, group)


def _gone_between(world: World, fact: Fact) -> tuple[float, float] | None:
    """(last line, first sign of absence) of a machine that went without a reason in its log; None if it logged one."""
    host, boot = fact.host or "", fact.attrs.get(BOOT) or fact.attrs.get(BOOTED) or fact.end
    spoke = world.spoke_at(host)
    if fact.kind == NODE_DEAD.name:
        place = bisect_right(spoke, fact.start + 2.0 + fact.sigma)
        # A machine that loses power takes its links down at once, however long before that it wrote its last line.
        word = max(spoke[place - 1], fact.start - TOGETHER_S - fact.sigma) if place else 0.0
        return (min(word, fact.start), fact.start + 2.0 + fact.sigma) if place else None
    if boot is None:
        return None
    place = bisect_right(spoke, float(boot) - BOOT_STAMPS_S)
    last = spoke[place - 1] if place else None
    last_response = fact.attrs.get(LAST_RESPONSE)
    if last is None and last_response is None:
        return None
    last = max(x for x in (last, last_response) if x is not None)
    hot = [f.start for f in world.facts_of(NODE_OVERHEATED.name) if f.host == host]
    if any(-SAME_PANIC_S <= at - last <= float(boot) - last for at in hot):
        return None
    if any(_says_why(e) for e in world.by_host.get(host, ()) if -SAME_PANIC_S <= e.time - last <= float(boot) - last):
        return None
    # A machine that was given up was already gone; a slightly later line of its own was written by a clock that is off.
    downs = [
        f.start for f in world.facts_of(NODE_DOWN.name) if f.host == host and last - CLOCK_OFF_S <= f.start <= float(boot)
        and (f.end is None or f.end >= float(boot) - BOOT_STAMPS_S)  # one that was back before the boot was another loss
    ]  # fmt: skip
    last = min([last, *downs])
    lost = [
        f.start for f in world.facts_of(LINK_OUTAGE.name) if f.host == host and last - 2.0 <= f.start <= float(boot)
    ]
    return (last, min([float(boot), *downs, *(at + 2.0 for at in lost)]))


def _says_why(event: Event) -> bool:
    """A panic is a cause of its own; slurmd stopped before a boot means a planned boot."""
    return event.kind in ("kernel.panic", "kernel.lockup") or (
        event.kind == "slurm.daemon_stop" and event.source == "slurmd"
    )


def _power(world: World, group: list[tuple[float, float, Fact]]) -> list[Fact]:
    boots = sorted(_back(f) for *_, f in group)
    hosts = sorted({f.host or "" for *_, f in group})
    if len(hosts) < POWER_MIN or boots[-1] - boots[0] > BACK_WITHIN_S:
        return []
    last, first = max(g[0] for g in group), min(g[1] for g in group)
    links = [
        f for f in world.facts_of(LINK_OUTAGE.name) if f.host in hosts and last - 2.0 <= f.start <= first + 2.0
    ]  # fmt: skip
    # Without a link, it happened between the last line of all and the first sign that one was gone.
    start = min((f.start for f in links), default=(last + first) / 2)
    attrs: PowerOutage = {"hosts": hosts, "last_word": last, "nameless": True}
    events = in_order(*(f.events for *_, f in group))
    sigma = max([1.0, *(f.sigma for f in links)]) if links else max(1.0, abs(first - last) / 2)
    return [POWER_OUTAGE.fact(start, max(first, boots[-1]), sigma, None, attrs=attrs, events=events)]


def nameless_links(world: World) -> list[Fact | Revision]:
    """``switch.outage`` without a host: many nodes lost the same interface within seconds, and its other end is
    unknown.

    Links of machines that went down with them belong to the machines.
    """
    alone: dict[str, list[Draft]] = defaultdict(list)
    for fact in world.facts_of(LINK_OUTAGE.name):
        if fact.host and fact.device and not fact.attrs.get(PROMOTED) and not fact.attrs.get(SWITCH):
            alone[fact.device].append(Draft.from_fact(fact))
    gone = world.facts_of(NODE_REBOOT.name, NODE_PANIC.name, NODE_DEAD.name, POWER_OUTAGE.name)
    lost: list[list[Draft]] = []
    taken: set[int] = set()
    for _, found in sorted(alone.items()):
        for group in sorted(together(found), key=lambda g: (-len(g), g[0].key)):
            late = strays(group, found)
            if len({f.host for f in [*group, *late]}) < UNCABLED_MIN or any(id(f) in taken for f in group):
                continue
            lived = [f for f in [*group, *late] if id(f) not in taken and not _went_down(world, f, gone)]
            if len({f.host for f in lived}) >= UNCABLED_MIN:
                in_time_with(group, [f for f in lived if f in late])
                lost.append(lived)
                taken.update(id(f) for f in lived)
    switches = [_nameless(world, group) for group in _of_one_cause(lost)]
    changed = (revision for group in lost for link in group if (revision := link.revision()) is not None)
    return [*switches, *changed]


def _of_one_cause(lost: list[list[Draft]]) -> list[list[Draft]]:
    """Merges interfaces lost at one moment by mostly the same nodes: they end at one device, whatever their names."""
    joined: list[list[Draft]] = []
    for group in sorted(lost, key=lambda g: (min(f.start for f in g), -len(g), g[0].key)):
        hosts, start = {f.host for f in group}, min(f.start for f in group)
        home = next((g for g in joined if start - min(f.start for f in g) <= TOGETHER_S
                     and len(hosts & {f.host for f in g}) >= MOST * min(len(hosts), len({f.host for f in g}))), None)  # fmt: skip
        if home is None:
            joined.append(list(group))
        else:
            home.extend(group)
    return joined


def _went_down(world: World, link: Draft, gone: Iterable[Fact]) -> bool:
    """Did the machine of a link go down with it? ``gone``: the machines that did go down."""
    host = link.host or ""
    for fact in gone:
        if host in fact.attrs.get(HOSTS, (fact.host,)) and -FRESH_BOOT_S <= fact.start - link.start <= BOOTS_WITHIN_S:
            return word_between(world, host, link.start + STILL_SPEAKS_S, fact.start) is None
    return False


def _nameless(world: World, group: list[Draft]) -> Fact:
    hosts = sorted({f.host or "" for f in group})
    ends = [f.end for f in group]
    end = None if None in ends else max(e for e in ends if e is not None)
    events = in_order(e for f in group for e in f.events if e.kind.endswith("_down"))
    # A name that no switch has, by which the links refer to this outage.
    devices = sorted({f.device or "" for f in group})
    token = f"behind {','.join(devices)} at {min(f.start for f in group):.3f}"
    attrs: SwitchOutage = {
        "hosts": hosts, "under": hosts, "share": 1.0, "links": [(f.host, f.device) for f in group], "plane": None,
        "switch": None, "nameless": True, "token": token, "behind": fold(devices),
    }  # fmt: skip
    for fact in group:
        fact.attrs[PROMOTED] = token
    start = min(f.start for f in group)
    return SWITCH_OUTAGE.fact(start, end, group[0].sigma, None, attrs=attrs, events=events)


KINDS = (POWER_OUTAGE,)
DETECTORS = [power_losses, nameless_links]
