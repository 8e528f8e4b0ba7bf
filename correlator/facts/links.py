"""Links: outages of NICs and switch ports, both ends as one, many at once as their switch."""

from __future__ import annotations

import re
from collections import defaultdict

from correlator.facts import World
from correlator.model import Event, Fact

#: Both ends of a cable lose carrier within milliseconds; RFC 3164 stamps and unsynchronised clocks make it seconds.
SAME_LINK_S = 2.0

#: Driver, bond and network daemon repeat one loss within seconds; a later "down" is another one.
REPEATED_S = 10.0

#: A port that comes up passes through "no carrier" for a moment.
COMING_UP_S = 1.0

#: A switch takes its ports down together; with whole-second stamps and small skew they spread this far.
TOGETHER_S = 5.0

#: Promotion to the switch: this share of its nodes, and at least so many (correlation.md, explaining away upwards).
PROMOTE_SHARE, PROMOTE_MIN = 0.6, 3

_DESCRIBED = re.compile(r"\((?P<host>[\w.-]+)\s+(?P<device>[\w./-]+)\)")


def aliases(world: World) -> dict[tuple[str, str], str]:
    """(host, any name of a NIC) -> its interface name, learned from lines that say two of its names."""
    names: dict[tuple[str, str], str] = {}
    rank = {"port": 0, "ibdev": 1, "pci": 2}
    for event in world.kinds("nic.link_down", "nic.link_up", "nic.error", "nic.module_event"):
        told = [(rank[k], str(event.entities[k])) for k in rank if event.entities.get(k) not in (None, "")]
        if event.host and len(told) > 1:
            best = min(told)[1]
            for _, name in told:
                names.setdefault((event.host, name), best)
    return names


def _end(
    world: World, event: Event, alias: dict[tuple[str, str], str]
) -> tuple[str, str, str | None, str | None] | None:
    """(host, device, switch, switch port) that an up/down event speaks of; None if it names no device."""
    device = event.device
    if not event.host or not device:
        return None
    if event.kind.startswith("nic."):
        return (event.host, alias.get((event.host, device), device), None, None)
    described = _DESCRIBED.search(event.message)
    if described and described["host"] in world.site.hosts:
        return (described["host"], described["device"], event.host, device)
    cable = world.site.links.get((event.host, device))
    if cable:
        return (cable[0], cable[1], event.host, device)
    named = host_in_name(device, world.site.hosts)
    return (named or event.host, "" if named else device, event.host, device)


def host_in_name(port: str, hosts: frozenset[str]) -> str | None:
    """The host that a port's name contains (``m-gpu02``): the longest one, as whole words."""
    matches = [h for h in hosts if re.search(rf"(?<![A-Za-z0-9]){re.escape(h)}(?![A-Za-z0-9])", port)]
    return max(matches, key=len) if matches else None


def outages(world: World) -> list[Fact]:
    """Down .. up per device and per switch port, then the two ends of a cable merged."""
    alias = aliases(world)
    tracks: dict[tuple[str, str, str, str], list[Event]] = defaultdict(list)
    for event in world.kinds("nic.link_down", "nic.link_up", "switch.port_down", "switch.port_up"):
        if event.entities.get("admin_down"):
            continue
        end = _end(world, event, alias)
        if end is not None:
            tracks[(end[0], end[1], end[2] or "", end[3] or "")].append(event)
    nic: list[Fact] = []
    ports: list[Fact] = []
    for (host, device, switch, port), events in sorted(tracks.items()):
        found = _intervals(host, device or None, switch or None, port or None, events)
        (ports if switch else nic).extend(found)
    return _merge_ends(world, nic, ports)


