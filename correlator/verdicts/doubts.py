"""What is uncertain about a cause: doubts for the reader, and limits of the confidence.

What a kind of fact says of itself is in its declaration (``Cause.surest``, ``doubt``, ``nameless``). The rules here name
kinds as well, but are no tables of them: each weighs a fact against the rest of its world (who else held the GPU, what else
fell silent, which clock is off), which is judgement and cannot be a field.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from correlator.clocks.clocks import ENDS_S
from correlator.edges.conditions.links import FABRIC_LINK, may_be_back_too_late, name_of
from correlator.evidence.chains import Chain, Rejection
from correlator.evidence.weigh import density, describe_cause
from correlator.facts.gpu_drains import taken_off
from correlator.facts.gpu_hangs import Stood, stood_by
from correlator.facts.gpu_holders import gpus_on, may_hold_as_well, unproven
from correlator.facts.gpus import THERMAL, XID
from correlator.facts.held_back import quicker_elsewhere, throttled_share
from correlator.facts.jobs.kinds import COMM_ERROR, RUN_CANCELLED, RUN_FAILED, RUN_REQUEUED, RUN_TIMEOUT
from correlator.facts.link_modules import MODULE_FAULT
from correlator.facts.links.kinds import LINK_ERRORS, LINK_OUTAGE
from correlator.facts.memory_guards import GUARD_KILL
from correlator.facts.nodes.kinds import ADMIN_DOWN, NODE_DOWN, NODE_REBOOT, is_unreported
from correlator.facts.output_hardware import STORAGE_IN_OUTPUT
from correlator.facts.registry import cause_of
from correlator.facts.silent_nodes import SWITCH_SILENT
from correlator.facts.storage import STORAGE_OUTAGE
from correlator.facts.world import World
from correlator.model.attributes import (
    ALONE,
    FAR_END_ONLY,
    HOSTS,
    NAMELESS,
    POLLED,
    PROCESSORS,
    ROLE,
    SURE,
    TREE_ONLY,
    UNRESUMED,
    UNSAID,
    WORDS,
)
from correlator.model.nouns import Fact, Hop, Run
from correlator.site.interfaces import UNKNOWN
from correlator.verdicts.own_explanation import peers_first
from correlator.verdicts.verdict import Verdict
from correlator.verdicts.waits import ENOUGH, doubt_wait
from parsers.hostlist import fold


def doubt_root(world: World, verdict: Verdict, root: Fact) -> None:
    """Adds the doubts about a cause, and limits the confidence accordingly."""
    cause = cause_of(root)
    verdict.confidence = min(verdict.confidence, cause.surest)
    verdict.at_most = min(verdict.at_most, root.attrs.get(SURE, 1.0))
    if root.kind in (STORAGE_IN_OUTPUT.name, GUARD_KILL.name):  # users may have written all of its lines
        verdict.at_most = min(verdict.at_most, cause.surest)
    if (
        verdict.chain
        and verdict.chain.hops[-1].cause.kind == STORAGE_OUTAGE.name
        and verdict.end.kind == RUN_TIMEOUT.name
    ):
        doubt_wait(world, verdict, verdict.chain.hops[-1].cause)
    _doubt_clocks(world, verdict, root)
    if root.kind == XID.name and verdict.chain and len(verdict.chain.hops) == 1:
        share, other, so = _share_of_gpu(world, verdict.run, verdict.end, verdict.chain.hops[0])
        if other:
            verdict.at_most = min(verdict.at_most, share)
            verdict.doubts.append(
                f"Job {other} had GPUs of {root.host} as well, and {so}: nothing tells which of the two held the one that failed"
            )
        _doubt_taken_off(world, verdict, root)
        if verdict.end.kind == RUN_TIMEOUT.name and isinstance(stood := stood_by(world, root, verdict.run), Stood):
            verdict.at_most = min(verdict.at_most, 0.5 + (STOOD_SURE - 0.5) * min(1.0, stood.share / ENOUGH))
    if _held_back(root, verdict.end, verdict.chain):
        _doubt_comparison(world, verdict)
    if root.kind in (NODE_DOWN.name, SWITCH_SILENT.name) and not root.attrs.get(UNRESUMED):
        _doubt_silence(world, verdict, root)
    if root.kind == NODE_REBOOT.name:
        _doubt_boot(verdict, root)
    if root.kind == ADMIN_DOWN.name and root.attrs.get(POLLED) is not None:
        verdict.at_most = min(verdict.at_most, POLLED_SURE)
        verdict.doubts.append(
            f"The reason was seen {root.attrs[POLLED]:.0f} s after the end: somebody may have given it to a node that was lost already"
        )
    _doubt_port(world, verdict, root)
    if root.attrs.get(ALONE):
        verdict.at_most = min(verdict.at_most, ALONE_SURE)
    if root.attrs.get(NAMELESS):
        verdict.at_most = min(verdict.at_most, NAMELESS_SURE)
        verdict.doubts.append(cause.nameless)
    if root.attrs.get(TREE_ONLY):
        verdict.at_most = min(verdict.at_most, NAMELESS_SURE)
        verdict.doubts.append(
            f"Only topology.conf names {root.host}: the tree that Slurm places jobs by need not be the network that was lost"
        )
    if not root.attrs.get(FAR_END_ONLY):
        return
    if world.unlogged(root.host):
        verdict.confidence = min(verdict.confidence, FAR_END_SURE)
        verdict.doubts.append(f"No log of {root.host} was collected: the machine may have died, and its link with it")
    elif others := _lost_with(world, root):
        verdict.confidence = min(verdict.confidence, FAR_END_SURE)
        verdict.doubts.append(
            f"{root.host} lost {fold(others)} in the same moment, and logged none of it: it may have lost power, and its links with it"
        )


def _doubt_boot(verdict: Verdict, root: Fact) -> None:
    if verdict.chain and verdict.chain.hops[0].effect.kind == COMM_ERROR.name:
        doubt = f"No line tells when {root.host} went down: it may have been booted because the run had failed"
    elif verdict.end.kind == RUN_CANCELLED.name:
        doubt = f"Whoever cancelled it may have had another reason: {root.host} may also have been booted by the same person"
    else:
        return
    verdict.at_most = min(verdict.at_most, BOOTED_AFTER_SURE)
    verdict.doubts.append(doubt)


def _doubt_port(world: World, verdict: Verdict, root: Fact) -> None:
    """What a port carries, and whether a complaint about its module cost it anything."""
    if root.attrs.get(ROLE) == UNKNOWN and verdict.chain and FABRIC_LINK in verdict.chain.hops[0].edge.requires:
        verdict.at_most = min(verdict.at_most, ROLELESS_SURE)
        verdict.doubts.append(
            f"Nothing tells whether {root.device} carries the jobs' data: [interfaces] in the configuration can"
        )
    if root.kind == MODULE_FAULT.name and verdict.chain and not _shown_otherwise(world, verdict, root):
        verdict.at_most = min(verdict.at_most, COMPLAINT_SURE)


def _held_back(root: Fact, end: Fact, chain: Chain | None) -> bool:
    """Is heat the cause of a missed time limit, without a pace of the run that shows it?"""
    return root.kind == THERMAL.name and end.kind == RUN_TIMEOUT.name and chain is not None and len(chain.hops) == 1


def _doubt_comparison(world: World, verdict: Verdict) -> None:
    others = ", ".join(f"job {run.key}" for run in quicker_elsewhere(world, verdict.run)[:3])
    verdict.at_most = min(verdict.at_most, HELD_BACK_SURE)
    verdict.doubts.append(f"That it would have ended in time, only the same program elsewhere shows: {others}")


def undecided(world: World, end: Fact, best: Chain, rejections: Sequence[Rejection]) -> str:
    """Why the best explanation of a run's end is left open, because a source that would decide is absent; empty if not."""
    run, root = world.run[end.run or ""], best.root
    if root.kind == XID.name and end.kind == RUN_FAILED.name and len(best.hops) == 1:
        words = end.attrs[WORDS]
        if why := unproven(world, run, root, used=bool(words["gpu"] or words["peers"])):
            return f"{name_of(root)} failed, and {why}"
        share, other, so = _share_of_gpu(world, run, end, best.hops[0])
        if other and share < 1.0 / (1.0 + AS_WELL):
            return f"{name_of(root)} failed, and nothing tells whether job {run.key} held it or job {other}: both had GPUs of {root.host}, and {so}"
    if root.kind == XID.name and end.kind == RUN_TIMEOUT.name and len(best.hops) == 1:
        stood = stood_by(world, root, run)
        if isinstance(stood, Stood) and not stood.shown:
            return f"it reached its time limit {stood.left:.0f} s after {name_of(root)} had failed, which only a reset brings back: whether it stood still for that, nothing that was collected tells"
    if _held_back(root, end, best) and not quicker_elsewhere(world, run):
        what = "processors" if root.attrs.get(PROCESSORS) else "GPUs"
        part = f"{throttled_share(run, root):.0%} of its time"
        return f"it reached its time limit, and {what} of {root.host} were throttled by heat for {part}: whether it would have ended in time without, nothing that was collected tells"
    if not end.events and (early := _controller_ahead(world, end.start)):
        return f"a line of slurmctld arrived {early:.0f} s before it was written: by its clock, which gave accounting its times, nothing tells when job {run.key} ran"
    if early := _clock_off(world, root):
        return f"slurmd of {root.host} logged a launch {early:.0f} s before its job was submitted: by its clock, nothing tells what {describe_cause(world, root)} came before"
    return _undecided_loss(world, rejections, root)


