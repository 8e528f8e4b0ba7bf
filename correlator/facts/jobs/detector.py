"""How runs ended (``run.*``: what the correlator must explain); launches that failed, and ranks that lost their peers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from correlator.facts.gpu_holders import had_none, not_held
from correlator.facts.gpus import XID
from correlator.facts.jobs.failed_nodes import BATCH_GONE, failed_nodes, unseen_downs
from correlator.facts.jobs.kinds import (
    BATCH_LOST,
    COMM_ERROR,
    ENVIRONMENT_ERROR,
    LAUNCH_FAILURE,
    RUN_CANCELLED,
    RUN_FAILED,
    RUN_NODE_FAIL,
    RUN_OOM,
    RUN_PREEMPTED,
    RUN_REQUEUED,
    RUN_TIMEOUT,
    CommError,
    RunEnd,
)
from correlator.facts.jobs.launch_failures import is_its_users_fault, launch_failures
from correlator.facts.jobs.lines import END_SLACK_S, last_messages, of_other_parts, of_run
from correlator.facts.jobs.memory import killed_for_memory, out_of_memory
from correlator.facts.jobs.output import APPLICATION, COMMUNICATION, logged_timeout, words_of
from correlator.facts.nodes.kinds import ADMIN_DOWN, NODE_DOWN, NODE_REBOOT
from correlator.facts.world import World, bursts, hosts_of
from correlator.model.attributes import FAMILY, NOTICED
from correlator.model.nouns import Event, Fact, Run
from parsers.job_states import same_end
from parsers.record import JOB_OUTPUT

_KIND_OF_END = {
    "NODE_FAIL": RUN_NODE_FAIL, "FAILED": RUN_FAILED, "TIMEOUT": RUN_TIMEOUT, "CANCELLED": RUN_CANCELLED,
    "PREEMPTED": RUN_PREEMPTED, "OUT_OF_MEMORY": RUN_OOM, "REQUEUED": RUN_REQUEUED,
}  # fmt: skip

# Matched in lower case: ignoring case would try every word at each position of a text.
_REQUEUED = frozenset({"slurm.job_requeue", "job.requeued"})


def communication_errors(world: World) -> list[Fact]:
    """``job.comm_error`` per run and loss: the first line in which a rank lost its peers; attrs timeout (s), onset."""
    facts = []
    speaking = {e.job_id for e in world.kinds(*COMMUNICATION)}
    for run in (r for r in world.runs if r.job_id in speaking):
        lines = [e for e in of_run(run, world.by_job.get(run.job_id, ())) if e.kind in COMMUNICATION]
        if not lines:
            continue
        facts += [_lost_peers(run, burst) for burst in bursts(lines, SAME_LOSS_S)]
    return facts


#: Ranks that lose each other log it within this of each other; what comes later is another loss, which means that the
#: run survived the first.
SAME_LOSS_S = 300.0


def _lost_peers(run: Run, lines: list[Event]) -> Fact:
    first, timeout = lines[0], logged_timeout(lines)
    attrs: CommError = {
        "timeout": timeout,
        "onset": first.time - (timeout or 0.0),
        "families": sorted({e.kind for e in lines}),
    }
    return COMM_ERROR.fact(first.time, lines[-1].time, first.sigma, first.host, run=run.key, attrs=attrs, events=tuple(lines[:20]))  # fmt: skip


#: slurmctld's lines about the end of a run.
_CLOSING = frozenset({
    "slurm.job_node_fail", "slurm.job_requeue", "slurm.job_failed", "slurm.job_end", "slurm.job_cancelled", "slurm.job_timeout",
    "slurm.job_preempted", "slurm.job_oom",
})  # fmt: skip


def ends(world: World) -> list[Fact]:
    """The terminal fact of every run that did not end COMPLETED."""
    facts: list[Fact] = []
    unseen: list[Fact] = []
    downs: defaultdict[str, list[float]] = defaultdict(list)
    for fact in world.facts_of(NODE_DOWN.name, NODE_REBOOT.name, ADMIN_DOWN.name):
        downs[fact.host or ""].append(fact.attrs.get(NOTICED, fact.start))
    faulty = {fact.host for fact in world.facts_of(XID.name)}
    launches: defaultdict[str, list[Event]] = defaultdict(list)
    for fact in world.facts_of(LAUNCH_FAILURE.name):
        launches[fact.run or ""] += fact.events
    for run in world.runs:
        if not run.ended_badly:
            continue
        kind = _KIND_OF_END.get(same_end(run.state), RUN_FAILED)
        moment = run.end if run.end is not None else run.start or run.submit or world.last
        lines = of_run(run, world.by_job.get(run.job_id, ()))
        if run.job_id in world.het_components:
            lines += of_other_parts(world, run)
        if kind is RUN_NODE_FAIL and (killed := _killed_later(world, run, moment)) is not None:
            moment, lines = killed.time, [*lines, killed]
        if kind is not RUN_TIMEOUT:  # a hanging run logs that long before its limit
            lines = last_messages(lines, moment, ended_itself=kind is RUN_FAILED)
        words = _blamed(world, run, moment, lines)
        failed = failed_nodes(world, run, lines, moment, downs)
        if kind is RUN_NODE_FAIL:
            found = unseen_downs(world, run, moment, lines, failed, unseen)
            unseen += found
            failed = failed or sorted({fact.host for fact in found if fact.host})
        output = [e for e in lines if e.source in JOB_OUTPUT]
        memory, ago = out_of_memory(lines, run, moment, words, killed_for_memory(world, run, moment, output))
        attrs: RunEnd = {
            "failed_nodes": failed, "words": words, "launch": launches.get(run.key, []),
            "memory": memory, "memory_ago": ago, "environment": [e for e in output if e.kind == ENVIRONMENT_ERROR],
            "blamed_code": [] if faulty.isdisjoint(run.nodes) else _code_faults(world, run, moment), "output": [e for e in output if e.kind != ENVIRONMENT_ERROR],
            "signal": run.row.get("exit_signal"), "exit_code": run.row.get("exit_code"), "cancelled_by": run.row.get("cancelled_by"),
        }  # fmt: skip
        closing = [e for e in lines if e.kind in _CLOSING and e.source == "slurmctld" and abs(e.time - moment) <= END_SLACK_S]  # fmt: skip
        # slurmctld's own timestamp has milliseconds where accounting has whole seconds.
        exact = closing[0].time if closing else moment
        sigma = closing[0].sigma if closing else 0.5
        if kind is RUN_REQUEUED:
            closing += [e for e in _requeues(world, run, moment) if e not in closing]
        facts.append(kind.fact(exact, exact, sigma, None, run=run.key, attrs=attrs, events=tuple(closing)))
    return [*unseen, *facts]


def _blamed(world: World, run: Run, moment: float, lines: Iterable[Event]) -> dict[str, list[Event]]:
    """The error lines of a run's output, by whom they blame."""
    words: dict[str, list[Event]] = {"own": [], "peers": [], "gpu": [], "storage": [], "aftermath": []}
    for event in lines:
        kind = event.kind
        if kind in APPLICATION or kind in COMMUNICATION:
            blames = words_of(event)
            # To a program that asked for no GPU, the driver says that there is none: nothing broke.
            words["own" if blames == "gpu" and had_none(world, run, moment) else blames].append(event)
        elif kind == "job.launch_error" and is_its_users_fault(event.message):
            words["own"].append(event)
    return words


