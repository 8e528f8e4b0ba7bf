"""Runs for which trusted sources name different users: each is logged once, and counted for Prometheus.

These texts contain user names, so /readyz, which needs no sign-in, does not include them: `/api/v1/sources` does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from store import run_names
from store.door import Door

log = structlog.get_logger()

#: Shortest interval between checks, in seconds: the query reads the documents of all runs without a user.
EVERY_S = 5.0


class Disputes(Collector):
    def __init__(self, store: Door) -> None:
        self.store = store
        self._reported: set[str] = set()
        self._open = 0
        self._looked_at = -EVERY_S

    def look(self, *, now: float | None = None) -> None:
        """Logs new disputes. ``now``: seconds of a monotonic clock."""
        now = time.monotonic() if now is None else now
        if now - self._looked_at < EVERY_S:
            return
        self._looked_at = now
        found = run_names.disputed(self.store)
        self._open = len(found)
        for text in found:
            if text not in self._reported:
                log.warning(text)
        self._reported = set(found)

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of disputes."""
        text = "Runs for which trusted sources name different users (100 at most)."
        yield GaugeMetricFamily("faultline_disputed_runs", text, self._open)