def _clock_off(world: World, root: Fact) -> float:
    """By how much the clock of a node was off that alone dates a cause; 0 if nothing shows that it was, or by how much."""
    if not root.events or any(e.host != root.host for e in root.events):
        return 0.0
    near = (by for host, at, by in world.launched_early if host == root.host and abs(at - root.start) <= OFF_WITHIN_S)
    return max(near, default=0.0)


def _doubt_taken_off(world: World, verdict: Verdict, fault: Fact) -> None:
    """What is unknown about a run that somebody took off the node of a failed GPU."""
    if verdict.end.kind not in _TAKEN_OFF:
        return
    if verdict.end.kind == RUN_REQUEUED.name:
        verdict.at_most = min(verdict.at_most, ASKED_BY_SURE)
        verdict.doubts.append("Who asked for its requeue, nothing that was collected tells")
    if others := may_hold_as_well(world, verdict.run, fault):
        verdict.at_most = min(verdict.at_most, CHOSEN_SURE)
        verdict.doubts.append(
            f"Job {min(o.key for o in others)} had GPUs of {fault.host} as well: that this job held the one that failed, only its being taken off shows"
        )


_TAKEN_OFF = (RUN_REQUEUED.name, RUN_CANCELLED.name)


def _taken_off_before(world: World, end: Fact, fault: Fact, others: Collection[str]) -> str:
    """One of ``others`` that somebody had taken off the node for a failed GPU while this run was left to go on; empty if there
    is none. Who does so knows mostly which run held it."""
    for fact in world.facts_of(*_TAKEN_OFF) if others else ():
        key = fact.run or ""
        if key in others and fact.start < end.start and taken_off(world, fault, world.run[key], fact) is None:
            return key
    return ""


