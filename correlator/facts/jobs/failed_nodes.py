"""Nodes whose failure ended a run, and those of them that no line of slurmctld's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from correlator.facts.configuration import reconfigured
from correlator.facts.jobs.kinds import BATCH_LOST
from correlator.facts.jobs.lines import END_SLACK_S, between
from correlator.facts.links.kinds import SWITCH_OUTAGE
from correlator.facts.nodes.kinds import ADMIN_DOWN, NODE_DOWN, NODE_REBOOT, NodeDown
from correlator.facts.nodes.polls import UNSTATED, lost_by
from correlator.facts.world import World, hosts_of
from correlator.model.attributes import HOSTS, LINKS, NOTICED, ROLE, UNDER
from correlator.model.nouns import Event, Fact, Run

#: slurmctld's line for a batch script that its node does not know (slurm src/slurmctld/job_mgr.c).
BATCH_GONE = "missing from batch node"

_PART = re.compile(r"\bJobId=\d+\+\d+")


def failed_nodes(
    world: World, run: Run, lines: list[Event], moment: float, downs: Mapping[str, Sequence[float]]
) -> list[str]:
    """Nodes whose failure ended the run: named by slurmctld, else those of the run that went DOWN at its end.

    ``downs``: all nodes that went DOWN, and when that was noticed.
    """
    named: set[str] = set()
    for event in lines:
        if (
            event.kind in ("slurm.job_node_fail", "slurm.job_requeue")
            and event.source == "slurmctld"
            and abs(event.time - moment) <= END_SLACK_S
        ):
            if BATCH_GONE in event.message:
                continue  # the node answered, and had no such job
            # All components of a heterogeneous job end with one of them, possibly on a node of another component.
            part = _PART.search(event.message)
            named.update(h for h in hosts_of(event) if h in run.nodes or not run.nodes or part)
    if failed := _named_by_srun(lines):
        named |= failed.intersection(run.nodes) or _of_another_part(world, run, failed)
    if run.row.get("failed_node"):
        named.add(str(run.row["failed_node"]))
    if not downs.keys().isdisjoint(run.nodes):
        named.update(h for h in run.nodes if any(abs(at - moment) <= END_SLACK_S for at in downs.get(h, ())))
    return sorted(named)


def _named_by_srun(lines: Iterable[Event]) -> set[str]:
    """The nodes that failed, as srun names them; slurmstepd's line about it names the node that writes it."""
    return {
        h for e in lines if e.kind == "job.node_failure" and "node failure on" in e.message.lower() for h in hosts_of(e)
    }


def _ever_had(world: World, run: Run) -> set[str]:
    """The nodes of all runs of a job: its output file may still hold the lines of an earlier run."""
    return {h for r in world.runs_of_job.get(run.job_id, ()) for h in r.nodes}


def _of_another_part(world: World, run: Run, failed: set[str]) -> set[str]:
    """Failed nodes of another component of the heterogeneous job.

    An srun that started tasks of several components may name a node of another one. A job's output cannot report on any
    other node, and a node of an earlier run is left over in the job's output file.
    """
    parts = world.het_components.get(run.job_id, frozenset())
    others = {h for part in parts for r in world.runs_of_job.get(part, ()) for h in r.nodes}
    return (failed & others) - _ever_had(world, run)


#: How long before a node is set DOWN the reason may have begun, seconds (five thirds of a SlurmdTimeout of ten
#: minutes).
UNSEEN_S = 1000.0


def unseen_downs(
    world: World, run: Run, moment: float, lines: Iterable[Event], named: list[str], found: Iterable[Fact]
) -> list[Fact]:
    """``node.down`` without slurmctld's line, besides those that were ``found`` so for other runs.

    The run's end names a node, or accounting reports that one failed. In the second case there must be only one node,
    and srun must name no other, or something that sets nodes DOWN must have happened on a few of them or on the switch
    of all.
    """
    if reconfigured(world, run, moment):
        return []  # slurmctld says why: the nodes were not lost
    gone = [
        f for f in world.facts_of(BATCH_LOST.name) if f.run == str(run.job_id) and abs(f.start - moment) <= END_SLACK_S
    ]
    if gone and not named:
        return []
    failed = {
        f.host for f in [*world.facts_of(NODE_DOWN.name, NODE_REBOOT.name, ADMIN_DOWN.name), *found]
        if _went_down_by(f, run, moment)
    }  # fmt: skip
    if named:
        return [_unseen(world, run, host, moment) for host in named if host not in failed]
    if answered := [
        f for host in run.nodes if (f := lost_by(world, host, moment)) is not None and f.host not in failed
    ]:
        return answered
    near = {
        fact.host for fact in world.facts_of(*world.kinds_where(lambda kind: kind.sets_down))
        if fact.host in run.nodes and -UNSEEN_S <= fact.start - moment <= END_SLACK_S and fact.attrs.get(ROLE) != "fabric"
    }  # fmt: skip
    cut_off = {
        host for fact in world.facts_of(SWITCH_OUTAGE.name) if -UNSEEN_S <= fact.start - moment <= END_SLACK_S
        and {world.site.role(h, d) for h, d in fact.attrs.get(LINKS, ())} != {"fabric"}
        for host in run.nodes if host in (fact.attrs.get(UNDER) or fact.attrs[HOSTS])
    }  # fmt: skip
    few = near if 2 * len(near) <= len(run.nodes) else set()
    # srun may name the node of another component: this run's own node need not have failed.
    elsewhere = (_named_by_srun(lines) & world.site.hosts) - _ever_had(world, run)
    hosts = set(run.nodes) if len(run.nodes) == 1 and not elsewhere else cut_off or few
    return [_unseen(world, run, host, moment) for host in sorted(h for h in hosts if h)]


def _went_down_by(fact: Fact, run: Run, moment: float) -> bool:
    """Did the node go down within this run, and was it still down at its end?"""
    noticed = float(fact.attrs.get(NOTICED, fact.start))
    if run.start is not None and noticed < run.start - END_SLACK_S:
        return False
    return noticed - 3 * END_SLACK_S <= moment <= max(noticed, fact.end or 0.0) + 3 * END_SLACK_S


#: ``scontrol update`` writes a reason and a state in one transaction, whose runs end with it.
SAME_UPDATE_S = 1.0

_CHECKED = re.compile(r"\bnhc\b|health|check|not responding|gpu|xid", re.IGNORECASE)


def _unseen(world: World, run: Run, host: str, moment: float) -> Fact:
    """The fact for a node whose line is missing. A reason given at that moment shows who set the node DOWN."""
    near = between(world.by_kind.get("slurm.node_reason", ()), moment - SAME_UPDATE_S, moment + SAME_UPDATE_S)
    given = [e for e in near if e.source == "slurmctld" and host in hosts_of(e) and not _CHECKED.search(e.message)]
    if given:
        return ADMIN_DOWN.fact(
            given[0].time,
            None,
            given[0].sigma,
            host,
            attrs={"said_by": "slurmctld"},
            events=tuple(given),
        )
    if (answered := lost_by(world, host, moment)) is not None:
        return answered
    attrs: NodeDown = {"said_by": "accounting", "reason": f"job {run.key} ended {run.state}"}
    if run.state == "BOOT_FAIL":
        attrs["unresumed"] = UNSTATED
    return NODE_DOWN.fact(moment, None, 0.5, host, attrs=attrs)
