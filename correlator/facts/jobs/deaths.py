"""Tasks of a run that somebody killed with SIGKILL, and the exit code that a run really had.

``sacct`` prints exit codes of 128 and more without the 128 (slurm src/sacct/print.c): its ``9:0`` is 137 or 9, and 137
is what a shell or srun returns for a task that SIGKILL ended, or any program by itself. So ``9:0`` alone shows no signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from correlator.facts.jobs.lines import of_run
from correlator.facts.jobs.memory import KILLED_S
from correlator.facts.world import World
from correlator.model.attributes import OUTPUT
from correlator.model.moments import seconds_of
from correlator.model.nouns import Event, Fact, Run
from parsers.documents.fields import integer
from parsers.hostlist import numbers

SIGKILL = 9

#: What shells and srun add to the number of a signal; sacct takes it off any exit code that is as large.
SHELL_ADDS = 128

#: Exit codes in sacct that people read as signals: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM.
LIKE_SIGNALS = frozenset({4, 6, 7, 8, 9, 11, 15})

#: srun names each task that ended badly, and itself where it ended the others (slurm src/api/step_launch.c).
_TASK_ENDED = r"\btasks? (?P<tasks>[\d,-]+): (?P<how>\w+)"
_ANY_TASK_ENDED = re.compile(_TASK_ENDED)
_TASKS = re.compile(rf"error: (?P<host>\S+): {_TASK_ENDED}")
_BY_SRUN = re.compile(r"Terminating (?:job step|StepId)|First task exited|Job step aborted")
_RETURNED = re.compile(r"error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): Exited with exit code (?P<code>\d+)")
_TERMINATING = re.compile(r"Terminating (?:job step|StepId)")
_WAITED = re.compile(r"^srun: (?:error: )?First task exited (?P<secs>\d+)s ago")


class BySrun(NamedTuple):
    """Why srun ended the tasks of a step, and its own lines."""

    reason: str
    events: tuple[Event, ...]


def by_srun(end: Fact) -> BySrun | None:
    """What made srun end the remaining tasks of a step: the first one that failed, or its user's --wait.

    Only the order of srun's lines shows it: output has no timestamps.
    """
    output: list[Event] = sorted(end.attrs[OUTPUT], key=lambda e: (e.time, e.line or 0))
    first: tuple[Event, re.Match[str]] | None = None
    for event in output:
        if waited := _WAITED.search(event.message):
            secs = waited["secs"]
            return BySrun(f"srun ended its other tasks {secs} s after the first one had exited (srun --wait)", (event,))
        if first is None and (returned := _RETURNED.search(event.message)):
            first = event, returned
        if first is not None and _TERMINATING.search(event.message):
            which = f"task {first[1]['tasks']} returned exit code {first[1]['code']}"
            return BySrun(f"{which}, and srun ended the other tasks of the step", (first[0], event))
    return None


def step_out_of_time(run: Run) -> str | None:
    """The step that reached a time limit of its own, and with which the run ended; the run had time left."""
    for step in run.steps:
        end = seconds_of(step.get("end"))
        if (
            step.get("state") == "TIMEOUT"
            and end is not None
            and run.end is not None
            and abs(run.end - end) <= KILLED_S
        ):
            return str(step.get("step_id"))
    return None


def killed_tasks(world: World, run: Run) -> list[Event]:
    """slurmstepd's lines about tasks of the run that died by SIGKILL."""
    lines = of_run(run, world.by_job.get(run.job_id, ()))
    return [
        e for e in lines if e.source in ("slurmd", "slurmstepd") and integer(e.entities.get("signal")) == SIGKILL
    ]  # fmt: skip


def was_killed(world: World, run: Run, end: Fact) -> bool:
    """Did SIGKILL end the run, and not by srun, which ends the other tasks of a step with it?"""
    output: list[Event] = end.attrs[OUTPUT]
    if any(_BY_SRUN.search(e.message) for e in output):
        return False
    if integer(run.row.get("exit_signal")) == SIGKILL:
        return True
    if integer(run.row.get("exit_code")) not in (SIGKILL, SIGKILL + SHELL_ADDS):
        return False
    steps = any(step["exit_signal"] == SIGKILL for step in run.steps)
    return steps or bool(killed_tasks(world, run)) or "Killed" in _endings(output, _TASKS)


def killed_at_once(end: Fact) -> bool:
    """Every task in srun's output was killed: then none ended first, and the signal came from outside."""
    endings = _endings(end.attrs.get(OUTPUT, ()), _ANY_TASK_ENDED)
    return len(endings) > 1 and set(endings) == {"Killed"}


def _endings(output: Iterable[Event], form: re.Pattern[str]) -> list[str]:
    return [match["how"] for event in output for match in form.finditer(event.message)]


def tasks_on(host: str, end: Fact) -> int:
    """How many tasks of the run on a node its output names; 1 if it names none."""
    names = {
        task for e in end.attrs[OUTPUT] for m in _TASKS.finditer(e.message) if m["host"] == host for task in numbers(m["tasks"])
    }  # fmt: skip
    return max(1, len(names))


def exit_code_of(run: Run, end: Fact) -> str:
    """The run's exit code in words; slurmctld's own line has the whole of it."""
    if lost := run.row.get("exit_code_in_sacct"):
        return f"exit code {run.row.get('exit_code')} ({lost} in sacct)"
    code = integer(run.row.get("exit_code"))
    whole = [n for e in end.events if e.source == "slurmctld" and (n := integer(e.entities.get("exit_code")))]
    if whole and whole[-1] != code:
        return f"exit code {whole[-1]}" + (f" ({code} in sacct)" if whole[-1] == (code or 0) + SHELL_ADDS else "")
    if not whole and code in LIKE_SIGNALS:
        return f"exit code {code}, or {code + SHELL_ADDS}, of which sacct prints {code}"
    return f"exit code {run.row.get('exit_code')}"