def _share_of_gpu(world: World, run: Run, end: Fact, hop: Hop) -> tuple[float, str, str]:
    """How probable it is that this run held the GPU that failed, of those that may have and ended by it as well; the most
    probable other one, and how that one ended. Empty if there is none.

    By the numbers of their GPUs on its node, and the delays that the edge expects. What a run's own output tells of its end
    counts for that run: no user's output tells which GPU another one had.
    """
    if end.kind != RUN_FAILED.name or end.attrs[WORDS]["gpu"]:
        return 1.0, "", ""
    here = gpus_on(run)
    # A run whose GPUs nothing counts may have as many.
    others = {o.key: gpus_on(o) / here if here and o.gpus else 1.0 for o in may_hold_as_well(world, run, hop.cause)}
    low, high = hop.window
    if instead := _taken_off_before(world, end, hop.cause, others):
        return 1.0 - CHOSEN_SURE, instead, "that one was taken off it for a failed GPU while this one went on"
    weights = {
        fact.run or "": others[fact.run or ""] * density(hop.edge, fact.start - hop.cause.start, low, high)
        for fact in (world.facts_of(RUN_FAILED.name) if others else ())
        if fact.run in others and low <= fact.start - hop.cause.start <= high and not _tells_another_reason(fact)
    }
    if not weights:
        return 1.0, "", ""
    own = density(hop.edge, hop.lag, low, high)
    return (
        own / (own + sum(weights.values())),
        max(weights, key=lambda key: (weights[key], key)),
        "both failed within a minute",
    )


