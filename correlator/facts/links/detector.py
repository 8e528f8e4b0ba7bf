"""Links: outages of NICs and switch ports, both ends as one, many at once as their switch."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter, itemgetter

from correlator.clocks.clocks import strays
from correlator.facts.links.kinds import (
    LINK_ERRORS,
    LINK_OUTAGE,
    PLANE,
    PLANE_OUTAGE,
    SWITCH_OUTAGE,
    LinkErrors,
    LinkOutage,
    PlaneOutage,
    SwitchOutage,
)
from correlator.facts.links.together import TOGETHER_S, UNCABLED_MIN, in_time_with, together
from correlator.facts.power_saving import without_switched_off
from correlator.facts.world import World, bursts
from correlator.model.attributes import ENDS, HOSTS, LEGS, LINKS, PORT, PROMOTED, ROLE, STAND_IN, SWITCH
from correlator.model.nouns import Draft, Event, Fact, Revision, in_order
from correlator.site.interfaces import UNKNOWN, has_no_cable

#: Both ends of a cable lose carrier within milliseconds; RFC 3164 timestamps and unsynchronised clocks make it seconds.
SAME_LINK_S = 2.0

#: Driver, bond and network daemon repeat one loss within seconds; a later "down" is another one.
REPEATED_S = 10.0

#: A port that comes up passes through "no carrier" for a moment.
COMING_UP_S = 1.0


#: Promotion to the switch: this share of its nodes, and at least this many (correlation.md, explaining away upwards).
PROMOTE_SHARE, PROMOTE_MIN = 0.6, 3

#: A switch's description of a port that names the node and its NIC.
DESCRIBED = re.compile(r"\((?P<host>[\w.-]+)\s+(?P<device>[\w./-]+)\)")


class Aliases:
    """Names of NICs, learned from lines that give two of them: an interface's name replaces its others.

    A name means what the last line before a moment gave for it, because interfaces are renamed and cards change their
    slots. Before the first such line, it means what that line gave.
    """

    def __init__(self, world: World | None = None) -> None:
        self._known_ends: dict[tuple[str, str], list[tuple[float, int, str]]] = defaultdict(list)
        if world is not None:
            self._learn_all(world)

    def _learn_all(self, world: World) -> None:
        for event in world.kinds("nic.link_down", "nic.link_up", "nic.error", "nic.module_event"):
            entities = event.entities
            if "ibdev" not in entities and "pci" not in entities:
                continue  # as most lines: one name at most
            named = [(rank, str(entities[k])) for k, rank in _NAMES.items() if entities.get(k) not in (None, "")]
            if event.host and len(named) > 1:
                rank, best = min(named)
                for _, name in named:
                    self._learn(event.host, name, event.time, rank, best)
        for event in world.kinds("nic.failover"):
            # A virtual function that carries an interface's data (Azure, AWS): its carrier is the interface's.
            lower, upper = event.entities.get("vf"), event.entities.get("port")
            if event.host and lower and upper and lower != upper:
                self._learn(event.host, str(lower), event.time, -1, str(upper))

    def _learn(self, host: str, name: str, time: float, rank: int, best: str) -> None:
        names = self._known_ends[host, name]
        if names and rank < names[0][1]:
            names.clear()  # names of lower rank no longer matter
        if not names or (rank == names[0][1] and best != names[-1][2]):
            names.append((time, rank, best))

    def of(self, host: str, device: str, time: float) -> str:
        """The interface name of a NIC that a line called ``device`` at ``time``."""
        names = self._known_ends.get((host, device))
        if not names:
            return device
        return names[max(0, bisect_right(names, time, key=itemgetter(0)) - 1)][2]


#: Names of one NIC, the best known one first.
_NAMES = {"port": 0, "ibdev": 1, "pci": 2}


def _end(world: World, event: Event, alias: Aliases) -> tuple[str, str, str | None, str | None] | None:
    """(host, device, switch, switch port) of an up/down event; None if it names no device."""
    device = event.device
    if not event.host or not device or (event.kind.startswith("nic.") and has_no_cable(device)):
        return None
    if event.kind.startswith("nic."):
        return (event.host, alias.of(event.host, device, event.time), None, None)
    if event.kind == "fabric.sm_event":
        peer = str(event.entities.get("peer_node") or "")
        return (peer, alias.of(peer, device, event.time), SUBNET_MANAGER, device) if peer in world.site.hosts else None
    described = DESCRIBED.search(event.message)
    if described and described["host"] in world.site.hosts:
        return (described["host"], described["device"], event.host, device)
    cable = world.site.far_end(event.host, device, event.time)
    if cable:
        return (cable[0], cable[1] or "", event.host, device)
    named = host_in_name(device, world.site.hosts)
    return (named or event.host, "" if named else device, event.host, device)


#: Events that refer to a link's other end by a name, which counts if it is a known host's.
BY_NAME = frozenset({"fabric.sm_event", "switch.port_down", "switch.port_up"})


def may_end_at(event: Event, hosts: frozenset[str]) -> bool:
    """Would one of these hosts, once it is known, be taken for the end of the link in an event?"""
    if event.kind not in BY_NAME:
        return False
    text = f"{event.message} {event.device} {event.entities.get('peer_node')}"
    return any(host in text for host in hosts)


def host_in_name(port: str, hosts: frozenset[str]) -> str | None:
    """The host that a port's name contains (``m-gpu02``): the longest one, as whole words."""
    # Compiling a regex for each of thousands of hosts would cost a second per port.
    matches = [h for h in hosts if h in port and re.search(rf"(?<![A-Za-z0-9]){re.escape(h)}(?![A-Za-z0-9])", port)]
    return max(matches, key=len) if matches else None


