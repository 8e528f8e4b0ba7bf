"""The repair list: devices that come and go, or correct errors, without an incident for each time.

At scale links flap all day, and on a fabric of several planes no run notices one: a port is 1/N of the bandwidth.
Operators need no alarm for them, but a list for the next round with cables and a cleaning pen: which device, which two
ends, how often, how that compares with the rest of the fleet, which runs it hurt, what to do, the urgent first.

It is computed from what the correlator has stored (events, incidents, runs) and from the cables' inventory, by the same
detectors that incidents are made with: the same events in any order give the same list. Outages with another cause (a
switch, a reboot, maintenance) are not the device's own and do not count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from correlator.facts.link_tracks import Place, by_link, place_of
from correlator.facts.links import detector as link_facts
from correlator.facts.links.kinds import LINK_ERRORS, LINK_OUTAGE
from correlator.facts.links.together import TOGETHER_S
from correlator.facts.registry import names_of_category, signs
from correlator.facts.world import World, bus_of
from correlator.incidents.incidents import FLAP_GAP_S
from correlator.incidents.lemons import FALSE_NAMES, LARGEST_TAIL, LEAST, PRIOR_SHAPE, tail
from correlator.model.attributes import END_UNSEEN, PORT, SWITCH
from correlator.model.json_text import from_json
from correlator.model.moments import moment_of, seconds_of
from correlator.model.nouns import Event, Fact
from correlator.repairs.model import Repair, RepairList, Rows
from correlator.repairs.remedies import Remedy, is_drain, remedy
from correlator.repairs.undone_drains import hold, undone_drains
from correlator.site.cabling import cabling
from correlator.site.interfaces import FACT, remembered
from correlator.site.site import Site, build_site
from parsers.moments import later
from parsers.writers import NO_USERS
from store import node_names, run_names
from store.questions import conclusions, out_of_service, repair_list
from store.questions.repair_list import Stretch

#: A week: what fits between two rounds through the hall.
DAYS = 7.0

#: An outage that began this long before the period may still end in it.
_BEFORE = timedelta(days=1)

#: Links settle for this long after the kernel has started (correlation.md, benign suppression).
BOOT_S = 120.0

#: What is counted of the lines of a cable and its optics.
_COUNTED = ("errors", "optics")
#: Severities of a sign: modules are also plugged and unplugged, which is none.
_SERIOUS = frozenset({"warning", "error", "err", "critical", "crit", "alert", "emerg"})
#: Root causes that are the link's own; an outage in an incident with another root cause is explained by that.
OWN_ROOTS = frozenset(
    event
    for kind in (LINK_OUTAGE, LINK_ERRORS)
    if kind.cause
    for event in (kind.cause.event, kind.cause.repeated)
    if event
)


def repairs(store: Rows, since: datetime | None = None, until: datetime | None = None) -> RepairList:
    """The list of the devices with faults from ``since`` (inclusive) to ``until`` (exclusive), naive UTC.

    Without ``since`` it covers the last ``DAYS`` before ``until``, which defaults to the last stored event.
    """
    event = store.ask(repair_list.last_event())[0]
    last = event["last"]
    if last is None:
        return RepairList(since, until, [])
    end = until or later(last, timedelta(microseconds=1))
    # A user's line of next year does not end what is listed of today.
    newest = until or later(event["dated"], timedelta(microseconds=1))
    begin = since if since is not None else later(newest, -timedelta(days=DAYS))
    found: list[Repair] = []
    for cluster, pairs in sorted(events_by_cluster(store, begin, end).items(), key=lambda c: c[0] or ""):
        fleet, incidents = Fleet(store, cluster), noted(store, cluster, {i for _, i in pairs if i})
        made = _listed(pairs, fleet, incidents, begin, min(end, last))
        _count_runs(store, cluster, made)
        _name_runs(store, cluster, made)
        found += [r for r, _ in made]
    nodes = node_names.NodeNames(store)
    for repair in found:
        repair.node = nodes.of(repair.host, repair.cluster)
        advise(repair)
    if any(is_drain(repair) for repair in found):
        undone = undone_drains(store.ask(out_of_service.everything()))
        for repair in found:
            hold(repair, undone)
    return RepairList(begin, end, sorted(found, key=_order))


def listed(
    pairs: Sequence[tuple[Event, str | None]], fleet: Fleet, incidents: Mapping[str, Noted], since: datetime, until: datetime
) -> list[Repair]:  # fmt: skip
    """The list of one cluster's devices from its events up to ``until``, without the runs that were there meanwhile."""
    found = [repair for repair, _ in _listed(pairs, fleet, incidents, since, until)]
    for repair in found:
        advise(repair)
    return found


