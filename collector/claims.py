"""Decides which job a file is the output of when its owner or its name says so: a user may call any file
``jobs/NAME-9005.out``.

The job ID in the name is trusted if the file's owner is that job's user according to accounting or root's hooks. If the
file system does not show the user (all files belong to root, the caller or the tree's owner: a collector's copy, an
unpacked archive), or the job's user is unknown, the file counts as the job's own statement, which accuses no machine
(``parsers.authority``). A collector's folder (``jobs/9005/``) in the same tree is more reliable than a name beside it.
"""

from __future__ import annotations

import pwd
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from store.door import Asks
from store.questions import job_rows

#: Sources trusted for a job's user (as in ``correlator.gather.ownership``): a task prolog can be any user's.
_ACCOUNTING_SOURCES = ("sacct", "sacct_json", "slurmrestd", "jobcomp", "scontrol", "squeue", "hook")


@dataclass
class Claims:
    """``ours``: uids that do not identify who wrote a file. ``foldered``: jobs with a folder made by the collector."""

    ours: frozenset[int]
    foldered: frozenset[int] = frozenset()
    _uids: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _names: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def learn(self, store: Asks, fresh: Iterable[pl.DataFrame]) -> None:
        """Learns jobs' users from the store, and from rows of ``jobs`` on their way into it."""
        known = store.ask(job_rows.users_of_jobs(_ACCOUNTING_SOURCES))
        for rows in fresh:
            known += (
                rows.filter(pl.col("source").is_in(_ACCOUNTING_SOURCES))
                .select("job_id", "uid", "user")
                .unique()
                .to_dicts()
            )
        for row in known:
            if row["uid"] is not None:
                self._uids[row["job_id"]].add(row["uid"])
            if row["user"]:
                self._names[row["job_id"]].add(row["user"])

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