def _intervals(host: str, device: str | None, switch: str | None, port: str | None, events: list[Event]) -> list[Fact]:
    facts: list[Fact] = []
    current: Fact | None = None
    for place, event in enumerate(events):
        down = event.kind.endswith("_down")
        following = events[place + 1] if place + 1 < len(events) else None
        coming_up = (
            following is not None and following.kind.endswith("_up") and following.time - event.time <= COMING_UP_S
        )
        if down and current is None:
            attrs = {"switch": switch, "port": port, "ends": ["switch" if switch else "nic"]}
            current = Fact("link.outage", event.time, None, event.sigma, host, device, attrs=attrs, events=(event,))
        elif down and current is not None and coming_up:
            continue
        elif down and current is not None and event.time - current.events[-1].time > REPEATED_S:
            # Down again without an up between: it came back unseen (the host was off, lines were lost).
            current.end = event.time
            current.attrs["end_unseen"] = True
            facts.append(current)
            attrs = {"switch": switch, "port": port, "ends": ["switch" if switch else "nic"]}
            current = Fact("link.outage", event.time, None, event.sigma, host, device, attrs=attrs, events=(event,))
        elif down and current is not None:
            current.events += (event,)
        elif current is not None:
            current.end = event.time
            current.events += (event,)
            facts.append(current)
            current = None
    if current is not None:
        facts.append(current)
    return facts


def _merge_ends(world: World, nic: list[Fact], ports: list[Fact]) -> list[Fact]:
    for fact in nic:
        fact.attrs["role"] = world.site.role(fact.host, fact.device)
    rest: list[Fact] = []
    for port in sorted(ports, key=lambda f: f.key):
        same = [
            f for f in nic
            if f.host == port.host and abs(f.start - port.start) <= SAME_LINK_S + f.sigma + port.sigma
            and (not port.device or f.device == port.device) and "switch" not in f.attrs["ends"]
        ]  # fmt: skip
        if not same:
            port.attrs["role"] = world.site.role(port.host, port.device or port.attrs["port"])
            port.attrs["far_end_only"] = port.host != port.attrs["switch"]
            port.device = port.device or port.attrs["port"]
            rest.append(port)
            continue
        best = min(same, key=lambda f: (abs(f.start - port.start), f.key))
        best.attrs.update(switch=port.attrs["switch"], port=port.attrs["port"], ends=["nic", "switch"])
        best.events = tuple(sorted({*best.events, *port.events}, key=lambda e: (e.time, e.id)))
        if best.end is None:
            best.end = port.end
    return [f for f in nic + rest if f.host]


def switch_outages(world: World) -> list[Fact]:
    """Many links of one switch lost together, or the switch itself said that it failed or rebooted."""
    lost: dict[str, list[Fact]] = defaultdict(list)
    for fact in world.facts_of("link.outage"):
        cable = world.site.cables.get((fact.host or "", fact.device or ""), {})
        switch = fact.attrs.get("switch") or cable.get("switch") or ""
        if switch:
            fact.attrs["switch"] = switch
            lost[switch].append(fact)
    facts: list[Fact] = []
    for switch, found in sorted(lost.items()):
        found.sort(key=lambda f: f.key)
        groups: list[list[Fact]] = []
        for fact in found:
            if groups and fact.start - groups[-1][0].start <= TOGETHER_S:
                groups[-1].append(fact)
            else:
                groups.append([fact])
        promoted = (_promote(world, switch, group, found) for group in groups)
        facts += [fact for fact in promoted if fact is not None]
    return facts


def _promote(world: World, switch: str, group: list[Fact], all_lost: list[Fact]) -> Fact | None:
    hosts = {f.host for f in group if f.host and f.host != switch}
    known = world.site.members.get(switch, frozenset()) | {f.host for f in all_lost if f.host and f.host != switch}
    if len(hosts) < PROMOTE_MIN or len(hosts) < PROMOTE_SHARE * len(known):
        return None
    ends = [f.end for f in group]
    said = [e for e in world.by_host.get(switch, ()) if e.kind in ("switch.reboot", "switch.hw_error", "switch.alarm")
            and abs(e.time - group[0].start) <= 60]  # fmt: skip
    events = sorted(
        {*said, *(e for f in group for e in f.events if e.kind.endswith("_down"))}, key=lambda e: (e.time, e.id)
    )
    attrs = {"hosts": sorted(hosts), "share": len(hosts) / max(1, len(known)), "switch": switch,
             "links": [(f.host, f.device) for f in group]}  # fmt: skip
    end = None if None in ends else max(e for e in ends if e is not None)
    fact = Fact(
        "switch.outage",
        min(f.start for f in group),
        end,
        group[0].sigma,
        switch,
        None,
        attrs=attrs,
        events=tuple(events),
    )
    for member in group:
        member.attrs["promoted"] = switch
    return fact


DETECTORS = [outages, switch_outages]
