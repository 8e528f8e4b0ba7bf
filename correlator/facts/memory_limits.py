"""Runs that the kernel killed for want of memory while they had less than Slurm had given them.

slurmstepd logs what a job was given on a node, and to what its control group is limited there. A kill by a group above the
job's, or by the whole machine, is then no doing of the job: its own group would have stopped it first. And a limit that is
clearly below what the job was given, where other nodes set the whole of it, is that node's configuration (cgroup.conf).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TypedDict

from correlator.facts.jobs.kinds import RUN_FAILED, RUN_OOM
from correlator.facts.jobs.memory import KILLED_S
from correlator.facts.world import World, run_of
from correlator.gather.kernel_lines import FACILITY, RING
from correlator.model.attributes import MEMORY
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Event, Fact, Run, in_order
from parsers.documents.fields import integer


class MemoryTaken(TypedDict):
    """The kernel killed a ``process`` of the run in ``runs``, as ``full`` had none left: it held ``held_mib`` of ``given_mib``."""

    full: str
    process: str
    held_mib: int
    given_mib: int
    runs: list[str]


class MemoryLimited(TypedDict):
    """The first of ``runs`` was limited to ``limit_mib`` of ``given_mib``; ``peer`` set the whole of as much."""

    limit_mib: int
    given_mib: int
    peer: str
    runs: list[str]


MEMORY_TAKEN = Kind(
    "memory.taken", "node", "The kernel killed a job's process for want of memory on its node, beyond the limit of the job, which had not used up its own.",
    MemoryTaken, witnesses=("kernel",), reported_within_s=60.0, brief="others took its node's memory",
    cause=Cause(
        "node.memory_pressure", "infra.node",
        "the kernel of {host} killed {process}, which held {held_mib} of the {given_mib} MiB that its job was given, as {full} had none left",
        "others had used up its node's memory",
        (("See in the kernel's list of tasks at that moment what had taken the memory of {host}, and limit it; see whether Slurm gives away more than there is (RealMemory, MemSpecLimit).", None),),
        short="{full} of {host} had no memory left", unharmed="benign", needs_effect=True, exhausted=True, avoid=True,
        doubt="Who had taken the memory, only the kernel's list of tasks tells",
        disproof="A limit of the job's own control group having been reached, or the job itself having taken what it was not given.",
    ),
)  # fmt: skip

MEMORY_LIMITED = Kind(
    "memory.limited", "slurmd", "A node limits jobs to clearly less memory than Slurm gave them, and other nodes do not.", MemoryLimited,
    witnesses=("slurmd",), reported_within_s=60.0, brief="its node allows less memory than was given",
    cause=Cause(
        "node.memory_limit", "infra.node",
        "slurmstepd of {host} limited a job to {limit_mib} of the {given_mib} MiB that it was given, where {peer} sets the whole",
        "its node allows jobs less memory than Slurm gives them",
        (("Compare cgroup.conf of {host} (AllowedRAMSpace, MaxRAMPercent) with that of {peer}, and restart its slurmd.", "scontrol update nodename={host} state=drain reason='cgroup.conf: memory'"),),
        short="{host} allows jobs less memory than they were given", unharmed="degraded", needs_effect=True, avoid=True, family="software", surest=0.85,
        doubt="Whether the program would have kept to what it was given, nothing tells",
        disproof="The same program taking more than it was given on another node.",
    ),
)  # fmt: skip

#: A job's own group has its number; one of a user holds that user's jobs only.
_OF_JOB_OR_USER = re.compile(r"/(?:job_|uid_|user-)\d")
#: What the kernel counts of a process that it kills, in kB.
_COUNTED = re.compile(
    r"Killed process (?P<pid>\d+) .*\banon-rss:(?P<anon>\d{1,15})kB, file-rss:(?P<file>\d{1,15})kB(?:, shmem-rss:(?P<shmem>\d{1,15})kB)?"
)
#: The kernel names the group and the process that it kills in two lines at once (seconds).
AT_ONCE_S = 1.0
#: Less than this share is clearly less; from the other on, a limit is the whole (a job's memory is rounded to MiB and pages).
CLEARLY, WHOLE = 0.8, 0.95
#: A node's limits are compared with those that others set within a day.
DAY_S = 86_400.0
#: Runs of one node and half hour are one fact.
SLOT_S = 1800.0


def taken(world: World) -> list[Fact]:
    """``memory.taken``: each kill of a job's process by a limit that is not the job's, while the job had less than it was given."""
    found = []
    counts = _counts(world)
    for kill in world.kinds("kernel.oom_kill"):
        if not _by_others(kill):
            continue
        run = next(
            (r for r in world.runs_of_job.get(kill.job_id or -1, ()) if kill.host in r.nodes and r.covers(kill.time)),
            None,
        )
        limit = None if run is None else _limit_of(world, run, str(kill.host), kill.time)
        held = None if limit is None else _held(counts, kill)
        if run is None or limit is None or held is None:
            continue
        given, allowed = limit
        if allowed > given or held[0] >= CLEARLY * given:
            continue  # its own group would not have stopped it, or it was near what it was given
        attrs: MemoryTaken = {
            "full": _full(kill), "process": str(kill.entities.get("process") or "a process"), "held_mib": held[0], "given_mib": given,
            "runs": [run.key],
        }  # fmt: skip
        found.append(MEMORY_TAKEN.fact(kill.time, None, kill.sigma, kill.host, attrs=attrs, events=(kill, held[1])))
    return found


def _by_others(kill: Event) -> bool:
    """Does a line that only the kernel can have written say that what was full is more than one job's?"""
    if kill.source != "kernel" or kill.known_by not in (RING, FACILITY) or not kill.host or kill.job_id is None:
        return False
    group = str(kill.entities.get("full_cgroup") or "")
    if kill.entities.get("constraint") == "CONSTRAINT_NONE":
        return not group
    return kill.entities.get("constraint") == "CONSTRAINT_MEMCG" and group != "" and not _OF_JOB_OR_USER.search(group)


