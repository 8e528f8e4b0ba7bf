"""Ends that people, Slurm and limits caused on purpose: they are decided before causes are weighed."""

from __future__ import annotations

from itertools import chain

from correlator.evidence.chains import Chain
from correlator.facts.control import PROLOG_FAILURE, ROOT, SCHED_PREEMPT, TIME_LIMIT, USER_CANCEL, is_own
from correlator.facts.environment.kinds import NODE_ENVIRONMENT
from correlator.facts.forgotten_jobs import JOBS_FORGOTTEN
from correlator.facts.gpus import XID
from correlator.facts.jobs.kinds import BATCH_LOST, RUN_CANCELLED, RUN_FAILED, RUN_OOM, RUN_PREEMPTED, RUN_TIMEOUT
from correlator.facts.jobs.memory import KILLED_S
from correlator.facts.launches.kinds import LAUNCH_GIVEN_UP as LAUNCH_GIVEN_UP_FACT
from correlator.facts.memory_limits import MEMORY_LIMITED, MEMORY_TAKEN
from correlator.facts.nodes.kinds import NODE_REBOOT
from correlator.facts.registry import roots
from correlator.facts.slow_runs import SLOW
from correlator.facts.storage import DISK_FULL
from correlator.facts.time_limits import change_of, limit_words, name_of
from correlator.facts.world import World
from correlator.model.attributes import MEMORY, MEMORY_AGO, RATIO, UID
from correlator.model.nouns import Event, Fact, Run
from correlator.verdicts import stated_ends
from correlator.verdicts.cancellations import cancelled, given_up, named, requester
from correlator.verdicts.still_runs import SLOWED_SURE, stood_still
from correlator.verdicts.wanted_nodes import out_of_service
from parsers.documents.fields import integer

#: What people and Slurm do on purpose.
_ASKED = frozenset(kind.name for kind in (USER_CANCEL, SCHED_PREEMPT, TIME_LIMIT))


def deliberate(world: World, run: Run, end: Fact, chains: list[Chain]) -> tuple[str, float, str, list[Event]] | None:
    first, last = (run.start or run.submit or 0) - 5, end.start + 60
    orders = [f for f in world.facts_of_job(run.job_id) if f.kind in _ASKED and first <= f.start <= last]
    lines = [e for f in orders for e in f.events]
    if end.kind == RUN_PREEMPTED.name:
        return "sched.preempt", 0.98, stated_ends.preempted(lines), lines
    if end.kind == RUN_CANCELLED.name:
        if run.state == stated_ends.REVOKED:
            return "user.cancel", 0.97, stated_ends.WITHDRAWN, lines
        failed_launch = [
            c for c in chains if c.root.kind in (PROLOG_FAILURE.name, DISK_FULL.name) or _given_up_by_node(c)
        ]
        who = requester(run, orders)
        if any(map(_taken_off, chains)) or (not who and any(map(_was_forgotten, chains))):
            return None
        hung = any(map(_lost_its_batch, chains)) and not _cancelled_with_others(world, run, end)
        if (failed_launch or given_up(world, run) or hung) and (who or "0") in (*ROOT, "slurm"):
            return None
        if any("dependency" in e.message.lower() for e in lines):
            return "user.cancel", 0.97, "Slurm cancelled it: the job that it depends on did not end as it asked", lines
        return cancelled(world, run, who, orders)
    if end.kind == RUN_OOM.name and not _lacked_by_node(chains):
        return "app.oom", 0.97, "it needed more memory than it had asked for", _memory_events(end)
    if end.kind == RUN_FAILED.name and end.attrs[MEMORY] and not _lacked_by_node(chains):
        outlived = end.attrs[MEMORY_AGO] > KILLED_S
        when = f", {end.attrs[MEMORY_AGO]:.0f} s before its end" if outlived else ""
        why = f"one of its steps needed more memory than it had asked for{when}"
        return "app.oom", OUTLIVED_SURE if outlived else 0.95, why, _memory_events(end)
    if orders and end.kind == RUN_FAILED.name and (asked := _sent_signal(run, end, orders)):
        ago = end.start - asked[-1].start
        why = f"{named(run, str(asked[-1].attrs[UID])).split(',')[0]} had a signal sent to it {'at that moment' if ago < 1 else f'{ago:.0f} s before'}, and it ended by one"
        return "user.cancel", SIGNALLED_SURE, why, [e for f in asked for e in f.events]
    return _timed_out(world, run, end, chains, lines) if end.kind == RUN_TIMEOUT.name else None


