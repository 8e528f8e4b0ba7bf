"""Stamps that name no zone, of hosts whose zone is another one than slurmctld's.

A clock cannot be further off than munge allows (``ENDS_S``) while its node launches jobs: launches that are told hours before or
after their allocation are told in another zone. Zones lie whole quarters of an hour apart, and nodes of one kind are set up
alike: what the launches of some tell holds for those that launched too little to tell it themselves, unless some of them are
known to differ. Then a node of which nothing tells is as uncertain as the zones are apart.

Only stamps without a zone (``time_quality`` "inferred") are moved where only such tell of it: a system log with RFC 3339 stamps is right beside
a slurmd.log in local time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from correlator.clocks.pairs import AGREE_S, ENDS_S, LAUNCH_S, NOTICEABLE_S, Launches
from correlator.model.nouns import Event

#: Of one thing that was said more often than this, copies are not looked for.
MANY = 50

#: What all zones are multiples of, seconds (IANA tz database: Nepal and the Chatham Islands have three quarters of an hour).
QUARTER_S = 900.0

#: The least difference of a zone to another one that clusters are in, and the largest to UTC (Kiribati, UTC+14), in quarters.
LEAST, MOST = 2, 56

HOUR_S = 3600.0


def hours_off(seconds: float) -> str:
    """In words, by which zone something is off; empty where it is less than zones are apart, give or take what clocks may be off."""
    quarters = round(seconds / QUARTER_S)
    if abs(quarters) < LEAST or abs(seconds - quarters * QUARTER_S) > ENDS_S:
        return ""
    return f"{abs(quarters) / 4:g} h {'ahead' if quarters > 0 else 'behind'}"


#: Where so many of a kind are set up alike, one of which nothing tells is taken for one of them.
NEARLY_ALL = 0.9

#: A change of zones (summer time) is believed of a group at most so often in what was collected.
CHANGES = 4


@dataclass(frozen=True, order=True)
class Vote:
    """A launch that slurmctld allocated nodes for at ``time``, and its node ``quarters`` of an hour and ``rest`` seconds later."""

    time: float
    job: int
    quarters: int
    rest: float
    inferred: bool

    @property
    def clean(self) -> bool:
        """Is what is left no more than a launch takes?"""
        return -NOTICEABLE_S <= self.rest <= LAUNCH_S


@dataclass(frozen=True)
class Stay:
    """From ``start`` to ``end`` (slurmctld's time) a host was so many ``quarters`` ahead."""

    start: float
    end: float
    quarters: int


EVER = float("inf")
Votes = Mapping[str, Sequence[Vote]]


@dataclass(frozen=True)
class Zoned:
    """The zones of one host; ``doubt`` is by how many seconds they may be others. ``inferred``: of its stamps without a zone."""

    stays: tuple[Stay, ...]
    doubt: float = 0.0
    inferred: bool = True


def votes(launched: Launches) -> dict[str, list[Vote]]:
    """What launches tell of the zones of hosts, in order; the same for any order of events."""
    by_slurmctld = any(not doubt for _, doubt in launched.allocated.values())
    found: dict[tuple[str, int], Vote] = {}
    for event in launched.starts:
        if (
            event.message.startswith("Launching batch")
            and event.host
            and (vote := _of_batch(event, launched, by_slurmctld))
        ):
            found[event.host, vote.job] = min(vote, found.get((event.host, vote.job), vote))
    for host, vote in _of_steps(launched, found):
        found.setdefault((host, vote.job), vote)
    by_host: dict[str, list[Vote]] = defaultdict(list)
    for (host, _), vote in sorted(found.items()):
        by_host[host].append(vote)
    return {host: sorted(some) for host, some in by_host.items()}


def _vote(event: Event, launched: Launches, seconds: float) -> Vote | None:
    """``seconds``: how much later than it was the launch is told."""
    job = event.job_id or -1
    quarters = round(seconds / QUARTER_S)
    if not (quarters == 0 or LEAST <= abs(quarters) <= MOST) or abs(seconds - quarters * QUARTER_S) > ENDS_S:
        return None
    inferred = event.time_quality == "inferred"
    return Vote(launched.allocated[job][0], job, quarters, round(seconds - quarters * QUARTER_S, 3), inferred)


def _of_batch(event: Event, launched: Launches, by_slurmctld: bool) -> Vote | None:
    """A batch script is launched as soon as its nodes are allocated. Accounting, which may be in a zone of its own, counts only for
    stamps without one, and where slurmctld tells of no allocation."""
    job = event.job_id or -1
    if job not in launched.allocated or job in launched.again:
        return None
    if launched.allocated[job][1] and (by_slurmctld or event.time_quality != "inferred"):
        return None
    return _vote(event, launched, event.time - launched.allocated[job][0])


def scripts(launched: Launches) -> dict[int, tuple[str, float]]:
    """Of each job the host of its batch script, and when it was allocated."""
    found: dict[int, tuple[str, float]] = {}
    for event in sorted(launched.starts, key=lambda e: (e.time, e.id)):
        job = event.job_id or -1
        if event.host and job in launched.allocated and event.message.startswith("Launching batch"):
            found.setdefault(job, (event.host, launched.allocated[job][0]))
    return found


def _of_steps(launched: Launches, batch: Mapping[tuple[str, int], Vote]) -> Iterable[tuple[str, Vote]]:
    """One request launches a step on all nodes: those besides the one of the batch script, by that one."""
    steps: dict[tuple[int, str], dict[str, Event]] = defaultdict(dict)
    for event in sorted(launched.starts, key=lambda e: (e.time, e.id)):
        if event.host and event.job_id is not None and event.message.startswith("launch task"):
            steps[event.job_id, str(event.entities.get("step_id"))].setdefault(event.host, event)
    for (job, _), hosts in sorted(steps.items()):
        leader = min((h for h in hosts if (h, job) in batch), default=None)
        if leader is None:
            continue
        its = batch[leader, job]
        begun = hosts[leader].time - its.quarters * QUARTER_S - its.rest
        for host, event in sorted(hosts.items()):
            if host != leader and (vote := _vote(event, launched, event.time - begun)):
                yield host, vote


def zones(votes_by_host: Votes, hosts: Iterable[str], events: Sequence[Event]) -> dict[str, Zoned]:
    """The zones of hosts that are another one than slurmctld's, or may be."""
    sure = _sure(votes_by_host)
    if {vote.quarters for some in votes_by_host.values() for vote in some} - sure:
        sure |= _by_copies(events)
    stays = {host: _stays([v for v in some if v.quarters in sure]) for host, some in votes_by_host.items()}
    found: dict[str, Zoned] = {}
    for _, kin in groupby(sorted({*votes_by_host, *hosts}, key=lambda h: (kind_of(h), h)), key=kind_of):
        found |= _of_kin(list(kin), stays, votes_by_host)
    return found


def kind_of(host: str) -> str:
    """Hosts that differ in their numbers only are set up alike."""
    return re.sub(r"\d+", "#", host.split(".", 1)[0])


def _sure(votes_by_host: Votes) -> set[int]:
    """Zones that launches of two jobs agree on, or, of whole hours, all that there are: a launch that is off by so much for another
    reason (it may be another run's) is so to no quarter of an hour, nor twice by the same."""
    by_zone: dict[int, dict[int, list[tuple[str, Vote]]]] = defaultdict(lambda: defaultdict(list))
    for host, some in votes_by_host.items():
        for vote in some:
            by_zone[vote.quarters][vote.job].append((host, vote))
    sure = {0}
    for quarters, jobs in by_zone.items():
        every = sorted((vote.time, host, vote) for some in jobs.values() for host, vote in some)
        clean = {vote.job for _, _, vote in every if vote.clean}
        only = bool(clean) and len(by_zone) == 1 and quarters * QUARTER_S % HOUR_S == 0
        if len(clean) > 1 or only or _twice_alike(every):
            sure.add(quarters)
    return sure


#: Two copies of one line are stamped within so many seconds of each other: one of them in whole seconds.
COPIES_S = 1.5


def _by_copies(events: Sequence[Event]) -> set[int]:
    """Zones that a host's system logs tell: it writes the same twice (messages beside an RFC 3339 syslog), once without a zone."""
    lines: dict[tuple[object, ...], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for event in events:
        if event.host and event.time_quality in ("inferred", "line"):
            lines[event.host, event.kind, event.device, event.job_id][event.time_quality == "line"].append(event.time)
    pairs: Counter[tuple[object, int]] = Counter()
    for (host, *_), (without, with_zone) in lines.items():
        if max(len(without), len(with_zone)) > MANY:
            continue
        for quarters in {round((a - b) / QUARTER_S) for a in without for b in with_zone}:
            if LEAST <= abs(quarters) <= MOST and _again(without, with_zone, quarters * QUARTER_S):
                pairs[host, quarters] += len(without)
    return {quarters for (_, quarters), count in pairs.items() if count > 1}


def _again(some: Sequence[float], others: Sequence[float], seconds: float) -> bool:
    """Is everything among the others, so many seconds before?"""
    return all(any(abs(a - b - seconds) <= COPIES_S for b in others) for a in some)


def _twice_alike(every: Sequence[tuple[float, str, Vote]]) -> bool:
    """Did one host launch two jobs late by the same?"""
    last: dict[str, Vote] = {}
    for _, host, vote in every:
        before = last.get(host)
        if before is not None and before.job != vote.job and abs(before.rest - vote.rest) <= AGREE_S:
            return True
        last[host] = vote
    return False


def _stays(host_votes: Sequence[Vote]) -> list[tuple[float, float, int]]:
    """(first, last, quarters): stretches of votes that agree, one odd vote among others left out."""
    kept = [v for n, v in enumerate(host_votes) if not _odd(host_votes, n)]
    found = []
    for quarters, some in groupby(kept, key=lambda v: v.quarters):
        times = [v.time for v in some]
        found.append((times[0], times[-1], quarters))
    return found


def _odd(host_votes: Sequence[Vote], place: int) -> bool:
    """Does it tell what its neighbours do not, which agree with each other?"""
    near = [v.quarters for v in (host_votes[max(0, place - 2) : place] if place == len(host_votes) - 1 else
                                 host_votes[1:3] if place == 0 else (host_votes[place - 1], host_votes[place + 1]))]  # fmt: skip
    return len(near) == 2 and near[0] == near[1] != host_votes[place].quarters


def _of_kin(
    kin: Sequence[str], stays: Mapping[str, list[tuple[float, float, int]]], votes_by_host: Votes
) -> dict[str, Zoned]:
    """The zones of hosts of one kind."""
    known_stays = {h: stays[h] for h in kin if stays.get(h)}
    alone = {
        h: max(abs(v.quarters) for v in votes_by_host[h]) for h in kin if votes_by_host.get(h) and not stays.get(h)
    }
    largest = max([*alone.values(), *(abs(q) for some in known_stays.values() for _, _, q in some)], default=0)
    if not largest:
        return {}
    inferred = all(v.inferred for h in kin for v in votes_by_host.get(h, ()) if v.quarters)
    majority, all_alike = _majority_stays(known_stays)
    found = {}
    for host in kin:
        mine: tuple[Stay, ...] = ()
        doubt = 0.0
        if host in known_stays and not all_alike:
            mine = _with_borders(known_stays[host], known_stays.values())
        elif majority is not None and host not in alone:
            mine = majority
        else:
            doubt = (alone.get(host) or largest) * QUARTER_S
        if doubt or any(stay.quarters for stay in mine):
            found[host] = Zoned(mine, doubt, inferred)
    return found


def _majority_stays(known_stays: Mapping[str, list[tuple[float, float, int]]]) -> tuple[tuple[Stay, ...] | None, bool]:
    """The zones of nearly all hosts of a kind, and whether they are those of all."""
    if len(known_stays) > 1 and (common := _common(known_stays)) is not None:
        return common, True
    by_zones: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for host, some in known_stays.items():
        by_zones[tuple(q for _, _, q in some)].append(host)
    most = max(by_zones.values(), key=len, default=[])
    if len(most) > 1 and len(most) >= NEARLY_ALL * len(known_stays):
        return _common({h: known_stays[h] for h in most}), False
    return None, False


def _common(known_stays: Mapping[str, list[tuple[float, float, int]]]) -> tuple[Stay, ...] | None:
    """The zones that all hosts of a kind went through together; None where they differ."""
    order: list[tuple[float, float, int]] = []
    for first, last, quarters in sorted(s for some in known_stays.values() for s in some):
        if order and order[-1][2] == quarters:
            order[-1] = (order[-1][0], max(order[-1][1], last), quarters)
        else:
            order.append((first, last, quarters))
    if len(order) > CHANGES or any(one[1] >= other[0] for one, other in pairwise(order)):
        return None
    changed = {pair for some in known_stays.values() for pair in pairwise(q for _, _, q in some)}
    if any((one[2], other[2]) not in changed for one, other in pairwise(order)):
        return None  # nobody changed: some launched earlier, others later
    return _with_borders(order, [order])


def _with_borders(own: Sequence[tuple[float, float, int]], all_of_them: Iterable[Sequence[tuple[float, float, int]]]) -> tuple[Stay, ...]:  # fmt: skip
    """Stretches that follow each other without a gap. A zone changes at a whole hour (as summer time does), for all alike."""
    others = [pair for some in all_of_them for pair in pairwise(some)]
    borders = []
    for one, other in pairwise(own):
        like = [
            (a[1], b[0]) for a, b in others if (a[2], b[2]) == (one[2], other[2]) and a[1] < other[0] and b[0] > one[1]
        ]
        low, high = max([one[1], *(a for a, _ in like)]), min([other[0], *(b for _, b in like)])
        borders.append(_whole_hour(low, high) if low < high else (one[1] + other[0]) / 2)
    edges = [-EVER, *borders, EVER]
    return tuple(Stay(edges[n], edges[n + 1], quarters) for n, (_, _, quarters) in enumerate(own))


def _whole_hour(low: float, high: float) -> float:
    """The whole hour nearest to the middle, if one lies between."""
    middle = (low + high) / 2
    hour = round(middle / HOUR_S) * HOUR_S
    return hour if low < hour < high else middle