def _tells_another_reason(end: Fact) -> bool:
    words = end.attrs[WORDS]
    return bool(words["own"]) and not peers_first(words)


#: A rival that has this share of the best explanation's weight is its equal.
AS_WELL = 0.8

#: A clock that was off is asked about a run that ended this long before or after (a tick looks 900 s back).
OFF_WITHIN_S = 900.0


def _controller_ahead(world: World, time: float) -> float:
    """By how much slurmctld's clock was ahead at about a moment, by one line alone, which corrects no clock; 0 if it was not."""
    return max((early for at, early in world.written_early if abs(at - time) <= OFF_WITHIN_S), default=0.0)


def _undecided_loss(world: World, rejections: Sequence[Rejection], root: Fact) -> str:
    """Why a node that was lost for no known reason may have been lost for something else than a fault of its own, if so.

    What would be the reason at another time may be it, if a clock is off that nothing was compared with; a link that came
    back before may have come back too late, by a SlurmdTimeout that is not known.
    """
    if root.kind != NODE_DOWN.name or root.host is None or root.attrs.get(UNRESUMED):
        return ""
    if is_unreported(root):
        return f"{root.host} was lost to Slurm, and no line of slurmctld tells how: it may have fallen silent, or somebody set it DOWN or took it out of slurm.conf"
    own = cause_of(root).category
    here = [r for r in rejections if r.effect is root and cause_of(r.cause).category != own]
    if too_late := [
        r.cause for r in here if r.cause.kind == LINK_OUTAGE.name and may_be_back_too_late(world, r.cause, root)
    ]:
        return f"{root.host} stopped answering; {describe_cause(world, _nearest(too_late, root))} is the cause if that was longer than Slurm waits, and no SlurmdTimeout was collected"
    if beside := [r.cause for r in here if _by_another_clock(r, root)]:
        return f"{root.host} stopped answering; {_unfitting(world, _nearest(beside, root), root)}"
    return ""


def _by_another_clock(rejection: Rejection, root: Fact) -> bool:
    """Would something on the node that was lost be the reason by a clock that may be off?

    While a node answers, its clock is within what munge allows (``ENDS_S``); a switch's may be off by more.
    """
    cause = rejection.cause
    if not rejection.by_time or rejection.effect is not root or cause.host != root.host:
        return False
    own = all(e.host == root.host for e in cause.events)
    return not own or rejection.beyond <= ENDS_S + cause.sigma


def _nearest(some: Sequence[Fact], root: Fact) -> Fact:
    return min(some, key=lambda cause: (abs(cause.start - root.start), cause.key))


def _unfitting(world: World, cause: Fact, root: Fact) -> str:
    gap = cause.start - root.start
    return f"{describe_cause(world, cause)} was {abs(gap):.1f} s {'after' if gap > 0 else 'before'} the loss, which does not fit: if a clock is off, it may be the cause"


def _doubt_clocks(world: World, verdict: Verdict, root: Fact) -> None:
    """Limits the confidence that a node was lost for no reason, if something on the same node would be the reason at another
    time: a clock may be off that nothing was compared with."""
    if root.kind != NODE_DOWN.name or root.host is None:
        return
    beside = [r.cause for r in verdict.rejections if _by_another_clock(r, root)]
    if not beside:
        return
    verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
    verdict.doubts.append(_unfitting(world, _nearest(beside, root), root))


def _doubt_silence(world: World, verdict: Verdict, root: Fact) -> None:
    """Adds what is unknown about nodes that fell silent."""
    if root.attrs.get(UNSAID):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        verdict.doubts.append(
            "No line of slurmctld tells how these nodes were lost: they may have fallen silent, or somebody set them DOWN"
        )
    if is_unreported(root):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        verdict.doubts.append(
            f"No line of slurmctld tells how {root.host} was lost: it may have fallen silent, or somebody set it DOWN"
        )
    silent = [root.host] if root.host else list(root.attrs.get(HOSTS, ()))
    if silent and all(world.unlogged(host) for host in silent):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        of = "its link, its machine or its daemons" if root.host else "their links, machines or daemons"
        verdict.doubts.append(
            f"No line of the kernel or the system of {fold(silent)} was collected: {of} may have failed"
        )
    if root.kind == NODE_DOWN.name and _lived(world, root):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        verdict.doubts.append(
            f"{root.host} wrote after it was given up, and tells of no boot: it lived, and its way to slurmctld or its slurmd may have failed"
        )


