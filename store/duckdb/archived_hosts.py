"""Which nodes the hosts of archived lines were learned to be, as long as the lines' day is not closed.

A file is not changed. ``raw.archive.hosts`` has the names for each file, as JSON: [cluster, host, node], and the views over
its lines apply them. When the day closes, its lines are written again with them (``store.duckdb.early``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import duckdb

from store.duckdb.quoting import quoted

#: A cluster (None: lines without one), another name of a host in it, and the node that this is.
Name = tuple[str | None, str, str]


def node_of(hosts: str, named: str | None) -> str:
    """SQL of the node that a line's host is, over the columns ``cluster`` and ``host`` of its file. ``named``: the cluster of
    those lines that had none when they were archived."""
    of_line = "cluster" if named is None else f"coalesce(cluster, {quoted(named)})"
    clusters: dict[str | None, dict[str, str]] = {}
    for cluster, host, node in json.loads(hosts):
        clusters.setdefault(cluster, {})[host] = node
    cases = "".join(
        f" WHEN {of_line} IS NOT DISTINCT FROM {quoted(cluster)} THEN map([{_listed(nodes)}], [{_listed(nodes.values())}])[host]"
        for cluster, nodes in clusters.items()
    )
    return f"coalesce(CASE{cases} END, host)"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(quoted(text) for text in texts)


def with_names(hosts: str | None, names: Sequence[Name]) -> str:
    """``hosts`` of a file, and what was learned since: also about nodes that turn out to be others."""
    known = {(cluster, host): node for cluster, host, node in json.loads(hosts or "[]")}
    new = {(cluster, host): node for cluster, host, node in names}
    made = new | {(cluster, host): new.get((cluster, node), node) for (cluster, host), node in known.items()}
    return json.dumps([[cluster, host, node] for (cluster, host), node in sorted(made.items(), key=repr)])


def name_cluster(connection: duckdb.DuckDBPyConnection, cluster: str) -> None:
    """Lines without a cluster get this one, inside the caller's transaction."""
    rows = connection.execute("SELECT file, hosts FROM raw.archive WHERE hosts IS NOT NULL").fetchall()
    for file, hosts in rows:
        named = [[cluster if old is None else old, host, node] for old, host, node in json.loads(hosts)]
        connection.execute("UPDATE raw.archive SET hosts = ? WHERE file = ?", [json.dumps(named), file])
