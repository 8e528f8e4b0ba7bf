"""Finds hosts whose timestamps name no zone and are in another zone than slurmctld's.

A clock cannot be further off than munge allows (``ENDS_S``) while its node launches jobs: launches logged hours before
or after their allocation are logged in another zone. Zones are whole quarters of an hour apart, and nodes of one kind
are configured alike. So what the launches of some nodes show holds for those with too few launches, unless some are
known to differ; then a node without evidence is as uncertain as the zones differ.

Only timestamps without a zone (``time_quality`` "inferred") are moved if only those show the difference: a system log
with RFC 3339 timestamps is correct beside a slurmd.log in local time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from correlator.clocks.early_launches import LAUNCH_S
from correlator.clocks.pairs import Launches
from correlator.clocks.signs import AGREE_S, ENDS_S, NOTICEABLE_S
from correlator.model.nouns import Event
from parsers.host_names import short_name

#: Copies are not searched among more lines about one subject than this.
MANY = 50

#: All zones are multiples of this, seconds (IANA tz database: Nepal and the Chatham Islands have three quarters of an
#: hour).
QUARTER_S = 900.0

#: The smallest difference between zones that clusters are in, and the largest to UTC (Kiribati, UTC+14), in quarters.
LEAST, MOST = 2, 56

HOUR_S = 3600.0


def hours_off(seconds: float) -> str:
    """The zone difference in words; empty if ``seconds`` is no zone difference, within what clocks may be off."""
    quarters = round(seconds / QUARTER_S)
    if abs(quarters) < LEAST or abs(seconds - quarters * QUARTER_S) > ENDS_S:
        return ""
    return f"{abs(quarters) / 4:g} h {'ahead' if quarters > 0 else 'behind'}"


#: If at least this share of a kind is configured alike, a node without evidence is taken for one of them.
NEARLY_ALL = 0.9

#: The zone of a group may change (summer time) at most this often in what was collected.
CHANGES = 4


@dataclass(frozen=True, order=True)
class Vote:
    """A launch of nodes allocated at ``time`` (slurmctld), logged ``quarters`` of an hour and ``rest`` seconds later."""

    time: float
    job: int
    quarters: int
    rest: float
    inferred: bool

    @property
    def clean(self) -> bool:
        """Is the rest no more than a launch takes?"""
        return -NOTICEABLE_S <= self.rest <= LAUNCH_S


@dataclass(frozen=True)
class Stay:
    """From ``start`` to ``end`` (slurmctld's time) a host was this many ``quarters`` ahead."""

    start: float
    end: float
    quarters: int


EVER = float("inf")
Votes = Mapping[str, Sequence[Vote]]


@dataclass(frozen=True)
class Zoned:
    """The zones of one host.

    ``doubt`` is by how many seconds they may be wrong. ``inferred``: they apply to its timestamps without a zone.
    """

    stays: tuple[Stay, ...]
    doubt: float = 0.0
    inferred: bool = True


def votes(launched: Launches) -> dict[str, list[Vote]]:
    """The votes of launches on the zones of hosts, in order; independent of the order of events."""
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
    """A vote from a launch logged ``seconds`` later than it happened."""
    job = event.job_id or -1
    quarters = round(seconds / QUARTER_S)
    if not (quarters == 0 or LEAST <= abs(quarters) <= MOST) or abs(seconds - quarters * QUARTER_S) > ENDS_S:
        return None
    inferred = event.time_quality == "inferred"
    return Vote(launched.allocated[job][0], job, quarters, round(seconds - quarters * QUARTER_S, 3), inferred)


def _of_batch(event: Event, launched: Launches, by_slurmctld: bool) -> Vote | None:
    """A vote from a batch script, which is launched as soon as its nodes are allocated.

    Accounting may be in a zone of its own. It counts only for timestamps without a zone, and if slurmctld logs no
    allocation.
    """
    job = event.job_id or -1
    if job not in launched.allocated or job in launched.again:
        return None
    if launched.allocated[job][1] and (by_slurmctld or event.time_quality != "inferred"):
        return None
    return _vote(event, launched, event.time - launched.allocated[job][0])


def scripts(launched: Launches) -> dict[int, tuple[str, float]]:
    """The host of each job's batch script, and when the job was allocated."""
    found: dict[int, tuple[str, float]] = {}
    for event in sorted(launched.starts, key=lambda e: (e.time, e.id)):
        job = event.job_id or -1
        if event.host and job in launched.allocated and event.message.startswith("Launching batch"):
            found.setdefault(job, (event.host, launched.allocated[job][0]))
    return found


def _of_steps(launched: Launches, batch: Mapping[tuple[str, int], Vote]) -> Iterable[tuple[str, Vote]]:
    """Votes from steps: one request launches a step on all nodes, so they are compared with the batch script's node."""
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
    """The zones of hosts that differ, or may differ, from slurmctld's."""
    sure = _sure(votes_by_host)
    if {vote.quarters for some in votes_by_host.values() for vote in some} - sure:
        sure |= _by_copies(events)
    stays = {host: _stays([v for v in some if v.quarters in sure]) for host, some in votes_by_host.items()}
    found: dict[str, Zoned] = {}
    for _, kin in groupby(sorted({*votes_by_host, *hosts}, key=lambda h: (kind_of(h), h)), key=kind_of):
        found |= _of_kin(list(kin), stays, votes_by_host)
    return found


def kind_of(host: str) -> str:
    """The name without its numbers: hosts that differ only in numbers are configured alike."""
    return re.sub(r"\d+", "#", short_name(host))


def _sure(votes_by_host: Votes) -> set[int]:
    """Zones on which launches of two jobs agree, or the only zone found if it is a whole number of hours.

    A launch that is late for another reason (it may belong to another run) is not late by a quarter of an hour, nor
    twice by the same amount.
    """
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


#: The timestamps of two copies of a line differ by at most this, seconds: one of them has whole seconds.
COPIES_S = 1.5


def _by_copies(events: Sequence[Event]) -> set[int]:
    """Zones shown by a host that logs the same twice, once without a zone (messages beside an RFC 3339 syslog)."""
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
    """Is each of ``some`` among the others, this many seconds earlier?"""
    return all(any(abs(a - b - seconds) <= COPIES_S for b in others) for a in some)


def _twice_alike(every: Sequence[tuple[float, str, Vote]]) -> bool:
    """Did one host launch two jobs late by the same amount?"""
    last: dict[str, Vote] = {}
    for _, host, vote in every:
        before = last.get(host)
        if before is not None and before.job != vote.job and abs(before.rest - vote.rest) <= AGREE_S:
            return True
        last[host] = vote
    return False


def _stays(host_votes: Sequence[Vote]) -> list[tuple[float, float, int]]:
    """(first, last, quarters): runs of votes that agree, without single odd votes."""
    kept = [v for n, v in enumerate(host_votes) if not _odd(host_votes, n)]
    found = []
    for quarters, some in groupby(kept, key=lambda v: v.quarters):
        times = [v.time for v in some]
        found.append((times[0], times[-1], quarters))
    return found


def _odd(host_votes: Sequence[Vote], place: int) -> bool:
    """Does it differ from its neighbours, which agree with each other?"""
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
    """The zones of nearly all hosts of a kind, and whether all hosts share them."""
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
    """The zones that all hosts of a kind went through together; None if they differ."""
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
        return None  # no host changed: some launched earlier, others later
    return _with_borders(order, [order])


def _with_borders(own: Sequence[tuple[float, float, int]], all_of_them: Iterable[Sequence[tuple[float, float, int]]]) -> tuple[Stay, ...]:  # fmt: skip
    """Stays that follow each other without a gap.

    A zone changes at a whole hour (as summer time does), for all hosts alike.
    """
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
    """The whole hour nearest to the middle, if one lies between; else the middle."""
    middle = (low + high) / 2
    hour = round(middle / HOUR_S) * HOUR_S
    return hour if low < hour < high else middle
