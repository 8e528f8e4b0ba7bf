"""Ends that a state of Slurm names: what they mean, and what its user reads in place of the category's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from correlator.facts.jobs.kinds import RUN_REQUEUED
from correlator.model.nouns import Event, Run
from correlator.verdicts.verdict import Verdict

BOOT_FAIL = "BOOT_FAIL"
DEADLINE = "DEADLINE"
REVOKED = "REVOKED"

WITHDRAWN = "another cluster of the federation took it, and this cluster withdrew its own copy: nothing failed"

#: slurmctld's words for a preempted job (slurm src/slurmctld/preempt.c, node_scheduler.c).
_PREEMPTED = re.compile(r"\bpreempted (?:JobId=|job )\S+ has been (?P<how>requeued|killed|cancelled|checkpointed)")

#: slurmctld's words for a limit of an association or a QOS that was used up under a job (slurm
#: src/slurmctld/acct_policy.c).
_USED_UP = re.compile(r"\btimed out, (?P<why>the job is at or exceeds .*)")
_LONGEST = 160

_ASKED_DEADLINE = re.compile(r"(?:^|\s)--deadline[= ]\S")
_ASKED_LEAST = re.compile(r"(?:^|\s)--time-min[= ]\S")


def is_held(run: Run) -> bool:
    """Does a run's state say that the job waits for somebody to release it?"""
    return run.state == "SPECIAL_EXIT" or run.state == "REQUEUE_HOLD"


def lost_node(run: Run) -> str:
    """The words for a run that was lost with a node, if nothing tells which."""
    if run.state == BOOT_FAIL:
        return "a node that Slurm booted for it was not up in time (ResumeTimeout), and nothing tells which"
    return "Slurm says that one of its nodes failed; nothing tells which, or whether it was a daemon of Slurm"


def preempted(lines: Iterable[Event]) -> str:
    """What Slurm did with a run that it preempted; ``lines`` are Slurm's about it."""
    how = _how(lines)
    if how == "requeued":
        return "Slurm preempted it for another job and put it back into the queue"
    if how:
        return "Slurm preempted it for another job and ended it: it was not put back into the queue"
    return "Slurm preempted it"


def _how(lines: Iterable[Event]) -> str:
    found = [m["how"] for e in lines if e.source == "slurmctld" and (m := _PREEMPTED.search(e.message))]
    return found[-1] if found else ""


def other_limit(run: Run, lines: Iterable[Event]) -> str:
    """Why a run that ended by time did not end by a time limit of its own; empty if it did."""
    if run.state == DEADLINE:
        return (
            "its deadline (--deadline) came while it ran"
            if run.nodes
            else "it could no longer end by its deadline (--deadline), and Slurm cancelled it before it had started"
        )
    if used := _used_up(lines):
        return f"Slurm ended it because a limit of its account or QOS was used up: {used}"
    return ""


def _used_up(lines: Iterable[Event]) -> str:
    found = [m["why"] for e in lines if e.source == "slurmctld" and (m := _USED_UP.search(e.message))]
    return found[-1][:_LONGEST] if found else ""


def fitted(run: Run) -> str:
    """That Slurm may have shortened the time limit of a run, in words; it may where the job names the least it needs."""
    options = str(run.row.get("submit_line") or "")
    if _ASKED_DEADLINE.search(options) and _ASKED_LEAST.search(options):
        return ", which Slurm may have shortened so that the job would end by its deadline (--deadline, --time-min)"
    return ""


_FEDERATED = "Your job was taken by another cluster of the federation; this copy of it was withdrawn."
_REQUEUED = "Your job was put back into the queue, as somebody asked."
_RETURNED = "Your program ended with an exit code for which this cluster runs jobs again."
_CONTROLLER = "Slurm's controller could not start your job, and put it back into the queue."
_PREEMPTED_AGAIN = "Slurm preempted your job for one of higher priority, and will run it again."


def tell(verdict: Verdict) -> None:
    """Replaces headline and advice of the category, where a run ended in a way that they do not fit."""
    if verdict.chain is not None or verdict.unstarted:
        return
    run, category = verdict.run, verdict.category
    words = ("", "")
    if run.state == REVOKED:
        words = _FEDERATED, "Nothing to do: ask for the job on the cluster that runs it (squeue --federation)."
    elif category == "sched.preempt":
        words = _of_preempted(verdict)
    elif verdict.end.kind == RUN_REQUEUED.name:
        words = _of_requeued(verdict)
    elif category == "app.timeout" or run.state == DEADLINE:
        words = _of_limit(verdict)
    headline, advice = words
    verdict.headline = verdict.headline or headline
    verdict.advice = verdict.advice or advice


def _of_preempted(verdict: Verdict) -> tuple[str, str]:
    how = _how(verdict.end.events) or _how(verdict.own)
    if how == "requeued":
        return _PREEMPTED_AGAIN, "Nothing to do. What it had computed is lost unless it writes checkpoints."
    if how:
        return "", "Submit it again; --requeue asks Slurm to do so by itself where the site allows it."
    return "", "If squeue does not list it, submit it again: it is not known whether Slurm put it back into the queue."


def _of_requeued(verdict: Verdict) -> tuple[str, str]:
    queued = "Do not submit it again: it is in the queue, or runs already (squeue)."
    if verdict.category == "app.error":
        held = is_held(verdict.run)
        after = (
            "It is held: see what its output says before you release it." if held else "Slurm runs it again by itself."
        )
        return _RETURNED, f"Do not submit it again. {after}"
    return {"user.cancel": _REQUEUED, "infra.scheduler": _CONTROLLER}.get(verdict.category, ""), queued


def _of_limit(verdict: Verdict) -> tuple[str, str]:
    if verdict.run.state == DEADLINE:
        before = "" if verdict.run.nodes else " before it could start"
        if verdict.category == "unknown":
            return (
                f"The deadline of your job came{before}: the nodes that it asks for were out of service.",
                "Submit it without naming these nodes (-w), or with a later --deadline.",
            )
        return (
            f"The deadline of your job came{before}.",
            "Submit it with a later --deadline, or with a shorter --time so that it still fits.",
        )
    if _used_up(verdict.own):
        return (
            "Your job was ended because a limit of your account or QOS was used up.",
            "More time (--time) would not help: ask whose share is used up (sshare), or use another account or QOS.",
        )
    return "", ""
