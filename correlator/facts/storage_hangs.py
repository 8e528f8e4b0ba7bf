"""Clients that wait for a file server: their programs stand still until it answers, or until their time limit.

``storage.outage`` ends with its last error: a client that waits logs nothing more. Here the wait goes on until the
client's kernel reports that the server is back, or starts anew.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TypedDict

from correlator.facts.control import KILL_FAILURE
from correlator.facts.jobs.lines import between
from correlator.facts.nodes.kinds import NODE_REBOOT
from correlator.facts.standstills import LONGER, MINUTES, SILENT_S, idle_since, written, wrote_after
from correlator.facts.storage import STORAGE_OUTAGE, target_of
from correlator.facts.world import World
from correlator.gather.kernel_lines import FACILITY, RING
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Kind
from correlator.model.nouns import Event, Fact, Run, in_order


class StorageHang(TypedDict):
    """``since`` when each client waited, and when it had the server ``back``, if it had.

    ``stuck``: the first moment at which a client's kernel complained of tasks that did not go on.
    """

    since: dict[str, float]
    back: dict[str, float]
    stuck: dict[str, float]


#: Attributes that are read in this file only.
SINCE: Attr[dict[str, float]] = attr("since")
BACK: Attr[dict[str, float]] = attr("back")
STUCK: Attr[dict[str, float]] = attr("stuck")

STORAGE_HANG = Kind(
    "storage.hang", "storage", "Clients wait for storage that does not answer.", StorageHang, brief="storage does not answer",
)  # fmt: skip

#: A client that waits, in the words of its kernel: a hard mount of NFS (linux net/sunrpc/clnt.c), Lustre
#: (ptlrpc/import.c). A soft mount, and an evicted client, return errors instead.
_WAITS = re.compile(r"not responding, still trying|\bwas lost; in progress operations\b.*\bwill wait\b")

#: The kernel complains of the same task again and again; the first lines of a client say it all.
COMPLAINTS = 5


def hangs(world: World) -> list[Fact]:
    """``storage.hang`` per outage with clients that wait; without an end while one of them may still wait."""
    outages = world.facts_of(STORAGE_OUTAGE.name)
    if not outages:
        return []
    answers: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in world.kinds("storage.recovered"):
        answers[event.host or "", target_of(event) or ""].append(event)
    boots: defaultdict[str, list[float]] = defaultdict(list)
    for fact in world.facts_of(NODE_REBOOT.name):
        boots[fact.host or ""].append(fact.start if fact.end is None else fact.end)
    hung: defaultdict[str, list[Event]] = defaultdict(list)
    for event in world.kinds("kernel.hung_task"):
        hung[event.host or ""].append(event)
    return [hang for outage in outages if (hang := _hang(outage, answers, boots, hung)) is not None]


def _hang(
    outage: Fact,
    answers: dict[tuple[str, str], list[Event]],
    boots: dict[str, list[float]],
    hung: dict[str, list[Event]],
) -> Fact | None:
    since: dict[str, float] = {}
    last: dict[str, float] = {}
    for event in outage.events:
        if event.host and _WAITS.search(event.message):
            since.setdefault(event.host, event.time)
        if event.host:
            last[event.host] = event.time
    if not since:
        return None
    back: dict[str, float] = {}
    stuck: dict[str, float] = {}
    more: list[Event] = []
    for host, begun in since.items():
        answer = next((e for e in answers.get((host, outage.device or ""), ()) if e.time >= last[host]), None)
        booted = [t for t in boots.get(host, ()) if t > last[host]]
        ends = [*([answer.time] if answer else []), *booted]
        if ends:
            back[host] = min(ends)
        if answer and answer.time == back[host]:
            more.append(answer)
        known = hung.get(host, [])
        first = bisect_right(known, begun, key=lambda e: e.time)
        complaints = [e for e in known[first : first + COMPLAINTS] if e.time <= back.get(host, float("inf"))]
        if complaints:
            stuck[host] = complaints[0].time
            more += complaints
    end = max(back.values()) if back.keys() == since.keys() else None
    attrs: StorageHang = {"since": since, "back": back, "stuck": stuck}
    # All lines of the outage: a tick that begins during the wait knows it by these.
    events = in_order(outage.events, more)
    return STORAGE_HANG.fact(outage.start, end, outage.sigma, outage.host, outage.device, attrs=attrs, events=events)


@dataclass(frozen=True)
class Wait:
    """A run's wait for storage.

    ``begin`` and ``end`` are within the run, ``share`` of whose time it took. ``over``: when the storage was back, None
    if that was not before the run's end. ``silent``: its output stopped when the wait began, or its GPUs did; ``stuck``: its
    processes, or tasks of its nodes, did not go on and could not be killed.
    """

    begin: float
    end: float
    share: float
    over: float | None
    silent: bool
    stuck: bool


#: Output may go on for this long after a client's kernel first complained (seconds), and for this share of a short wait:
#: other ranks, buffers.
WRITES_ON_S, WRITES_ON_SHARE = 60.0, 0.25

#: GPUs that stop within this of the first line about the storage waited for it: a client logs that line only after its
#: own timeouts of minutes (seconds).
WITH_STORAGE_S = 300.0

#: slurmstepd gives up processes that cannot be killed within UnkillableStepTimeout after the end (seconds).
UNKILLED_S = 900.0


def wait_of(world: World, outage: Fact, run: Run) -> Wait | None:
    """How long a run's nodes waited for the storage of an outage; None if they did not, or not during the run."""
    hang = next((f for f in world.facts_on(STORAGE_HANG.name, [outage.host or ""]) if f.device == outage.device and f.start == outage.start), None)  # fmt: skip
    if hang is None or run.start is None or run.end is None:
        return None
    since, back = hang.attrs[SINCE], hang.attrs[BACK]
    waiting = [host for host in run.nodes if host in since]
    if not waiting:
        return None
    begin = min(since[host] for host in waiting)
    until = max(back.get(host, float("inf")) for host in waiting)
    end = min(until, run.end)
    output = written(world, run)
    idle = idle_since(world, run)
    silent = output.last is not None and output.last <= begin + _writes_on(begin, end)
    silent |= idle is not None and abs(idle - begin) <= WITH_STORAGE_S
    stuck = any(host in hang.attrs[STUCK] for host in waiting) or unkilled(world, run) is not None
    share = max(0.0, end - begin) / max(1.0, run.end - run.start)
    return Wait(begin, end, share, until if until < run.end else None, silent, stuck)


