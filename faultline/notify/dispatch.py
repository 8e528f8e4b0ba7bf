"""Decides which target is notified of what: each target once per subject, again when it changes, and when an earlier
notification is withdrawn.

The store records the notifications to each target (``kept.notices``), so a restart repeats and loses nothing. Anything
older than ``RECENT`` at a target's first round is not sent.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import structlog
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from correlator.model.false_lines import FORGED
from faultline.notify.kind import Send
from faultline.notify.message import Message, State
from store.questions import events, incidents, notices

if TYPE_CHECKING:
    from store.door import Door

log = structlog.get_logger()

#: Older subjects are not reported for the first time.
RECENT = timedelta(hours=1)
#: How long sent notifications are compared with current conclusions: later lines do not change older verdicts.
REMEMBERED = timedelta(days=2)
#: A change is sent once it has been stable for this long, in seconds; anything new is sent at once.
SETTLE_S = 30.0
#: Most messages per round; a storm is summarised in one more.
MOST = 10
#: Delay between attempts at a failing target, in seconds; doubled up to the longest.
RETRY_S, LONGEST_RETRY_S = 5.0, 300.0
_WORST_FIRST = {"impact": 0, "degraded": 1, "benign": 2}
#: Members of an incident that a receiver can fetch through its link.
_LEFT_OUT = ("events", "spans", "chain", "rivals", "unaffected_jobs", "grounds")


@dataclass
class Target:
    """One entry of the configuration. The store records its notifications under ``name``."""

    name: str
    send: Send
    severity: Sequence[str] = ("impact",)
    least_confidence: float = 0.0
    sources: bool = True
    forgeries: bool = True
    failed: int = 0
    not_before: float = 0.0
    trouble: str | None = None


@dataclass(frozen=True)
class _News:
    message: Message
    digest: str


#: Key -> digest of the last notification about it, and its cluster.
_Sent = dict[str, tuple[str, str | None]]


@dataclass(eq=False)
class Dispatcher(Collector):
    """``alerts()``: the silent sources of ``collector.inventory``, as (key, text)."""

    store: Door
    targets: Sequence[Target]
    link: str
    alerts: Callable[[], Sequence[tuple[str, str]]] = tuple
    now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None)
    monotonic: Callable[[], float] = time.monotonic
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _changing: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)

    def round(self) -> None:
        """Sends to every reachable target what it has not received."""
        due = [target for target in self.targets if self.monotonic() >= target.not_before]
        if not due:
            return
        incidents, alerts = self._incidents(), dict(self.alerts())
        for target in due:
            sent = self._sent_to(target)
            forged = self._of_forgeries(target, sent)
            self._send(
                target, [*self._of_incidents(target, incidents, sent), *self._of_sources(target, alerts, sent), *forged]
            )

    def _send(self, target: Target, news: list[_News]) -> None:
        news.sort(key=lambda one: (_WORST_FIRST.get(one.message.severity, 3), one.message.key))
        for one in news[:MOST]:
            if not self._sent(target, one.message):
                return
            self._remember(target, [one])
        if rest := news[MOST:]:
            worst = rest[0].message.severity
            more = Message(
                "more", "more", worst, f"{len(rest)} more incidents, silent sources and forged lines", f"{self.link}/"
            )
            if self._sent(target, more):
                self._remember(target, rest)

    def _sent(self, target: Target, message: Message) -> bool:
        try:
            target.send(message)
        except Exception as error:  # whatever a receiver does, the others are notified
            target.failed += 1
            wait = min(RETRY_S * 2 ** (target.failed - 1), LONGEST_RETRY_S)
            target.not_before = self.monotonic() + wait
            trouble = f"{type(error).__name__}: {error}"
            if trouble != target.trouble:
                log.warning("a notification was not taken; it is tried again", target=target.name, error=trouble)
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

    def _incidents(self) -> list[dict[str, Any]]:
        return self.store.ask(incidents.recent(self.now() - REMEMBERED))

    def _sent_to(self, target: Target) -> _Sent:
        rows = self.store.ask(notices.last_sent(target.name, self.now() - REMEMBERED))
        return {row["name"]: (row["digest"], row["cluster"]) for row in rows}

    def _remember(self, target: Target, news: Sequence[_News]) -> None:
        with self.store.write() as writer:
            for one in news:
                writer.change(notices.sent(target.name, one.message.cluster, one.message.key, one.digest, self.now()))

    def _of_incidents(self, target: Target, incidents: Sequence[dict[str, Any]], known: _Sent) -> Iterator[_News]:
        sent = {key: value for key, value in known.items() if not key.startswith(("source ", _FORGED))}
        for row in incidents:
            document = json.loads(row["document"]) if isinstance(row["document"], str) else row["document"]
            before, digest = sent.pop(row["incident_id"], ("", None))[0], _digest(document)
            wanted = row["severity"] in target.severity and (document.get("confidence") or 0) >= target.least_confidence
            if before == digest or not (wanted or before):
                continue
            if not before and row["last"] < self.now() - RECENT:
                continue
            if before and not self._has_settled(target, row["incident_id"], digest):
                continue
            yield _News(self._message(row, document, "changed" if before else "opened"), digest)
        gone = {key: cluster for key, (digest, cluster) in sent.items() if digest != _WITHDRAWN}
        for key in sorted(gone.keys() - self._concluded(list(gone))):
            yield _News(self._withdrawn(key, gone[key]), _WITHDRAWN)

    def _concluded(self, keys: list[str]) -> set[str]:
        """The incidents that still exist, however long ago they ended."""
        return {row["incident_id"] for row in self.store.ask(incidents.among(keys))} if keys else set()

    def _has_settled(self, target: Target, key: str, digest: str) -> bool:
        """Whether the current state has been stable for a while: during ingest it may change every second."""
        now = self.monotonic()
        last, since = self._changing.get((target.name, key), ("", now))
        if last != digest:
            since = now
        self._changing[target.name, key] = digest, since
        return now - since >= SETTLE_S

    def _message(self, row: dict[str, Any], document: dict[str, Any], state: State) -> Message:
        shown = {name: value for name, value in document.items() if name not in _LEFT_OUT}
        link = f"{self.link}/incidents/{row['incident_id']}"
        return Message(row["incident_id"], state, row["severity"], document["title"], link, row["cluster"], shown)

    def _withdrawn(self, key: str, cluster: str | None) -> Message:
        """A message about an incident that was reported and no longer exists: whoever acted on it must know."""
        now = self.store.ask(incidents.name_now(key))
        goes_on = f"it is part of {now[0]['incident_id']}" if now else "later lines tell otherwise"
        link = f"{self.link}/incidents/{now[0]['incident_id'] if now else key}"
        return Message(key, "withdrawn", "impact", f"{key} is concluded no more: {goes_on}", link, cluster)

    def _of_sources(self, target: Target, alerts: dict[str, str], known: _Sent) -> Iterator[_News]:
        if not target.sources:
            return
        sent = {key: digest for key, (digest, _) in known.items() if key.startswith("source ")}
        link = f"{self.link}/sources"
        for key, text in alerts.items():
            name = f"source {key}"
            if sent.pop(name, _SPEAKS) == _SPEAKS:
                yield _News(Message(name, "silent", "degraded", text, link), "silent")
        for name, digest in sent.items():
            if digest != _SPEAKS:
                title = f"{name.removeprefix('source ')} speaks again"
                yield _News(Message(name, "heard", "benign", title, link), _SPEAKS)

    def _of_forgeries(self, target: Target, known: _Sent) -> Iterator[_News]:
        """Lines that were shown to be false, once for each event: more lines of the same quarter of an hour are no news.

        The title has nothing of the lines but the event that they claim.
        """
        if not target.forgeries:
            return
        for row in self.store.ask(events.of_kind_since(FORGED, self.now() - RECENT)):
            key, about = f"{_FORGED}{row['event_id']}", json.loads(row["entities"] or "{}")
            if key in known:
                continue
            title = (
                f"forged evidence: {about.get('claimed_event')} in the name of {row['host']} ({about.get('channel')})"
            )
            link = f"{self.link}/nodes/{quote(row['host'], safe='')}" if row["host"] else f"{self.link}/explore"
            yield _News(Message(key, "opened", "degraded", title, link, row["cluster"]), "opened")


_WITHDRAWN, _SPEAKS, _FORGED = "withdrawn", "heard", "forged "


def _digest(document: dict[str, Any]) -> str:
    """Changes when an incident has changed for its readers: severity, category, root, number of jobs (by powers of
    two)."""
    root = document.get("root_cause") or {}
    hit = len(document.get("jobs") or ()).bit_length()
    parts = [
        document.get("severity"),
        document.get("category"),
        root.get("event"),
        root.get("host"),
        root.get("device"),
        hit,
    ]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
