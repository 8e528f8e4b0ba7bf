"""This process's metrics for Prometheus: requests and queries, and collectors that other parts of the service add."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

#: The text format 0.0.4: every scraper parses it, and people can read it.
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# The second series of each counter, with the moment of its first count, adds nothing to the process's start time.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """One application's metrics. Safe to use from several threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "faultline_http_requests_total", "Requests answered, by route and status.",
            ("route", "status"), registry=self.registry,
        )  # fmt: skip
        self.request_seconds = Counter(
            "faultline_http_seconds_total", "Seconds spent answering, by route.", ("route",), registry=self.registry
        )
        self.queries = Counter(
            "faultline_queries_total", "KQL queries, by outcome.", ("outcome",), registry=self.registry
        )
        self.query_seconds = Counter(
            "faultline_query_seconds_total", "Seconds spent in KQL queries.", registry=self.registry
        )

    def add(self, collector: Collector) -> None:
        """Adds ``collector`` to every scrape."""
        self.registry.register(collector)

    def text(self) -> str:
        """Everything in the text format of :data:`CONTENT_TYPE`."""
        return exposition(self.registry)


def exposition(collector: Collector) -> str:
    """The metrics of one collector, or of a whole registry, as text."""
    registry = collector
    if not isinstance(collector, CollectorRegistry):
        registry = CollectorRegistry()
        registry.register(collector)
    assert isinstance(registry, CollectorRegistry)
    return generate_latest(registry).decode()
