"""Maps a host's other names to its node: its address, its NodeHostname, a name with a domain, upper case.

A log server writes what it knows of a sender, often an address; Slurm uses NodeNames. The site's own inventory maps
them: ``NodeName= NodeAddr= NodeHostname=`` of slurm.conf, ``scontrol show node``, ``sinfo``, slurmrestd. The same holds
for controllers (``SlurmctldHost=``) and switches (topology.conf, the cable list). Rows get the NodeName as their host
when they are stored; rows stored before the inventory was known get it later (``settle``): the order does not matter.
The line itself stays unchanged. A name that could mean two nodes, or that is itself a node's name, maps to nothing.

The question here is what a written name means. Who sent a line is another one (correlator/site/senders.py). Both read
slurm.conf by ``parsers.node_definitions``, and answer differently on purpose:

* A name is text, which anybody may write. It gives a row its node, and the row no trust. It must have one meaning, or
  the row keeps what was written.
* The address of a connection is not chosen by who writes the line. It decides what the line may claim. It is also known
  from agents' connections, from looking up the controllers and from what was settled here; ``NodeHostname`` is a name, and
  none.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from parsers.host_names import is_loopback, short_key, short_name
from parsers.node_definitions import PREFIX, controllers, defined_nodes, other_names
from store.door import Asks, Door
from store.questions import settling
from store.tables import METADATA, SETTINGS

#: Tables of ``raw`` whose host is what a writer called itself. Others name nodes as Slurm does.
TABLES = ("logs", "metrics", "boots", "links", "artifacts", "environments")
#: A cluster that the inventory does not name.
_ANOTHER = "\0"
#: The store records under this name which inventory its rows were settled for.
_FACT = "host_names"

_NO_NAMES = frozenset({"", "localhost", "localhost.localdomain", "(null)", "n/a", "none"})


@dataclass(frozen=True)
class HostNames:
    """By cluster: the spelling of each node (``nodes``) and the node for each other name (``others``), both keyed in
    lower case."""

    nodes: Mapping[str | None, Mapping[str, str]] = field(default_factory=dict)
    others: Mapping[str | None, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Asks) -> HostNames:
        """Reads the store's inventory."""
        return cls.of_inventory(store.ask(settling.settings_about_hosts()), store.ask(settling.hosts_of_inventory()))

    @classmethod
    def of_inventory(cls, settings: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> HostNames:
        """From rows of ``raw.settings`` about nodes and rows of (cluster, host) that name nodes.

        An inventory without a cluster applies to all; a line without one may belong to any cluster that has such a
        node.
        """
        named: list[tuple[str | None, str, str | None]] = [(row["cluster"], str(row["host"]), None) for row in nodes]
        for row in settings:
            cluster, value = row["cluster"], str(row["value"] or "")
            if str(row["scope"]).startswith("node:"):
                named.append((cluster, str(row["scope"])[5:], value))
            elif not str(row["name"]).startswith(PREFIX):
                pairs = controllers(str(row["name"]), value)
                named += [(cluster, host, address) for host, address in pairs if not _is_everybody(host)]
            else:
                named += [(cluster, *pair) for pair in _of_definition(str(row["name"]), value)]
        spelled, others = {}, {}
        for cluster in {row[0] for row in named} | {None, _ANOTHER}:
            mine = [row[1:] for row in named if cluster is None or row[0] in (cluster, None)]
            spelled[cluster] = _only_one((node.lower(), node) for node, _ in mine)
            short = [(short_key(node), node) for node, _ in mine if short_name(node) != node]
            meant = _only_one([*short, *((other.lower(), node) for node, other in mine if other)])
            others[cluster] = {k: v for k, v in meant.items() if k not in spelled[cluster] and not _is_everybody(k)}
        return cls(spelled, others) if named else cls()

    @property
    def digest(self) -> str:
        """Equal for equal names."""
        rows = sorted(
            (c or "", sorted(n.items()), sorted(self.others.get(c, {}).items())) for c, n in self.nodes.items()
        )
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def meaning(self, cluster: str | None, host: str) -> str | None:
        """The node that ``host`` is another name for; None if there is none, or if it is the node's own name."""
        cluster = cluster if cluster in self.nodes else _ANOTHER
        nodes, name = self.nodes.get(cluster, {}), host.lower()
        if name in nodes:
            found: str | None = nodes[name]
        else:
            found = self.others.get(cluster, {}).get(name)
            if found is None:
                found = nodes.get(short_name(name))
        return None if found == host else found

    def normal(self, data: pl.DataFrame) -> pl.DataFrame:
        """``data`` with every host replaced by its node's name; for settings, without what is already known of
        nodes."""
        if not self.nodes or data.is_empty():
            return data
        if "scope" in data.columns:
            return self._news(data)
        if "host" not in data.columns:
            return data
        cluster = "cluster" if "cluster" in data.columns else None
        pairs = (
            data.select(pl.col("host"), pl.col("cluster") if cluster else pl.lit(None, pl.String).alias("cluster"))
            .unique()
            .cast(pl.String)
        )
        meant = self.of(pairs)
        if meant.is_empty():
            return data
        keys = ["host", "cluster"] if cluster else ["host"]
        kind, data = data.schema["host"], data.with_columns(pl.col("host").cast(pl.String))
        joined = data.select(keys).join(
            meant.select(*keys, "node"), on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        return data.with_columns(pl.coalesce(joined["node"], data["host"]).cast(kind).alias("host"))

    def _news(self, settings: pl.DataFrame) -> pl.DataFrame:
        """Node states are polled: a repeated value is not a new setting, and a new setting makes the correlator start
        over."""
        about = settings["scope"].str.starts_with("node:").fill_null(False)
        if not about.any():
            return settings
        known = [
            of_node and self.meaning(cluster, value or "") == scope[5:]
            for of_node, cluster, scope, value in zip(
                about, settings["cluster"], settings["scope"], settings["value"], strict=True
            )
        ]
        return settings.filter(~pl.Series(known, dtype=pl.Boolean))

    def of(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """The (cluster, host) pairs in ``pairs`` that are another name, with their ``node``."""
        rows = [
            (cluster, host, node)
            for cluster, host in pairs.select("cluster", "host").drop_nulls("host").iter_rows()
            if (node := self.meaning(cluster, host)) is not None
        ]
        kinds = {"cluster": pl.String, "host": pl.String, "node": pl.String}
        return pl.DataFrame(sorted(rows, key=str), schema=kinds, orient="row")


def settle(store: Door) -> HostNames:
    """Renames rows stored under another name to the node's, until a pass finds none.

    What was learned is stored as settings (scope ``alias``): a new one makes the correlator recompute everything.
    """
    names = HostNames.read(store)
    digest = names.digest
    if not names.nodes or store.fact(_FACT) == digest:
        return names
    learned = []
    with store.write() as writer:
        for name in TABLES:
            table = METADATA.tables[f"raw.{name}"]
            meant = names.of(writer.ask_frame(settling.hosts_in(table)))
            if meant.is_empty():
                continue
            learned.append(meant)
            writer.name_hosts(table, meant.rows())
        if learned:
            known = set(map(tuple, writer.ask_frame(settling.known_aliases()).rows()))
            rows = pl.concat(learned).unique().sort("host", "cluster").rows()
            new = [row for row in rows if row not in known]
            aliases = {
                "cluster": [c for c, _, _ in new],
                "name": [h for _, h, _ in new],
                "value": [n for _, _, n in new],
            }
            about = (pl.lit(settling.ALIAS).alias("scope"), pl.lit("inventory").alias("source"))
            writer.insert(SETTINGS, pl.DataFrame(aliases, schema=dict.fromkeys(aliases, pl.String)).with_columns(about))
    if not learned:
        store.set_fact(_FACT, digest)
    return names


def _of_definition(setting: str, value: str) -> list[tuple[str, str | None]]:
    """(node, other name if any) of one ``NodeName=`` line."""
    others = [(node, other) for node, other in other_names(setting, value) if node.lower() != other.lower()]
    return [*((node, None) for node in defined_nodes(setting)), *others]


def _only_one(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return {key: min(values) for key, values in sorted(found.items()) if len(values) == 1}


def _is_everybody(name: str) -> bool:
    """Whether every host calls itself that name."""
    return name in _NO_NAMES or is_loopback(name)
