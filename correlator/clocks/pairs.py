"""Compares clocks by pairs of lines about one moment.

The pairs are allocation and launch, allocation and accounting, the launches of one step, both ends of a cable, and
sending and receiving. Lines that users can write show nothing (``Known.senders``). Each gives signs of a host's clock: by how much it was off, or that it was correct. Hosts are
compared within a time range (``AROUND_S``): a fault of last month says nothing about today's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from correlator.model.nouns import Event
from correlator.site.cabling import Cabling, Place
from correlator.site.open_lines import is_open
from correlator.site.senders import NOBODY, Senders
from parsers.documents.fields import number
from parsers.formats.base import SLURM
from parsers.writers import JOB, NETWORK, UNVERIFIED, USERS

#: Smaller differences are explained by launch delays and whole seconds.
NOTICEABLE_S = 5.0

#: Two pairs show the same offset if they agree to within this.
AGREE_S = 3.0

#: A prolog runs between allocation and launch; longer delays are no evidence.
LAUNCH_S = 20.0

#: At least this many nodes must have started one step to identify the odd one out.
STEP_NODES = 3

#: Launches do not show a clock that is further ahead: a requeued job is launched again after its first allocation. A tick
#: looks back this long.
LATE_S = 900.0

#: At least this many launches must be late by the same amount, on a node that was not prompt meanwhile, while most
#: nodes are prompt.
LATE_LAUNCHES = 3

#: Accounting has whole seconds.
WHOLE_S = 1.0

#: Other hosts (their launches, cables and arrivals) are compared within this time before and after a host's own signs.
AROUND_S = 7 * 86400.0

#: A clock that is off stays off until it is set, but without another sign that is assumed for at most this long: the
#: longest runs last that long and launch nothing meanwhile.
HOLDS_S = 14 * 86400.0


#: What was compared, as nouns that a count may precede.
PAIR_LAUNCH, PAIR_CABLE, PAIR_RECEIVED = "launches", "ends of its links", "times of arrival"
PAIR_ACCOUNTING = "starts in accounting"


@dataclass(frozen=True)
class Sign:
    """At local time ``time`` the clock was ``seconds`` off (about 0: it was correct).

    ``stated``: the time daemon reported it. ``pair``: what was compared.
    """

    time: float
    seconds: float
    pair: str = PAIR_LAUNCH
    stated: bool = False
    mended: bool = False


Begun = Callable[[Collection[int]], Mapping[int, float]]


def _nobody(jobs: Collection[int]) -> Mapping[int, float]:
    return {}


@dataclass(frozen=True)
class Known:
    """Evidence about moments and places besides events.

    ``cables`` gives what was connected to a switch's port at a moment. ``begun(jobs)`` gives when accounting says that
    jobs began whose allocation is not logged. ``senders`` shows which events users can have written: their timestamps, or
    what they say of a clock, would move true lines of others.
    """

    cables: Cabling = field(default_factory=Cabling)
    begun: Begun = _nobody
    senders: Senders = NOBODY


NOTHING = Known()

HostSign = tuple[str, Sign]


@dataclass(frozen=True)
class Launches:
    """The launches of slurmds.

    ``allocated`` gives when each job received its nodes, and the uncertainty of that. ``again`` are jobs that received
    nodes more than once.
    """

    starts: Sequence[Event]
    allocated: Mapping[int, tuple[float, float]]
    again: frozenset[int]


_LAUNCH_EVENTS = frozenset({"slurm.step_start", "slurm.job_start", "slurm.job_requeue"})


def launches(events: Iterable[Event], known: Known) -> Launches:
    """The launches of jobs in ``events``."""
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in _LAUNCH_EVENTS and event.host and not is_open(event, known.senders):
            by_kind[event.kind].append(event)
    starts = [e for e in by_kind["slurm.step_start"] if e.source == "slurmd" and e.job_id is not None]
    return Launches(starts, _allocations(by_kind["slurm.job_start"], starts, known.begun), _allocated_again(by_kind))


def signs(events: Sequence[Event], known: Known = NOTHING) -> list[HostSign]:
    """All signs of all hosts."""
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in _COMPARED_EVENTS and event.host and not is_open(event, known.senders):
            by_kind[event.kind].append(event)
    starts = by_kind["slurm.step_start"]
    allocated = _allocations(by_kind["slurm.job_start"], starts, known.begun)
    again = _allocated_again(by_kind)
    ahead, log_signs = _log_ahead(by_kind["slurm.job_start"], starts, allocated, again, known.begun)
    allocated |= ahead
    late = list(_launches(starts, allocated, again))
    if any(s.seconds > 0 for _, s in late):
        late = _without_live(events, late)
    return [
        *_daemon(by_kind["sys.clock"]), *log_signs, *late,
        *_steps(starts, {job: at for job, (at, _) in allocated.items()}, again), *_cables(by_kind, known.cables), *_received(events),
    ]  # fmt: skip


_LINKS = {"nic.link_down": False, "nic.link_up": True, "switch.port_down": False, "switch.port_up": True}

_COMPARED_EVENTS = frozenset({"sys.clock", "slurm.step_start", "slurm.job_start", "slurm.job_requeue", *_LINKS})


def _daemon(events: Sequence[Event]) -> Iterable[HostSign]:
    """chrony: "System clock wrong by S seconds" (true = local + S), "was stepped by S": the end of the offset.

    What Slurm says of the modification time of a file shows a file put back as well as a clock, and no offset of either.
    """
    for event in events:
        seconds = number(event.entities.get("offset_s"))
        if seconds is None or abs(seconds) < NOTICEABLE_S or event.source in SLURM:
            continue
        stepped = "step" in event.message or "reset" in event.message
        yield event.host or "", Sign(event.time, -seconds, "its time daemon", stated=True, mended=stepped)


def _allocations(allocations: Sequence[Event], starts: Sequence[Event], begun: Begun) -> dict[int, tuple[float, float]]:
    """When each job first received its nodes, and the uncertainty: by slurmctld, else by accounting."""
    found: dict[int, tuple[float, float]] = {}
    for event in allocations:
        if event.source == "slurmctld" and event.job_id is not None:
            found.setdefault(event.job_id, (event.time, 0.0))
    untold = {e.job_id for e in starts if e.job_id is not None} - found.keys()
    return found | {job: (at, WHOLE_S) for job, at in begun(untold).items()} if untold else found


def _log_ahead(
    allocations: Iterable[Event], starts: Sequence[Event], allocated: Mapping[int, tuple[float, float]],
    again: Collection[int], begun: Begun,
) -> tuple[dict[int, tuple[float, float]], list[HostSign]]:  # fmt: skip
    """When jobs began whose allocation slurmctld's log shows too late, as in ``_allocations``, and the signs of that.

    A job is launched after its allocation. If its launch is logged before that, one of the two clocks is wrong.
    Accounting has the time of slurmctld as well, and decides which. A log that is behind does not show like this: a job
    whose nodes have to boot begins later than its allocation by accounting too.
    """
    delays: dict[int, list[float]] = defaultdict(list)
    for event in starts:
        known = allocated.get(event.job_id or -1)
        if event.source == "slurmd" and event.host and known is not None and not known[1]:
            delays[event.job_id or -1].append(event.time - known[0])
    # Launches on both sides of the logged allocation are those of two runs: the first run's allocation is not logged.
    early = {
        job: min(some) for job, some in delays.items()
        if min(some) < -NOTICEABLE_S and job not in again and not any(-NOTICEABLE_S <= d <= LAUNCH_S for d in some)
    }  # fmt: skip
    if not early:
        return {}, []
    hosts: dict[int, str] = {}
    for event in allocations:
        if event.source == "slurmctld" and event.job_id in early:
            hosts.setdefault(event.job_id, event.host or "")
    found: dict[int, tuple[float, float]] = {}
    shown: list[HostSign] = []
    for job, at in sorted(begun(early).items()):
        logged = allocated[job][0]
        if NOTICEABLE_S <= logged - at <= LATE_S and abs(logged - at + early[job]) <= AGREE_S:
            found[job] = (at, WHOLE_S)
            shown.append((hosts[job], Sign(logged, logged - at, PAIR_ACCOUNTING)))
            shown.append((hosts[job], Sign(logged, -early[job])))
    return found, shown


def _allocated_again(by_kind: Mapping[str, Sequence[Event]]) -> frozenset[int]:
    """Jobs that received nodes more than once by slurmctld's log.

    Two launches of one step of such a job may belong to different runs.
    """
    started = [e.job_id for e in by_kind["slurm.job_start"] if e.source == "slurmctld" and e.job_id is not None]
    requeued = {e.job_id for e in by_kind["slurm.job_requeue"] if e.source == "slurmctld" and e.job_id is not None}
    return frozenset(requeued | {job for job, count in Counter(started).items() if count > 1})


def _launches(
    starts: Sequence[Event], allocated: Mapping[int, tuple[float, float]], again: Collection[int]
) -> Iterable[HostSign]:
    """Compares allocations with the launches of batch hosts: a launch before its allocation means a clock that is
    behind.

    If the first allocation of a requeued job is not logged, the launch may be one of that earlier run.
    """
    batch: dict[str, list[Sign]] = defaultdict(list)
    early: list[tuple[int, HostSign]] = []
    for event in starts:
        known = allocated.get(event.job_id or -1)
        if event.source != "slurmd" or known is None or not event.host:
            continue
        delay, doubt = event.time - known[0], known[1]
        if delay < -NOTICEABLE_S and not doubt:
            if event.job_id not in again:
                early.append((event.job_id or 0, (event.host, Sign(event.time, delay))))
        elif event.message.startswith("Launching batch") and delay <= LATE_S:
            right = -NOTICEABLE_S - doubt <= delay <= LAUNCH_S
            batch[event.host].append(Sign(event.time, 0.0 if right else delay))
            if right:
                yield event.host, Sign(event.time, 0.0)
    yield from _by_several_jobs(early)
    yield from _unlike_others(batch)


def _by_several_jobs(signs: Sequence[tuple[int, HostSign]]) -> Iterable[HostSign]:
    """Drops signs from launches that only one job shows and that exceed ``ENDS_S``.

    munge rejects credentials of a host further off than ``ENDS_S``, and such a node launches nothing. What looks like
    it is the launch of another run that is only partly logged, unless two jobs agree (timestamps in another zone).
    """
    far = [(job, host, sign.seconds) for job, (host, sign) in signs if abs(sign.seconds) > ENDS_S]
    for job, (host, sign) in signs:
        agree = (o != job and h == host and abs(by - sign.seconds) <= AGREE_S for o, h, by in far)
        if abs(sign.seconds) <= ENDS_S or any(agree):
            yield host, sign


def _unlike_others(batch: Mapping[str, list[Sign]]) -> Iterable[HostSign]:
    """Launches that were late by the same amount each time, or early by accounting, while most other nodes were prompt.

    A slow prolog delays by varying amounts. If most nodes were not prompt, the reference would be wrong.
    """
    odd = [(host, run) for host, host_signs in sorted(batch.items()) for run in _odd_in_a_row(host_signs)]
    everywhere = (
        sorted((s.time, host, bool(s.seconds)) for host, host_signs in batch.items() for s in host_signs) if odd else []
    )
    for host, run in odd:
        low = bisect_left(everywhere, (run[0].time - AROUND_S,))
        high = bisect_left(everywhere, (run[-1].time + AROUND_S,))
        prompt = {other for _, other, off in everywhere[low:high] if not off}
        unlike = {other for _, other, off in everywhere[low:high] if off} - prompt
        if 2 * len(unlike) <= len(prompt):
            yield from ((host, sign) for sign in run)


def _odd_in_a_row(host_signs: Sequence[Sign]) -> Iterable[list[Sign]]:
    """Runs of consecutive launches of one host that were off; late ones must be late by the same amount."""
    runs: list[list[Sign]] = [[]]
    for sign in sorted(host_signs, key=lambda s: (s.time, s.seconds)):
        if not sign.seconds or (runs[-1] and sign.time - runs[-1][-1].time > HOLDS_S):
            runs.append([])
        if sign.seconds:
            runs[-1].append(sign)
    for run in (r for r in runs if r):
        middle = median(s.seconds for s in run)
        alike = all(abs(s.seconds - middle) <= AGREE_S / 2 for s in run)
        if middle < 0 or (alike and len(run) >= LATE_LAUNCHES):
            yield run


def _without_live(events: Sequence[Event], signs: Sequence[HostSign]) -> list[HostSign]:
    """Drops signs of a host whose lines arrive as they are written: its clock is correct, however late it launches."""
    late: dict[str, list[float]] = defaultdict(list)
    for host, sign in signs:
        if sign.seconds > 0:
            late[host].append(sign.time)
    live: dict[str, int] = defaultdict(int)
    for event in events:
        times = late.get(event.host or "")
        if (
            times
            and event.received is not None
            and not _is_dated_by_anybody(event)
            and min(times) - AROUND_S <= event.time <= max(times) + AROUND_S
        ):
            live[event.host or ""] += abs(event.received - event.time) < NOTICEABLE_S
    return [(host, sign) for host, sign in signs if sign.seconds <= 0 or live[host] < LIVE_LINES]


def _steps(starts: Sequence[Event], allocated: Mapping[int, float], again: Collection[int]) -> Iterable[HostSign]:
    """Signs from the launches of steps."""
    return _by_several_jobs(list(_odd_launches(starts, allocated, again)))


def _odd_launches(
    starts: Sequence[Event], allocated: Mapping[int, float], again: Collection[int]
) -> Iterable[tuple[int, HostSign]]:
    """Compares the launches of one step: a request reaches all nodes at once, so a node with another time has another
    clock.

    Of two nodes, the one whose launch follows the allocation is correct.
    """
    steps: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    for event in starts:
        if event.source == "slurmd" and event.host and event.job_id is not None and event.job_id not in again:
            step = event.entities.get("step_id")
            if step is not None and event.message.startswith("launch task"):
                steps[event.job_id, str(step)].setdefault(event.host, event.time)
    for key in sorted(steps):
        times = steps[key]
        middle = median(times.values())
        if len(times) < STEP_NODES or sum(abs(t - middle) <= AGREE_S for t in times.values()) * 2 <= len(times):
            # No majority: two launches of a requeued job, no clock correct, or one of two.
            start = allocated.get(key[0])
            right = [t for t in times.values() if start is not None and -AGREE_S <= t - start <= LAUNCH_S]
            if len(times) != STEP_NODES - 1 or len(right) != 1:
                continue
            middle = right[0]
        for host, time in sorted(times.items()):
            off = time - middle
            if abs(off) >= NOTICEABLE_S:
                yield key[0], (host, Sign(time, off))
            elif abs(off) <= AGREE_S:
                yield key[0], (host, Sign(time, 0.0))


# -- both ends of a cable -------------------------------------------------------------------------------------------------
#: Both ends lose and regain carrier at the same moment. Their logged outages are at most this far from each other:
#: munge rejects hosts further off than 300 s, and such a node would be out of service.
ENDS_S = 360.0

#: A smaller difference than this is a clock's, not a zone's: zones are at least half an hour apart.
ZONE_S = 1800.0 - ENDS_S

#: (down, up, uncertainty) as one end logs it.
_Span = tuple[float, float, float]


def _cables(by_kind: Mapping[str, Sequence[Event]], cables: Cabling) -> Iterable[HostSign]:
    """Compares outages that both ends of a cable report with equal length, shifted by the same time at begin and end.

    A switch is correct if other hosts' clocks are correct by it.
    """
    if not by_kind.get("switch.port_down") or not by_kind.get("nic.link_down"):
        return
    near, far = _spans(by_kind, "nic."), _spans(by_kind, "switch.")
    differences: dict[str, list[tuple[float, str, float, float]]] = defaultdict(
        list
    )  # by switch: (time, host, off, length)
    for (switch, port), spans in sorted(far.items()):
        for (host, device), its_spans in _by_far_end(cables, switch, port, spans):
            for mine, its in _matched(near.get((host, device), ()), its_spans):
                off = (mine[0] - its[0] + mine[1] - its[1]) / 2
                differences[switch].append((mine[0], host, off, mine[1] - mine[0]))
    for switch in sorted(differences):
        pairs = sorted(differences[switch])
        times = [p[0] for p in pairs]
        for time, host, off, length in pairs:
            around = pairs[bisect_left(times, time - AROUND_S) : bisect_right(times, time + AROUND_S)]
            right = {other for _, other, by, _ in around if abs(by) <= AGREE_S and other != host}
            wrong = {other for _, other, by, _ in around if abs(by) > AGREE_S and other != host}
            if abs(off) <= AGREE_S:
                yield host, Sign(time, 0.0, PAIR_CABLE)
            elif abs(off) >= NOTICEABLE_S and len(right) > len(wrong):
                yield host, Sign(time, off, PAIR_CABLE)
                yield host, Sign(time + length, off, PAIR_CABLE)


def link_end_differences(events: Iterable[Event], known: Known) -> Iterable[tuple[str, float]]:
    """(switch, seconds it is ahead) for outages of equal length at both ends of a cable, however far from each other."""
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in _LINKS and event.host and not is_open(event, known.senders):
            by_kind[event.kind].append(event)
    near, far = _spans(by_kind, "nic."), _spans(by_kind, "switch.")
    for (switch, port), port_spans in sorted(far.items()):
        for place, spans in _by_far_end(known.cables, switch, port, port_spans):
            for its in spans:
                for mine in near.get(place, ()):
                    doubt = AGREE_S / 2 + mine[2] + its[2]
                    if abs((mine[1] - mine[0]) - (its[1] - its[0])) <= doubt:
                        yield switch, (its[0] - mine[0] + its[1] - mine[1]) / 2


def _by_far_end(cables: Cabling, switch: str, port: str, spans: Sequence[_Span]) -> Iterable[tuple[Place, list[_Span]]]:
    """Outages of a switch's port, by the NIC connected to it at the time."""
    found: dict[Place, list[_Span]] = defaultdict(list)
    for span in spans:
        place = cables.far_end(switch, port, span[0])
        if place is not None:
            found[place].append(span)
    return sorted(found.items())


