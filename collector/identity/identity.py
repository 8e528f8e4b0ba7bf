"""What a running service knows about names, in one object: which cluster its rows belong to, and which node a host name
means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl
import structlog

from collector.identity import boots, cluster_aliases, clusters, hosts
from collector.identity.hosts import HostNames
from store.door import Door

log = structlog.get_logger()


def settle(store: Door) -> HostNames:
    """Applies what was learned later to rows that waited for it, and returns the host names. Idempotent; the order of
    rows and knowledge does not matter."""
    clusters.settle(store)
    names = hosts.settle(store)
    boots.settle(store)
    return names


class Identity:
    """Assigns incoming rows (``begin``, ``learn``, ``place``, ``stored``: the storing thread) and settles earlier rows
    once what they need is known (``unite``, ``settle``: one other thread). Everything is learned from the store and its
    rows: after a restart, a new object knows the same once it has settled."""

    def __init__(self, store: Door, configured: str | None = None) -> None:
        """``configured``: the cluster's name in the configuration; None: it is learned, if there is only one."""
        self._store, self._configured = store, configured
        self._cluster = configured
        self._names = HostNames()
        self._other_names: dict[str, str] = {}
        self._is_unsettled = False

    @property
    def cluster(self) -> str | None:
        """The cluster of rows that name none; None while it is unknown."""
        return self._cluster

    @property
    def names(self) -> HostNames:
        """The node that each host name means."""
        return self._names

    @property
    def other_names(self) -> Mapping[str, str]:
        """Other names of the cluster in accounting and configuration (``cluster_aliases``)."""
        return self._other_names

    @property
    def is_unsettled(self) -> bool:
        """Whether stored rows may wait for a boot time, a node's name or their cluster's."""
        return self._is_unsettled

    # -- rows on their way in --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepares to assign rows: reads what the store knows. Rows stored earlier may wait for it."""
        self._names = HostNames.read(self._store)
        self._is_unsettled = True

    def place(self, table: str, data: pl.DataFrame) -> pl.DataFrame:
        """Rows of a table with hosts as node names, and with the cluster's name if they have none (and it is known) or
        another name of it; lines keep their own."""
        data = self._names.normal(data if table == "logs" else self.called(data))
        if self._cluster is None or "cluster" not in data.columns or not data["cluster"].null_count():
            return data
        return data.with_columns(pl.col("cluster").fill_null(self._cluster))

    def called(self, data: pl.DataFrame) -> pl.DataFrame:
        """Rows with the cluster's one canonical name."""
        return cluster_aliases.renamed(data, self._other_names)

    def learn(self, tables: Mapping[str, pl.DataFrame]) -> bool:
        """Learns the cluster's name from incoming rows; True if it was unknown before."""
        if self._cluster is None:
            self._cluster = clusters.only_one_in(tables, self._store)
            return self._cluster is not None
        return False

    def stored(self, lines: Iterable[pl.DataFrame], *, others: bool, learned: bool) -> None:
        """Records that rows were stored: ``lines``, and rows of ``others`` tables, which may teach more; ``learned``:
        they gave the cluster's name. Earlier rows are settled at once then. Until then, lines without a cluster wait
        for no round."""
        late = any(
            (self._cluster is not None and data["cluster"].null_count()) or data["time"].null_count() for data in lines
        )
        if late or others or learned:
            self._is_unsettled = True
        if learned:
            self._names = settle(self._store)

    # -- late knowledge --------------------------------------------------------------------------------------------

    def unite(self) -> None:
        """Merges accounting's name of the configured cluster into it, if nothing indicates a second cluster."""
        found, known = cluster_aliases.unite(self._store, self._configured), self._other_names
        if found == known:
            return
        for name in found.keys() - known.keys():
            log.info("one cluster under two names", cluster=self._configured, accounting=name)
        for name in known.keys() - found.keys():
            log.warning(
                "what was taken for another name of the cluster has lines of its own",
                cluster=self._configured,
                name=name,
            )
        self._other_names = found

    def settle(self) -> None:
        """Applies what was learned to stored rows. Unsettled afterwards if rows may have been stored meanwhile with
        older knowledge."""
        self._is_unsettled = False
        self.unite()
        names = settle(self._store)
        if names != self._names:
            self._names = names
            self._is_unsettled = True
        if self._cluster is None:  # after a restart, and from hooks
            self._cluster = clusters.only_one_of_jobs(self._store)
            self._is_unsettled = self._is_unsettled or self._cluster is not None
