"""Ends that people, Slurm and limits brought about on purpose: they are decided before causes are weighed."""

from __future__ import annotations

from correlator.edges.conditions.common import RETRIED
from correlator.evidence.chains import Chain
from correlator.facts.control import PROLOG_FAILURE, SCHED_PREEMPT, TIME_LIMIT, USER_CANCEL
from correlator.facts.jobs.detector import KILLED_S
from correlator.facts.jobs.kinds import RUN_CANCELLED, RUN_FAILED, RUN_OOM, RUN_PREEMPTED, RUN_TIMEOUT
from correlator.facts.registry import roots
from correlator.facts.slow_runs import SLOW, STALLED
from correlator.facts.storage import DISK_FULL
from correlator.facts.world import World
from correlator.gather.runs_fast import LAUNCH_GIVEN_UP
from correlator.model.nouns import Event, Fact, Run

#: What people and Slurm do on purpose.
_ASKED = frozenset(kind.name for kind in (USER_CANCEL, SCHED_PREEMPT, TIME_LIMIT))


def deliberate(world: World, run: Run, end: Fact, chains: list[Chain]) -> tuple[str, float, str, list[Event]] | None:
    orders = [f for f in world.facts_of_job(run.job_id) if f.kind in _ASKED
            and (run.start or run.submit or 0) - 5 <= f.start <= end.start + 60]  # fmt: skip
    lines = [e for f in orders for e in f.events]
    if end.kind == RUN_PREEMPTED.name:
        return "sched.preempt", 0.98, "Slurm preempted it", lines
    if end.kind == RUN_CANCELLED.name:
        failed_launch = [c for c in chains if c.root.kind in (PROLOG_FAILURE.name, DISK_FULL.name)]
        who = run.row.get("cancelled_by")
        if (failed_launch or given_up(world, run)) and str(who or "0") in ("0", "root", "slurm"):
            return None
        if any("dependency" in e.message.lower() for e in lines):
            return "user.cancel", 0.97, "Slurm cancelled it: the job that it depends on did not end as it asked", lines
        sure, doubt = _sure_of_root(world, run, orders) if str(who) in ("0", "root") else (0.97, "")
        return "user.cancel", sure, f"cancelled by {_name_of(run, who)}{doubt}", lines
    if end.kind == RUN_OOM.name:
        return "app.oom", 0.97, "it needed more memory than it had asked for", _memory_events(end)
    if end.kind == RUN_FAILED.name and end.attrs["memory"]:
        outlived = end.attrs["memory_ago"] > KILLED_S
        when = f", {end.attrs['memory_ago']:.0f} s before its end" if outlived else ""
        why = f"one of its steps needed more memory than it had asked for{when}"
        return "app.oom", OUTLIVED_SURE if outlived else 0.95, why, _memory_events(end)
    if end.kind == RUN_FAILED.name and (asked := _sent_signal(run, end, orders)):
        ago = end.start - asked[-1].start
        why = f"{_name_of(run, asked[-1].attrs['uid'])} had a signal sent to it {'at that moment' if ago < 1 else f'{ago:.0f} s before'}, and it ended by one"
        return "user.cancel", SIGNALLED_SURE, why, [e for f in asked for e in f.events]
    return _timed_out(run, end, chains, lines) if end.kind == RUN_TIMEOUT.name else None


#: slurmd cancels a run, as root, whose launch fails on its node, and slurmctld writes the same line of that as of an
#: administrator's scancel (slurm src/slurmd/slurmd/req.c; measured: two seconds after the start).
LAUNCHES_WITHIN_S = 60.0
ROOT_SURE, ROOT_OR_SLURMD_SURE = 0.9, 0.55


def _sure_of_root(world: World, run: Run, orders: list[Fact]) -> tuple[float, str]:
    """How surely it was a person that cancelled a run as root, and what else it may have been."""
    if may_not_have_been_launched(world, run):
        return (
            ROOT_OR_SLURMD_SURE,
            ": an administrator, or a slurmd that could not launch it and whose log was not collected",
        )
    return (0.97 if any(f.attrs["by_controller"] for f in orders if f.kind == USER_CANCEL.name) else ROOT_SURE), ""


def may_not_have_been_launched(world: World, run: Run) -> bool:
    """Did a run hardly begin, on a node whose slurmd was not heard?"""
    lasted = run.end - run.start if run.end is not None and run.start is not None else 0.0
    logging_nodes = [n for n in run.nodes if any(e.source == "slurmd" for e in world.by_host.get(n, ()))]
    return lasted <= LAUNCHES_WITHIN_S and len(logging_nodes) < max(1, len(run.nodes))