#: slurmctld logs a requeue when all nodes of the run have ended it: minutes later if it has to repeat its order.
COMPLETES_S = 1800.0


def _requeues(world: World, run: Run, end: float) -> list[Event]:
    """What slurmctld, and the slurmstepds ordered to end the run, log about its requeue."""
    again = [r.start for r in world.runs_of_job[run.job_id] if r.start is not None and r.start > end]
    until = min([*again, end + COMPLETES_S])
    return [e for e in world.by_job.get(run.job_id, ()) if e.kind in _REQUEUED and end - END_SLACK_S <= e.time < until]


#: slurmctld's line for a run that it ends with its node (slurm src/slurmctld/job_mgr.c).
_KILLED_WITH_NODE = re.compile(r"\bKilling .*\bon failed node\b")


def _killed_later(world: World, run: Run, end: float) -> Event | None:
    """The loss of the node of a suspended run.

    Accounting takes the moment of suspension as the run's end (slurm src/slurmctld/job_mgr.c); its node's end came
    later.
    """
    again = min(
        (r.start for r in world.runs_of_job[run.job_id] if r.start is not None and r.start > end), default=float("inf")
    )
    kills = [
        e for e in world.by_job.get(run.job_id, ()) if e.kind == "slurm.job_node_fail" and e.source == "slurmctld"
        and end - END_SLACK_S <= e.time < again and _KILLED_WITH_NODE.search(e.message)
    ]  # fmt: skip
    return kills[0] if kills and kills[0].time > end + END_SLACK_S else None