def _spans(by_kind: Mapping[str, Sequence[Event]], family: str) -> dict[tuple[str, str], list[_Span]]:
    """(host, device) -> outages, each from the last line about the loss to the first about the return."""
    by_port: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for kind in _LINKS:
        if kind.startswith(family):
            for event in by_kind.get(kind, ()):
                if event.device:
                    by_port[event.host or "", event.device].append(event)
    found: dict[tuple[str, str], list[_Span]] = {}
    for place, events in by_port.items():
        events.sort(key=lambda e: (e.time, e.kind))
        spans = [
            (one.time, other.time, max(one.sigma, other.sigma)) for one, other in pairwise(events)
            if not _LINKS[one.kind] and _LINKS[other.kind]
        ]  # fmt: skip
        if spans:
            found[place] = spans
    return found


def _matched(near: Sequence[_Span], far: Sequence[_Span]) -> Iterable[tuple[_Span, _Span]]:
    """Outages of both ends that can only be the same: equally long, with no other outage of either end nearby."""
    for mine in near:
        theirs = [f for f in far if abs(f[0] - mine[0]) <= ENDS_S]
        others = [n for n in near if abs(n[0] - mine[0]) <= 2 * ENDS_S]
        if len(theirs) == len(others) == 1:
            doubt = AGREE_S / 2 + mine[2] + theirs[0][2]
            if abs((mine[1] - mine[0]) - (theirs[0][1] - theirs[0][0])) <= doubt:
                yield mine, theirs[0]


