"""Which sources send, since when, how late, and which fell silent. Derived from the ledger; nothing is configured."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from collector.ledger import Ledger, Source
from parsers.node_states import node_state
from store.door import Asks
from store.questions import intake

#: A node is up if anything of it arrived within this.
UP_WITHIN = timedelta(minutes=5)
#: A source is silent after this many of its average gaps, but never before ``SILENT_AT_LEAST``: logs come in bursts.
SILENT_GAPS = 10.0
SILENT_AT_LEAST = timedelta(minutes=15)
#: A source with fewer lines has no established rhythm yet.
HABIT_LINES = 20
#: Sources are forgotten after this: an old job's output is not a source that fell silent.
FORGOTTEN = timedelta(days=7)
#: Sources whose streams end by themselves.
_ENDING = ("job_stdout", "job_stderr")


@dataclass(frozen=True)
class Alert:
    """A source that is silent although its node is up."""

    host: str
    source: str
    file: str
    since: datetime
    text: str


class Inventory:
    """Answers queries of the sources page. ``now`` is naive UTC."""

    def __init__(self, store: Asks, ledger: Ledger) -> None:
        self.store, self.ledger = store, ledger

    def alerts(self, now: datetime) -> list[Alert]:
        """Sources that fell silent while their node is up."""
        sources = list(self.ledger.sources.values())
        newest: dict[str, datetime] = {}
        for source in sources:
            if source.host:
                newest[source.host] = max(newest.get(source.host, source.last_seen), source.last_seen)
        for node in self.ledger.nodes.values():
            newest[node.host] = max(newest.get(node.host, node.last_seen), node.last_seen)
        slurm_up = self._slurm_up(now)
        found = []
        for source in sources:
            silent = now - source.last_seen
            if not source.host or source.source in _ENDING or silent > FORGOTTEN or source.lines < HABIT_LINES:
                continue
            if silent <= patience(source):
                continue
            is_up = now - newest[source.host] <= UP_WITHIN
            if is_up or source.host in slurm_up:
                why = "other sources of the node speak" if is_up else f"Slurm says the node is {slurm_up[source.host]}"
                text = f"{source.source or 'lines'} of {source.host} silent for {words(silent)}; {why}"
                found.append(Alert(source.host, source.source, source.file, source.last_seen, text))
        return sorted(found, key=lambda alert: (alert.since, alert.host, alert.file))

    def _slurm_up(self, now: datetime) -> dict[str, str]:
        """Nodes that Slurm considered usable within the last hour."""
        rows = self.store.ask(intake.states_lately(now - timedelta(hours=1)))
        return {r["host"]: r["state"] for r in rows if r["state"] and node_state(r["state"]).is_up}


def blind(store: Asks, limit: int = 200) -> list[dict[str, Any]]:
    """The newest blind periods."""
    return store.ask(intake.blind(limit))


def quarantine(store: Asks, limit: int = 200) -> list[dict[str, Any]]:
    """Batches set aside and not replayed, newest first."""
    return store.ask(intake.quarantine(limit))


def patience(source: Source) -> timedelta:
    """How long a source may be silent."""
    expected = timedelta(seconds=min((source.gap_s or 0.0) * SILENT_GAPS, 86400.0))
    return max(SILENT_AT_LEAST, expected)


def words(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
