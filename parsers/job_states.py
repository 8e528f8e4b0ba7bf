"""The states of Slurm's jobs: the only list of them.

Slurm keeps one base state and some flags (``slurm.h``: ``enum job_states``, ``JOB_STATE_FLAGS``), and prints a flag in
place of the base state if one is set (``job_state_string`` in ``src/common/slurm_protocol_defs.c``). A row that shows
only a flag gives nothing else. Parsers, queries, verdicts and pages take their sets of states from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """The phase of a job's run that a state indicates."""

    WAITING = "waiting"  #: Not started. Slurm's start and end are estimates of the scheduler.
    RUNNING = "running"  #: Nodes are allocated. Slurm's end is an estimate.
    CLOSING = "closing"  #: Over, but the way it ended is not final.
    REQUEUED = "requeued"  #: Over, and the job waits for another run.
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"  #: Ended by somebody's decision.
    FAILED = "failed"

    @property
    def is_open(self) -> bool:
        """Whether it is still unknown how the run ended."""
        return self in (Phase.WAITING, Phase.RUNNING, Phase.CLOSING)


@dataclass(frozen=True)
class JobState:
    """A state as Slurm prints it: ``name`` and ``compact`` (``squeue -o %t``; None if Slurm has no such form)."""

    name: str
    compact: str | None
    phase: Phase
    is_flag: bool = False
    #: Another run of the same job may follow a run that ended so.
    may_run_again: bool = False
    #: The job waits until somebody releases it.
    is_held: bool = False
    #: The base state with the same kind of end, if it is not its own.
    ends_as: str | None = None
    #: The exit code is that of the job's own programs: Slurm did not end them.
    own_code: bool = False


_BASE = (
    JobState("PENDING", "PD", Phase.WAITING),
    JobState("RUNNING", "R", Phase.RUNNING),
    JobState("SUSPENDED", "S", Phase.RUNNING),
    JobState("COMPLETED", "CD", Phase.SUCCEEDED, own_code=True),
    JobState("CANCELLED", "CA", Phase.STOPPED),
    JobState("FAILED", "F", Phase.FAILED, own_code=True),
    JobState("TIMEOUT", "TO", Phase.FAILED),
    JobState("NODE_FAIL", "NF", Phase.FAILED, may_run_again=True),
    JobState("PREEMPTED", "PR", Phase.STOPPED, may_run_again=True),
    JobState("BOOT_FAIL", "BF", Phase.FAILED, may_run_again=True, ends_as="NODE_FAIL"),
    JobState("DEADLINE", "DL", Phase.FAILED, ends_as="TIMEOUT"),
    JobState("OUT_OF_MEMORY", "OOM", Phase.FAILED, own_code=True),
)
_FLAGS = (
    JobState("COMPLETING", "CG", Phase.CLOSING, is_flag=True),
    JobState("STAGE_OUT", "SO", Phase.CLOSING, is_flag=True),
    JobState("CONFIGURING", "CF", Phase.RUNNING, is_flag=True),
    JobState("RESIZING", "RS", Phase.RUNNING, is_flag=True),
    JobState("POWER_UP_NODE", None, Phase.RUNNING, is_flag=True),
    JobState("STOPPED", "ST", Phase.RUNNING, is_flag=True),
    JobState("SIGNALING", "SI", Phase.RUNNING, is_flag=True),
    JobState("RESV_DEL_HOLD", "RD", Phase.WAITING, is_flag=True, is_held=True),
    JobState("EXPEDITING", None, Phase.WAITING, is_flag=True),
    JobState("UPDATE_DB", None, Phase.CLOSING, is_flag=True),
    JobState("REQUEUED", "RQ", Phase.REQUEUED, is_flag=True, may_run_again=True),
    JobState("REQUEUE_HOLD", "RH", Phase.REQUEUED, is_flag=True, may_run_again=True, is_held=True, ends_as="REQUEUED"),
    JobState("REQUEUE_FED", "RF", Phase.REQUEUED, is_flag=True, may_run_again=True, ends_as="REQUEUED"),
    # Not held if slurm.conf says nohold_on_prolog_fail.
    JobState("LAUNCH_FAILED", None, Phase.REQUEUED, is_flag=True, may_run_again=True, is_held=True, ends_as="REQUEUED"),
    JobState("SPECIAL_EXIT", "SE", Phase.REQUEUED, is_flag=True, is_held=True, ends_as="REQUEUED"),
    JobState("REVOKED", "RV", Phase.STOPPED, is_flag=True, ends_as="CANCELLED"),
)

#: Every state by its name.
JOB_STATES = {state.name: state for state in (*_BASE, *_FLAGS)}
FLAGS = frozenset(state.name for state in _FLAGS)


def in_phase(*phases: Phase) -> frozenset[str]:
    """The names of the states that indicate one of ``phases`` of a run."""
    return frozenset(name for name, state in JOB_STATES.items() if state.phase in phases)


#: A run that ended well.
SUCCEEDED = in_phase(Phase.SUCCEEDED)
#: Runs whose end is unknown; "" if no state was logged.
OPEN = frozenset(name for name, state in JOB_STATES.items() if state.phase.is_open) | {""}
#: Excluded from a list of failed runs. An unknown state counts as failed.
NOT_FAILED = OPEN | SUCCEEDED
#: Runs whose start, or whose end, Slurm can only estimate.
NOT_STARTED = in_phase(Phase.WAITING, Phase.REQUEUED)
NOT_ENDED = NOT_STARTED | in_phase(Phase.RUNNING)
#: Another run of the same job may follow a run that ended so.
MAY_RUN_AGAIN = frozenset(name for name, state in JOB_STATES.items() if state.may_run_again)
#: Jobs in these states wait until somebody releases them.
HELD = frozenset(name for name, state in JOB_STATES.items() if state.is_held)
#: Runs whose exit code is that of their own programs.
OWN_CODE = frozenset(name for name, state in JOB_STATES.items() if state.own_code)


def base_state(names: list[str]) -> str | None:
    """The base state in slurmrestd's list of a base state and flags; a flag if nothing else is listed."""
    return next((name for name in names if name not in FLAGS), names[0] if names else None)


def same_end(name: str) -> str:
    """The state with the same kind of end as ``name``: DEADLINE is a TIMEOUT, BOOT_FAIL a NODE_FAIL."""
    known = JOB_STATES.get(name)
    return name if known is None or known.ends_as is None else known.ends_as


def phase_of(name: str) -> Phase:
    """The phase that the state ``name`` indicates; an unknown state counts as failed."""
    known = JOB_STATES.get(name)
    return Phase.FAILED if known is None else known.phase
