"""Incidents: one root fact and all that follows from it.

Runs whose verdicts have the same root are one incident. Roots without victims become incidents too, benign or degraded,
so that an operator sees what happened and that it did no harm.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from correlator.evidence.chains import Chain
from correlator.evidence.weigh import LEAK, Weigher, before_all_logs
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.links.together import TOGETHER_S
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import cause_of, kind_of, kinds_where, root_event, roots
from correlator.facts.slow_runs import SLOW
from correlator.facts.world import World
from correlator.incidents.incident import AFTERMATH_S, LISTED, Incident, Survivors
from correlator.model.attributes import PASSING, PLANNED, PROMOTED, ROLE
from correlator.model.nouns import Fact, Hop, Run
from correlator.verdicts.kernel_words import Limits
from correlator.verdicts.verdict import Verdict

#: An incident's id is a hash of what its root is, with this many bytes: two of a million incidents collide with p =
#: 0.5; with three bytes two of 6,000 did, and a tick could not distinguish them.
ID_BYTES = 5

#: Outages of one device that are this close together are one flapping link, not several incidents.
FLAP_GAP_S = 300.0


def gather(world: World, weigher: Weigher, verdicts: list[Verdict]) -> list[Incident]:
    """All incidents of a cluster, oldest first."""
    by_root: dict[int, Incident] = {}
    for verdict in verdicts:
        if verdict.chain is None or not verdict.category.startswith("infra."):
            continue
        root = verdict.chain.root
        incident = by_root.setdefault(id(root), _incident(world, root, "impact"))
        incident.verdicts.append(verdict)
        _absorb(incident, verdict.chain)
    incidents = list(by_root.values())
    for incident in incidents:
        _consequences(world, weigher, incident)
    _join_flaps(world, incidents)
    taken = {id(f) for i in incidents for f in [i.root, *i.members, *i.flaps]}
    complaints = _complaints(world)
    for incident in incidents:
        _join_repeats(complaints, incident, taken)
    # One restart of slurmctld is several facts: what hurt a job and what hurt nobody are one incident, by its name.
    named = {incident.id for incident in incidents}
    unsuffered = _unsuffered(world, weigher, complaints, taken, _Machines(world, incidents))
    incidents += [incident for incident in unsuffered if incident.id not in named]
    _slowed(world, weigher, incidents)
    _leave_open(incidents, verdicts)
    limits = Limits(world)
    for incident in incidents:
        incident.members.sort(key=lambda f: f.key)
        incident.hops = _unique(incident.hops)
        incident.unproven = limits.of_cause(incident.root, incident.hops)
    incidents.sort(key=lambda i: (i.start, i.id))
    return incidents


def _leave_open(incidents: list[Incident], verdicts: list[Verdict]) -> None:
    """Adds the runs of which it is open whether an incident ended them: they are not unhurt."""
    home = {id(f): i for i in incidents for f in [i.root, *i.members]}
    for verdict in verdicts:
        if verdict.left_open and (incident := home.get(id(verdict.others[0].root))) is not None:
            incident.left_open.append(verdict)


def incident_id(cluster: str | None, root: Fact) -> str:
    """The id of the incident with this root: the same whenever and in whatever order its lines arrive."""
    # A link is named as a flap or as down, by how often it was lost: it is one incident either way.
    event = root_event(root) if not kind_of(root.kind).flaps else root.kind
    identity = repr((cluster, event, root.host, root.device, round(root.start, 3)))
    return f"I-{hashlib.blake2s(identity.encode(), digest_size=ID_BYTES).hexdigest()}"


def _incident(world: World, root: Fact, severity: str) -> Incident:
    return Incident(incident_id(world.site.cluster, root), root, severity, cause_of(root).category)


def _absorb(incident: Incident, chain: Chain) -> None:
    for hop in chain.hops:
        incident.hops.append(hop)
        for fact in (hop.cause, hop.effect):
            if fact is not incident.root and fact not in incident.members:
                incident.members.append(fact)


def _consequences(world: World, weigher: Weigher, incident: Incident) -> None:
    """Facts that follow from the root without being on the way to a run: the rest of a switch's links and nodes."""
    known = {id(f) for f in [incident.root, *incident.members]}
    waiting = [incident.root, *incident.members]
    while waiting:
        for hop in weigher.follows(waiting.pop()):
            if id(hop.effect) not in known:
                known.add(id(hop.effect))
                incident.members.append(hop.effect)
                incident.hops.append(hop)
                waiting.append(hop.effect)


def _slowed(world: World, weigher: Weigher, incidents: list[Incident]) -> None:
    """Adds runs that lost their pace to the incident that slowed them, even if they reached their end in time."""
    home = {id(f): i for i in incidents for f in [i.root, *i.members]}
    for fact in world.facts_of(SLOW.name):
        chains = [c for c in weigher.evidence(fact).chains if c.root.kind in roots() and c.weight >= LEAK]
        run = world.run.get(fact.run or "")
        if not chains or run is None:
            continue
        incident = home.get(id(chains[0].root))
        if incident is None:
            incident = home[id(chains[0].root)] = _incident(world, chains[0].root, "degraded")
            incidents.append(incident)
        _absorb(incident, chains[0])
        incident.slowed.append(run)
        if incident.severity == "benign":
            incident.severity = "degraded"


