"""Whose output a file is, where its owner or its name says it: ``jobs/NAME-9005.out`` a user may call anything.

The number is believed where the file's owner is that job's user, as accounting or root's hooks tell it. Where the file system
says nothing of users (all files are root's, the caller's or the tree's owner's: a collector's copy, an unpacked archive), or
nobody told whose the job is, it is believed as what it is: a job's own words about that job, which accuse no machine
(``parsers.authority``). A folder of the collector's (``jobs/9005/``) in the same tree is surer than a name beside it.
"""

from __future__ import annotations

import pwd
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from store.door import Asks
from store.questions import job_rows

#: Whose word about a job's user counts (as ``correlator.gather.ownership`` has it): a task prolog's is any user's.
_ACCOUNTING_SOURCES = ("sacct", "sacct_json", "slurmrestd", "jobcomp", "scontrol", "squeue", "hook")


@dataclass
class Claims:
    """``ours``: the uids that say nothing about who wrote a file. ``foldered``: jobs with a folder of the collector's."""

    ours: frozenset[int]
    foldered: frozenset[int] = frozenset()
    _uids: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _names: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def learn(self, store: Asks, fresh: Iterable[pl.DataFrame]) -> None:
        """What the store, and rows of ``jobs`` on their way into it, say of users."""
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
        """Why a file of ``uid`` is not taken for the output of ``job``; None if it is. ``claimed``: by its own name."""
        if uid not in self.ours and (known := self._is_users(job, uid)) is not None:
            return None if known else f"of uid {uid}, which is not the user of job {job}: kept without the job"
        if claimed and job in self.foldered:
            return f"named after job {job}, whose output lies in a folder of its own: kept without the job"
        return None

    def _is_users(self, job: int, uid: int) -> bool | None:
        """Whether ``uid`` is the job's user; None where that is not told."""
        if uids := self._uids.get(job):
            return uid in uids
        if names := self._names.get(job):
            try:
                return pwd.getpwuid(uid).pw_name in names
            except KeyError:  # a user of another machine
                return None
        return None
