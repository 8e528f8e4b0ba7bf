"""What a cluster is called: by its own files in a tree, by the rows that come in, by all that is stored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from store.door import Asks, Door
from store.questions import job_rows, settling, sources

#: Kinds of files whose word on the cluster's name is the only one that counts.
CONFIGURATION = ("slurm_conf", "scontrol_config")
#: Tables whose rows name the cluster themselves.
_NAMING = ("jobs", "settings", "logs")

_CLUSTER_NAME = re.compile(rb"(?mi)^ClusterName\s*=\s*(\S+)")
_OF_ENVIRONMENT = re.compile(rb"SLURM_CLUSTER_NAME=([^\0\n]+)")


def named_in_file(kind: str, head: bytes, whole: bool) -> tuple[str, ...]:
    """What a file of a recognised ``kind`` calls its cluster, once for each time it says it; ``whole``: ``head`` is all of it."""
    if kind in CONFIGURATION:
        match = _CLUSTER_NAME.search(head)
        return (match[1].decode("utf-8", "replace"),) if match else ()
    if kind == "sacct":
        lines = head.decode("utf-8", "replace").splitlines()
        header = lines[0].split("|") if lines else []
        if "Cluster" not in header:
            return ()
        place = header.index("Cluster")
        rows = lines[1:] if whole else lines[1:-1]
        return tuple(cells[place] for line in rows if len(cells := line.split("|")) > place and cells[place])
    if kind in ("hook_env", "hook_spool"):
        match = _OF_ENVIRONMENT.search(head)
        return (match[1].decode("utf-8", "replace"),) if match else ()
    return ()


def named_in_tree(files: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """What the files of a tree (kind, names) call its cluster, the most frequent first: slurm.conf's word is the only one, else all
    that accounting and environments of jobs name."""
    found = list(files)
    for kind, names in found:
        if kind in CONFIGURATION and names:
            return list(names)
    counted = Counter(name for _, names in found for name in names)
    return sorted(counted, key=lambda name: (-counted[name], name))


@dataclass(frozen=True)
class TreeCluster:
    """The cluster that a tree was collected from: what its own files call it, and what it is to be called."""

    own: str
    called: str

    def place(self, data: pl.DataFrame) -> pl.DataFrame:
        """Rows of the tree with its cluster called as it is to be; Slurm writes the name in small letters."""
        if "cluster" not in data.columns:
            return data
        own = pl.col("cluster").str.to_lowercase() == self.own.lower()
        return data.with_columns(pl.when(own).then(pl.lit(self.called)).otherwise("cluster").alias("cluster"))


def only_one_in(tables: Mapping[str, pl.DataFrame], store: Asks) -> str | None:
    """The cluster that rows on their way into the store name, where neither they nor the store name another."""
    parts = [tables[name]["cluster"] for name in _NAMING if name in tables]
    names = set(pl.concat(parts).drop_nulls().unique().to_list()) if parts else set()
    if len(names) != 1:
        return None
    name = str(names.pop())
    return None if store.ask(job_rows.named_clusters(other_than=name)) else name


def only_one_of_jobs(store: Asks) -> str | None:
    """The cluster that stored jobs name, where they name one."""
    known = store.ask(sources.JOB_CLUSTERS)
    return known[0]["cluster"] if len(known) == 1 else None


def settle(store: Door) -> None:
    """Gives stored rows of no cluster the cluster's name, where there is one only. Idempotent."""
    named = store.ask(settling.named_clusters())
    if len(named) == 1:
        store.name_cluster(named[0]["cluster"])