def _join_flaps(world: World, incidents: list[Incident]) -> None:
    """Adds other outages of the same device around the root's."""
    outages: dict[_Place, list[Fact]] = defaultdict(list)
    for fact in world.facts_of(*kinds_where(lambda kind: kind.flaps)):
        outages[_place(fact)].append(fact)
    for incident in incidents:
        root = incident.root
        if not kind_of(root.kind).flaps:
            continue
        incident.flaps = [f for f in outages[_place(root)] if f is not root
                and f.start - (root.end or root.start) >= -FLAP_GAP_S and (f.end or f.start) - root.start <= FLAP_GAP_S]  # fmt: skip


#: Kind, host and device.
_Place = tuple[str, str | None, str | None]

#: Facts of devices that repeat their errors, by kind, host and device.
_Complaints = Mapping[_Place, Sequence[Fact]]


def _place(fact: Fact) -> _Place:
    return (fact.kind, fact.host, fact.device)


def repeats_s(kind: str) -> float:
    """Within this many seconds a failed device reports the same fault: it keeps logging errors until it is reset."""
    return kind_of(kind).repeats_s or 0.0


def _complaints(world: World) -> _Complaints:
    found: defaultdict[_Place, list[Fact]] = defaultdict(list)
    for fact in world.facts_of(*kinds_where(lambda kind: kind.repeats_s)):
        found[_place(fact)].append(fact)
    return found


def _join_repeats(complaints: _Complaints, incident: Incident, taken: set[int]) -> None:
    """Adds later errors of the root's own device."""
    root = incident.root
    for fact in complaints.get(_place(root), ()):
        if fact is not root and id(fact) not in taken and 0 <= fact.start - root.start <= repeats_s(root.kind):
            incident.members.append(fact)
            taken.add(id(fact))


def _unsuffered(
    world: World, weigher: Weigher, complaints: _Complaints, taken: set[int], machines: _Machines
) -> list[Incident]:  # fmt: skip
    found: list[Incident] = []
    open_flaps: dict[_Place, Incident] = {}
    planes = _Planes(world)
    for fact in world.facts:
        kind = kind_of(fact.kind)
        cause = kind.cause
        if cause is None or cause.unharmed is None or id(fact) in taken or fact.attrs.get(PROMOTED):
            continue
        if _is_consequence(world, weigher, fact) or (cause.trivial is not None and cause.trivial(world, fact)):
            continue
        if before_all_logs(weigher, fact) or planes.is_routine(fact):
            continue
        if fact.attrs.get(PASSING) or (cause.needs_effect and not weigher.follows(fact)):
            continue
        whole = machines.join(fact)
        if whole is not None:
            _consequences(world, weigher, whole)
            taken.update(id(m) for m in whole.members)
            continue
        severity = "benign" if fact.attrs.get(PLANNED) else cause.unharmed
        previous = open_flaps.get(_place(fact)) if kind.flaps else None
        if previous is not None and fact.start - previous.end <= FLAP_GAP_S:
            previous.flaps.append(fact)
            machines.add(previous, fact)
            continue
        incident = _incident(world, fact, severity)
        _consequences(world, weigher, incident)
        if incident.severity == "benign" and any(m.kind == NODE_DOWN.name for m in incident.members):
            incident.severity = "degraded"  # a node was out of service
        _join_repeats(complaints, incident, taken)
        found.append(incident)
        taken.update(id(m) for m in incident.members)
        if kind.flaps:
            open_flaps[_place(fact)] = incident
            machines.add(incident)
    return found