def _taken_off(chain: Chain) -> bool:
    """Did somebody else end the run for its GPU that had failed (facts/gpu_drains.py)?"""
    last = chain.hops[-1]
    return last.cause.kind == XID.name and last.effect.kind == RUN_CANCELLED.name


#: Several users' programs get no memory on one node only; others had taken it; the node allows less than Slurm gave.
_BY_NODE = frozenset(kind.name for kind in (NODE_ENVIRONMENT, MEMORY_TAKEN, MEMORY_LIMITED))


def _lacked_by_node(chains: list[Chain]) -> bool:
    """Was it the node that had too little memory, or too low a limit, and not the job's own request?"""
    return any(c.root.kind in _BY_NODE for c in chains)


def _given_up_by_node(chain: Chain) -> bool:
    """Was the run ended because its node could not launch it?"""
    return any(hop.effect.kind == LAUNCH_GIVEN_UP_FACT.name for hop in chain.hops)


def _was_forgotten(chain: Chain) -> bool:
    """Did slurmctld end the run because it had lost its record of it?"""
    return any(hop.cause.kind == JOBS_FORGOTTEN.name for hop in chain.hops)


#: After these nothing of a run's batch script is left, and slurmctld may not notice.
_NOTHING_LEFT = frozenset(kind.name for kind in (BATCH_LOST, NODE_REBOOT))


def _lost_its_batch(chain: Chain) -> bool:
    """Could the run not end any more, because the slurmstepd of its batch script had died, or its node had booted?"""
    return any(hop.cause.kind in _NOTHING_LEFT and hop.effect.kind == RUN_CANCELLED.name for hop in chain.hops)


#: Who cancels several jobs within so long of each other does not do it for what one of them had met (seconds).
TOGETHER_S = 60.0


def _cancelled_with_others(world: World, run: Run, end: Fact) -> bool:
    """Did root cancel other jobs as well at that time, by slurmctld's log or by accounting? A slurmd cancels what it cannot launch as root too."""
    asked = {
        int(f.run.split("#")[0]) for f in world.facts_of(USER_CANCEL.name)
        if f.run is not None and abs(f.start - end.start) <= TOGETHER_S and str(f.attrs[UID]) in ROOT
    }  # fmt: skip
    accounted = (
        r for r in world.in_time.overlapping(end.start - TOGETHER_S, end.start + TOGETHER_S)
        if r.end is not None and abs(r.end - end.start) <= TOGETHER_S and str(r.row.get("cancelled_by")) in ROOT
    )  # fmt: skip
    others = chain((r for job in asked for r in world.runs_of_job.get(job, ())), accounted)
    known = {other.job_id for other in others if other.job_id != run.job_id and not given_up(world, other)}
    return bool(known or {job for job in asked if job != run.job_id and job not in world.runs_of_job})


def _timed_out(
    world: World, run: Run, end: Fact, chains: list[Chain], lines: list[Event]
) -> tuple[str, float, str, list[Event]] | None:
    """What a TIMEOUT rests on, if no chain leads to the infrastructure."""
    if inactive := [e for e in lines if "inactivity" in e.message.lower()]:
        why = "Slurm ended it because the srun or salloc that it was started with no longer answered (InactiveLimit); why, nothing that was collected tells"
        return "unknown", UNLOGGED_LAUNCHER_SURE, why, inactive
    if any(c.root.kind in roots() for c in chains):
        return None
    if stated := stated_ends.other_limit(run, lines):
        beside, drains = out_of_service(world, run)
        if beside:  # it could not start there, whatever it had asked for: by its deadline or by what took the node out
            return "unknown", NOWHERE_SURE, f"{stated}{beside}", [*lines, *drains]
        return "app.timeout", LIMIT_SURE, stated, lines
    if short := _short_of_limit(run, lines):
        return "unknown", UNLOGGED_LAUNCHER_SURE, short, lines
    slow = [c.root for c in chains if c.root.kind == SLOW.name]
    if slow:
        ratio, onset = slow[0].attrs[RATIO], (slow[0].start - (run.start or slow[0].start)) / 60.0
        why = f"it became {ratio:.1f} times slower {onset:.0f} min into the run and reached its time limit; what slowed it, nothing that was collected tells"
        return "app.timeout", SLOWED_SURE, why, lines
    if (still := stood_still(world, run, end, chains, lines)) is not None:
        return still
    sure, changed = _changed_limit(world, run)
    return "app.timeout", sure, f"it reached its time limit{changed or stated_ends.fitted(run)}", lines


