"""Run names in a store of several clusters, where two clusters may have used a job ID.

``run_key`` is a run's name in its own cluster. The run of that name that ended last keeps it in the whole store; the
others have their cluster after the ID: ``15@east``, ``15@east#1``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from store.door import Answers
from store.questions import runs
from store.questions.runs import UNNAMED

__all__ = ["UNNAMED", "differing", "disputed", "find", "named_runs", "parted", "renamed", "verdicts"]


def named_runs(store: Answers) -> sa.Subquery:
    """The relation of named runs: finding names that several clusters use requires a look at all runs, but one cluster
    has none."""
    return runs.named(store.ask(runs.CLUSTERS)[0]["n"] > 1)


def verdicts(store: Answers) -> list[dict[str, Any]]:
    """Runs that have a verdict, by their names in the whole store: ``run_key``, ``cluster`` and ``document``."""
    return store.ask(runs.documents(named_runs(store)))


def disputed(store: Answers) -> list[str]:
    """Runs for which trusted sources name different users, in words: they are shown to none of these."""
    return [
        f"job {row['run_key']} of cluster {row['cluster'] or UNNAMED}: its user is disputed ({row['named']}); it is shown to neither. "
        "Look which source tells of another cluster or is not to be believed"
        for row in store.ask(runs.DISPUTED)
    ]


def parted(key: str) -> tuple[str, str | None]:
    """The name within its own cluster, and the cluster if the name contains it: "15@east#1" -> 15#1, east."""
    name, mark, attempt = key.partition("#")
    own, at, cluster = name.rpartition("@")
    return (f"{own}{mark}{attempt}", cluster) if at else (key, None)


def find(store: Answers, key: str, *columns: str) -> dict[str, Any] | None:
    """The run named ``key``, even with an unnecessary cluster or restart count ("15#0"), or with the raw ID of an array's task,
    as log lines have it; None if there is none. ``columns``: the columns to read; by default those that pages show."""
    of, key = named_runs(store), key.removesuffix("#0")
    found = store.ask(runs.by_key(of, key, *columns))
    own, cluster = parted(key)
    if not found and cluster is not None:
        found = store.ask(runs.by_own_key(of, own, cluster, *columns))
    if not found and (name := _of_task(store, of, own, cluster)) is not None:
        found = store.ask(runs.by_key(of, name, *columns))
    return found[0] if found else None


#: The raw ID of a job, and the restart count.
_NUMBER = re.compile(r"([0-9]{1,18})(?:#([0-9]{1,9}))?")


def _of_task(store: Answers, of: sa.Subquery, own: str, cluster: str | None) -> str | None:
    """The name of the run whose job has this raw ID; None if several runs may be meant: an array's own ID is the raw ID of
    its last task as well."""
    number = _NUMBER.fullmatch(own)
    if number is None:
        return None
    found = store.ask(runs.by_number(of, int(number[1]), int(number[2] or 0), cluster))
    return str(found[0]["run_key"]) if len(found) == 1 and found[0]["job_id"] == int(number[1]) else None


def renamed(document: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """An incident's document with its jobs' names in the whole store; ``names``: those of its cluster's runs that
    differ."""
    if not names:
        return document
    jobs = {
        part: [{**item, **{name: names.get(item[name], item[name]) for name in ("job_id", "ended_with") if name in item}} for item in document[part]]
        for part in ("jobs", "unaffected_jobs") if document.get(part)
    }  # fmt: skip
    slowed = [names.get(key, key) for key in document.get("slowed_jobs") or ()]
    return {**document, **jobs, "slowed_jobs": slowed}


def differing(store: Answers, cluster: str | None) -> dict[str, str]:
    """A cluster's runs whose name differs in the whole store: name in the cluster -> name in the store."""
    of = named_runs(store)
    if of is runs.named(False):
        return {}
    return {str(row["own_key"]): str(row["run_key"]) for row in store.ask(runs.renamed(of, cluster))}
