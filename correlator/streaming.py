"""The tick: what the service calls again and again while lines come in.

``Ticker(store).tick()`` looks at what was stored since the last tick and brings ``model`` to exactly what a full pass
over the same rows would say (``correlator.engine.correlate``). When nothing new was stored, a tick costs one count.
What the running service said, and when, is kept beside (``kept``): first detection of each incident, versions of each
verdict, former ids of incidents that merged, split or changed their root.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from correlator import history
from correlator.engine import clusters_of, conclude_cluster, load_edges, write

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: Tables of ``raw`` whose rows the correlator reads.
INPUTS = ("logs", "jobs", "steps", "settings", "links", "topology", "node_states", "metrics", "artifacts")


@dataclass(frozen=True)
class TickReport:
    """What one tick did. Run keys and incident ids are those of ``corr-result/1``; ``seconds`` is wall time.

    ``provisional`` and ``final`` are runs whose verdict is new or changed; ``opened``, ``changed`` and ``closed`` are
    incidents (closed: no longer concluded; ``aliases`` says under which id its story goes on, where one does).
    """

    worked: bool = False
    seconds: float = 0.0
    lines: int = 0
    provisional: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


class Ticker:
    """Keeps ``model`` up with ``raw``. One per store, called from one thread; the store's writer lock guards the rest.

    ``settings`` and ``edge_paths`` as for ``correlate``. A new ``Ticker`` on an old store starts from what is stored:
    a restart changes nothing in the result.
    """

    def __init__(
        self, store: DuckStore, *, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = ()
    ) -> None:
        self.store = store
        self.settings = settings
        self._edges = load_edges(edge_paths)
        self._seen: dict[str, tuple[int, int]] | None = None

    def tick(self, now: datetime | None = None) -> TickReport:
        """Takes in what was stored since the last tick. ``now`` (UTC) is what is noted as the time of saying so."""
        begun = time.perf_counter()
        state = self._state()
        if state == self._seen:
            return TickReport(seconds=time.perf_counter() - begun)
        lines = state["logs"][0] - (self._seen["logs"][0] if self._seen else 0)
        found = [conclude_cluster(self.store, c, self._edges, self.settings) for c in clusters_of(self.store)]
        said = history.keep(self.store, found, _naive(now), silent=self._seen is None)
        write(self.store, found)
        self._seen = state
        return TickReport(worked=True, seconds=time.perf_counter() - begun, lines=lines, **said)

    def _state(self) -> dict[str, tuple[int, int]]:
        """Row count and highest row id per input table: both change with every insert and delete."""
        parts = " UNION ALL ".join(f"SELECT '{t}' AS t, count(*) AS n, max(rowid) AS top FROM raw.{t}" for t in INPUTS)
        return {r["t"]: (r["n"], -1 if r["top"] is None else r["top"]) for r in self.store.rows(parts)}


def _naive(now: datetime | None) -> datetime:
    return (now or datetime.now(UTC)).astimezone(UTC).replace(tzinfo=None)


__all__ = ["INPUTS", "TickReport", "Ticker"]