URGENCIES = ("now", "soon", "watch")


def _order(repair: Repair) -> tuple[Any, ...]:
    return (
        URGENCIES.index(repair.urgency), -len(repair.ended), -len(repair.slowed), repair.probability, -repair.flaps - repair.errors,
        -repair.down_s, repair.cluster or "", repair.host, repair.device,
    )  # fmt: skip


def advise(repair: Repair) -> None:
    """Sets the urgency and the remedy."""
    hurt = bool(repair.ended or repair.slowed)
    if repair.down or (hurt and (repair.outlier or repair.flaps + repair.errors > 1)):
        repair.urgency = "now"
    elif repair.outlier or hurt or repair.optics or (repair.errors and repair.flaps):
        repair.urgency = "soon"
    found: Remedy = remedy(repair)
    repair.action, repair.command = found.text, found.command


# ------------------------------------------------------------------------------------------------------------- reading


def events_by_cluster(
    store: Rows, since: datetime, until: datetime
) -> dict[str | None, list[tuple[Event, str | None]]]:
    """By cluster: events with the incident that each belongs to."""
    found: defaultdict[str | None, list[tuple[Event, str | None]]] = defaultdict(list)
    kinds = sorted({*signs(), "kernel.boot"})
    for row in store.ask(repair_list.events_of_devices(kinds, later(since, -_BEFORE), until)):
        entities = from_json(row["entities"]) if row["entities"] else {}
        moment = row["time"] / 1e6
        event = Event(
            row["event_id"], moment, row["resolution_us"] / 2e6, row["event"], row["host"], row["device"], row["job_id"],
            row["message"] or "", row["source"], row["layer"] or "", row["severity"], row["file"], row["line"], None, "line",
            int(row["count"]), moment, entities, authority=row["authority"] or "",
        )  # fmt: skip
        found[row["cluster"]].append((event, row["incident_id"]))
    return found


class Fleet:
    """What a cluster has: its cables, and the number of devices of each role."""

    def __init__(self, store: Rows, cluster: str | None) -> None:
        links = store.ask(repair_list.cables(cluster))
        hosts = [row["host"] for row in store.ask(repair_list.hosts(cluster))]
        switches = {row["host"] for row in store.ask(repair_list.hosts_of_switch_events(cluster))}
        self.cluster = cluster
        self._spare: dict[tuple[str | None, str | None, bool], bool] = {}
        facts = store.ask(conclusions.fact(FACT))
        names = remembered(facts[0]["value"] if facts else None)
        self.site: Site = build_site(cluster, [], cabling(links), [], hosts, names)
        self.nodes = max(1, len({*hosts} - switches - {str(row["switch"]) for row in links}))
        self.planes: defaultdict[str, set[str]] = defaultdict(set)
        self.cables: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for (host, device), cable in self.site.cables.items():
            self.cables[self.site.role(host, device)].add((host, device))
            if cable["plane"]:
                self.planes[host].add(cable["plane"])

    def is_spare(self, fact: Fact) -> bool:
        """Is the port one that the inventory of its host does not list?"""
        place = (fact.host, fact.device, bool(fact.attrs.get(SWITCH)))
        if place not in self._spare:
            self._spare[place] = not self.site.cabled(fact.host, fact.device, fact.attrs.get(SWITCH))
        return self._spare[place]

    def devices(self, role: str, seen: int) -> int:
        """The number of devices that a rate is spread over.

        Without an inventory it is at least one per node: too few make an ordinary device look worse than it is, and a
        bad one more ordinary.
        """
        return max(2, seen, len(self.cables[role]), self.nodes)


