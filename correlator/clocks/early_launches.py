"""A controller whose clock is ahead, as the launches of several nodes show.

A job is launched after its allocation. If a launch is logged before that, the node's clock is behind or the controller's
is ahead, and of two clocks it is not known which. If all nodes that launch meanwhile are early by the same time, one
clock is wrong rather than several by the same: the controller's, as for switches (``cable_ends``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from correlator.clocks.signs import AGREE_S, AROUND_S, ENDS_S, NOTICEABLE_S, PAIR_NODES, HostSign, Sign
from correlator.model.nouns import Event

#: A prolog runs between allocation and launch; longer delays are no evidence.
LAUNCH_S = 20.0

#: So many nodes and jobs must show the same.
NODES, JOBS = 2, 2

#: (when a job received its nodes by slurmctld or accounting, the uncertainty of that), by job
Allocated = Mapping[int, tuple[float, float]]


@dataclass(frozen=True)
class _Job:
    """The launches of one job, by one controller: how many seconds after the allocation that was logged at ``logged``.

    ``batch``: the node of the batch script, which is launched at once; ``prompt``: the same, if it was.
    """

    logged: float
    number: int
    delays: tuple[tuple[float, str], ...]
    batch: str | None
    prompt: str | None

    @property
    def first(self) -> float:
        return self.delays[0][0]


def of_controllers(
    allocations: Iterable[Event],
    starts: Collection[Event],
    allocated: Allocated,
    again: Collection[int],
    *,
    is_known: bool,
) -> tuple[dict[int, tuple[float, float]], list[HostSign]]:
    """When jobs were allocated whose allocation a controller logged too late, as in ``allocated``, and the signs of the
    controllers' clocks: of those that are ahead, and that they agree with a node's. ``is_known``: launches showed before
    that one is ahead; otherwise there is nothing to say unless a launch is early, which is the common case."""
    if not is_known and not any(e.time < _at(allocated, e) - NOTICEABLE_S for e in starts):
        return {}, []
    found: dict[int, tuple[float, float]] = {}
    shown: list[HostSign] = []
    for controller, jobs in sorted(_jobs(allocations, starts, allocated, again).items()):
        shown += [(controller, Sign(j.logged, 0.0, PAIR_NODES, by=j.prompt)) for j in jobs if j.prompt is not None]
        for some in _between_prompt_ones(jobs):
            ahead, alike, unlike = _ahead(some)
            if ahead and len(alike) > len((unlike | _prompt_nodes(jobs, some)) - alike):
                found.update((job.number, (job.logged - ahead, AGREE_S)) for job in some)
                shown += [
                    (controller, Sign(job.logged, -delay, PAIR_NODES, by=host))
                    for job in some
                    for delay, host in job.delays
                    if host in alike and abs(delay + ahead) <= AGREE_S
                ]
    return found, shown


def _at(allocated: Allocated, start: Event) -> float:
    """When the job of a launch got its nodes, as far as that is known."""
    known = allocated.get(start.job_id or -1)
    return float("-inf") if known is None else known[0]


def _jobs(
    allocations: Iterable[Event], starts: Iterable[Event], allocated: Allocated, again: Collection[int]
) -> dict[str, list[_Job]]:
    """The jobs whose launches can be compared with their allocations, by controller and in order of time."""
    controllers: dict[int, str] = {}
    for event in allocations:
        if event.source == "slurmctld" and event.job_id is not None:
            controllers.setdefault(event.job_id, event.host or "")
    delays: dict[int, list[tuple[float, str, bool]]] = defaultdict(list)
    for event in starts:
        job = event.job_id or -1
        known = allocated.get(job)
        if event.source == "slurmd" and event.host and known is not None and not known[1] and job not in again:
            delays[job].append((event.time - known[0], event.host, event.message.startswith("Launching batch")))
    found: dict[str, list[_Job]] = defaultdict(list)
    for number, some in delays.items():
        some.sort()
        batch = next((host for _, host, of_batch in some if of_batch), None)
        prompt = next((host for delay, host, of_batch in some if of_batch and abs(delay) <= LAUNCH_S), None)
        early = prompt is None and -ENDS_S <= some[0][0] < -NOTICEABLE_S
        # Launches on both sides of the allocation are those of two runs: the first run's allocation is not logged.
        two_runs = any(-NOTICEABLE_S <= delay <= LAUNCH_S for delay, _, _ in some)
        if (prompt is not None and some[0][0] >= -NOTICEABLE_S) or (early and not two_runs):
            its = tuple((delay, host) for delay, host, _ in some)
            found[controllers.get(number, "")].append(_Job(allocated[number][0], number, its, batch, prompt))
    return {controller: sorted(jobs, key=lambda j: (j.logged, j.number)) for controller, jobs in found.items()}


def _between_prompt_ones(jobs: Iterable[_Job]) -> Iterable[list[_Job]]:
    """Jobs in a row none of which was launched at once."""
    run: list[_Job] = []
    for job in jobs:
        if job.prompt is None:
            run.append(job)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _ahead(jobs: Sequence[_Job]) -> tuple[float, set[str], set[str]]:
    """By how many seconds the controller was ahead by jobs in a row, the nodes that show it, and those that deny it; 0 if
    it is not clear.

    Each node has one vote, its earliest launch: nobody can launch a job before it has its nodes, but whoever loads a node
    delays launches there. A step may be launched any time after the allocation.
    """
    votes: dict[str, float] = {}
    at_once: dict[str, float] = {}
    for job in jobs:
        for delay, host in job.delays:
            votes[host] = min(delay, votes.get(host, delay))
        if job.batch is not None:
            at_once[job.batch] = min(job.first, at_once.get(job.batch, job.first))
    earliest = sorted(votes.values())
    # Where most votes lie, and of several such places the first.
    level = max(earliest, key=lambda low: (bisect_right(earliest, low + AGREE_S) - bisect_left(earliest, low), -low))
    alike = {host for host, delay in votes.items() if level <= delay <= level + AGREE_S}
    its_jobs = sum(any(host in alike and level <= d <= level + AGREE_S for d, host in job.delays) for job in jobs)
    if len(alike) < NODES or its_jobs < JOBS:
        return 0.0, set(), set()
    unlike = {host for host, delay in votes.items() if delay < level}
    unlike.update(host for host, delay in at_once.items() if delay > level + LAUNCH_S)
    return -median(votes[host] for host in alike), alike, unlike


def _prompt_nodes(jobs: Sequence[_Job], some: Sequence[_Job]) -> set[str]:
    """The nodes that launched jobs at once, around the time of some others."""
    times = [job.logged for job in jobs]
    low, high = some[0].logged - AROUND_S, some[-1].logged + AROUND_S
    return {job.prompt for job in jobs[bisect_left(times, low) : bisect_right(times, high)] if job.prompt is not None}
