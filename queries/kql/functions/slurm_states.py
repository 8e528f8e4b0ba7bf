"""The states of Slurm's jobs and nodes: extensions of Faultline, not part of Kusto's language.

- ``job_phase(State)``: what a job's state says of its run: ``waiting``, ``running``, ``closing`` (over, but how it ended is
  not final), ``requeued``, ``succeeded``, ``stopped`` (by somebody's decision) or ``failed``.
- ``job_end_state(State)``: the state with the same kind of end: a ``DEADLINE`` is a ``TIMEOUT``.
- ``node_state_kind(State)``: what a node's state says of its service: ``down``, ``failed``, ``silent``, ``drain``, ``off``,
  ``busy``, ``idle``, ``up`` or ``unknown``.
"""

from __future__ import annotations

from collections.abc import Mapping

from parsers.job_states import JOB_STATES, phase_of, same_end
from parsers.node_states import kind_patterns
from queries.kql.functions.declaration import LINEAR, Function, Template

#: The state without what sacct writes behind it: "CANCELLED by 1000".
_STATE = "split_part({0}, ' ', 1)"


def _one_of(answers: Mapping[str, str], default: str) -> str:
    whens = " ".join(f"WHEN '{state}' THEN '{answer}'" for state, answer in answers.items())
    return f"CASE {_STATE} {whens} ELSE {default} END"


def _kinds() -> str:
    """The first pattern that fits a node's state decides."""
    whens = [
        f"WHEN regexp_matches({{0}}, '{pattern}')" + (f" AND NOT regexp_matches({{0}}, '{other}')" if other else "")
        + f" THEN '{kind}'"
        for kind, pattern, other in kind_patterns()
    ]  # fmt: skip
    return f"CASE {' '.join(whens)} ELSE 'unknown' END"


#: Nothing was logged of the state: that is no phase.
_PHASES = {"": ""} | {name: state.phase.value for name, state in JOB_STATES.items()}
_ENDS = {name: same_end(name) for name in JOB_STATES if same_end(name) != name}

FUNCTIONS = (
    Function(
        "job_phase",
        "What a job's state says of its run: waiting, running, closing, requeued, succeeded, stopped or failed.",
        Template("s", "string", _one_of(_PHASES, f"'{phase_of('a state that is not known').value}'")),
        cost=LINEAR,
    ),
    Function(
        "job_end_state",
        "The job state with the same kind of end: a DEADLINE ended as a time limit does.",
        Template("s", "string", _one_of(_ENDS, _STATE)),
        cost=LINEAR,
    ),
    Function(
        "node_state_kind",
        "What a node's state says of its service: down, failed, silent, drain, off, busy, idle, up or unknown.",
        Template("s", "string", _kinds()),
        cost=LINEAR,
    ),
)