@dataclass(frozen=True)
class Noted:
    """What an incident shows about an outage: whether it was its own root, and which runs it hurt."""

    own: bool
    ended: tuple[str, ...]
    slowed: tuple[str, ...]
    root: str


def noted(store: Rows, cluster: str | None, names: set[str]) -> dict[str, Noted]:
    found = {}
    for row in store.ask(repair_list.incidents(cluster, sorted(names))) if names else []:
        found[row["incident_id"]] = Noted(
            row["root_event"] in OWN_ROOTS,
            tuple(row["jobs"] or ()),
            tuple(row["slowed"] or ()),
            str(row["root_event"]),
        )
    return found


# --------------------------------------------------------------------------------------------------------------- links

#: Repairs with the time ranges of the faults (seconds) that they were made of.
_Listed = list[tuple[Repair, list[tuple[float, float]]]]


def _listed(
    pairs: Sequence[tuple[Event, str | None]], fleet: Fleet, incidents: Mapping[str, Noted], since: datetime, until: datetime
) -> _Listed:  # fmt: skip
    return [*_links(pairs, fleet, incidents, since, until), *_gpus(pairs, fleet, incidents, since)]


def _links(
    pairs: Sequence[tuple[Event, str | None]], fleet: Fleet, incidents: Mapping[str, Noted], since: datetime, until: datetime
) -> _Listed:  # fmt: skip
    begin, end = _s(since), _s(until)
    home = {event.id: incident for event, incident in pairs if incident}
    tracks = by_link((event for event, _ in pairs if not _corrects(event)), fleet.site)
    boots = _boots(event for event, _ in pairs)
    signs = _signs(tracks, fleet.site, home, begin)
    listed: dict[Place, tuple[Repair, list[Fact]]] = {}
    for (host, _), events in sorted(tracks.items()):
        world = World(fleet.site, events, [])
        for fact in link_facts.outages(world):
            incident = incidents.get(next((home[e.id] for e in fact.events if e.id in home), ""))
            if (fact.end or fact.start) < begin or _explained(fact, incident, boots[host], fleet):
                continue
            repair, facts = listed.setdefault((host, fact.device or ""), (_repair(fleet, fact), []))
            facts.append(fact)
            _blame(repair, incident, (home[e.id] for e in fact.events if e.id in home))
    for (host, device), counts in signs.items():
        alone = LINK_ERRORS.fact(counts.first, counts.last, 0.0, host, device)
        repair, _ = listed.setdefault((host, device), (_repair(fleet, alone), []))
        repair.errors, repair.optics = counts.errors, counts.optics
        for name in counts.incidents:
            _blame(repair, incidents[name] if name in incidents and incidents[name].own else None, [name])
    for place, (repair, facts) in listed.items():
        _measure(repair, facts, signs.get(place), end)
    _together(listed.values())
    _stand([repair for repair, _ in listed.values()], fleet)
    return [
        (repair, [(f.start, end if f.end is None else f.end) for f in facts] + [(s.first, s.last) for s in [signs.get(place)] if s])
        for place, (repair, facts) in listed.items()
    ]  # fmt: skip


def _blame(repair: Repair, incident: Noted | None, names: Iterable[str]) -> None:
    """The runs that the device hurt, by its incidents."""
    repair.incidents = sorted({*repair.incidents, *names})
    if incident is not None:
        repair.ended = sorted({*repair.ended, *incident.ended})
        repair.slowed = sorted({*repair.slowed, *incident.slowed} - set(repair.ended))


def _s(moment: datetime) -> float:
    found = seconds_of(moment)
    assert found is not None
    return found


def _boots(events: Iterable[Event]) -> defaultdict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.kind == "kernel.boot" and event.host:
            found[event.host].append(event.time)
    return found


def _explained(fact: Fact, incident: Noted | None, boots: list[float], fleet: Fleet) -> bool:
    """Does the outage have another cause: an incident with another root, a boot, or a port without a cable?"""
    if incident is not None:
        return not incident.own
    if fleet.is_spare(fact):
        return True
    first = bisect_left(boots, fact.start - BOOT_S)
    return first < bisect_right(boots, fact.end if fact.end is not None else fact.start)


