"""Node names in a store of several clusters, where two clusters may have a host of the same name.

A host keeps its name while only one cluster has it. If several have it, each is named with its cluster, ``gpu02@east``
and ``gpu02@west``: nodes persist, so none of them is the last, as with runs (``store.run_names``). Rows without a
cluster belong to every node of that name, as they do to every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from store.door import Answers
from store.questions import nodes
from store.run_names import UNNAMED


def parted(name: str) -> tuple[str, str | None]:
    """gpu02@east -> gpu02, east; a name without a cluster -> itself, None."""
    host, at, cluster = name.rpartition("@")
    return (host, cluster) if at else (name, None)


class NodeNames:
    """Which hosts have their cluster in their name. ``several``: whether the store has more than one cluster."""

    def __init__(self, store: Answers) -> None:
        clusters = store.ask(nodes.CLUSTERS)
        self.several = len({row["cluster"] for row in clusters} - {None}) > 1
        found = store.ask(nodes.shared()) if self.several else []
        self.shared = frozenset(str(row["host"]) for row in found)

    def of(self, host: object, cluster: object = None) -> str:
        """The name of a cluster's host; without the cluster, the host's, which the reader then has to resolve."""
        shared = str(host) in self.shared and cluster
        return f"{host}@{cluster}" if shared else str(host)


def find(rows: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """The node named ``name`` among those of its host, even with an unnecessary cluster; None if there is none."""
    host, cluster = parted(name)
    for row in rows:
        if row["name"] == name or (row["host"] == host and (row["cluster"] or UNNAMED) == cluster):
            return row
    return None