#: What was written is read at most so much later, mostly (seconds).
READ_S = 10.0
#: Runs are compared that end within this of each other: a tick judges no earlier ones again (seconds).
COMPARED_S = 600.0


@dataclass(frozen=True)
class Elsewhere:
    """A run of the same user and name that did not wait and ended well, and how long it took (seconds)."""

    run: Run
    took: float


def ended_elsewhere(world: World, run: Run, wait: Wait) -> Elsewhere | None:
    """What shows that a run would have ended in time without its wait, and could not with it: all runs of the same user
    and name on other nodes that ended well took less than it had, and more than its wait left to it. None if there are
    none, if one of them shows something else, or if its output went on."""
    user, name = run.row.get("user"), run.row.get("name")
    if not user or not name or run.start is None or run.end is None:
        return None
    written_at = world.output_of(run)
    late = wait.begin + _writes_on(wait.begin, wait.end)
    if any(late < t <= run.end for t in written_at.stamps) or any(
        late < t <= run.end - READ_S for t in written_at.read_by
    ):
        return None  # of each minute the last line is known, so that a short wait has few
    had, found = run.end - run.start, []
    for other in world.completed_as.get((user, name), ()):
        if other.start is None or other.end is None or abs(other.end - run.end) > COMPARED_S:
            continue
        if set(other.nodes) & set(run.nodes) or len(other.nodes) != len(run.nodes):
            continue
        found.append(Elsewhere(other, other.end - other.start))
    left = had - (wait.end - wait.begin)
    if not found or not all(left < one.took <= had for one in found):
        return None
    return max(found, key=lambda one: (one.took, one.run.key))


def unkilled(world: World, run: Run) -> Fact | None:
    """That Slurm gave up processes of the run. Only what waits in the kernel, in D state, survives SIGKILL."""
    end = run.end or 0.0
    given_up = (
        f for f in world.facts_of(KILL_FAILURE.name) if f.host in run.nodes and 0 <= f.start - end <= UNKILLED_S
    )
    return next((f for f in given_up if any(e.job_id == run.job_id for e in f.events)), None)


#: The kernel complains of a task every two minutes, ten times mostly: a task that still waits when a run ends was named so
#: shortly before (seconds), or several times.
STILL_STUCK_S, REPEATED = 600.0, 2


def hung_tasks(world: World, run: Run) -> list[Event]:
    """Lines of the kernels of a run's nodes about a task that did not go on, if it was named several times or shortly before
    the run's end, and nothing shows that the run worked later. The task may be another's.

    Lines that only claim the kernel's name do not count.
    """
    first, last = run.start or 0.0, float("inf") if run.end is None else run.end
    found = [
        e for host in run.nodes for e in between(world.by_host.get(host, ()), first - 1.0, last + 1.0)
        if e.kind == "kernel.hung_task" and run.covers(e.time) and e.known_by in (RING, FACILITY)
    ]  # fmt: skip
    by_task: defaultdict[tuple[str | None, str], list[Event]] = defaultdict(list)
    for event in found:
        by_task[event.host, f"{event.entities.get('process')}:{event.entities.get('pid')}"].append(event)
    end = run.end or 0.0
    kept = [
        e for some in by_task.values() for e in some
        if sum(one.count for one in some) >= REPEATED or some[-1].last >= end - STILL_STUCK_S
    ]  # fmt: skip
    if not kept:
        return []
    # The kernel complains of a task that has waited for two minutes already.
    last = max(e.last for e in kept)
    worked = world.work(world.timed_out).get(run.key)
    if wrote_after(world, run, last) or (worked is not None and max(worked.until, worked.moved or 0.0) > last):
        return []
    return sorted(kept, key=lambda e: (e.time, e.id))[:COMPLAINTS]


def _writes_on(begin: float, end: float) -> float:
    return min(WRITES_ON_S, WRITES_ON_SHARE * (end - begin))


def went_on(world: World, run: Run, wait: Wait) -> str | None:
    """What shows that a run did not stand still during a wait, for people; None if nothing does."""
    output, end = written(world, run), run.end or wait.end
    if wrote := output.after(wait.begin + _writes_on(wait.begin, wait.end), wait.end):
        return f"its output went on for {wrote - wait.begin:.0f} s while its storage did not answer"
    if wait.over is not None and (wrote := output.after(wait.over, end)):
        return f"the storage was back {end - wait.over:.0f} s before the time limit, and its output went on"
    before = None if output.last is None else wait.begin - output.last
    if before is not None and len(output.times) >= MINUTES and before > max(SILENT_S, LONGER * output.longest_gap):
        return f"its output had stopped {before / 60:.0f} min before the storage did"
    idle = idle_since(world, run)
    if idle is not None and wait.begin - idle >= SILENT_S:
        return f"its GPUs had stopped {(wait.begin - idle) / 60:.0f} min before the storage did"
    return None


KINDS = (STORAGE_HANG,)
DETECTORS = [hangs]