def _changed_limit(world: World, run: Run) -> tuple[float, str]:
    """The confidence that a run's own limit ended it, and who had changed that limit, in words."""
    change = change_of(world, run)
    if change is None or (change.before is not None and change.seconds >= change.before and not change.shortened(run)):
        return LIMIT_SURE, ""
    who, into = name_of(run, change.uid), change.time - (run.start or change.time)
    changed = f", which {who} had set to {limit_words(change.seconds)} {into:.0f} s into the run"
    if is_own(run, change.uid):
        return LIMIT_SURE, changed
    known = "" if change.before is not None else "; what it had been before, nothing that was collected tells"
    return CHANGED_SURE, f"{changed}{known}"


#: A run whose nodes took no job might have started in time with them, or not: others waited for them as well.
NOWHERE_SURE = 0.6
#: A run that reached its time limit had mostly asked for too little time.
LIMIT_SURE = 0.93
#: The same if somebody else had changed the limit, perhaps to a shorter one.
CHANGED_SURE = 0.6


#: Slurm checks for exceeded time limits once a minute, and never ends a run before its own.
LIMITS_LOOKED_AT_S = 60.0


def _short_of_limit(run: Run, lines: list[Event]) -> str:
    """Why a TIMEOUT did not come from the run's own time limit; empty if it did.

    Accounting and slurmstepd report a time limit also if InactiveLimit or the end of a reservation ended the run; only
    slurmctld's log distinguishes these.
    """
    limit = run.row.get("time_limit_s")
    timeouts = [e for e in lines if e.source == "slurmctld" and e.kind == "slurm.job_timeout"]
    lasted = run.end - run.start if run.end is not None and run.start is not None else float("inf")
    if timeouts or run.state != "TIMEOUT" or not limit or lasted + LIMITS_LOOKED_AT_S >= float(limit):
        return ""
    return (
        f"Slurm ended it as TIMEOUT after {lasted:.0f} s of the {float(limit):.0f} s that it was allowed: not its own limit, "
        "but that of its reservation or of an srun or salloc that no longer answered (InactiveLimit)"
    )


#: Signals that are sent on purpose: hang-up, interrupt, quit, kill, the two user-defined ones, terminate. Programs
#: raise the others themselves.
SENT_SIGNALS = frozenset({1, 2, 3, 9, 10, 12, 15})
#: A program that obeys a signal ends within this, seconds: KillWait's default in slurm.conf.
HEEDED_S = 30.0
SIGNALLED_SURE = 0.9


def _sent_signal(run: Run, end: Fact, orders: list[Fact]) -> list[Fact]:
    """The requests for a signal before a run that ended by one: ``scancel --signal`` leaves it FAILED, not CANCELLED."""
    code, signal = integer(run.row.get("exit_code")) or 0, integer(run.row.get("exit_signal")) or 0
    # A shell's exit code is 128 plus the signal; sacct shows its lower seven bits only. Programs themselves end with 1
    # to 3.
    if signal not in SENT_SIGNALS and code - 128 not in SENT_SIGNALS and code not in SENT_SIGNALS - {1, 2, 3}:
        return []
    return [
        f
        for f in orders
        if f.kind == USER_CANCEL.name and f.attrs[UID] is not None and -1 <= end.start - f.start <= HEEDED_S
    ]


#: The user's session ended, or the host or its network failed: a launch from a laptop leaves no trace of that.
UNLOGGED_LAUNCHER_SURE = 0.6

#: A script that goes on after a step was killed may end by that, or by an error of its own.
OUTLIVED_SURE = 0.6


def _memory_events(end: Fact) -> list[Event]:
    return [e for e in end.attrs[MEMORY] if isinstance(e, Event)]
