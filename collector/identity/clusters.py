"""A cluster's name: from its own files in a tree, from incoming rows, from everything stored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from store.door import Asks, Door
from store.questions import job_rows, settling, sources

#: Kinds of files that take precedence over all others for the cluster's name.
CONFIGURATION = ("slurm_conf", "scontrol_config")
#: Tables whose rows name the cluster themselves.
_NAMING = ("jobs", "settings", "logs")

_CLUSTER_NAME = re.compile(rb"(?mi)^ClusterName\s*=\s*(\S+)")
_OF_ENVIRONMENT = re.compile(rb"SLURM_CLUSTER_NAME=([^\0\n]+)")


def named_in_file(kind: str, head: bytes, whole: bool) -> tuple[str, ...]:
    """The cluster names in a file of a recognised ``kind``, once per occurrence; ``whole``: ``head`` is the entire
    file."""
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
    """The cluster names in the files of a tree (kind, names), most frequent first: slurm.conf alone if it names one,
    else all that accounting and job environments name."""
    found = list(files)
    for kind, names in found:
        if kind in CONFIGURATION and names:
            return list(names)
    counted = Counter(name for _, names in found for name in names)
    return sorted(counted, key=lambda name: (-counted[name], name))


@dataclass(frozen=True)
class TreeCluster:
    """The cluster that a tree was collected from: the name in its own files, and the name to use."""

    own: str
    called: str

    def place(self, data: pl.DataFrame) -> pl.DataFrame:
        """Rows of the tree with the cluster's name replaced by the one to use; Slurm writes the name in lower case."""
        if "cluster" not in data.columns:
            return data
        own = pl.col("cluster").str.to_lowercase() == self.own.lower()
        return data.with_columns(pl.when(own).then(pl.lit(self.called)).otherwise("cluster").alias("cluster"))


def only_one_in(tables: Mapping[str, pl.DataFrame], store: Asks) -> str | None:
    """The only cluster that incoming rows name, if neither they nor the store name another."""
    parts = [tables[name]["cluster"] for name in _NAMING if name in tables]
    names = set(pl.concat(parts).drop_nulls().unique().to_list()) if parts else set()
    if len(names) != 1:
        return None
    name = str(names.pop())
    return None if store.ask(job_rows.named_clusters(other_than=name)) else name


def only_one_of_jobs(store: Asks) -> str | None:
    """The only cluster that stored jobs name, if there is exactly one."""
    known = store.ask(sources.JOB_CLUSTERS)
    return known[0]["cluster"] if len(known) == 1 else None


def settle(store: Door) -> None:
    """Gives stored rows without a cluster its name, if there is only one. Idempotent."""
    named = store.ask(settling.named_clusters())
    if len(named) == 1:
        store.name_cluster(named[0]["cluster"])