class _Machines:
    """Joins ports of one machine's fabric that are lost within seconds of each other: its NIC, a module, its slot."""

    def __init__(self, world: World, incidents: list[Incident]) -> None:
        self.ports: defaultdict[str, set[str]] = defaultdict(set)
        for host, device in world.site.cables:
            if world.site.role(host, device) == "fabric":
                self.ports[host].add(device)
        #: Incidents by host and moment of an outage, with the order in which they became known.
        self.known: defaultdict[tuple[str | None, int], dict[int, Incident]] = defaultdict(dict)
        self._order: dict[int, int] = {}
        for incident in incidents:
            self.add(incident)

    def add(self, incident: Incident, flap: Fact | None = None) -> None:
        """Adds an incident, or a flap that was added to it."""
        root = incident.root
        if root.kind == LINK_OUTAGE.name and root.attrs.get(ROLE) == "fabric":
            number = self._order.setdefault(id(incident), len(self._order))
            for outage in (flap,) if flap else (root, *incident.flaps):
                self.known[root.host, int(outage.start // TOGETHER_S)][number] = incident

    def _around(self, fact: Fact) -> list[Incident]:
        """The incidents of a host with an outage at about the same moment, in the order in which they became known."""
        place = int(fact.start // TOGETHER_S)
        near = {n: i for at in (place - 1, place, place + 1) for n, i in self.known.get((fact.host, at), {}).items()}
        return [near[n] for n in sorted(near)]

    def join(self, fact: Fact) -> Incident | None:
        """Joins an outage with that of another port at the same moment, if there is one.

        A machine that lost all its ports was without its fabric, even if no run needed it.
        """
        if fact.kind != LINK_OUTAGE.name or fact.attrs.get(ROLE) != "fabric":
            return None
        for incident in self._around(fact):
            moments = [f.start for f in (incident.root, *incident.flaps)]
            if incident.root.device != fact.device and any(abs(m - fact.start) <= TOGETHER_S for m in moments):
                incident.members.append(fact)
                lost = {
                    f.device
                    for f in (incident.root, *incident.members)
                    if f.kind == LINK_OUTAGE.name and f.host == fact.host
                }
                if incident.severity == "benign" and len(lost) > 1 and lost >= self.ports[fact.host or ""] > set():
                    incident.severity = "degraded"
                return incident
        return None


#: On a fabric of several planes, a port that is back within this costs 1/N of the bandwidth for a moment; one that
#: stays down is reported.
ROUTINE_S = FLAP_GAP_S


#: A run is affected by the loss of a plane within this after it (correlation.md, E09).
FELT_S = 60.0


class _Planes:
    """Which outages are routine on a fabric of several planes: no run is affected, and the repair list counts them
    (repairs.py).

    An outage is not routine if it ended a run, if ports of its machine were lost together, or if a run on the node lost
    its pace meanwhile.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.spread = any(world.site.planes_of(key) > 1 for key in world.site.job_settings)
        self.lost: defaultdict[str | None, list[Fact]] = defaultdict(list)
        for fact in world.facts_of(LINK_OUTAGE.name) if self.spread else ():
            if fact.attrs.get(ROLE) == "fabric":
                self.lost[fact.host].append(fact)
        self.slow: defaultdict[str | None, list[float]] = defaultdict(list)
        for fact in world.facts_of(SLOW.name) if self.spread else ():
            self.slow[fact.run].append(fact.start)

    def is_routine(self, fact: Fact) -> bool:
        """Was it one port among several planes, soon back, on a node whose runs all spread over planes?

        A run without information about planes may have waited for the port: then the outage is reported as harmless.
        """
        if not self.spread or fact.kind != LINK_OUTAGE.name or fact.duration is None or fact.duration > ROUTINE_S:
            return False
        cables = self.world.site.cables
        if not cables.get((fact.host or "", fact.device or ""), {}).get("plane"):
            return False
        if any(f.device != fact.device and abs(f.start - fact.start) <= TOGETHER_S for f in self.lost[fact.host]):
            return False
        end = fact.start + fact.duration
        running = [r for r in self.world.runs_on.get(fact.host or "", ())
                   if r.start is not None and r.start <= end and (r.end is None or r.end >= fact.start)]  # fmt: skip
        return all(
            self.world.site.planes_of(run.key) > 1
            and not any(fact.start - fact.sigma <= slow <= end + FELT_S for slow in self.slow.get(run.key, ()))
            for run in running
        )


def _is_consequence(world: World, weigher: Weigher, fact: Fact) -> bool:
    hops, _ = weigher.into(fact)
    return bool(hops) or weigher.blocked(fact) is not None


def _unique(hops: list[Hop]) -> list[Hop]:
    kept: dict[tuple[int, int], Hop] = {}
    for hop in hops:
        kept.setdefault((id(hop.cause), id(hop.effect)), hop)
    return sorted(kept.values(), key=lambda h: (h.cause.start, h.effect.start, h.edge.id, h.effect.key))


def survivors(world: World, incident: Incident) -> Survivors:
    """The runs that were not affected.

    They went on through the incident on the same cluster and ended well, or outlived it.
    """
    if incident.untouched is None:
        incident.untouched = _survivors(world, incident)
    return incident.untouched


def _survivors(world: World, incident: Incident) -> Survivors:
    hit = {v.run.job_id for v in [*incident.verdicts, *incident.left_open]}
    start, end = incident.root.start, max([v.end.start for v in incident.verdicts], default=incident.end)
    over = end + AFTERMATH_S
    hurt = {
        r.key
        for r in world.bad_in_time.overlapping(start, end)
        if (r.end is not None and r.end <= over) or r.job_id in hit
    }
    of_hit = chain.from_iterable(world.runs_of_job.get(job, ()) for job in hit)
    hurt |= {
        r.key
        for r in chain(of_hit, incident.slowed)
        if r.start is not None and r.start <= end and (r.end is None or r.end >= start)
    }
    count = world.in_time.count(start, end) - len(hurt)
    hosts = sorted({f.host for f in [incident.root, *incident.members] if f.host})
    near = [
        r
        for h in hosts
        for r in world.runs_on.get(h, ())
        if r.start is not None and r.start <= end and (r.end is None or r.end >= start)
    ]
    named: dict[str, Run] = {}
    for run in chain(near, world.in_time.overlapping(start, end)):
        if len(named) >= min(LISTED, count):
            break
        if run.key not in hurt:
            named[run.key] = run
    return Survivors(tuple(sorted(named.values(), key=lambda r: (r.job_id, r.attempt, r.key))), count)
