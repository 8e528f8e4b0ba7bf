"""One cluster under two names: the configuration's, which its lines have, and Slurm's own, which accounting has.

Under two names, jobs and lines never meet. If nothing indicates a second cluster, the rows with the other name get the
configuration's (as ``ingest --cluster`` does with a tree); otherwise a person is asked to decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from sqlalchemy import Table

from store.door import Asks, Door
from store.errors import NoSuchTable
from store.questions import cluster_names as questions
from store.questions import facts
from store.tables import JOBS, LINE_CLUSTERS, NODES

#: The fact that holds the other names: {other: the configuration's}.
FACT = "cluster_aliases"
#: When several clusters start sending at once, one may arrive first: nothing is concluded from less than this many
#: seconds of received lines. An agent sends its status every minute.
SURE_S = 300.0


@dataclass(frozen=True)
class Names:
    """``same``: accounting's other names of the configured cluster. ``doubts``: names that may be its or another
    cluster's."""

    same: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def names(store: Asks, cluster: str | None) -> Names:
    """Accounting's names for the cluster that the configuration calls ``cluster``."""
    if cluster is None:
        return Names()
    lines, jobs = _named(store, LINE_CLUSTERS), _named(store, JOBS)
    known = sorted(_known(store, cluster) - lines)
    others = sorted(jobs - lines - {cluster, *known})
    if cluster not in lines or not others:
        return Names(tuple(known))
    # Slurm writes a cluster's name in lower case, whatever slurm.conf has.
    spelled = [name for name in others if name.lower() == cluster.lower()]
    rest = [name for name in others if name not in spelled]
    if len(rest) == 1 and jobs == {*spelled, *rest} and lines == {cluster} and _alone(store, cluster, rest[0]):
        return Names((*known, *spelled, *rest))
    return Names((*known, *spelled), tuple(rest))


def _known(store: Asks, cluster: str) -> set[str]:
    """Other names already accepted for the cluster."""
    found = store.ask(facts.value(FACT))
    return {other for other, meant in json.loads(found[0]["value"] if found else "{}").items() if meant == cluster}


def _alone(store: Asks, cluster: str, other: str) -> bool:
    """Whether nothing indicates a second cluster, and a node known to accounting sends under the configuration's
    name."""
    for table in questions.WITNESSES:
        if not _named(store, table) <= {cluster, other}:
            return False
    if not _received(store, cluster):
        return False
    return bool(store.ask(questions.nodes_of_jobs_with_lines()))


def _received(store: Asks, cluster: str) -> bool:
    """Whether data has arrived over the network for long enough, and agents (which state their cluster) name no other.
    If nothing was ever received, nothing contradicts it."""
    try:
        if not _named(store, NODES) <= {cluster}:
            return False
        received = store.ask(questions.received_for())[0]["s"]
    except NoSuchTable:
        return True
    return received is None or received >= SURE_S


def _named(store: Asks, table: Table) -> set[str]:
    return {row["cluster"] for row in store.ask(questions.clusters_of(table))}


def unite(store: Door, cluster: str | None) -> dict[str, str]:
    """Gives rows with another name of the configured cluster its name, and returns the other names. A name that has
    lines of its own by now no longer counts."""
    if cluster is None:
        return {}
    same, known = set(names(store, cluster).same), _known(store, cluster)
    if same & _named(store, JOBS):
        _rename(store, sorted(same), cluster)
    if same != known:
        store.set_fact(FACT, json.dumps(dict.fromkeys(sorted(same), cluster)))
    return dict.fromkeys(sorted(same), cluster)


def _rename(store: Door, others: Sequence[str], cluster: str) -> None:
    with store.write() as writer:
        for table in questions.RENAMED:
            writer.amend(questions.rename(table, others, cluster))


def renamed(data: pl.DataFrame, others: Mapping[str, str]) -> pl.DataFrame:
    """Rows of a table other than that of lines, with the cluster's other names replaced."""
    if not others or "cluster" not in data.columns:
        return data
    return data.with_columns(pl.col("cluster").replace(dict(others)))
