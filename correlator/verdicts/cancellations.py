"""Who cancelled a run: its user, somebody else, or Slurm itself as root."""

from __future__ import annotations

import re
from collections.abc import Iterable

from correlator.facts.control import CONTROLLER_RESTART, ROOT, USER_CANCEL, is_own
from correlator.facts.forgotten_jobs import is_orphan
from correlator.facts.jobs.lines import between
from correlator.facts.world import World
from correlator.gather.runs_fast import is_given_up
from correlator.model.attributes import BY_CONTROLLER, UID
from correlator.model.nouns import Event, Fact, Run
from correlator.verdicts.burst_buffers import unready
from correlator.verdicts.verdict import quoted
from parsers.hostlist import fold
from parsers.job_reasons import Meaning, meaning_of, reason_named

#: slurmd cancels a run, as root, if its launch fails on its node, and slurmctld logs it like an administrator's scancel
#: (slurm src/slurmd/slurmd/req.c; measured: two seconds after the start).
LAUNCHES_WITHIN_S = 60.0
KNOWN_SURE, ROOT_SURE, ROOT_OR_SLURMD_SURE = 0.97, 0.9, 0.55
#: It is known that no person asked for it, and not what slurmctld did.
BY_SLURMCTLD_SURE = 0.6


def requester(run: Run, orders: Iterable[Fact]) -> str:
    """Who cancelled the run, by accounting or by slurmctld's log; empty if neither says it."""
    asked = [f.attrs[UID] for f in orders if f.kind == USER_CANCEL.name and f.attrs[UID] is not None]
    who = run.row.get("cancelled_by")
    return str(who if who not in (None, "") else asked[-1] if asked else "")


def not_by_its_user(run: Run) -> bool:
    """Does accounting name somebody else than the run's user?"""
    who = requester(run, ())
    known = any(run.row.get(name) not in (None, "") for name in ("uid", "user"))
    return bool(who) and known and not is_own(run, who)


def cancelled(world: World, run: Run, who: str, orders: list[Fact]) -> tuple[str, float, str, list[Event]]:
    """Category, confidence, reason and evidence."""
    lines = [e for f in orders for e in f.events]
    if not who and not orders and (reason := _by_dependency(run)):
        return "user.cancel", UNASKED_SURE, reason, lines
    if not run.nodes and (failed := unready(world, run)):
        reason = f"cancelled by {named(run, who)}, while Slurm held it because its burst buffer could not be made ready: {quoted(failed[-1]).rstrip('.')}"
        return "user.cancel", KNOWN_SURE, reason, [*failed[:5], *lines]
    if not who and (orphans := _as_orphan(world, run)):
        return "unknown", BY_SLURMCTLD_SURE, _UNRECORDED.format(quoted(orphans[0])), [*orphans, *lines]
    if who not in ROOT or is_own(run, who):
        return "user.cancel", KNOWN_SURE, f"cancelled by {named(run, who)}{waiting(run)}{_again(world, run)}", lines
    if forgotten := _by_slurmctld(world, run, orders):
        reason, evidence = forgotten
        return "unknown", BY_SLURMCTLD_SURE, reason, [*evidence, *lines]
    if troubles := _before(world, run, orders):
        last = troubles[-1]
        reason = f"cancelled by root, an administrator or slurmd itself, after slurmd of {last.host} had logged: {quoted(last)}"
        return "user.cancel", ROOT_OR_SLURMD_SURE, reason, [*troubles[-5:], *lines]
    sure, doubt = sure_of_root(world, run, orders)
    return "user.cancel", sure, f"cancelled by root, an administrator{doubt}{waiting(run)}{_again(world, run)}", lines


#: Accounting names nobody who asked for it; slurmctld's log, which would tell, was not collected.
UNASKED_SURE = 0.75


def _by_dependency(run: Run) -> str:
    """Why Slurm itself may have cancelled a run that never started; empty if accounting does not suggest it."""
    if run.nodes or reason_named(run.row.get("reason")) not in ("Dependency", "DependencyNeverSatisfied"):
        return ""
    return (
        "it was cancelled while it waited for another job, and nothing that was collected names anybody who asked for that: "
        "Slurm does so itself if the other job did not end as it asked (--kill-on-invalid-dep)"
    )


def waiting(run: Run) -> str:
    """What a run that never started had waited for, in words; empty if it is not known."""
    reason = None if run.nodes else reason_named(run.row.get("reason"))
    if reason is None or meaning_of(reason) in (Meaning.ENDED, Meaning.NONE):
        return ""
    if reason == "JobHoldMaxRequeue":
        return ", while Slurm held it because it had been requeued too often (JobHoldMaxRequeue)"
    return f", {'while it was held' if meaning_of(reason) is Meaning.HELD else 'before it had started'} ({reason})"


def _again(world: World, run: Run) -> str:
    """How the run of the job before one that never started had ended, in words; empty without one."""
    before = _run_before(world, run)
    if before is None or run.nodes:
        return ""
    return (
        f"; its run before, {before.key}, had ended {before.state}{f' on {fold(before.nodes)}' if before.nodes else ''}"
    )


def _run_before(world: World, run: Run) -> Run | None:
    """The last run of the same job that had ended when this one did."""
    ended = [
        r for r in world.runs_of_job.get(run.job_id, ())
        if r is not run and r.end is not None and run.end is not None and r.end <= run.end
        and r.row.get("array_task_id") == run.row.get("array_task_id")
    ]  # fmt: skip
    return max(ended, key=lambda r: (r.end or 0.0, r.key), default=None)