# -- sent and received ----------------------------------------------------------------------------------------------------
#: A clock that is behind makes every line late by the same amount: at least this many lines, over at least this long. A
#: queue that drains after an outage delays each line differently.
LIVE_LINES, LIVE_S = 4, 600.0


def _received(events: Sequence[Event]) -> Iterable[HostSign]:
    """Compares the time of a line with its arrival.

    A line cannot arrive before it was written: then its writer's clock is ahead, by at least that much. If all lines
    arrive late by the same amount while others' arrive at once, their writer's clock is behind. A timestamp that names
    no zone shows the first only, if it is less ahead than zones are, and where no user can choose it.
    """
    late: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event.received is None or event.time_quality not in ("line", "inferred") or not event.host:
            continue
        if _is_dated_by_anybody(event):
            continue
        lag, zoned = event.received - event.time, event.time_quality == "line"
        if lag >= NOTICEABLE_S and zoned:
            late[event.host].append((event.time, lag))
        elif lag <= -NOTICEABLE_S - event.sigma and (zoned or (lag > -ZONE_S and event.authority not in USERS)):
            yield event.host, Sign(event.time, -lag, PAIR_RECEIVED)
    if any(list(_late_alike(lags)) for lags in late.values()):
        yield from _all_late(events)


def _is_dated_by_anybody(event: Event) -> bool:
    """Did its writer choose the time, who need not be on that host?"""
    return event.authority in (JOB, NETWORK, UNVERIFIED) or "sender" in event.entities


