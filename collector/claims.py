"""Decides which job a file is the output of when its owner or its name says so: a user may call any file
``jobs/NAME-9005.out``.

The job ID in the name is trusted if the file's owner is that job's user according to accounting or root's hooks. If the
file system does not show the user (all files belong to root, the caller or the tree's owner: a collector's copy, an
unpacked archive), or the job's user is unknown, Slurm's word decides: the output files that scontrol, accounting or root's
hooks name (``StdOut``, ``StdErr``). A file belongs to the job that names it, whatever number it has. One that its job does
not name, although Slurm tells which files it has, belongs to no job: it must not speak for one. If Slurm names none of
them, of several files with one number those count that are named as Slurm or the job is, and the only file counts as the
job's own statement, which accuses no machine (``parsers.authority``). A collector's folder (``jobs/9005/``) in the same
tree is more reliable than a name beside it.
"""

from __future__ import annotations

import pwd
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import polars as pl

from collector.agent.output_names import resolve_pattern
from store.door import Asks
from store.questions import job_rows

#: Sources trusted for a job's user (as in ``correlator.gather.ownership``): a task prolog can be any user's.
_ACCOUNTING_SOURCES = ("sacct", "sacct_json", "slurmrestd", "jobcomp", "scontrol", "squeue", "hook")
#: The numbers of a file's name: those of array tasks, restarts and steps differ where Slurm names one file.
_NUMBERS = re.compile(r"\d+")
#: The end of a name with a job's number, and maybe a task's or a node's.
_OF_JOB = re.compile(r"[-_.]?\d+(?:[_.]\d+)?\.\w+$")
#: How a file is called that nobody named.
_OF_SLURM = "slurm"


@dataclass
class Claims:
    """``ours``: uids that do not identify who wrote a file. ``foldered``: jobs with a folder made by the collector.
    ``named``: the base names of the files that claim each job by their name."""

    ours: frozenset[int]
    foldered: frozenset[int] = frozenset()
    named: Mapping[int, frozenset[str]] = field(default_factory=dict)
    _uids: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _names: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: The base names of each job's output files by Slurm, the reverse, and the jobs' own names.
    _outputs: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    _writers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _called: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def learn(self, store: Asks, fresh: Iterable[pl.DataFrame]) -> None:
        """Learns jobs' users from the store, and from rows of ``jobs`` on their way into it."""
        known = store.ask(job_rows.users_of_jobs(_ACCOUNTING_SOURCES))
        for rows in fresh:
            known += (
                rows.filter(pl.col("source").is_in(_ACCOUNTING_SOURCES))
                .select("job_id", "uid", "user", "name")
                .unique()
                .to_dicts()
            )
        for row in known:
            if row["uid"] is not None:
                self._uids[row["job_id"]].add(row["uid"])
            if row["user"]:
                self._names[row["job_id"]].add(row["user"])
            if row["name"] and row["job_id"] in self.named:
                self._called[row["job_id"]].add(row["name"])
        self._learn_outputs(store, fresh)

    def _learn_outputs(self, store: Asks, fresh: Iterable[pl.DataFrame]) -> None:
        if not self.named:
            return
        names = frozenset().union(*self.named.values())
        asked = job_rows.outputs_of_jobs(_ACCOUNTING_SOURCES, list(self.named), sorted(names))
        pending = (
            rows.filter(pl.col("source").is_in(_ACCOUNTING_SOURCES), pl.col("std_out").is_not_null() | pl.col("std_err").is_not_null())
            .select(job_rows.OF_PATTERNS)
            .iter_rows(named=True)
            for rows in fresh
        )  # fmt: skip
        for row in chain(store.ask(asked), *pending):
            for name in _output_names(row):
                if row["job_id"] in self.named:
                    self._outputs[row["job_id"]].add(name)
                if name in names:
                    self._writers[name].add(row["job_id"])

    def owner(self, job: int, uid: int, name: str) -> tuple[int | None, str | None]:
        """The job to which a file belongs that claims ``job`` by its base ``name``, and why it is another one or none."""
        if uid not in self.ours and self._is_users(job, uid):
            return job, None
        known, others = self._outputs.get(job, set()), self._writers.get(name, set()) - {job}
        if name in known:
            return job, None
        if known and len(others) == 1:
            (other,) = others
            if self.refused(other, uid, True) is not None:
                return (
                    None,
                    f"named after job {job}, but job {other} names such a file as its output: kept without the job",
                )
            return other, f"named after job {job}, but Slurm names it as the output of job {other}: kept as that job's"
        if known and not others and _pattern(name) in set(map(_pattern, known)):
            return job, None
        if known:
            return None, f"named after job {job}, of which Slurm names other output files: kept without the job"
        if others := {other for other in others if not self._are_of_one_user(job, other)}:
            return None, f"named after job {job}, but job {min(others)} names it as its output: kept without the job"
        known_stems = {*self._called.get(job, ()), _OF_SLURM}
        stem = _stem(name)
        if stem not in known_stems and any(_stem(other) in known_stems for other in self.named.get(job, ())):
            return None, f"named after job {job}, beside a file with its name: kept without the job"
        return job, None

    def _are_of_one_user(self, one: int, other: int) -> bool:
        return not self._names.get(one, set()).isdisjoint(self._names.get(other, ())) or not self._uids.get(
            one, set()
        ).isdisjoint(self._uids.get(other, ()))

    def refused(self, job: int, uid: int, claimed: bool) -> str | None:
        """Why a file of ``uid`` is not accepted as the output of ``job``; None if it is. ``claimed``: only its name
        says so."""
        if uid not in self.ours and (known := self._is_users(job, uid)) is not None:
            return None if known else f"of uid {uid}, which is not the user of job {job}: kept without the job"
        if claimed and job in self.foldered:
            return f"named after job {job}, whose output lies in a folder of its own: kept without the job"
        return None

    def _is_users(self, job: int, uid: int) -> bool | None:
        """Whether ``uid`` is the job's user; None if that is unknown."""
        if uids := self._uids.get(job):
            return uid in uids
        if names := self._names.get(job):
            try:
                return pwd.getpwuid(uid).pw_name in names
            except KeyError:  # a user of another machine
                return None
        return None


def _output_names(row: Mapping[str, Any]) -> set[str]:
    """The base names of the output files that a row about a job names; without those that are not known."""
    given = {
        "SLURM_JOB_ID": row["job_id"], "SLURM_ARRAY_JOB_ID": row["array_job_id"], "SLURM_ARRAY_TASK_ID": row["array_task_id"],
        "SLURM_JOB_NAME": row["name"], "SLURM_JOB_USER": row["user"], "SLURM_JOB_NODELIST": row["node_list"],
    }  # fmt: skip
    env = {name: str(value) for name, value in given.items() if value is not None}
    paths = (resolve_pattern(path, env) for path in (row["std_out"], row["std_err"]) if path)
    names = {path.rsplit("/", 1)[-1] for path in paths}
    return {name for name in names if name and "%" not in name and name != "null"}


def _pattern(name: str) -> str:
    return _NUMBERS.sub("#", name)


def _stem(name: str) -> str:
    """What stands before the number of a job: "train" of "train-35.out"."""
    return _OF_JOB.sub("", name)
