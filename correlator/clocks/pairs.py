"""Compares clocks by pairs of lines about one moment.

The pairs are allocation and launch, allocation and accounting, the launches of one step, both ends of a cable, and
sending and receiving; cables are compared in ``cable_ends``, arrivals in ``arrivals``. Lines that users can write show
nothing (``Known.senders``). Each gives signs of a host's clock: by how much it was off, or that it was correct. Hosts
are compared within a time range (``AROUND_S``): a fault of last month says nothing about today's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from correlator.clocks.arrivals import LIVE_LINES, is_dated_by_anybody, of_arrivals
from correlator.clocks.cable_ends import LINKS, of_cables
from correlator.clocks.early_launches import LAUNCH_S, of_controllers
from correlator.clocks.signs import (
    AGREE_S,
    AROUND_S,
    ENDS_S,
    HOLDS_S,
    NOTHING,
    NOTICEABLE_S,
    PAIR_ACCOUNTING,
    Begun,
    HostSign,
    Known,
    Sign,
)
from correlator.model.nouns import Event
from correlator.site.open_lines import is_open
from correlator.site.senders import Senders
from parsers.documents.fields import number
from parsers.formats.base import SLURM
from parsers.writers import NO_USERS

#: So many lines of a host that launches too early, and most of its late ones, must come late by as much.
LATE_LINES = 2

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


@dataclass(frozen=True)
class Launches:
    """The launches of slurmds.

    ``allocated`` gives when each job received its nodes, and the uncertainty of that. ``again`` are jobs that received
    nodes more than once.
    """

    starts: Sequence[Event]
    allocated: Mapping[int, tuple[float, float]]
    again: frozenset[int]


_COMPARED_EVENTS = frozenset({"sys.clock", "slurm.step_start", "slurm.job_start", "slurm.job_requeue", *LINKS})

ByKind = Mapping[str, Sequence[Event]]


def compared_by_kind(events: Iterable[Event], senders: Senders) -> ByKind:
    """The events that are compared and that no user can have written, by kind."""
    by_kind: dict[str, list[Event]] = {kind: [] for kind in _COMPARED_EVENTS}
    for event in [e for e in events if e.kind in _COMPARED_EVENTS]:
        if event.host and (event.authority in NO_USERS or not is_open(event, senders)):
            by_kind[event.kind].append(event)
    return by_kind


def launches(by_kind: ByKind, begun: Begun) -> Launches:
    """The launches of jobs. ``by_kind``: ``compared_by_kind``."""
    starts = [e for e in by_kind["slurm.step_start"] if e.source == "slurmd" and e.job_id is not None]
    return Launches(starts, _allocations(by_kind["slurm.job_start"], starts, begun), _allocated_again(by_kind))


def signs(
    events: Sequence[Event],
    by_kind: ByKind,
    launched: Launches,
    known: Known = NOTHING,
    *,
    is_known_by_nodes: bool = False,
) -> list[HostSign]:
    """All signs of all hosts. ``by_kind`` and ``launched``: what is compared of the ``events``. ``is_known_by_nodes``: a
    controller's clock is known to be off by the launches of nodes."""
    starts, again = launched.starts, launched.again
    ahead, log_signs = _log_ahead(by_kind["slurm.job_start"], starts, launched.allocated, again, known.begun)
    allocated = {**launched.allocated, **ahead} if ahead else launched.allocated
    others = [*_daemon(by_kind["sys.clock"]), *of_cables(by_kind, known.cables), *of_arrivals(events, known.senders)]
    off = {host for host, sign in others if abs(sign.seconds) >= NOTICEABLE_S}
    compared = [e for e in starts if e.host not in off] if off else starts
    by_nodes, nodes_signs = of_controllers(
        by_kind["slurm.job_start"], compared, allocated, again, is_known=is_known_by_nodes
    )
    if by_nodes:
        allocated = {**allocated, **by_nodes}
    late = list(_launches(starts, allocated, again))
    if any(s.seconds for _, s in late):
        late = _without_live(events, late, known.senders)
    return [*log_signs, *nodes_signs, *late, *_steps(starts, allocated, again), *others]


#: Clocks that lost their time begin in 1970 or 1900 (seconds): what is stated beyond 32 bits is no offset, and no date can hold it.
_STATED_S = float(1 << 32)


