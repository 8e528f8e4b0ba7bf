"""One cluster under two names: the configuration's, which its lines have, and Slurm's own, which accounting has.

Under two names jobs and lines never meet. Where nothing speaks for a second cluster, the rows that name it by the other name
get the configuration's (as ``ingest --cluster`` does with a tree); where something does, people are told and decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.record import TABLES

if TYPE_CHECKING:
    from store.duckdb.store import DuckStore

Ask = Callable[[str], list[dict[str, Any]]]

#: The fact that holds the other names: {other: the configuration's}.
FACT = "cluster_aliases"
#: Of several clusters that begin to send at once, one may be heard first: nothing is concluded from less than so many seconds
#: of received lines. An agent tells of itself every minute.
SURE_S = 300.0
#: What rows other than lines are renamed, and what operators said of them.
_RENAMED = (
    *(f"raw.{name}" for name in TABLES if name != "logs"), "raw.files",
    *(f"kept.{name}" for name in ("detections", "versions", "aliases", "notices", "feedback")),
)  # fmt: skip
#: Tables that a second cluster would be named in before its first job: states, settings, files of jobs.
_WITNESSES = ("node_states", "settings", "topology", "links", "boots", "artifacts")


@dataclass(frozen=True)
class Names:
    """``same``: accounting's other names of the configured cluster. ``doubts``: those that may be one, and may be others."""

    same: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def names(ask: Ask, cluster: str | None) -> Names:
    """What accounting calls the cluster of which the configuration says that it is called ``cluster``."""
    if cluster is None:
        return Names()
    lines, jobs = _named(ask, "raw.log_clusters"), _named(ask, "raw.jobs")
    known = sorted(_known(ask, cluster) - lines)
    others = sorted(jobs - lines - {cluster, *known})
    if cluster not in lines or not others:
        return Names(tuple(known))
    # Slurm writes a cluster's name in small letters, whatever slurm.conf says.
    spelled = [name for name in others if name.lower() == cluster.lower()]
    rest = [name for name in others if name not in spelled]
    if len(rest) == 1 and jobs == {*spelled, *rest} and lines == {cluster} and _alone(ask, cluster, rest[0]):
        return Names((*known, *spelled, *rest))
    return Names((*known, *spelled), tuple(rest))


def _known(ask: Ask, cluster: str) -> set[str]:
    """Other names that were taken for the cluster's before."""
    found = ask(f"SELECT value FROM model.facts WHERE name = '{FACT}'")
    return {other for other, meant in json.loads(found[0]["value"] if found else "{}").items() if meant == cluster}


def _alone(ask: Ask, cluster: str, other: str) -> bool:
    """Whether nothing speaks for a second cluster, and a node of accounting's speaks under the configuration's name."""
    for table in _WITNESSES:
        if not _named(ask, f"raw.{table}") <= {cluster, other}:
            return False
    made = {
        row["name"]
        for row in ask("SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'intake'")
    }
    if "nodes" in made and not _named(ask, "intake.nodes") <= {cluster}:  # agents say whose they are
        return False
    if "sources" in made:
        span = "SELECT epoch(max(last_seen)) - epoch(min(first_seen)) AS s FROM intake.sources"
        received = ask(span)[0]["s"]
        if received is not None and received < SURE_S:
            return False
    meet = """SELECT 1 FROM (SELECT DISTINCT unnest(nodes) AS host FROM raw.jobs) JOIN (SELECT DISTINCT host FROM raw.logs) USING (host)
        LIMIT 1"""
    return bool(ask(meet))


def _named(ask: Ask, table: str) -> set[str]:
    return {row["cluster"] for row in ask(f"SELECT DISTINCT cluster FROM {table} WHERE cluster IS NOT NULL")}


def unite(store: DuckStore, cluster: str | None) -> dict[str, str]:
    """Gives rows under another name of the configured cluster its name, and says which other names there are. A name that
    has lines of its own meanwhile is none any more."""
    if cluster is None:
        return {}
    same, known = set(names(store.rows, cluster).same), _known(store.rows, cluster)
    if same & _named(store.rows, "raw.jobs"):
        _rename(store, sorted(same), cluster)
    if same != known:
        store.set_fact(FACT, json.dumps(dict.fromkeys(sorted(same), cluster)))
    return dict.fromkeys(sorted(same), cluster)


def _rename(store: DuckStore, others: Sequence[str], cluster: str) -> None:
    with store.transaction() as connection:
        store.rewrite()
        for table in _RENAMED:
            connection.execute(
                f"UPDATE {table} SET cluster = ? WHERE list_contains(?, cluster)", [cluster, list(others)]
            )


def renamed(data: pl.DataFrame, others: Mapping[str, str]) -> pl.DataFrame:
    """Rows of a table other than that of lines, with the clusters' other names replaced."""
    if not others or "cluster" not in data.columns:
        return data
    return data.with_columns(pl.col("cluster").replace(dict(others)))