#: An Xid of the application class and the end of the process that caused it (correlation.md, E27).
CODE_FAULT_S = 60.0


def _code_faults(world: World, run: Run, moment: float) -> list[Fact]:
    """Xids that NVIDIA's catalogue attributes to the application, on a GPU of this run, just before its end."""
    return [
        f for f in world.facts_on(XID.name, run.nodes)
        if f.attrs.get(FAMILY) == "application" and -5.0 <= moment - f.start <= CODE_FAULT_S
        and not_held(world, run, f) is None
    ]  # fmt: skip


def lost_batches(world: World) -> list[Fact]:
    """``batch.lost``: the node answered, but had no batch script of the job: slurmstepd had died, or never started."""
    return [*_strays(world), *(
        BATCH_LOST.fact(e.time, None, e.sigma, host, run=str(e.job_id), events=(e,))
        for e in world.kinds("slurm.job_node_fail", "slurm.job_requeue", "slurm.job_failed")
        if e.source == "slurmctld" and e.job_id is not None and BATCH_GONE in e.message for host in hosts_of(e)
    )]  # fmt: skip


#: A slurmstepd that ends first closes its socket and then removes it: slurmd may look between the two. Such a run ends at once (seconds).
ENDS_WITHIN_S = 5.0


def _strays(world: World) -> list[Fact]:
    """The same by slurmd: at the socket of the batch script's slurmstepd nobody listens, while the run goes on.

    A slurmstepd removes its socket when it ends. One of an earlier run of the job may have left its own on the same node: then
    slurmd's line tells nothing about this run.
    """
    found: dict[str, Fact] = {}
    for event in world.kinds("slurm.stepd_gone"):
        if event.source != "slurmd" or not event.own or event.job_id is None:
            continue
        runs = world.runs_of_job.get(event.job_id, ())
        run = next((r for r in runs if event.host in r.nodes and r.covers(event.time, 0.0)), None)
        if run is None or run.key in found or (run.end is not None and run.end - event.time <= ENDS_WITHIN_S):
            continue
        if not any(r is not run and event.host in r.nodes and (r.start or 0.0) <= event.time for r in runs):
            found[run.key] = BATCH_LOST.fact(event.time, None, event.sigma, event.host, run=run.key, events=(event,))
    return list(found.values())


KINDS = (
    COMM_ERROR, LAUNCH_FAILURE, BATCH_LOST, RUN_CANCELLED, RUN_FAILED, RUN_NODE_FAIL, RUN_OOM, RUN_PREEMPTED, RUN_REQUEUED, RUN_TIMEOUT,
)  # fmt: skip
DETECTORS = [communication_errors, launch_failures, lost_batches, ends]