def outages(world: World) -> list[Fact]:
    """Down .. up per device and per switch port, then the two ends of a cable merged."""
    alias = Aliases(world)
    tracks: dict[tuple[str, str, str, str], list[Event]] = defaultdict(list)
    for event in world.kinds("nic.link_down", "nic.link_up", "switch.port_down", "switch.port_up", "fabric.sm_event"):
        if event.entities.get("admin_down") or not (is_down(event) or _is_up(event)):
            continue
        end = _end(world, event, alias)
        if end is not None:
            tracks[(end[0], end[1], end[2] or "", end[3] or "")].append(event)
    nic: list[Fact] = []
    ports: list[Fact] = []
    for (host, device, switch, port), events in sorted(tracks.items()):
        found = _intervals(host, device or None, switch or None, port or None, events)
        (ports if switch else nic).extend(found)
    return without_switched_off(world, _merge_ends(world, _with_bonds(world, nic), ports))


#: A bond fails over within its miimon and updelay, some seconds at most (Documentation/networking/bonding.rst).
FAILS_OVER_S = 5.0


def _with_bonds(world: World, nic: list[Fact]) -> list[Fact]:
    """Adds the other legs of a bond to outages of a leg.

    ``stand_in`` is the leg that took over, by the bond's line. ``legs`` are the other legs: where the bond uses all at
    once (802.3ad) and so logs nothing, all legs with carrier go on.
    """
    bonded = [_with_legs(world, fact) for fact in nic]
    taken_over = world.by_kind.get("nic.failover")
    if not taken_over:
        return bonded
    near = _Near(bonded)
    stand_ins: dict[int, str] = {}
    for event in taken_over:
        active = event.entities.get("port")
        for fact in near.of(event.host, event.time, FAILS_OVER_S) if active and event.entities.get("bond") else ():
            if fact.device != active:
                stand_ins[id(fact)] = str(active)
    return [fact.having(STAND_IN, stand_ins[id(fact)]) if id(fact) in stand_ins else fact for fact in bonded]


def _with_legs(world: World, fact: Fact) -> Fact:
    bond_name = next((str(e.entities["bond"]) for e in fact.events if e.entities.get("bond")), None)
    if bond_name is None or not fact.host:
        return fact
    legs = {port for at, bond, port in world.legs(fact.host) if bond == bond_name and at <= fact.start + FAILS_OVER_S}
    return fact.having(LEGS, sorted(legs - {fact.device}))


#: The subnet manager removes a port that it no longer reaches, and discovers it anew: the far end of every InfiniBand link.
SUBNET_MANAGER = "subnet manager"

