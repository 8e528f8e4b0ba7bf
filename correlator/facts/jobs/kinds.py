"""The attributes and kinds of facts about runs: how they ended, and what their output reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

from correlator.model.kinds import Cause, Kind, NoAttrs
from correlator.model.nouns import Event, Fact


class CommError(TypedDict):
    """``timeout``: seconds in a watchdog's line; ``onset``: since when the ranks had waited; ``families`` of events."""

    timeout: float | None
    onset: float
    families: list[str]


class LaunchFailure(TypedDict):
    """``revoked``: the node still considered the job killed; ``refused``: it answered, and rejected the request."""

    revoked: bool
    refused: bool


class RunEnd(TypedDict):
    """``failed_nodes`` ended the run.

    ``words``: its output's error lines by whom they blame (own, peers, gpu, storage, aftermath). ``launch``: lines
    about tasks that were not started. ``memory``: the evidence that memory ended it, ``memory_ago`` seconds before the
    end. ``blamed_code``: Xids that NVIDIA attributes to the application. ``output``: all lines of its output, except
    ``environment``: errors that count only beside those of other runs.
    """

    failed_nodes: list[str]
    words: dict[str, list[Event]]
    launch: list[Event]
    memory: list[object]
    memory_ago: float
    blamed_code: list[Fact]
    output: list[Event]
    environment: list[Event]
    signal: Any
    exit_code: Any
    cancelled_by: Any


#: An error of a node's environment that no other event of the catalogue is.
ENVIRONMENT_ERROR = "job.environment_error"

COMM_ERROR = Kind(
    "job.comm_error",
    "job",
    "A rank of a run lost its peers.",
    CommError,
    brief="ranks lost their peers",
    reported_within_s=0.0,
)

LAUNCH_FAILURE = Kind(
    "launch.failure", "job", "Tasks of a run could not be started on a node.", LaunchFailure, reported_within_s=60.0
)

_BATCH_GONE = Cause(
    "slurm.slurmd_crash", "infra.scheduler", "the batch script was gone from {host}, which answered: its slurmstepd died or never began", "its batch script was lost on its node",
    (("See what ended slurmstepd on {host}: kernel log (OOM killer), core files in slurmd's log folder, an administrator's kill.", None),),
    short="batch script lost on {host}", family="software", software=("os", "image"),
)  # fmt: skip
#: The run went on, and ended only when somebody ended it.
_SLURMSTEPD_GONE = replace(
    _BATCH_GONE, title="the slurmstepd of the batch script died on {host}, so that the job could not end", short="slurmstepd died on {host}",
    plain="the daemon that ran its batch script died on its node", surest=0.85,
    doubt="Whoever cancelled it may have had another reason: its steps may have been at work until then",
)  # fmt: skip


def _of_slurmd(fact: Fact) -> Cause | None:
    return _SLURMSTEPD_GONE if any(e.kind == "slurm.stepd_gone" for e in fact.events) else None


BATCH_LOST = Kind(
    "batch.lost", "slurmd", "A node responded, but the job's batch script was not running on it.", NoAttrs,
    witnesses=("slurmctld", "slurmd"), cause=_BATCH_GONE, variant=_of_slurmd,
)  # fmt: skip


def _ended(fact: Fact) -> str:
    return f"job {fact.run} ended"


def _end(name: str, summary: str, awaited: str) -> Kind[RunEnd]:
    return Kind(name, "job", summary, RunEnd, role="effect", measured=_ended, witnesses=("slurmctld",), awaited=awaited)


_LAST_LINES = "the last lines of a job may arrive"

RUN_NODE_FAIL = _end(
    "run.node_fail", "A run ended because a node of it failed.", "causes of a lost node may be reported"
)
RUN_FAILED = _end("run.failed", "A run ended with an error.", "causes of a failure may be reported")
RUN_TIMEOUT = _end("run.timeout", "A run reached a time limit.", "causes of a missed time limit may be reported")
RUN_CANCELLED = _end("run.cancelled", "A run was cancelled.", "causes of a cancellation may be reported")
RUN_PREEMPTED = _end("run.preempted", "A run was preempted.", _LAST_LINES)
RUN_OOM = _end("run.oom", "A run ran out of memory.", _LAST_LINES)
RUN_REQUEUED = _end("run.requeued", "A run was requeued.", "causes of a requeue may be reported")
