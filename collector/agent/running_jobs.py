"""The jobs whose batch script runs on this node at the moment, from the prolog of root to the epilog, and what Slurm reported of
their files. The source of hooks writes it down, the source that follows their output reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: What is needed to name a job's output and its owner.
_KEPT = (
    "SLURM_JOB_ID", "SLURM_JOB_RESTART_COUNT", "SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_USER", "SLURM_JOB_NAME", "SLURM_JOB_WORK_DIR",
    "SLURM_JOB_STDOUT", "SLURM_JOB_STDERR", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_NODELIST", "SLURM_JOB_NODELIST",
    "SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "FAULTLINE_HOST", "FAULTLINE_TIME",
)  # fmt: skip
#: Most jobs that are known at once, and characters of a value: a path has at most 4096.
MOST, MOST_VALUE = 256, 4096


@dataclass
class RunningJobs:
    """By number of the job: what its prolog was given. Several threads use it."""

    _jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    _steps: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def began(self, env: Mapping[str, str]) -> None:
        """A prolog ran for a job whose batch script runs here."""
        job = env.get("SLURM_JOB_ID", "")
        with self._lock:
            self._forget(job)
            self._jobs[job] = {name: env[name][:MOST_VALUE] for name in _KEPT if name in env}
            while len(self._jobs) > MOST:
                self._forget(next(iter(self._jobs)))

    def named(self, job: str, name: str) -> None:
        """The job's name, which slurmd gives to no prolog and patterns of files need (%x). Its owner says it: the file that it
        leads to is opened as that user, and has to be theirs."""
        with self._lock:
            if job in self._jobs and name:
                self._jobs[job].setdefault("SLURM_JOB_NAME", name[:MOST_VALUE])

    def wrote(self, job: str, files: Iterable[tuple[str, str]]) -> None:
        """What the steps of a job write to on this node (``collector.agent.step_files``): kind and path of each file."""
        with self._lock:
            if job in self._jobs:
                self._steps[job] = tuple(files)

    def steps(self, job: str) -> tuple[tuple[str, str], ...]:
        """Kind and path of the files of a job's steps, in the order in which they were seen."""
        with self._lock:
            return self._steps.get(job, ())

    def ended(self, job: str) -> None:
        with self._lock:
            self._forget(job)

    def _forget(self, job: str) -> None:
        self._jobs.pop(job, None)
        self._steps.pop(job, None)

    def known(self) -> dict[str, dict[str, str]]:
        """A copy, oldest first: it survives a start of the agent as a position."""
        with self._lock:
            return {job: dict(env) for job, env in self._jobs.items()}

    def restore(self, jobs: Mapping[str, Mapping[str, str]]) -> None:
        for env in jobs.values():
            self.began(env)