#: It notices at its next sweep or trap (opensm -s: every 10 s).
SWEEP_S = 15.0


def is_down(event: Event) -> bool:
    """Does a line of one of the kinds of ``outages`` say that a link went down?"""
    return event.kind.endswith("_down") or (event.kind == "fabric.sm_event" and event.entities.get("verb") == "Removed")


def _is_up(event: Event) -> bool:
    return event.kind.endswith("_up") or (
        event.kind == "fabric.sm_event" and "iscovered" in str(event.entities.get("verb"))
    )


def _intervals(host: str, device: str | None, switch: str | None, port: str | None, events: list[Event]) -> list[Fact]:
    facts: list[Fact] = []
    lines: list[Event] = []  # of the outage in progress

    def add(end: float | None, *, unseen: bool = False) -> None:
        attrs: LinkOutage = {"switch": switch, "port": port, "ends": ["switch" if switch else "nic"]}
        if unseen:
            attrs["end_unseen"] = True
        first = lines[0]
        facts.append(LINK_OUTAGE.fact(first.time, end, first.sigma, host, device, None, attrs, tuple(lines)))

    for place, event in enumerate(events):
        down = is_down(event)
        following = events[place + 1] if place + 1 < len(events) else None
        coming_up = following is not None and _is_up(following) and following.time - event.time <= COMING_UP_S
        if down and lines and coming_up:
            continue
        before = events[place - 1] if place else None
        if down and not lines and before is not None and _is_up(before) and before.last >= event.time:
            # Two sources say that it came up, one before this line and one after it: they are one event, of the first one's time.
            if before.last - event.time > COMING_UP_S:
                lines = [event]
                add(before.last)
                lines = []
            continue
        if down and lines and event.time - lines[-1].time > REPEATED_S:
            # Down again without an up between: it came back unseen (the host was off, lines were lost).
            add(event.time, unseen=True)
            lines = []
        if down or lines:
            lines.append(event)
        if not down and lines:
            add(event.time)
            lines = []
    if lines:
        add(None)
    return facts


def _merge_ends(world: World, nic: list[Fact], ports: list[Fact]) -> list[Fact]:
    nic = [_with_role(world, fact) for fact in nic]
    if not ports:
        return [f for f in nic if f.host]
    near, merged = _Near(nic), {id(fact): fact for fact in nic}
    rest: list[Fact] = []
    for port in sorted(ports, key=lambda f: f.key):
        swept = port.attrs[SWITCH] == SUBNET_MANAGER
        within = (SWEEP_S if swept else SAME_LINK_S) + port.sigma
        far = "subnet manager" if swept else "switch"
        same = [
            f for f in near.of(port.host, port.start, within)
            if (not port.device or f.device == port.device) and far not in merged[id(f)].attrs[ENDS]
        ]  # fmt: skip
        if same:
            nearest = min(same, key=lambda f: (abs(f.start - port.start), f.key))
            merged[id(nearest)] = _with_end(merged[id(nearest)], port, far)
            continue
        device = port.device or port.attrs[PORT]
        attrs: LinkOutage = {
            **LINK_OUTAGE.attrs_of(port),
            "role": world.site.role(port.host, device),
            "far_end_only": port.host != port.attrs[SWITCH],
        }
        if swept:
            attrs = {**attrs, "switch": None, "port": None, "ends": [far]}
        rest.append(replace(port, device=device, attrs=LINK_OUTAGE.as_attrs(attrs)))
    return [f for f in [*merged.values(), *rest] if f.host]


def _with_role(world: World, fact: Fact) -> Fact:
    drivers = (str(e.entities["driver"]) for e in fact.events if e.entities.get("driver"))
    role = world.site.role(fact.host, fact.device, next(drivers, None))
    return fact.having(ROLE, role)


