"""Sorts link events by link, both ends of a cable together.

The detectors of links (facts/links/detector.py) look at all links of a time range at once. Over a week of flaps that is
too much to compare each with each, and nothing is lost if each link is judged by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from correlator.facts.links import detector as link_facts
from correlator.facts.world import World
from correlator.model.nouns import Event
from correlator.site.site import Site

#: Host and device of the node's end; the device is empty if only the host is known.
Place = tuple[str, str]


def by_link(events: Iterable[Event], site: Site) -> dict[Place, list[Event]]:
    """Events by the link to which the detectors will assign them, in order.

    Switch ports that no inventory knows are looked up once each (by a node's name in theirs) and kept in
    ``site.links``: there are few ports and many events. A host with a port that is known by host only keeps all its
    links together.
    """
    listed = [e for e in events if e.host]
    for host, device in sorted(
        {(str(e.host), str(e.device)) for e in listed if e.kind.startswith("switch.") and e.device}
    ):
        if (host, device) not in site.links and (host, device) not in site.cabling.moved_ports:
            named = link_facts.host_in_name(device, site.hosts)
            site.links[(host, device)] = (named, "") if named else (host, device)
    alias = link_facts.Aliases(World(site, listed, []))
    places = [place_of(event, site, alias) for event in listed]
    loose = {host for host, device in places if not device}
    found: defaultdict[Place, list[Event]] = defaultdict(list)
    for (host, device), event in zip(places, listed, strict=True):
        found[(host, "" if host in loose else device)].append(event)
    return dict(found)


def place_of(event: Event, site: Site, alias: link_facts.Aliases | None = None) -> Place:
    """The node and NIC of the link in an event; the switch and its port if it is unknown what is connected there."""
    alias = alias or link_facts.Aliases()
    host, device = str(event.host), str(event.device or "")
    peer = str(event.entities.get("peer_node") or "")
    if event.kind.startswith("fabric.") and peer in site.hosts:
        return peer, alias.of(peer, device, event.time)
    if not event.kind.startswith("switch."):
        return host, alias.of(host, device, event.time)
    described = link_facts.DESCRIBED.search(event.message)
    if described and described["host"] in site.hosts:
        return described["host"], described["device"]
    far, name = site.far_end(host, device, event.time) or (host, device)
    return far, name or ""