def named(run: Run, who: str) -> str:
    """The user who requested something of Slurm about a run. Slurm lets its own user, operators and administrators do
    that, and the coordinators of its account."""
    if not who:
        return "somebody"
    if is_own(run, who):
        user = run.row.get("user")
        return f"its user {user}" if user else "its user"
    if who in ROOT:
        return "root, an administrator"
    known = run.row.get("uid") not in (None, "") or run.row.get("user") not in (None, "")
    whose = ", who is not its user: an operator, or a coordinator of its account" if known else ""
    return f"{'uid ' if who.isdigit() else ''}{who}{whose}"


def sure_of_root(world: World, run: Run, orders: Iterable[Fact]) -> tuple[float, str]:
    """The probability that a person cancelled a run as root, and what else it may have been."""
    if may_not_have_been_launched(world, run):
        return ROOT_OR_SLURMD_SURE, ", or a slurmd that could not launch it and whose log was not collected"
    return (KNOWN_SURE if _requested(orders) else ROOT_SURE), ""


def _requested(orders: Iterable[Fact]) -> bool:
    return any(f.attrs[BY_CONTROLLER] for f in orders if f.kind == USER_CANCEL.name)


def may_not_have_been_launched(world: World, run: Run) -> bool:
    """Was the run very short, on a node whose slurmd's log is missing?

    A run that never got a node may have been ended by the slurmd that could not launch the one before it, and only soon after that.
    """
    if not run.nodes and _lasted(run) == 0.0 and (before := _run_before(world, run)) is not None:
        return (run.end or 0.0) - (before.end or 0.0) <= LAUNCHES_WITHIN_S and not _all_log(world, before)
    return _lasted(run) <= LAUNCHES_WITHIN_S and not _all_log(world, run)


def _all_log(world: World, run: Run) -> bool:
    """Were the logs of slurmd of all nodes of the run collected?"""
    logging_nodes = [n for n in run.nodes if any(e.source == "slurmd" for e in world.by_host.get(n, ()))]
    return len(logging_nodes) >= max(1, len(run.nodes))


def _lasted(run: Run) -> float:
    return run.end - run.start if run.end is not None and run.start is not None else 0.0


#: A restarted slurmctld finds within this that a node runs a job that it does not know: nodes register at once.
REGISTERED_WITHIN_S = 120.0


def _by_slurmctld(world: World, run: Run, orders: Iterable[Fact]) -> tuple[str, list[Event]] | None:
    """slurmctld ended the run itself: nobody had asked for it, and it had restarted or did not know the job."""
    own = [e for e in world.by_job.get(run.job_id, ()) if e.source == "slurmctld"]
    if not own or _requested(orders) or run.start is None or run.end is None:
        return None
    until = run.end + REGISTERED_WITHIN_S
    if orphans := _as_orphan(world, run):
        return _UNRECORDED.format(quoted(orphans[0])), orphans
    restarts = [
        f for f in world.facts_of(CONTROLLER_RESTART.name)
        if max(run.start, run.end - REGISTERED_WITHIN_S) - 5.0 <= f.start <= until
    ]  # fmt: skip
    if not restarts:
        return None
    reason = "it was cancelled as root, and slurmctld, which restarted at that time, logged no request for it: slurmctld may have ended it itself"
    return reason, [e for f in restarts for e in f.events][:5]


_UNRECORDED = "slurmctld had no record of it any more when its node reported it, and ended it: {}"


def _as_orphan(world: World, run: Run) -> list[Event]:
    """slurmctld's lines that a node reported the run, of which it had no record any more."""
    if run.start is None or run.end is None:
        return []
    since, until = run.start - 5.0, run.end + REGISTERED_WITHIN_S
    return [e for e in world.by_job.get(run.job_id, ()) if is_orphan(e) and since <= e.time <= until][:5]


#: slurmd's lines about launches, which often name no job.
_LAUNCH = re.compile(r"slurmstepd|stepd_connect|launch|batch script|cred_state|prolog|job_manager", re.IGNORECASE)


def _before(world: World, run: Run, orders: Iterable[Fact]) -> list[Event]:
    """What slurmds of its nodes logged about a failed launch, or a slurmstepd that died, before the run was cancelled."""
    if run.start is None or run.end is None:
        return []
    asked = min([f.start for f in orders if f.kind == USER_CANCEL.name], default=run.end)
    since = max(run.start - 5.0, asked - LAUNCHES_WITHIN_S)
    short = _lasted(run) <= LAUNCHES_WITHIN_S
    found = [
        e for host in dict.fromkeys(run.nodes) for e in between(world.by_host.get(host, ()), since, asked)
        if e.kind == "slurm.node_error" and e.source in ("slurmd", "slurmstepd")
        and (e.job_id == run.job_id or (short and e.job_id is None)) and _LAUNCH.search(e.message)
    ]  # fmt: skip
    return sorted(found, key=lambda e: (e.time, e.id))


def given_up(world: World, run: Run) -> list[Event]:
    """slurmd's lines about a failed launch after which it cancelled the run itself, as root; the last line says so."""
    lines = [e for e in world.by_job.get(run.job_id, ()) if e.source in ("slurmd", "slurmstepd") and e.kind == "slurm.node_error"
             and run.start is not None and run.start - 5 <= e.time <= (run.end or e.time) + 5]  # fmt: skip
    given_up = [e for e in lines if is_given_up(e.message)]
    return [*(e for e in lines if e.time <= given_up[0].time and e not in given_up), *given_up] if given_up else []