class _Near:
    """Outages by host and start: a cluster has thousands of links, and of each only a few moments are needed."""

    def __init__(self, found: list[Fact]) -> None:
        self._of: dict[str | None, list[Fact]] = defaultdict(list)
        self._doubt: dict[str | None, float] = defaultdict(float)
        for fact in sorted(found, key=lambda f: f.start):
            self._of[fact.host].append(fact)
            self._doubt[fact.host] = max(self._doubt[fact.host], fact.sigma)

    def of(self, host: str | None, start: float, within: float) -> list[Fact]:
        """The outages of a host that began within ``within`` of ``start``, plus the uncertainty of their own start."""
        mine, reach = self._of.get(host, []), within + self._doubt.get(host, 0.0)
        low = bisect_left(mine, start - reach, key=attrgetter("start"))
        high = bisect_right(mine, start + reach, key=attrgetter("start"))
        return [f for f in mine[low:high] if abs(f.start - start) <= within + f.sigma]


def _with_end(fact: Fact, port: Fact, far: str) -> Fact:
    """An outage that its far end logged as well."""
    attrs: LinkOutage = {**LINK_OUTAGE.attrs_of(fact), "ends": [*fact.attrs[ENDS], far]}
    if far == "switch":
        attrs = {**attrs, "switch": port.attrs[SWITCH], "port": port.attrs[PORT]}
    end = port.end if fact.end is None else fact.end
    return replace(fact, end=end, attrs=LINK_OUTAGE.as_attrs(attrs), events=in_order(fact.events, port.events))


def switch_outages(world: World) -> list[Fact | Revision]:
    """Many links of one switch lost together, or a switch that logged its own failure or reboot.

    The links are then known to belong to the switch.
    """
    links = [Draft.from_fact(fact) for fact in world.facts_of(LINK_OUTAGE.name)]
    lost: dict[str, list[Draft]] = defaultdict(list)
    for fact in links:
        cable = world.site.cable_at(fact.host, fact.device, fact.start)
        switch = fact.attrs.get(SWITCH) or cable.get("switch") or ""
        if switch:
            fact.attrs[SWITCH] = switch
            lost[switch].append(fact)
    for switch, found in _uncabled(world, links).items():
        for fact in found:
            fact.attrs[SWITCH] = switch
        lost[switch] += found
    switches: list[Draft] = []
    by_host: dict[str, list[Draft]] = defaultdict(list)
    for fact in links:
        by_host[fact.host or ""].append(fact)
    for switch, found in sorted(lost.items()):
        # The largest group of one moment has the correct clocks; links that join it are not examined again.
        for group in sorted(together(found), key=lambda g: (-len(g), g[0].key)):
            left = [f for f in group if not f.attrs.get(PROMOTED)]
            outage = _promote(world, switch, left, found, by_host) if left else None
            switches += [Draft.from_fact(outage)] if outage is not None else []
    planes = _upstream(world, switches, links)
    made = [draft.fact() for draft in switches]
    return [*(revision for link in links if (revision := link.revision()) is not None), *made, *planes]


def _uncabled(world: World, links: list[Draft]) -> dict[str, list[Draft]]:
    """Links without a known far end that most nodes below one switch lost together: name -> outages.

    The switch is the one that lost as many ports at that moment, or else the one above the nodes in the topology.
    """
    alone: dict[str, list[Draft]] = defaultdict(list)
    ports: dict[str, list[float]] = defaultdict(list)
    for fact in links:
        if not fact.attrs.get(SWITCH) and fact.device and fact.host:
            alone[fact.device].append(fact)
        elif fact.host == fact.attrs.get(SWITCH):
            ports[fact.host or ""].append(fact.start)
    for times in ports.values():
        times.sort()
    found: dict[str, list[Draft]] = defaultdict(list)
    for device, outages_of in sorted(alone.items()):
        for group in together(outages_of):
            hosts = {f.host or "" for f in group}
            if len(hosts) < UNCABLED_MIN:
                continue
            for name, share in _shared_switches(world, hosts, group[0].start, ports, world.site.role(None, device)):
                below = [f for f in group if f.host in share]
                if len(share) >= UNCABLED_MIN:
                    found[name] += below
                    break
    return dict(sorted(found.items()))