def _daemon(events: Sequence[Event]) -> Iterable[HostSign]:
    """chrony: "System clock wrong by S seconds" (true = local + S), "was stepped by S": the end of the offset.

    What Slurm says of the modification time of a file shows a file put back as well as a clock, and no offset of either.
    """
    for event in events:
        seconds = number(event.entities.get("offset_s"))
        if seconds is None or not NOTICEABLE_S <= abs(seconds) <= _STATED_S or event.source in SLURM:
            continue
        stepped = "step" in event.message or "reset" in event.message
        yield event.host or "", Sign(event.time, -seconds, "its time daemon", stated=True, mended=stepped)


def _allocations(allocations: Sequence[Event], starts: Sequence[Event], begun: Begun) -> dict[int, tuple[float, float]]:
    """When each job first received its nodes, and the uncertainty: by slurmctld, else by accounting."""
    found: dict[int, tuple[float, float]] = {}
    for event in allocations:
        if event.source == "slurmctld" and event.job_id is not None:
            found.setdefault(event.job_id, (event.time, 0.0))
    unknown = {e.job_id for e in starts if e.job_id is not None} - found.keys()
    return found | {job: (at, WHOLE_S) for job, at in begun(unknown).items()} if unknown else found


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


def _allocated_again(by_kind: ByKind) -> frozenset[int]:
    """Jobs that received nodes more than once by slurmctld's log.

    Two launches of one step of such a job may belong to different runs.
    """
    started = [e.job_id for e in by_kind["slurm.job_start"] if e.source == "slurmctld" and e.job_id is not None]
    requeued = {e.job_id for e in by_kind["slurm.job_requeue"] if e.source == "slurmctld" and e.job_id is not None}
    if len(set(started)) == len(started):  # the common case
        return frozenset(requeued)
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


def _without_live(events: Sequence[Event], signs: Sequence[HostSign], senders: Senders) -> list[HostSign]:
    """Drops signs of a host whose lines arrive as they are written: its clock is correct, however late it launches, and if
    it launches too early, the controller's is not.

    Lines that users can write count on neither side. A log daemon that a site trusts may still pass on lines with the right
    time in a host's name. So a host that launches too early keeps its sign if most of its late lines, over some time, come
    late by the same amount: those of a queue that empties do not.
    """
    late: dict[str, list[float]] = defaultdict(list)
    for host, sign in signs:
        if sign.seconds:
            late[host].append(sign.time)
    live: dict[str, int] = defaultdict(int)
    lags: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        times = late.get(event.host or "")
        if (
            times
            and event.received is not None
            and not is_dated_by_anybody(event, senders)
            and min(times) - AROUND_S <= event.time <= max(times) + AROUND_S
        ):
            lag = event.received - event.time
            live[event.host or ""] += abs(lag) < NOTICEABLE_S
            if lag >= NOTICEABLE_S:
                lags[event.host or ""].append((event.time, lag))
    return [
        (host, sign)
        for host, sign in signs
        if not sign.seconds or live[host] < LIVE_LINES or _comes_late_by(-sign.seconds, lags[host])
    ]


def _comes_late_by(seconds: float, lags: Sequence[tuple[float, float]]) -> bool:
    """Do most of a host's late lines (time, lag) come late by this, longer than lags that fall would be about the same?"""
    times = [at for at, lag in lags if abs(lag - seconds) <= AGREE_S]
    return len(times) >= max(LATE_LINES, len(lags) // 2 + 1) and max(times) - min(times) > 2 * AGREE_S


def _steps(
    starts: Sequence[Event], allocated: Mapping[int, tuple[float, float]], again: Collection[int]
) -> Iterable[HostSign]:
    """Signs from the launches of steps."""
    return _by_several_jobs(list(_odd_launches(starts, allocated, again)))


def _odd_launches(
    starts: Sequence[Event], allocated: Mapping[int, tuple[float, float]], again: Collection[int]
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
            right = [t for t in times.values() if start is not None and -AGREE_S <= t - start[0] <= LAUNCH_S]
            if len(times) != STEP_NODES - 1 or len(right) != 1:
                continue
            middle = right[0]
        for host, time in sorted(times.items()):
            off = time - middle
            if abs(off) >= NOTICEABLE_S:
                yield key[0], (host, Sign(time, off))
            elif abs(off) <= AGREE_S:
                yield key[0], (host, Sign(time, 0.0))
