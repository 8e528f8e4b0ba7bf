"""Storage: a target of a shared file system that its clients lost, local disks that fail or are full."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from correlator.facts.jobs.output import IoDeadline, io_deadline
from correlator.facts.nodes.kinds import RESUME
from correlator.facts.world import World, bursts, hosts_of, merge_near
from correlator.model.attributes import HOSTS, UNENDED, WORDS
from correlator.model.kinds import Cause, Kind, NoAttrs
from correlator.model.nouns import Event, Fact, Run


class StorageOutage(TypedDict):
    """``hosts`` that reported it, of which some were ``evicted`` (and when).

    ``unended``: no client reported that it was back. ``passing``: one client lost it for a moment.
    """

    hosts: list[str]
    evicted: dict[str, float]
    server: str | None
    unended: bool
    passing: bool


class DiskError(TypedDict):
    """``read_only``: its file system was remounted read-only."""

    read_only: bool


#: What of a node's software can have to do with its shared storage.
SOFTWARE = ("kernel", "os", "image")

STORAGE_OUTAGE = Kind(
    "storage.outage", "storage", "Clients of a shared file system lost a target.", StorageOutage,
    witnesses=("kernel",),
    brief="storage target lost", timed=True, component="storage", reported_within_s=300.0, reach=lambda fact: f"that use {fact.device}",
    cause=Cause(
        "storage.outage", "infra.storage", "storage target {device} was lost", "the shared storage failed",
        (("Check the server of {device}.", None),), unharmed="degraded", exhausted=True, words="storage", software=SOFTWARE,
        disproof="Other clients of the target working on during the outage, or the run's files lying elsewhere.",
    ),
)  # fmt: skip

#: A disk that failed keeps logging errors until it is replaced.
COMPLAINS_S = 3600.0

DISK_ERROR = Kind(
    "disk.error", "storage", "A local disk failed.", DiskError,
    witnesses=("kernel",),
    brief="disk error", repeats_s=COMPLAINS_S, component="storage",
    cause=Cause(
        "node.disk_error", "infra.node", "disk {device} of {host} failed", "a node's disk failed",
        (("Replace {device} of {host}.", None),), unharmed="degraded", words="storage", family="disk",
        disproof="The run's files lying on another file system.",
    ),
)  # fmt: skip

DISK_FULL = Kind(
    "disk.full", "storage", "A disk of a node was full.", NoAttrs,
    witnesses=("slurmd",),
    brief="disk full", component="storage", reported_within_s=60.0,
    cause=Cause(
        "node.disk_full", "infra.node", "a disk of {host} was full", "a node's disk was full",
        (("Free the disk of {host}; keep Slurm's spool apart from what jobs can fill.", None), RESUME),
        unharmed="degraded", exhausted=True, words="storage",
    ),
)  # fmt: skip

#: Clients notice a dead target at their next access: within a minute (correlation.md, E40), and reconnect later.
SAME_OUTAGE_S = 300.0

_TARGET = re.compile(r"\b([A-Za-z0-9_]+-(?:OST|MDT)[0-9a-fA-F]{4})")


def target_of(event: Event) -> str | None:
    target = event.entities.get("lustre_target") or event.entities.get("nfs_server")
    match = _TARGET.search(str(target or "")) or _TARGET.search(event.message)
    return match[1] if match else (str(target) if target else None)


def outages(world: World) -> list[Fact]:
    """``storage.outage`` per target; attrs hosts (clients that reported it), evicted (hosts), server, unended.

    unended: no client reported that it was back, and ``end`` is the last error.
    """
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in world.kinds("storage.lustre_error", "storage.nfs_error"):
        target = target_of(event)
        if target:
            groups[target].append(event)
    again: dict[str | None, list[Event]] = defaultdict(list)
    for event in world.kinds("storage.recovered"):
        again[target_of(event)].append(event)
    return [
        _outage(world, target, burst, again.get(target, ()))
        for target, events in sorted(groups.items())
        for burst in bursts(events, SAME_OUTAGE_S)
    ]


def _outage(world: World, target: str, events: list[Event], again: Sequence[Event]) -> Fact:
    """``again``: the lines that say that a client had the target back."""
    hosts = sorted({e.host for e in events if e.host})
    evicted = {e.host: e.time for e in reversed(events) if e.host and "evict" in e.message.lower()}
    back = _recoveries(events, again)
    servers = [h for h in hosts if not world.runs_on.get(h) and re.match(r"(oss|mds|nfs|nas|fs)", h)]
    end = max([events[-1].time, *back.values()])
    attrs: StorageOutage = {
        "hosts": hosts, "evicted": evicted, "server": servers[0] if servers else None,
        # One client that lost and regained its target within a minute met a slow server or a lost packet.
        "unended": not back,
        "passing": len(hosts) == 1 and not evicted and not servers and end - events[0].time <= PASSING_S,
    }  # fmt: skip
    return STORAGE_OUTAGE.fact(events[0].time, end, events[0].sigma,
                servers[0] if servers else target.split("-")[0], target, attrs=attrs, events=tuple(events))  # fmt: skip


#: A connection that a single client regained this soon was not an outage of the target.
PASSING_S = 60.0


def _recoveries(events: list[Event], again: Sequence[Event]) -> dict[str, float]:
    """Per client, when it first had the target back after its last error of this outage."""
    last: dict[str, float] = {}
    for event in events:
        if event.host:
            last[event.host] = max(event.time, last.get(event.host, 0.0))
    found: dict[str, float] = {}
    for event in again:
        host = event.host or ""
        if host in last and host not in found and 0 <= event.time - last[host] <= 3600.0:
            found[host] = event.time
    return found


#: A disk stays full until an administrator acts; each writer logs an error.
FULL_GAP_S = 300.0

_NVME = re.compile(r"(nvme\d+)(?:n\d+(?:p\d+)?)?")
_DISK = re.compile(r"((?:[hsv]d|xvd)[a-z]+)\d*")
_WHOLE_DISK = re.compile(r"nvme\d+n\d+|[hsv]d[a-z]+|xvd[a-z]+")
#: Sources whose report of a full disk counts.
_FULL_SOURCES = frozenset({"slurmd", "slurmctld", "slurmstepd", "kernel"})


#: Where ENOSPC tells of a limit of the kernel (the IDs of control groups, the watches of a user), or of a path that a user
#: named (sbcast): it may lie in memory, and be full by that user.
_NO_DISK = ("unable to create cgroup", "inotify_", "sbcast: uid:")


def _may_say_full(text: str) -> bool:
    text = text.lower()
    if " full" not in text:  # looks once through very long texts
        return "no space left" in text
    return "no space left" in text or "spooldir is full" in text or "disk full" in text


def _says_full(message: str) -> bool:
    text = message.lower()
    return _may_say_full(text) and not any(limit in text for limit in _NO_DISK)


def disk_of(name: str | None) -> str | None:
    """The drive of a controller, namespace or partition.

    ``nvme1n1p2`` and ``nvme1`` are one drive; ``sda3`` is on ``sda``.
    """
    match = _NVME.fullmatch(name or "") or _DISK.fullmatch(name or "")
    return match[1] if match else name


def disk_faults(world: World) -> list[Fact]:
    """``disk.error`` of a local drive (attrs read_only: its file system was remounted read-only), and ``disk.full``."""
    failed = [
        DISK_ERROR.fact(e.time, e.last, e.sigma, e.host, disk_of(e.device), events=(e,))
        for e in world.kinds("storage.nvme_error", "storage.io_error") if e.host
    ]  # fmt: skip
    full: list[Fact] = []
    # One test of all texts: very few of very many match.
    if _may_say_full("\n".join([e.message for e in world.admitted if e.source in _FULL_SOURCES])):
        full = [
            DISK_FULL.fact(e.time, None, e.sigma, host, events=(e,))
            for e in world.admitted if e.source in _FULL_SOURCES and _says_full(e.message) for host in hosts_of(e)
        ]  # fmt: skip
    return [*map(_named, merge_near(failed, FULL_GAP_S)), *merge_near(full, FULL_GAP_S)]


def _named(fault: Fact) -> Fact:
    """The block device is preferred to its controller: a mount and a replacement order name it."""
    names = sorted({e.device for e in fault.events if e.device and _WHOLE_DISK.fullmatch(e.device)})
    attrs: DiskError = {"read_only": any("read-only" in e.message.lower() for e in fault.events)}
    return replace(fault, device=names[0] if names else fault.device, attrs=DISK_ERROR.as_attrs(attrs))


#: A program that waited for its storage notices so soon after that is back (seconds); and by so much may both clocks be out.
NOTICES_S, OUT_S = 10.0, 2.0


def deadline_by(outage: Fact, end: Fact) -> bool:
    """Did a run end by a deadline of its own for reading or writing, and only because its storage did not answer meanwhile?

    All of the run's own errors must say so. By its own numbers, without the outage it had kept its deadline, or the outage was most of it.
    """
    own = end.attrs[WORDS]["own"]
    late = [io_deadline(event.message) for event in own]
    if not own or any(one is None for one in late):
        return False
    over = end.start if outage.end is None or outage.attrs.get(UNENDED) else outage.end
    if not outage.start - OUT_S <= end.start <= over + NOTICES_S:
        return False
    return all(one is None or _spanned(outage, over, end.start, one) for one in late)


def deadline_by_any(world: World, run: Run, end: Fact) -> bool:
    """The same, by any outage that a node of the run reported."""
    return any(
        not set(run.nodes).isdisjoint(outage.attrs.get(HOSTS, ())) and deadline_by(outage, end)
        for outage in world.facts_of(STORAGE_OUTAGE.name)
    )


def _spanned(outage: Fact, over: float, moment: float, late: IoDeadline) -> bool:
    if late.took is None:
        return True
    waited = min(over, moment) - max(outage.start, moment - late.took)
    if waited <= 0.0:
        return False
    return late.took - waited <= late.allowed if late.allowed is not None else waited >= late.took / 2.0


KINDS = (STORAGE_OUTAGE, DISK_ERROR, DISK_FULL)
DETECTORS = [outages, disk_faults]