def _all_late(events: Sequence[Event]) -> Iterable[HostSign]:
    lags: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if (
            event.received is not None
            and event.time_quality == "line"
            and event.host
            and not _is_dated_by_anybody(event)
        ):
            lags[event.host].append((event.time, event.received - event.time))
    for host, host_lags in sorted(lags.items()):
        for run in _late_alike(host_lags):
            low, high = run[0][0] - AROUND_S, run[-1][0] + AROUND_S
            other_lags = [[abs(lag) for at, lag in t if low <= at <= high] for h, t in lags.items() if h != host]
            at_once = [min(found) < NOTICEABLE_S for found in other_lags if found]
            if at_once and 3 * sum(at_once) >= 2 * len(at_once):
                yield from ((host, Sign(at, -lag, PAIR_RECEIVED)) for at, lag in run)


def _late_alike(lags: list[tuple[float, float]]) -> Iterable[list[tuple[float, float]]]:
    """Runs of a host's lines that were all late by the same amount."""
    lags.sort()
    runs: list[list[tuple[float, float]]] = [[]]
    for at, lag in lags:
        if lag < NOTICEABLE_S or (runs[-1] and abs(lag - runs[-1][0][1]) > AGREE_S):
            runs.append([])
        if lag >= NOTICEABLE_S:
            runs[-1].append((at, lag))
    for run in runs:
        if len(run) >= LIVE_LINES and run[-1][0] - run[0][0] >= LIVE_S:
            yield run