def _timed_out(
    run: Run, end: Fact, chains: list[Chain], lines: list[Event]
) -> tuple[str, float, str, list[Event]] | None:
    """What a TIMEOUT rests on, where no chain to the infrastructure carries it."""
    if inactive := [e for e in lines if "inactivity" in e.message.lower()]:
        why = "Slurm ended it because the srun or salloc that it was started with no longer answered (InactiveLimit); why, nothing that was collected tells"
        return "unknown", UNLOGGED_LAUNCHER_SURE, why, inactive
    if any(c.root.kind in roots() for c in chains):
        return None
    if short := _short_of_limit(run, lines):
        return "unknown", UNLOGGED_LAUNCHER_SURE, short, lines
    slow = [c.root for c in chains if c.root.kind == SLOW.name]
    if slow:
        ratio, onset = slow[0].attrs["ratio"], (slow[0].start - (run.start or slow[0].start)) / 60.0
        why = f"it became {ratio:.1f} times slower {onset:.0f} min into the run and reached its time limit; what slowed it, nothing that was collected tells"
        return "app.timeout", SLOWED_SURE, why, lines
    if stalled := [c.root for c in chains if c.root.kind == STALLED.name]:
        why = f"its output tells of no step in the last {stalled[0].attrs['lost'] / 60.0:.0f} min before its time limit; what held it up, if anything did, nothing that was collected tells"
        return "app.timeout", STALLED_SURE, why, lines
    if hung := [e for e in end.attrs["words"]["peers"] if RETRIED.search(e.message)]:
        why = "its ranks had lost each other and it stood still until its time limit; what parted them, nothing that was collected tells"
        return "app.timeout", SLOWED_SURE, why, [*hung[:3], *lines]
    return "app.timeout", 0.93, "it reached its time limit", lines


#: Slurm looks for time limits that are over once a minute, and never ends a run before its own.
LIMITS_LOOKED_AT_S = 60.0


def _short_of_limit(run: Run, lines: list[Event]) -> str:
    """Accounting and slurmstepd tell of a time limit as well where InactiveLimit or the end of a reservation ended a run;
    slurmctld tells them apart."""
    limit = run.row.get("time_limit_s")
    timeouts = [e for e in lines if e.source == "slurmctld" and e.kind == "slurm.job_timeout"]
    lasted = run.end - run.start if run.end is not None and run.start is not None else float("inf")
    if timeouts or run.state != "TIMEOUT" or not limit or lasted + LIMITS_LOOKED_AT_S >= float(limit):
        return ""
    return (
        f"Slurm ended it as TIMEOUT after {lasted:.0f} s of the {float(limit):.0f} s that it was allowed: not its own limit, "
        "but that of its reservation or of an srun or salloc that no longer answered (InactiveLimit)"
    )


def _name_of(run: Run, uid: object) -> str:
    """Whoever asked Slurm for something about a run: its user by name."""
    if uid in (None, ""):
        return "somebody"
    if str(uid) == str(run.row.get("uid")):
        return str(run.row.get("user"))
    return "root" if str(uid) == "0" else f"uid {uid}"


#: Signals that somebody sends: hang-up, interrupt, quit, kill, the two users' own, terminate. The others a program meets by itself.
SENT_SIGNALS = frozenset({1, 2, 3, 9, 10, 12, 15})
#: Who heeds a signal ends within this, seconds: KillWait as slurm.conf has it where nothing is said.
HEEDED_S = 30.0
SIGNALLED_SURE = 0.9


def _sent_signal(run: Run, end: Fact, orders: list[Fact]) -> list[Fact]:
    """What asked for a signal to a run that ended by one soon after: ``scancel --signal`` leaves it FAILED, not CANCELLED."""
    code, signal = _as_number(run.row.get("exit_code")), _as_number(run.row.get("exit_signal"))
    # A shell's exit code is 128 and the signal; sacct shows its lower seven bits only. 1 to 3 are what programs end with.
    if signal not in SENT_SIGNALS and code - 128 not in SENT_SIGNALS and code not in SENT_SIGNALS - {1, 2, 3}:
        return []
    return [
        f
        for f in orders
        if f.kind == USER_CANCEL.name and f.attrs["uid"] is not None and -1 <= end.start - f.start <= HEEDED_S
    ]


def _as_number(text: object) -> int:
    return int(text) if isinstance(text, int) or (isinstance(text, str) and text.isdigit()) else 0


def given_up(world: World, run: Run) -> list[Event]:
    """slurmd's lines about a launch that failed and after which it cancelled the run itself, as root; the last says so."""
    lines = [e for e in world.by_job.get(run.job_id, ()) if e.source in ("slurmd", "slurmstepd") and e.kind == "slurm.node_error"
             and run.start is not None and run.start - 5 <= e.time <= (run.end or e.time) + 5]  # fmt: skip
    given_up = [e for e in lines if LAUNCH_GIVEN_UP in e.message]
    return [*(e for e in lines if e.time <= given_up[0].time and e not in given_up), *given_up] if given_up else []


#: Her session ended, her host died or its network: who launches from a laptop leaves no trace of it.
UNLOGGED_LAUNCHER_SURE = 0.6

#: A run that slows down and stays slow is as often held back by a node, a link or the storage as by itself.
SLOWED_SURE = 0.5

#: A program that deadlocked is its own; output that was kept back in a buffer is lost with it, and looks the same.
STALLED_SURE = 0.6


#: A script that goes on after a step was killed may end by that, or by something of its own.
OUTLIVED_SURE = 0.6


def _memory_events(end: Fact) -> list[Event]:
    return [e for e in end.attrs["memory"] if isinstance(e, Event)]