def _shared_switches(
    world: World, hosts: set[str], start: float, ports: dict[str, list[float]], role: str
) -> list[tuple[str, set[str]]]:
    """Switches that the hosts share. ``ports``: when each switch lost ports, in order; ``role`` of the lost links."""
    named = []
    for switch, times in sorted(ports.items()):
        near = bisect_right(times, start + 2 * TOGETHER_S) - bisect_left(times, start - 2 * TOGETHER_S)
        if near >= PROMOTE_SHARE * len(hosts) and near >= PROMOTE_MIN:
            named.append((switch, hosts))
    for switch in sorted({world.site.leaf_of[h] for h in hosts if h in world.site.leaf_of}):
        # The tree is for placing jobs: a switch in it need not carry all of a node's networks.
        if UNKNOWN not in (carried := world.site.carried_by(switch)) and carried and role not in (UNKNOWN, *carried):
            continue
        members = world.site.members_at(switch, start)
        if len(hosts & members) >= PROMOTE_SHARE * len(members):
            named.append((switch, hosts & members))
    return named


def _promote(
    world: World, switch: str, group: list[Draft], all_lost: list[Draft], by_host: Mapping[str, list[Draft]]
) -> Fact | None:
    members = world.site.members_at(switch, group[0].start)
    late = strays(group, [
        f for host in sorted(members) for f in by_host.get(host, ())
        if not f.attrs.get(PROMOTED) and f.attrs.get(SWITCH) in (None, switch)
    ])  # fmt: skip
    hosts: set[str] = {f.host for f in [*group, *late] if f.host and f.host != switch}
    known = members | {f.host for f in all_lost if f.host and f.host != switch}
    if world.reporting_hosts and not any("switch" in f.attrs[ENDS] for f in group):
        known = (known & world.reporting_hosts) | hosts  # hosts without logs could not have reported it
    failures = [e for e in world.by_host.get(switch, ()) if e.kind in SWITCH_FAILS
            and -FAILURE_BEFORE_S <= group[0].start - e.time <= FAILURE_AFTER_S]  # fmt: skip
    many = len(hosts) >= PROMOTE_MIN and len(hosts) >= PROMOTE_SHARE * len(known)
    if not many and not (failures and len(hosts) >= 2):
        return None
    in_time_with(group, late)
    group = [*group, *late]
    ends = [f.end for f in group]
    down = [f for f in group if f.host != switch]
    devices = {f.device for f in down}
    attrs: SwitchOutage = {
        "hosts": sorted(hosts), "under": sorted(known | members), "share": len(hosts) / max(1, len(known)), "switch": switch,
        "links": [(f.host, f.device) for f in group], "plane": _plane(world, switch, down) if len(devices) == 1 else None,
        "tree_only": switch not in world.site.cabling.members and not any("switch" in f.attrs[ENDS] for f in group),
        "bonded": any(f.attrs.get(LEGS) or f.attrs.get(STAND_IN) for f in group),
    }  # fmt: skip
    end = None if None in ends else max(e for e in ends if e is not None)
    for member in group:
        member.attrs[PROMOTED] = switch
    events = in_order(failures, (e for f in group for e in f.events if e.kind.endswith("_down")))
    return SWITCH_OUTAGE.fact(min(f.start for f in group), end, group[0].sigma, switch, attrs=attrs, events=events)


#: A switch's own events that explain lost links, and how far from the loss they may lie: a switch that lost power logs
#: it when it is back, some minutes later.
SWITCH_FAILS = frozenset({"switch.reboot", "switch.hw_error", "switch.alarm"})
FAILURE_BEFORE_S, FAILURE_AFTER_S = 900.0, 60.0

#: A switch above takes the links below within its own failure detection (correlation.md, E15).
UPSTREAM_S = 10.0

_PLANE = re.compile(r"(?:^|[-_.])p(?:lane)?(?P<plane>\d+)(?:[-_.]|$)", re.IGNORECASE)


def _plane(world: World, switch: str, group: list[Draft]) -> str | None:
    """The plane that a switch belongs to: from the inventory, else from its name (``leaf-r01-p3``)."""
    planes = {world.site.cable_at(f.host, f.device, f.start).get("plane") or "" for f in group} - {""}
    if len(planes) == 1:
        name = planes.pop()
        return name if name.lower().startswith("plane") else f"plane{name}"
    match = _PLANE.search(switch)
    return f"plane{match['plane']}" if match else None


