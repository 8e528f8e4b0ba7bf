"""Decides which target is notified of what: each target once per subject, again when it changes, and when an earlier
notification is withdrawn.

The store records the notifications to each target (``kept.notices``), so a restart repeats and loses nothing. Anything
older than ``RECENT`` at a target's first round is not sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from correlator.model.false_lines import FORGED as FORGED_EVIDENCE
from faultline.notify.incident_news import RECENT, REMEMBERED, WORST_FIRST, IncidentNews, Wanted
from faultline.notify.kind import Send
from faultline.notify.message import Message
from faultline.notify.patience import Patience
from faultline.notify.sent import FORGED, SOURCE, Kept, Known, News, Sent
from faultline.notify.silence_news import SilenceNews
from store.questions import events, incidents, notices

if TYPE_CHECKING:
    from store.door import Door

log = structlog.get_logger()

#: How long silent sources are remembered: longer than any alert about one lasts (``collector.inventory.FORGOTTEN``).
SOURCES_REMEMBERED = timedelta(days=8)
#: Most messages per round; a storm is summarised in one more.
MOST = 10
#: Delay between attempts at a failing target, in seconds; doubled up to the longest.
RETRY_S, LONGEST_RETRY_S = 5.0, 300.0


@dataclass
class Target:
    """One entry of the configuration. The store records its notifications under ``name``."""

    name: str
    send: Send
    severity: Sequence[str] = ("impact",)
    least_confidence: float = 0.0
    sources: bool = True
    forgeries: bool = True
    #: The entry point of its notifier in messages; None for a built-in one.
    brought_by: str | None = None
    failed: int = 0
    not_before: float = 0.0
    trouble: str | None = None


@dataclass(eq=False)
class Dispatcher(Collector):
    """``alerts()``: the silent hosts of ``collector.inventory``, each with the text about it."""

    store: Door
    targets: Sequence[Target]
    link: str
    alerts: Callable[[], Sequence[tuple[str, str]]] = tuple
    now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None)
    monotonic: Callable[[], float] = time.monotonic
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.patience = Patience(self.monotonic)

    def round(self) -> None:
        """Sends to every reachable target what it has not received."""
        due = [target for target in self.targets if self.monotonic() >= target.not_before]
        if not due:
            return
        rows, alerts = self.store.ask(incidents.recent(self.now() - REMEMBERED)), dict(self.alerts())
        for target in due:
            reported = self._known(target)
            wanted = Wanted(target.name, target.severity, target.least_confidence)
            named = {name: one for name, one in reported.items() if not name.startswith((SOURCE, FORGED))}
            found = list(IncidentNews(self.store, self.patience, self.link, self.now(), wanted, named).of(rows))
            if target.sources:
                found += SilenceNews(self.patience, self.link, self.now(), target.name, reported).of(alerts)
            if target.forgeries:
                found += self._of_forgeries(reported)
            self._send(target, found)
        self.patience.forget_others({target.name for target in due})

    def _send(self, target: Target, news: list[News]) -> None:
        for one in news:
            if one.message is None:
                self._remember(target, [one])
        due_now = [(one, one.message) for one in news if one.message is not None]
        due_now.sort(key=lambda pair: (WORST_FIRST.get(pair[1].severity, 3), pair[1].key))
        for one, message in due_now[:MOST]:
            if not self._sent(target, message):
                return
            self._remember(target, [one])
        if rest := due_now[MOST:]:
            title = f"{len(rest)} more incidents, silent sources and forged lines"
            thread = f"more {self.now():%Y%m%dT%H%M%S}"
            more = Message("more", "more", rest[0][1].severity, title, f"{self.link}/", thread=thread)
            if self._sent(target, more):
                # The first subject of a thread goes on in it.
                self._remember(target, [one if m.number else News(m, one.kept, thread) for one, m in rest])

    def _sent(self, target: Target, message: Message) -> bool:
        try:
            target.send(message)
        except Exception as error:  # whatever a receiver does, the others are notified
            target.failed += 1
            wait = min(RETRY_S * 2 ** (target.failed - 1), LONGEST_RETRY_S)
            target.not_before = self.monotonic() + wait
            trouble = f"{type(error).__name__}: {error}"
            if trouble != target.trouble:
                by = {"extension": target.brought_by} if target.brought_by else {}
                log.warning("a notification was not taken; it is tried again", target=target.name, error=trouble, **by)
            target.trouble = trouble
            self._count(target, "failed")
            return False
        target.failed, target.not_before, target.trouble = 0, 0.0, None
        self._count(target, "sent")
        return True

    def _count(self, target: Target, outcome: str) -> None:
        self.counts[target.name, outcome] = self.counts.get((target.name, outcome), 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of notifications."""
        family = CounterMetricFamily(
            "faultline_notices", "Notifications, by target and outcome.", labels=("outcome", "target")
        )
        for (name, outcome), count in sorted(self.counts.items()):
            family.add_metric((outcome, name), count)
        yield family

    # ------------------------------------------------------------------------------------------------ what is news

    def _known(self, target: Target) -> Known:
        rows = self.store.ask(notices.last_sent(target.name, self.now() - SOURCES_REMEMBERED))
        return {row["name"]: Sent.of_row(row) for row in rows}

    def _remember(self, target: Target, news: Sequence[News]) -> None:
        now = self.now()
        with self.store.write() as writer:
            for one in news:
                for kept in one.kept:
                    about = json.dumps(kept.about) if kept.about else None
                    subject = (kept.cluster, kept.name, kept.digest)
                    writer.change(notices.sent(target.name, *subject, now, one.thread, about))

    def _of_forgeries(self, known: Known) -> Iterator[News]:
        """Lines that were shown to be false, once for each event: more lines of the same quarter of an hour are no news.

        The title has nothing of the lines but the event that they claim.
        """
        for row in self.store.ask(events.of_kind_since(FORGED_EVIDENCE, self.now() - RECENT)):
            key, about = f"{FORGED}{row['event_id']}", json.loads(row["entities"] or "{}")
            if key in known:
                continue
            title = (
                f"forged evidence: {about.get('claimed_event')} in the name of {row['host']} ({about.get('channel')})"
            )
            link = f"{self.link}/nodes/{quote(row['host'], safe='')}" if row["host"] else f"{self.link}/explore"
            message = Message(key, "opened", "degraded", title, link, row["cluster"])
            yield News(message, (Kept(key, "opened", row["cluster"]),), key)
