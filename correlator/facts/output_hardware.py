"""Broken hardware named in a run's own output, in messages that a program's mistake cannot cause.

CUDA returns an uncorrectable memory error only for broken memory, and a file system returns an input/output error only
for broken storage. If the node's log was not collected, or its line was lost, this is the only evidence. If a log shows
the fault itself, that is the fact, and this one is not concluded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

from correlator.facts.gpus import SOFTWARE as SOFTWARE_OF_GPUS
from correlator.facts.gpus import XID, bus, code_of, family_of
from correlator.facts.jobs.lines import of_run
from correlator.facts.jobs.output import file_lost, remembered
from correlator.facts.storage import DISK_ERROR, STORAGE_OUTAGE
from correlator.facts.storage import SOFTWARE as SOFTWARE_OF_STORAGE
from correlator.facts.world import World, bursts
from correlator.model.attributes import FAMILY, HOSTS, NAMELESS, RUNS, UNENDED
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind, NoAttrs
from correlator.model.nouns import Event, Fact, Run
from parsers.record import JOB_OUTPUT


class GpuInOutput(TypedDict):
    """``event``: the contract's name of the fault; ``code``: an Xid in the run's output."""

    event: str | None
    code: int | None


class StorageInOutput(TypedDict):
    """``runs`` that reported it; ``nameless``: they reported only timeouts; ``users`` and ``nodes``: how many."""

    runs: list[str]
    nameless: bool
    users: int
    nodes: int


#: Attributes that are read in this file only.
EVENT: Attr[str | None] = attr("event")
USERS: Attr[int] = attr("users")
NODES: Attr[int] = attr("nodes")


#: Messages of CUDA, NVML and NVRM about a broken GPU, and their name in the contract's taxonomy. An "unspecified launch
#: failure" is not among them: a program's own wild pointer causes it as well.
_GPU = (
    (re.compile(r"uncorrectable ecc|ecc error encountered|uncorrectable memory error", re.IGNORECASE), "gpu.ecc"),
    (re.compile(r"gpu is lost|fallen off the bus|unable to determine the device handle", re.IGNORECASE), "gpu.lost"),
    (re.compile(r"uncorrectable nvlink|nvlink error", re.IGNORECASE), "gpu.fabric_error"),
)

_GPU_FAILED = Cause(
    "gpu.xid", "infra.gpu", "a GPU of {host} failed, as the run's own output says", "a GPU failed",
    (("Collect the kernel log of {host}; look there for an Xid, and run the GPU's diagnostics.", None),),
    short="a GPU of {host} failed", reported="a GPU failed", software=SOFTWARE_OF_GPUS,
)  # fmt: skip


def _as_it_says(fact: Fact) -> Cause | None:
    named = fact.attrs.get(EVENT)
    return replace(_GPU_FAILED, event=str(named)) if named else None


GPU_IN_OUTPUT = Kind(
    "gpu.told", "job", "A run's output reports that its GPU failed, and no log reports it.", GpuInOutput,
    brief="GPU failed, as its run says", cause=_GPU_FAILED, variant=_as_it_says,
    variants=tuple(replace(_GPU_FAILED, event=name) for _, name in _GPU),
)  # fmt: skip

DISK_IN_OUTPUT = Kind(
    "disk.told", "job", "A run's output reports that a local file system failed, and no log reports it.", NoAttrs,
    brief="local disk failed, as its run says",
    cause=Cause(
        "node.disk_error", "infra.node", "a local file system of {host} failed, as the run's own output says", "a node's disk failed",
        (("Look at the kernel log and the disks of {host}.", None),),
        short="a disk of {host} failed", reported="a local file system failed", family="disk",
    ),
)  # fmt: skip

_STORAGE_FAILED = Cause(
    "storage.outage", "infra.storage", "{device} failed or timed out, as the output of {runs} says", "the shared storage failed",
    (("Check the servers of {device}, and the clients' kernel logs.", None),),
    short="{device} failed", reported="a shared file system failed", software=SOFTWARE_OF_STORAGE,
    nameless="No log of a server or client tells why: the clients' kernel logs, or those of the file system's servers, would",
)  # fmt: skip

#: Without any one of so many users, at least two others still report it: no user alone can make it up. What two users
#: report counts as little as one's own output may.
SEVERAL_USERS, SEVERAL_SURE, TWO_SURE = 3, 0.75, 0.5


def _as_users_say(fact: Fact) -> Cause | None:
    users = fact.attrs.get(USERS) or 0
    if users < 2:
        return None
    sure = SEVERAL_SURE if users >= SEVERAL_USERS else TWO_SURE
    doubt = f"Only the output of jobs tells of it, of {users} users on several nodes; no log of a client or server does"
    return replace(_STORAGE_FAILED, reported="", words="storage", surest=sure, doubt=doubt)


STORAGE_IN_OUTPUT = Kind(
    "storage.told", "job", "The output of runs reports that a shared file system failed, and no log reports it.", StorageInOutput,
    brief="storage failed, as its runs say", cause=_STORAGE_FAILED, variant=_as_users_say,
)  # fmt: skip

_SAY_GPU = (
    "job.cuda_error",
    "job.nccl_error",
    "job.exit_error",
    "gpu.lost",
    "gpu.xid",
    "gpu.fallen_off_bus",
    "gpu.ecc",
    "gpu.fabric_error",
)

#: A logged fault is at most this long before the run's end (as E18), or this little after it.
BEFORE_S, BEHIND_S = 62.0, 5.0

_IO_ERROR = re.compile(
    r"input/output error|\beio\b|errno 5\b|transport endpoint|errno 108\b|cannot send after", re.IGNORECASE
)
#: Only storage returns it; the others are a socket's errors as well.
_EIO = re.compile(r"input/output error|\beio\b|errno 5\b", re.IGNORECASE)
_READ_ONLY = re.compile(r"read-only file ?system|errno 30\b", re.IGNORECASE)
_PATH = re.compile(r"(/[\w.+@-]+(?:/[\w.+@%=-]+)+)")
#: File systems that many nodes share, by the names that sites give their mounts.
SHARED_PATH = re.compile(
    r"^/(?:mnt/)?(?:lustre|gpfs|beegfs|weka|vast|ceph|nfs|panfs|orangefs|projects?|scratch|work|shared|home|data)\w*(?:/|$)"
)
LOCAL_PATH = re.compile(
    r"^/(?:tmp|var|local\w*|localscratch|nvme\w*|raid\w*|ssd\w*|dev/shm|run|mnt/(?:local|nvme|resource|ssd)\w*)(?:/|$)"
)

#: Runs that lost one file system within this of each other lost it by one outage.
SAME_OUTAGE_S = 900.0

#: Errors that name no file are of one file system if they come within this: clients notice a dead target at their next
#: access (correlation.md, E40).
SAME_MINUTE_S = 60.0
_UNNAMED = "a shared file system"

#: A timeout or a stale handle may be the run's own doing (the file was deleted, the node lost its network). In this
#: many runs on this many nodes at once, the file system is the cause.
MANY_RUNS, MANY_NODES = 3, 2


def gpus(world: World) -> list[Fact]:
    """``gpu.told`` per run whose output reports it; attrs event (the contract's name) and code (an Xid in the output)."""
    facts = []
    by_job = _by_job(e for e in world.kinds(*_SAY_GPU) if _gpu_event(e))
    for job, events in sorted(by_job.items()):
        for run in world.runs_of_job.get(job, ()):
            lines = of_run(run, events) if run.ended_badly else []
            moment = run.end if run.end is not None else run.start or 0.0
            known = [
                f for f in world.facts_of(XID.name)
                if f.host in run.nodes and -BEHIND_S <= moment - f.start <= BEFORE_S + f.sigma and f.attrs.get(FAMILY) not in ("application", "benign")
            ]  # fmt: skip
            if not lines or known:
                continue
            first = lines[0]
            pci = next((str(e.entities["pci"]) for e in lines if e.entities.get("pci")), None)
            attrs: GpuInOutput = {
                "event": _gpu_event(first),
                "code": code_of(first) if first.kind == XID.name else None,
            }
            host = next((e.host for e in lines if e.host in run.nodes), None) or where(world, run)
            facts.append(GPU_IN_OUTPUT.fact(first.time, None, first.sigma, host, bus(pci), run=run.key, attrs=attrs, events=tuple(lines[:5])))  # fmt: skip
    return facts


def _gpu_event(event: Event) -> str | None:
    if event.source not in JOB_OUTPUT:
        return None
    if event.kind == XID.name:
        code = code_of(event)
        return "gpu.xid" if code is not None and family_of(code) == "hardware" else None
    return _named_gpu_fault(event.message)


@remembered
def _named_gpu_fault(text: str) -> str | None:
    return next((name for words, name in _GPU if words.search(text)), None)


def where(world: World, run: Run) -> str | None:
    """The node whose task ended first by srun's output; the only node of a run on one node."""
    if len(run.nodes) == 1:
        return run.nodes[0]
    tasks = [
        e for e in of_run(run, world.by_job.get(run.job_id, ())) if e.source in JOB_OUTPUT and "task" in e.entities
    ]
    return node_of_first(run, tasks)


def node_of_first(run: Run, tasks: Iterable[Event]) -> str | None:
    """The node that the first of srun's lines about tasks names; None if it names none, or several."""
    first = min(tasks, key=lambda e: (e.file or "", e.line or 0), default=None)
    nodes = list(first.entities.get("nodes") or []) if first else []
    return str(nodes[0]) if len(nodes) == 1 and nodes[0] in run.nodes else None


def _by_job(events: Iterable[Event]) -> dict[int, list[Event]]:
    found: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.job_id is not None:
            found[event.job_id].append(event)
    return found


def storage(world: World) -> list[Fact]:
    """``storage.told`` per shared file system, with attrs runs; ``disk.told`` per run whose local disk failed."""
    shared: defaultdict[tuple[str, str], list[tuple[Event, Run]]] = defaultdict(list)
    unnamed: list[tuple[Event, Run]] = []
    facts = []
    by_job = _by_job(
        e
        for e in world.kinds("job.exit_error", "job.bus_error", "job.mpi_error", "job.nccl_error")
        if e.source in JOB_OUTPUT and _broken(e.message)
    )
    for job, events in sorted(by_job.items()):
        for run in (r for r in world.runs_of_job.get(job, ()) if r.ended_badly):
            for event in of_run(run, events)[:1]:
                path = path_in(event.message)
                if LOCAL_PATH.match(path) or (not SHARED_PATH.match(path) and _READ_ONLY.search(event.message)):
                    host = where(world, run)
                    if not any(
                        f.host in run.nodes and abs(f.start - event.time) <= SAME_OUTAGE_S
                        for f in world.facts_of(DISK_ERROR.name)
                    ):
                        facts.append(
                            DISK_IN_OUTPUT.fact(event.time, None, event.sigma, host, None, run=run.key, events=(event,))
                        )
                elif SHARED_PATH.match(path) and not _READ_ONLY.search(event.message):
                    # Per user: a user's output is no evidence about another user's run.
                    shared[file_system(path), str(run.row.get("user") or "")].append((event, run))
                elif not path and _EIO.search(event.message) and run.row.get("user"):
                    unnamed.append((event, run))
    by_name: defaultdict[str, list[tuple[Event, Run]]] = defaultdict(list)
    for (name, _), reports in shared.items():
        by_name[name] += reports
    for name, reports in sorted(by_name.items()):
        if any(_names_storage(f, name) for f in world.facts_of(STORAGE_OUTAGE.name)):
            continue
        found = _lost_by_users(name, reports)
        known = {key for fact in found for key in fact.attrs[RUNS]}
        for user in sorted({user for one, user in shared if one == name}):
            rest = [(event, run) for event, run in shared[name, user] if run.key not in known]
            found += _lost_by(name, rest)
        facts += [fact for fact in found if not _reported_by_clients(world, fact)]
    return facts + [fact for fact in _lost_unnamed(world, unnamed) if not _reported_by_clients(world, fact)]


def _lost_unnamed(world: World, reports: list[tuple[Event, Run]]) -> list[Fact]:
    """Outages of a file system that no line names: runs of several users, which share no node, had input/output errors in
    the same minute. Disks of several nodes do not break together. A run counts beside one of another user on other nodes."""
    runs_of = {event.id: run for event, run in reports}
    facts = []
    for minute in _minutes(sorted((e for e, _ in reports), key=lambda e: (e.time, e.id))):
        all_runs = {run.key: run for run in (runs_of[e.id] for e in minute)}
        if len({run.row["user"] for run in all_runs.values()}) < 2:
            continue
        runs = {key: run for key, run in all_runs.items() if any(_apart(run, other) for other in all_runs.values())}
        burst = [e for e in minute if runs_of[e.id].key in runs]
        users = {str(run.row["user"]) for run in runs.values()}
        nodes = {node for run in runs.values() for node in run.nodes}
        if len(users) < 2:
            continue
        if any(abs(f.start - burst[0].time) <= SAME_OUTAGE_S for f in world.facts_on(DISK_ERROR.name, nodes)):
            continue
        attrs: StorageInOutput = {"runs": sorted(runs), "nameless": True, "users": len(users), "nodes": len(nodes)}
        facts.append(STORAGE_IN_OUTPUT.fact(burst[0].time, burst[-1].time, burst[0].sigma, None, _UNNAMED, attrs=attrs, events=tuple(burst)))  # fmt: skip
    return facts


def _minutes(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Events in order, cut a minute after the first of each part."""
    part: list[Event] = []
    for event in events:
        if part and event.time - part[0].time > SAME_MINUTE_S:
            yield part
            part = []
        part.append(event)
    if part:
        yield part


def _apart(one: Run, other: Run) -> bool:
    return one.row["user"] != other.row["user"] and set(one.nodes).isdisjoint(other.nodes)


def _lost_by(name: str, reports: list[tuple[Event, Run]]) -> list[Fact]:
    """Outages of a file system by the output of runs that count together."""
    runs_of = {event.id: run for event, run in reports}
    groups = bursts(sorted((e for e, _ in reports), key=lambda e: (e.time, e.id)), SAME_OUTAGE_S)
    return [fact for burst in groups if (fact := _lost_together(name, burst, runs_of)) is not None]


def _lost_by_users(name: str, reports: list[tuple[Event, Run]]) -> list[Fact]:
    """Outages that runs of several users report, on several nodes: what they share is the file system."""
    named = [(event, run) for event, run in reports if run.row.get("user")]
    return [fact for fact in _lost_by(name, named) if fact.attrs[USERS] > 1 and fact.attrs[NODES] >= MANY_NODES]


def _lost_together(name: str, burst: list[Event], runs_of: dict[str, Run]) -> Fact | None:
    """One outage of a file system by its runs' output; None if only a few runs had timeouts."""
    runs = {run.key: run for run in (runs_of[e.id] for e in burst)}
    plain = [e for e in burst if _IO_ERROR.search(e.message)]
    many = len(runs) >= MANY_RUNS and len({n for r in runs.values() for n in r.nodes}) >= MANY_NODES
    if not plain and not many:
        return None
    if not many:
        burst = plain
    by_run = {runs_of[e.id].key: runs_of[e.id] for e in burst}
    attrs: StorageInOutput = {
        "runs": sorted(by_run), "nameless": not plain,
        "users": len({user for run in by_run.values() if (user := run.row.get("user"))}),
        "nodes": len({node for run in by_run.values() for node in run.nodes}),
    }  # fmt: skip
    return STORAGE_IN_OUTPUT.fact(burst[0].time, burst[-1].time, burst[0].sigma, None if not plain else name.rsplit("/", 1)[-1], name, attrs=attrs, events=tuple(burst))  # fmt: skip


#: Mounts whose file systems log errors under their own names; an NFS server's name does not name its mounts.
_NAMED = re.compile(r"^/(?:mnt/)?(?:lustre|gpfs|beegfs|weka|vast|ceph|panfs|orangefs)\b")

#: A client that gives up returns errors to its runs within this (seconds, edge E42).
WAITED_S = 600.0


def _reported_by_clients(world: World, fact: Fact) -> bool:
    """Did clients of these runs log the loss of a target meanwhile? That is the same outage under another name."""
    nodes = {n for key in fact.attrs[RUNS] for n in world.run[key].nodes}
    until = fact.end if fact.end is not None else fact.start
    near = [f for f in world.facts_of(STORAGE_OUTAGE.name) if nodes & set(f.attrs[HOSTS]) and f.start <= until]
    if fact.attrs[NAMELESS]:
        return any((f.end or f.start) + SAME_OUTAGE_S >= fact.start for f in near)
    away = [
        f for f in near if f.start >= fact.start - WAITED_S and (f.attrs[UNENDED] or (f.end or f.start) >= fact.start)
    ]
    return not _NAMED.match(fact.device or "") and any(_of_nfs(f) for f in away)


def _of_nfs(outage: Fact) -> bool:
    return all(event.kind == "storage.nfs_error" for event in outage.events)


@remembered
def _broken(text: str) -> bool:
    return bool(_IO_ERROR.search(text) or _READ_ONLY.search(text) or file_lost(text))


def path_in(text: str) -> str:
    """The first path in a line; empty if there is none."""
    match = _PATH.search(text)
    return match[1] if match else ""


def file_system(path: str) -> str:
    """The mount of a path by sites' naming: ``/lustre/fs1/u/x`` is ``/lustre/fs1``, ``/scratch/u/x`` is ``/scratch``."""
    parts = path.split("/")
    return "/".join(parts[:3] if re.match(r"^(?:lustre|gpfs|beegfs|mnt|weka|vast|nfs|ceph)$", parts[1]) else parts[:2])


def _names_storage(outage: Fact, name: str) -> bool:
    """Did a log report an outage of this file system? Its target or server has the file system's name."""
    return str(outage.device or "").split("-")[0] == name.rsplit("/", 1)[-1]


KINDS = (GPU_IN_OUTPUT, DISK_IN_OUTPUT, STORAGE_IN_OUTPUT)
DETECTORS = [gpus, storage]