def _full(kill: Event) -> str:
    group = str(kill.entities.get("full_cgroup") or "")
    return f"the control group {group}" if group else "the memory"


#: By a node and the number of a process: what it held when the kernel killed it (MiB), and the line that counts it.
_Counts = dict[tuple[str | None, int | None], list[tuple[int, Event]]]


def _counts(world: World) -> _Counts:
    found: _Counts = defaultdict(list)
    for event in world.kinds("kernel.oom_kill"):
        if event.known_by in (RING, FACILITY) and (counted := _COUNTED.search(event.message)):
            held = sum(int(counted[part] or 0) for part in ("anon", "file", "shmem")) // 1024
            found[event.host, integer(counted["pid"])].append((held, event))
    return found


def _held(counts: _Counts, kill: Event) -> tuple[int, Event] | None:
    """What the process held when it was killed (MiB), by the kernel's count, and that line."""
    same = counts.get((kill.host, integer(kill.entities.get("pid"))), ())
    return next((one for one in same if abs(one[1].time - kill.time) <= AT_ONCE_S), None)


def _limits(events: Iterable[Event]) -> list[tuple[Event, int, int]]:
    """slurmstepd's own lines about limits, with what the job was given and to what it was limited (MiB)."""
    found = []
    for event in events:
        if event.kind != "slurm.memory_limit" or not event.own or not event.host:
            continue
        given, limit = integer(event.entities.get("alloc_mib")), integer(event.entities.get("limit_mib"))
        if given and limit:
            found.append((event, given, limit))
    return found


def _limit_of(world: World, run: Run, host: str, moment: float) -> tuple[int, int] | None:
    """What a run was given on a node, and its limit there; None if that is not known."""
    own = [
        (given, limit) for event, given, limit in _limits(world.by_job.get(run.job_id, ()))
        if event.host == host and event.time <= moment and run.covers(event.time)
    ]  # fmt: skip
    return own[-1] if own else None


def limited(world: World) -> list[Fact]:
    """``memory.limited``: each run that Slurm or the kernel killed for want of memory where its node had limited it to clearly less
    than it was given, and another node, at most a day away, had not."""
    everywhere = _limits(world.kinds("slurm.memory_limit"))
    low: defaultdict[tuple[int | None, str], list[tuple[Event, int, int]]] = defaultdict(list)
    for event, given, limit in everywhere:
        if limit < CLEARLY * given:
            low[event.job_id, str(event.host)].append((event, given, limit))
    found: defaultdict[tuple[str, int], list[tuple[Fact, tuple[Event, Event], MemoryLimited]]] = defaultdict(list)
    for end in world.facts_of(RUN_FAILED.name, RUN_OOM.name) if low else ():
        run = run_of(world, end)
        if run is None:
            continue
        for host in run.nodes:
            mine = [one for one in low.get((run.job_id, host), ()) if run.covers(one[0].time)]
            if not mine or not _killed_on(world, run, host, end):
                continue
            event, given, limit = mine[-1]
            if (peer := _peer(everywhere, event, given)) is not None:  # what all nodes do is the site's rule
                attrs: MemoryLimited = {
                    "limit_mib": limit,
                    "given_mib": given,
                    "peer": str(peer.host),
                    "runs": [run.key],
                }
                found[host, int(end.start // SLOT_S)].append((end, (event, peer), attrs))
    return [_of_node(host, some) for (host, _), some in sorted(found.items())]


def _peer(everywhere: list[tuple[Event, int, int]], event: Event, given: int) -> Event | None:
    """The last line of another node that set the whole of as much memory."""
    for other, theirs, allowed in reversed(everywhere):
        if (
            other.host != event.host
            and abs(other.time - event.time) <= DAY_S
            and theirs >= given
            and allowed >= WHOLE * theirs
        ):
            return other
    return None


def _of_node(host: str, some: list[tuple[Fact, tuple[Event, Event], MemoryLimited]]) -> Fact:
    """The fact of a node and half hour."""
    some.sort(key=lambda one: one[0].key)
    first, last = some[0][0], some[-1][0]
    attrs: MemoryLimited = {**some[0][2], "runs": sorted({key for _, _, each in some for key in each["runs"]})}
    return MEMORY_LIMITED.fact(
        first.start,
        last.start,
        first.sigma,
        host,
        attrs=attrs,
        events=in_order({e for _, lines, _ in some for e in lines}),
    )


def _killed_on(world: World, run: Run, host: str, end: Fact) -> bool:
    """Do Slurm's own lines or the kernel's show that the run was killed for want of memory on this node? Its output shows nothing."""
    if end.kind == RUN_FAILED.name and not end.attrs[MEMORY]:
        return False
    return any(
        e.host == host and e.kind in ("slurm.job_oom", "kernel.oom_kill") and (e.own or e.source == "kernel")
        and abs(e.time - end.start) <= KILLED_S
        for e in world.by_job.get(run.job_id, ())
    )  # fmt: skip


KINDS = (MEMORY_TAKEN, MEMORY_LIMITED)
DETECTORS = [taken, limited]
