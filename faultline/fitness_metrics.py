"""Prometheus metrics of nodes that are not fit for a job."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from correlator.fitness.model import Fitness
from web.fitness import Memory

#: Nodes named at most, the unfit first: after a power cut thousands of series would hide what they say. The counts are
#: of all.
MOST_NAMED = 500


class FitnessMetrics(Collector):
    """Counts by answer, and one series for each node that is not fit."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def describe(self) -> Iterator[Metric]:
        """Registering must not compute the answers."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        known = self._memory.known()
        if known is None:  # a scrape does not wait: the next one has them
            return
        found, age = known
        counts = GaugeMetricFamily("faultline_nodes", "Nodes that run jobs, by their fitness.", labels=("fitness",))
        for verdict, count in found.counts().items():
            counts.add_metric((str(verdict),), count)
        yield counts
        text = f"1 for each node that is not fit ({MOST_NAMED} at most, the unfit first)."
        named = GaugeMetricFamily("faultline_node_not_fit", text, labels=("node", "fitness"))
        bad = [one for one in found.nodes.values() if one.runs_jobs and one.verdict is not Fitness.FIT]
        for one in sorted(bad, key=lambda one: (one.verdict is not Fitness.UNFIT, one.node))[:MOST_NAMED]:
            named.add_metric((one.node, str(one.verdict)), 1)
        yield named
        yield GaugeMetricFamily("faultline_fitness_age_seconds", "Seconds since fitness was computed.", age)