def _upstream(world: World, outages: list[Draft], links: list[Draft]) -> list[Fact]:
    """``plane.outage``: a switch without nodes that failed just before explains the leaf switches that lost theirs."""
    candidates: dict[str, list[Event]] = defaultdict(list)
    for event in world.kinds(*SWITCH_FAILS):
        if event.host and not world.site.members.get(event.host):
            candidates[event.host].append(event)
    found: dict[tuple[str, float], tuple[tuple[Event, ...], list[Draft]]] = {}
    for leaf in outages:
        for name, events in sorted(candidates.items()):
            near = [e for e in events if -2.0 - leaf.sigma <= leaf.start - e.time <= UPSTREAM_S + leaf.sigma]
            if name == leaf.host or not near or not _above(world, name, leaf, links):
                continue
            group = found.setdefault((name, near[0].time), (tuple(near), []))
            group[1].append(leaf)
            leaf.attrs[PROMOTED] = name
            break
    return [_spine(name, *group) for (name, _), group in sorted(found.items(), key=itemgetter(0))]


def _spine(name: str, events: tuple[Event, ...], leaves: list[Draft]) -> Fact:
    """The outage of a switch above: its ``leaves``, and their links."""
    plane, ends = leaves[0].attrs.get(PLANE), [leaf.end for leaf in leaves]
    attrs: PlaneOutage = {
        "hosts": sorted({host for leaf in leaves for host in leaf.attrs[HOSTS]}),
        "links": [link for leaf in leaves for link in leaf.attrs[LINKS]], "switch": name, "plane": plane, "share": 1.0,
    }  # fmt: skip
    end = None if None in ends else max(e for e in ends if e is not None)
    return PLANE_OUTAGE.fact(events[0].time, end, events[0].sigma, name, plane, attrs=attrs, events=events)


def _above(world: World, upper: str, leaf: Draft, links: list[Draft]) -> bool:
    """Is ``upper`` above the leaf: by topology, by plane, or because the leaf's uplinks were lost at the same time?"""
    # topology.conf may use names of its own; it counts if it names switches that log.
    parents = world.site.parents.get(str(leaf.host), frozenset()) & world.by_host.keys()
    if parents:
        return upper in parents
    match = _PLANE.search(upper)
    if match and leaf.attrs.get(PLANE):
        return str(leaf.attrs[PLANE]) == f"plane{match['plane']}"
    return any(f.host == leaf.host and abs(f.start - leaf.start) <= TOGETHER_S for f in links)


#: Integrity warnings of one port this close together are one bad link; fewer than this many are routine on every fabric.
SAME_ERRORS_S, ERROR_LINES = 1800.0, 2


def link_errors(world: World) -> list[Fact]:
    """``link.errors``: a port that keeps its link and corrupts data, by the subnet manager, the switch or the NIC."""
    groups: dict[tuple[str, str], list[Event]] = defaultdict(list)
    alias = Aliases(world)
    for event in world.kinds("fabric.link_errors", "nic.link_errors", "switch.port_errors", "switch.link_errors"):
        # OpenSM's 5402: the port answers no query, as without power.
        host = "" if event.entities.get("error") == "5402" else str(event.entities.get("peer_node") or event.host or "")
        device = event.device or ""
        if event.kind.startswith("switch."):
            cable = world.site.far_end(host, device, event.time)
            host, device = cable if cable else (host, device)
        if host and device:
            groups[(host, alias.of(host, device, event.time))].append(event)
    facts = []
    for (host, device), events in sorted(groups.items()):
        for burst in bursts(events, SAME_ERRORS_S):
            count = sum(e.count for e in burst)
            if count >= ERROR_LINES:
                attrs: LinkErrors = {"count": count, "role": world.site.role(host, device)}
                facts.append(LINK_ERRORS.fact(burst[0].time, burst[-1].last, burst[0].sigma, host, device, attrs=attrs, events=tuple(burst)))  # fmt: skip
    return facts


KINDS = (LINK_OUTAGE, SWITCH_OUTAGE, PLANE_OUTAGE, LINK_ERRORS)
DETECTORS = [outages, switch_outages, link_errors]