def _repair(fleet: Fleet, fact: Fact) -> Repair:
    host, device = fact.host or "", fact.device or ""
    cable = fleet.site.cables.get((host, device), {})
    return Repair(
        "link", fleet.cluster, host, device, switch=cable.get("switch") or fact.attrs.get(SWITCH),
        switch_port=cable.get("switch_port") or fact.attrs.get(PORT), plane=cable.get("plane") or None, rail=cable.get("rail") or None,
        planes=len(fleet.planes[host]) if cable.get("plane") else 0, role=fleet.site.role(host, device),
    )  # fmt: skip


@dataclass
class _Signs:
    """Warnings of one device: how many of each sort, when, and the incidents that they belong to. ``proven``: the last that no user can
    have written."""

    errors: int = 0
    optics: int = 0
    first: float = float("inf")
    last: float = float("-inf")
    proven: float = float("-inf")
    incidents: set[str] = field(default_factory=set)


def _signs(
    tracks: Mapping[Place, list[Event]], site: Site, home: Mapping[str, str], begin: float
) -> dict[Place, _Signs]:  # fmt: skip
    found: defaultdict[Place, _Signs] = defaultdict(_Signs)
    counted = {event: sign for event, (sign, _) in signs().items() if sign in _COUNTED}
    for (host, known), events in tracks.items():
        for event in events:
            sort = counted.get(event.kind)
            if sort is None or event.time < begin or not event.device or (event.severity or "warning") not in _SERIOUS:
                continue
            counts = found[(host, known or place_of(event, site)[1] or event.device)]
            setattr(counts, sort, getattr(counts, sort) + event.count)
            counts.first, counts.last = min(counts.first, event.time), max(counts.last, event.time)
            if event.authority in NO_USERS:
                counts.proven = max(counts.proven, event.time)
            counts.incidents |= {home[event.id]} if event.id in home else set()
    return dict(found)


def _measure(repair: Repair, facts: list[Fact], signs: _Signs | None, end: float) -> None:
    """Counts the outages and the time without carrier.

    One that is still down counts up to the end of the data in ``down`` only.
    """
    lengths = [fact.end - fact.start for fact in facts if fact.end is not None and not fact.attrs.get(END_UNSEEN)]
    repair.flaps, repair.down_s, repair.longest_s = len(facts), sum(lengths), max(lengths, default=0.0)
    moments = [f.start for f in facts] + ([signs.first] if signs else [])
    lasts = [f.start for f in facts] + ([signs.last] if signs else [])
    repair.first, repair.last = moment_of(min(moments)), moment_of(max(lasts))
    proven = [*(moment for fact in facts for moment in _proven(fact)), *([signs.proven] if signs else [])]
    repair.newest_fault = moment_of(found) if (found := max(proven, default=float("-inf"))) > float("-inf") else None
    repair.down = any(fact.end is None and end - fact.start > FLAP_GAP_S for fact in facts)


def _proven(fact: Fact) -> list[float]:
    """When the link went down by lines that no user can have written. Those that only repeat it soon after are no new fault."""
    moments = sorted(e.time for e in fact.events if e.authority in NO_USERS and link_facts.is_down(e))
    return [at for before, at in pairwise([float("-inf"), *moments]) if at - before > link_facts.REPEATED_S]


def _together(listed: Iterable[tuple[Repair, list[Fact]]]) -> None:
    """Counts the outages of a device together with other devices of its host: then it is the NIC, not one cable."""
    groups: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    kept = list(listed)
    for repair, facts in kept:
        groups[repair.host] += [(fact.start, repair.device) for fact in facts if repair.role == "fabric"]
    for times in groups.values():
        times.sort()
    for repair, facts in kept:
        times = groups[repair.host]
        for fact in facts if repair.role == "fabric" else ():
            low = bisect_left(times, (fact.start - TOGETHER_S, ""))
            high = bisect_right(times, (fact.start + TOGETHER_S, "\U0010ffff"))
            repair.together += any(device != repair.device for _, device in times[low:high])


