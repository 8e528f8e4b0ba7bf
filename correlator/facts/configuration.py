"""Changes of Slurm's configuration that end runs: nodes and partitions that are no longer in it.

slurmctld reads its configuration when it starts or is asked to, and ends each run whose node or partition is gone, as
NODE_FAIL. The nodes are as well as before: an administrator took them, or the partition, away.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypedDict

from correlator.facts.world import World, hosts_of
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Event, Fact, Run
from parsers.hostlist import fold


class ConfigRemoved(TypedDict):
    """What is gone: the ``nodes_gone`` or the ``partition``, in words ``removed``; ``jobs`` that slurmctld names."""

    nodes_gone: list[str]
    partition: str | None
    removed: str
    jobs: list[int]


#: Attributes that are read in this file only.
NODES_GONE: Attr[list[str]] = attr("nodes_gone")
PARTITION: Attr[str | None] = attr("partition")
JOBS: Attr[list[int]] = attr("jobs")

_REMOVED = Cause(
    "slurm.admin_action", "infra.scheduler", "{removed} was removed from Slurm's configuration", "an administrator changed Slurm's configuration under it",
    (("Ask who took {removed} out of slurm.conf. Drain nodes, and set partitions to state DRAIN, until their jobs are over.", None),),
    unharmed="benign", needs_effect=True,
    disproof="The node going DOWN, or the job being cancelled, before slurmctld read its configuration.",
)  # fmt: skip


def _several(fact: Fact) -> Cause | None:
    if fact.attrs[PARTITION]:
        return replace(_REMOVED, again="in another partition")
    if len(fact.attrs[NODES_GONE]) < 2:
        return None
    return replace(_REMOVED, title="{removed} were removed from Slurm's configuration")


CONFIG_REMOVED = Kind(
    "config.removed", "slurmctld", "A node or a partition with jobs was no longer in Slurm's configuration.", ConfigRemoved,
    witnesses=("slurmctld",),
    brief="{removed} removed from Slurm's configuration", cause=_REMOVED, variant=_several,
)  # fmt: skip

#: slurmctld logs what is gone while it reads its state, and ends the runs in the same second; a large state takes it
#: longer.
SAME_READING_S = 60.0


def removals(world: World) -> list[Fact]:
    """``config.removed``: one fact for the nodes, and one for each partition, that were gone at one reading."""
    found: list[Fact] = []
    for events in _readings([e for e in world.kinds("slurm.config_removed") if e.source == "slurmctld"]):
        if of_nodes := [e for e in events if not e.entities.get("partition")]:
            found.append(_gone(of_nodes, None))
        for partition in sorted({str(p) for e in events if (p := e.entities.get("partition"))}):
            found.append(_gone([e for e in events if str(e.entities.get("partition")) == partition], partition))
    return found


def _readings(events: list[Event]) -> list[list[Event]]:
    """Lines of one host that follow each other closely, in time order."""
    found: dict[str | None, list[list[Event]]] = {}
    for event in events:
        of_host = found.setdefault(event.host, [])
        if of_host and event.time - of_host[-1][0].time <= SAME_READING_S:
            of_host[-1].append(event)
        else:
            of_host.append([event])
    return [reading for host in sorted(found, key=str) for reading in found[host]]


def _gone(events: list[Event], partition: str | None) -> Fact:
    nodes = sorted({n for e in events if _ONE_NODE.search(e.message) for n in _nodes(e)})
    of_jobs = nodes or sorted({n for e in events for n in _nodes(e)})
    what = f"partition {partition}" if partition else fold(nodes) if nodes else f"a node of {fold(of_jobs)}"
    attrs: ConfigRemoved = {
        "nodes_gone": nodes, "partition": partition, "removed": what,
        "jobs": sorted({e.job_id for e in events if e.job_id is not None}),
    }  # fmt: skip
    first = events[0]
    return CONFIG_REMOVED.fact(first.time, None, first.sigma, first.host, attrs=attrs, events=tuple(events[:20]))


#: slurmctld's lines that name a node that is gone; its line about a job lists all the nodes of the job.
_ONE_NODE = re.compile(r"\bNode \S+ has vanished|\bInvalid node \S+ in ")


def _nodes(event: Event) -> list[str]:
    return hosts_of(event) if event.entities.get("nodes") else []


def took_from(fact: Fact, run: Run) -> bool:
    """Did the change take a node, or the partition, from the run?"""
    if run.job_id in fact.attrs[JOBS] or not set(fact.attrs[NODES_GONE]).isdisjoint(run.nodes):
        return True
    # If slurmctld names the jobs of a partition, these are all.
    partition = None if fact.attrs[JOBS] else fact.attrs[PARTITION]
    return partition is not None and partition in str(run.row.get("partition") or "").split(",")


def reconfigured(world: World, run: Run, moment: float) -> bool:
    """Did a change of the configuration end the run at this moment?"""
    return any(
        took_from(f, run) and abs(f.start - moment) <= SAME_READING_S for f in world.facts_of(CONFIG_REMOVED.name)
    )


KINDS = (CONFIG_REMOVED,)
DETECTORS = [removals]
