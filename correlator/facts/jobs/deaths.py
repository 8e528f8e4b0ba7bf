"""Tasks of a run that somebody killed with SIGKILL, and the exit code that a run really had.

``sacct`` prints exit codes of 128 and more without the 128 (slurm src/sacct/print.c): its ``9:0`` is 137 or 9, and 137
is what a shell or srun returns for a task that SIGKILL ended, or any program by itself. So ``9:0`` alone shows no signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from correlator.facts.jobs.detector import of_run
from correlator.facts.world import World
from correlator.model.attributes import OUTPUT
from correlator.model.nouns import Event, Fact, Run

SIGKILL = 9

#: What shells and srun add to the number of a signal; sacct takes it off any exit code that is as large.
SHELL_ADDS = 128

#: Exit codes in sacct that people read as signals: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM.
LIKE_SIGNALS = frozenset({4, 6, 7, 8, 9, 11, 15})

#: Users write output: a range of task numbers in it may be of any size.
MOST_TASKS = 4096

#: srun names each task that ended badly, and itself where it ended the others (slurm src/api/step_launch.c).
_TASKS = re.compile(r"error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): (?P<how>\w+)")
_BY_SRUN = re.compile(r"Terminating (?:job step|StepId)|First task exited|Job step aborted")


def killed_tasks(world: World, run: Run) -> list[Event]:
    """slurmstepd's lines about tasks of the run that died by SIGKILL."""
    lines = of_run(run, world.by_job.get(run.job_id, ()))
    return [
        e for e in lines if e.source in ("slurmd", "slurmstepd") and _whole(e.entities.get("signal")) == SIGKILL
    ]  # fmt: skip


def was_killed(world: World, run: Run, end: Fact) -> bool:
    """Did SIGKILL end the run, and not by srun, which ends the other tasks of a step with it?"""
    output: list[Event] = end.attrs[OUTPUT]
    if any(_BY_SRUN.search(e.message) for e in output):
        return False
    if _whole(run.row.get("exit_signal")) == SIGKILL:
        return True
    if _whole(run.row.get("exit_code")) not in (SIGKILL, SIGKILL + SHELL_ADDS):
        return False
    steps = any(step["exit_signal"] == SIGKILL for step in run.steps)
    return steps or bool(killed_tasks(world, run)) or any("Killed" in hows for hows in _ended(output))


def _ended(output: Iterable[Event]) -> list[set[str]]:
    return [{m["how"] for m in _TASKS.finditer(e.message)} for e in output]


def tasks_on(host: str, end: Fact) -> int:
    """How many tasks of the run on a node its output names; 1 if it names none."""
    names = {
        task for e in end.attrs[OUTPUT] for m in _TASKS.finditer(e.message) if m["host"] == host for task in _numbers(m["tasks"])
    }  # fmt: skip
    return max(1, len(names))


def _numbers(text: str) -> Iterable[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            until = int(last) if last.isdigit() else int(first)
            yield from range(int(first), min(until, int(first) + MOST_TASKS) + 1)


def exit_code_of(run: Run, end: Fact) -> str:
    """The run's exit code in words; slurmctld's own line has the whole of it."""
    code = _whole(run.row.get("exit_code"))
    whole = [n for e in end.events if e.source == "slurmctld" and (n := _whole(e.entities.get("exit_code")))]
    if whole and whole[-1] != code:
        return f"exit code {whole[-1]}" + (f" ({code} in sacct)" if whole[-1] == (code or 0) + SHELL_ADDS else "")
    if not whole and code in LIKE_SIGNALS:
        return f"exit code {code}, or {code + SHELL_ADDS}, of which sacct prints {code}"
    return f"exit code {run.row.get('exit_code')}"


def _whole(value: object) -> int | None:
    return int(str(value)) if str(value).isdigit() else None