#: A boot this long before slurmctld gave a node up, or after that, belongs to its silence. A node that logs this long
#: after it is up, if its clock is correct; later lines are no longer awaited (a tick looks 900 s back).
BOOT_BEFORE_S, SPOKE_AFTER_S, SPOKE_WITHIN_S = 1000.0, 10.0, 800.0


def _lived(world: World, down: Fact) -> bool:
    """Did a node log on, or again, after it was given up, without a line about a boot?"""
    if down.host not in world.reporting_hosts:
        return False
    since, until = down.start + down.sigma + SPOKE_AFTER_S, down.start + SPOKE_WITHIN_S
    if any(
        f.host == down.host and down.start - BOOT_BEFORE_S <= (f.end or f.start) <= until
        for f in world.facts_of(NODE_REBOOT.name)
    ):
        return False
    spoke = world.spoke_at(down.host)
    return bisect_left(spoke, since) < bisect_right(spoke, until)


#: The same program elsewhere may have had less to do.
HELD_BACK_SURE = 0.8

#: Links of a machine that are lost within this were lost together (seconds): a switch sees a port go within two polls
#: of its PHY.
ALL_AT_ONCE_S = 3.0


def _lost_with(world: World, root: Fact) -> list[str]:
    """Other links of the same machine, seen only by their far ends, that were lost at the same moment as this one."""
    return sorted(
        f.device or "another link" for f in world.facts_of(LINK_OUTAGE.name)
        if f.host == root.host and f.device != root.device and f.attrs.get(FAR_END_ONLY)
        and abs(f.start - root.start) <= ALL_AT_ONCE_S + f.sigma + root.sigma
    )  # fmt: skip


def _shown_otherwise(world: World, verdict: Verdict, module: Fact) -> bool:
    """Does anything but a driver's complaint show that a port lost data: its error counters, or an error that names its adapter?

    What other users' runs print shows nothing: however many had to lose their peers alike, one user could be the last of them."""
    errors = world.facts_on(LINK_ERRORS.name, [module.host or ""])
    if any(f.device == module.device and (f.end or f.start) >= module.start - SEEN_WITH_S for f in errors):
        return True
    effect = verdict.chain.hops[0].effect if verdict.chain else verdict.end
    return any(str(e.entities.get("ibdev") or "").split(":")[0] == module.device for e in effect.events)


#: What shows the same fault of a port comes so near to it (seconds).
SEEN_WITH_S = 300.0
#: A driver's complaint about a module that nothing else confirms may have been there for long.
COMPLAINT_SURE = 0.5
#: It is certain that a node fell silent, but not why (``surest`` of its cause); if its own log is missing as well, a
#: link or a daemon is as probable as the machine.
UNLOGGED_SURE = 0.5
#: A reason that a poll shows soon after a run's end was nearly always given with the DOWN that ended it.
POLLED_SURE = 0.85
#: A link reported only by its far end, on a host whose log is missing, may as well be a dead machine's.
FAR_END_SURE = 0.7
#: A machine that boots within minutes after a run lost its peers had mostly gone before; occasionally it is booted to
#: repair it.
BOOTED_AFTER_SURE = 0.8
#: Peers that are lost while a link is down were mostly behind it, even if it is unknown what the link carries.
ROLELESS_SURE = 0.85
#: It is certain that many nodes were hit by one cause; which of the things that they share it was is unknown.
NAMELESS_SURE = 0.9
#: The highest confidence in a standstill by a GPU: its program may have needed more time anyway.
STOOD_SURE = 0.9
#: A user can ask for a requeue as well, for a reason of the own.
ASKED_BY_SURE = 0.85
#: Who takes a run off a node for a failed GPU knows mostly which run held it.
CHOSEN_SURE = 0.75
#: What only one user's runs show may be that user's own doing.
ALONE_SURE = 0.6
