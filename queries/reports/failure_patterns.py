"""The report ``failure-patterns``: what breaks, where, how often, and what it costs."""

from __future__ import annotations

from queries.reports.causes import causes, repeated, summary
from queries.reports.changes import changes
from queries.reports.coverage import coverage
from queries.reports.limits import limits
from queries.reports.model import Section
from queries.reports.network import network
from queries.reports.nodes import nodes, unavailable
from queries.reports.reader import Reader
from queries.reports.repairs import repairs
from queries.reports.report import Report

#: Sections in reading order. A new one is a function of a ``Reader`` and an entry in this list.
SECTIONS = (summary, changes, causes, repeated, network, repairs, nodes, unavailable, limits, coverage)


def build(reader: Reader) -> list[Section]:
    """All sections over the reader's period."""
    return [section(reader) for section in SECTIONS]


REPORT = Report(
    "failure-patterns",
    "Failure patterns",
    "What broke, where, how often, at what cost, and what changed: causes, repeated failures, unstable links, what to repair, bad nodes, drains, limits.",
    build,
)