def _stand(found: list[Repair], fleet: Fleet) -> None:
    """Compares each device with all others of its role.

    The others give a Gamma posterior of the rate; the probability is its tail for this device (lemons.py).
    """
    counts: Counter[tuple[str, str]] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    for repair in found:
        counts[(repair.kind, repair.role)] += repair.flaps or repair.errors
        seen[(repair.kind, repair.role)] += 1
    for repair in found:
        family, own = (repair.kind, repair.role), repair.flaps or repair.errors
        devices, others = fleet.devices(repair.role, seen[family]), counts[family] - own
        repair.expected = round((others + PRIOR_SHAPE) / (devices - 1), 4)
        repair.probability = tail(own, others, devices - 1)
        repair.outlier = own >= LEAST and repair.probability < min(LARGEST_TAIL, FALSE_NAMES / devices)


# ---------------------------------------------------------------------------------------------------------------- GPUs


def _gpus(
    pairs: Sequence[tuple[Event, str | None]], fleet: Fleet, incidents: Mapping[str, Noted], since: datetime
) -> _Listed:  # fmt: skip
    """GPUs and other devices of the bus that correct errors repeatedly: nothing has failed yet, but something will."""
    begin = _s(since)
    groups: defaultdict[tuple[str, str], list[tuple[Event, str | None]]] = defaultdict(list)
    for event, home in pairs:
        if event.host and event.device and event.time >= begin and _is_corrected(event):
            groups[(event.host, bus_of(event.device))].append((event, home))
    listed: _Listed = []
    for (host, device), events in sorted(groups.items()):
        role = "gpu" if any(_is_of_gpu(e) for e, _ in events) else "pci"
        repair = Repair("gpu", fleet.cluster, host, device, role=role, errors=sum(e.count for e, _ in events))
        if repair.errors < LEAST:
            continue
        repair.first, repair.last = moment_of(events[0][0].time), moment_of(events[-1][0].time)
        for name in {i for _, i in events if i}:
            of_gpus = name in incidents and incidents[name].root in names_of_category("infra.gpu")
            _blame(repair, incidents[name] if of_gpus else None, [name])
        listed.append((repair, [(e.time, e.last) for e, _ in events]))
    _stand([repair for repair, _ in listed], fleet)
    return listed


#: Linux drivers of GPUs. The bus reports errors of disks, NICs and its own ports in the same words.
GPU_DRIVERS = frozenset({"nvidia", "amdgpu", "xe", "i915"})


def _is_of_gpu(event: Event) -> bool:
    """Does the line say that its device is a GPU?"""
    return event.layer == "gpu" or event.entities.get("driver") in GPU_DRIVERS


def _corrects(event: Event) -> bool:
    """Is it of an event that says so of a device that corrects errors by itself?"""
    return event.kind in signs() and signs()[event.kind][0] == "corrected"


def _is_corrected(event: Event) -> bool:
    corrected = signs()[event.kind][1].corrected if _corrects(event) else None
    return corrected is not None and corrected(event)


# ---------------------------------------------------------------------------------------------------------------- runs


def _count_runs(store: Rows, cluster: str | None, listed: _Listed) -> None:
    """Counts the runs on the host while its device had faults."""
    stretches = [Stretch(n, repair.host, a, b) for n, (repair, spans) in enumerate(listed) for a, b in spans]
    if not stretches:
        return
    for row in store.ask(repair_list.runs_in_trouble(cluster, stretches)):
        listed[row["place"]][0].runs = row["runs"]


def _name_runs(store: Rows, cluster: str | None, listed: _Listed) -> None:
    """Renames runs to their names in the whole store: incidents use their cluster's names."""
    names = run_names.differing(store, cluster)
    for repair, _ in listed if names else ():
        repair.ended = sorted(names.get(key, key) for key in repair.ended)
        repair.slowed = sorted(names.get(key, key) for key in repair.slowed)


__all__ = ["DAYS", "OWN_ROOTS", "Repair", "RepairList", "advise", "repairs"]
