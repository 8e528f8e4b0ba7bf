"""Runs that somebody ended for a GPU that had failed under them: the node was drained for it, and they were cancelled or
requeued.

The kernel's line and the drain are root's. Who had a run requeued, slurmctld does not log; a user can only have asked for the
own one, which stood on a broken GPU.
"""

from __future__ import annotations

import re

from correlator.facts.control import NODE_DRAIN, USER_CANCEL, is_others, is_own
from correlator.facts.gpus import NEEDS_RESET, code_of
from correlator.facts.jobs.kinds import RUN_CANCELLED
from correlator.facts.world import World
from correlator.model.attributes import CODE, FAMILY, REASON, UID
from correlator.model.nouns import Fact, Run
from parsers import xid as xid_catalogue
from parsers.documents.fields import integer
from parsers.reasons import split_reason

#: The driver's own message (Xid 154) that the GPU has to be reset, or its machine to be rebooted.
_RECOVERY = re.compile(r"\bto 0x[0-9a-f]+ \([^)]*\bre(?:set|boot)\b", re.IGNORECASE)
#: NVIDIA's catalogue: drain and reset the GPU.
_DRAIN_AND_RESET = "WORKFLOW_XID_48"

#: A script requeues a run and drains its node in either order; a person needs some seconds more.
BEFORE_DRAIN_S = 60.0


def is_unusable(fault: Fact) -> bool:
    """Can the GPU that failed not be used before it is reset, by NVIDIA's catalogue or the driver's own message?"""
    if fault.attrs.get(FAMILY) != "hardware":
        return False
    for event in fault.events:
        code = code_of(event)
        known = xid_catalogue.xids().get(code) if code is not None else None
        if known is not None and known.action in (*NEEDS_RESET, _DRAIN_AND_RESET):
            return True
        if code == 154 and _RECOVERY.search(event.message):
            return True
    return False


def drain_for(world: World, fault: Fact, end: float) -> Fact | None:
    """The drain, between a fault of a GPU and the end of a run, whose reason speaks of a GPU; None without one."""
    for drain in world.facts_on(NODE_DRAIN.name, [fault.host or ""]):
        if not fault.start - fault.sigma <= drain.start <= end + BEFORE_DRAIN_S:
            continue
        reason = split_reason(str(drain.attrs.get(REASON) or ""))
        if reason.get("component") == "gpu" and reason["owner"] != "slurm":
            return drain
    return None


#: slurmctld's line for a requested requeue, and that of the slurmstepds; for its own requeues it logs the reason (slurm
#: src/slurmctld/job_mgr.c, src/slurmd/slurmstepd/req.c).
ASKED_REQUEUE = re.compile(r"\bRequeuing JobId=\S+\s*$|CANCELLED AT \S+ DUE TO JOB REQUEUE\b")


def not_by_others(world: World, run: Run, end: Fact) -> str | None:
    """Why nobody else ended a run, or may not have; None if somebody else did, or asked for a requeue of which nothing tells."""
    orders = [
        f
        for f in world.facts_of_job(run.job_id)
        if f.kind == USER_CANCEL.name and (run.start or 0.0) <= f.start <= end.start + 5.0
    ]
    who = run.row.get("cancelled_by")
    if who in (None, "") and orders:
        who = orders[-1].attrs[UID]
    if who not in (None, ""):
        if is_others(run, str(who)):
            return None
        return (
            "its own user ended it"
            if is_own(run, str(who))
            else f"nothing tells whether uid {who}, who ended it, is its user"
        )
    if end.kind == RUN_CANCELLED.name:
        return "nothing tells who cancelled it"
    if integer(run.row.get("exit_code")) or run.state == "LAUNCH_FAILED":
        return "it ended by itself"
    asked = any(ASKED_REQUEUE.search(e.message) for e in end.events)
    preempted = any(e.kind == "slurm.job_preempted" for e in end.events)
    return None if asked and not preempted else "nobody asked for its requeue"


def may_be_taken_off(run: Run, end: Fact) -> bool:
    """May somebody else have ended a run, by what is known of its end alone? Nobody waits for a GPU's fault otherwise."""
    if end.kind != RUN_CANCELLED.name:
        return not integer(run.row.get("exit_code"))
    who = [run.row.get("cancelled_by"), *(e.entities.get("uid") for e in end.events)]
    return any(is_others(run, str(one)) for one in who if one is not None)


def taken_off(world: World, fault: Fact, run: Run, end: Fact) -> str | None:
    """Why nobody took a run off a node that was drained for this fault; None if somebody did."""
    if not is_unusable(fault):
        return f"the GPU can be used after Xid {fault.attrs.get(CODE)}"
    if drain_for(world, fault, end.start) is None:
        return f"{fault.host} was not drained for a GPU"
    return not_by_others(world, run, end)
