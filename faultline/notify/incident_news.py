"""Which incidents are sent to a target: once each, again when they have changed, and when they are withdrawn.

One fault is one thread. An incident that is concluded under another name, or that was withdrawn and is concluded again,
goes on in the thread of the first message about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from faultline.notify.message import Message, State
from faultline.notify.patience import Patience
from faultline.notify.sent import RENAMED, WITHDRAWN, Kept, Known, News, Sent
from store.questions import incidents

if TYPE_CHECKING:
    from store.door import Asks

#: Older subjects are not reported for the first time.
RECENT = timedelta(hours=1)
#: How long sent notifications are compared with current conclusions: later lines do not change older verdicts.
REMEMBERED = timedelta(days=2)
#: A change is sent once it has been stable for this long, in seconds; anything new is sent at once.
SETTLE_S = 30.0
#: An incident is withdrawn once it has not been concluded for this long, in seconds.
WITHDRAW_S = 300.0
#: Two incidents whose starts are no further apart may be about one fault.
SAME_FAULT = timedelta(minutes=15)
#: Most runs that are remembered of an incident.
MOST_JOBS = 50
WORST_FIRST = {"impact": 0, "degraded": 1, "benign": 2}
#: Members of an incident that a receiver can fetch through its link.
_LEFT_OUT = ("events", "spans", "chain", "rivals", "unaffected_jobs", "grounds")


@dataclass(frozen=True)
class Wanted:
    """What a target wants to get. ``name``: the target's."""

    name: str
    severity: Collection[str]
    least_confidence: float


@dataclass
class IncidentNews:
    """News of one round for one target. ``link``: the address of the pages; ``known``: what was sent to the target."""

    store: Asks
    patience: Patience
    link: str
    now: datetime
    wanted: Wanted
    known: Known

    def of(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[News]:
        """``rows``: the incidents that ended within ``REMEMBERED``, or have not."""
        known = {name: reported for name, reported in self.known.items() if reported.at >= self.now - REMEMBERED}
        gone = known.keys() - {row["incident_id"] for row in rows}
        gone -= self._concluded(gone)
        heirs = self._heirs(gone)
        taken: set[str] = set()
        for row in rows:
            document = json.loads(row["document"]) if isinstance(row["document"], str) else row["document"]
            name, about = row["incident_id"], _about(document, row["start"])
            former = name if name in known else None
            if former is None:
                free = {one: known[one] for one in gone - taken if known[one].digest != RENAMED}
                former = _former(row, about, free, heirs)
                if former is not None:
                    taken.add(former)
            if news := self._of_one(row, document, about, former, known.get(former or "")):
                yield news
        for name in sorted(gone - taken):
            reported = known[name]
            if reported.digest not in (WITHDRAWN, RENAMED) and self._lasts(name, WITHDRAWN, WITHDRAW_S, reported.times):
                yield self._withdrawn(name, reported, heirs.get(name))

    def _of_one(
        self, row: Mapping[str, Any], document: dict[str, Any], about: dict[str, Any], former: str | None, reported: Sent | None
    ) -> News | None:  # fmt: skip
        """``former``: the name under which ``reported`` was sent."""
        name, digest = row["incident_id"], _digest(document)
        kept = [Kept(name, digest, row["cluster"], about)]
        if reported is None:
            enough = (document.get("confidence") or 0) >= self.wanted.least_confidence
            if row["severity"] not in self.wanted.severity or not enough or row["last"] < self.now - RECENT:
                return None
            return News(self._message(row, document, "opened", name, 0), tuple(kept), name)
        if former is not None and former != name:
            kept.append(Kept(former, RENAMED, row["cluster"], reported.about))
        if reported.digest == digest:
            return News(None, tuple(kept), reported.thread) if former != name else None
        is_worse = WORST_FIRST.get(row["severity"], 3) < WORST_FIRST.get(reported.about.get("severity", ""), 3)
        if not self._lasts(name, digest, SETTLE_S, 1 if is_worse and reported.digest != WITHDRAWN else reported.times):
            return None
        state: State = "again" if reported.digest == WITHDRAWN else "changed"
        return News(self._message(row, document, state, reported.thread, reported.times), tuple(kept), reported.thread)

    def _lasts(self, name: str, state: str, wait_s: float, times: int) -> bool:
        return self.patience.has_lasted(self.wanted.name, name, state, wait_s, times)

    def _concluded(self, names: Collection[str]) -> set[str]:
        """The incidents that still exist, however long ago they ended."""
        return {row["incident_id"] for row in self.store.ask(incidents.among(sorted(names)))} if names else set()

    def _heirs(self, names: Collection[str]) -> dict[str, str]:
        """Former names of incidents, and their current ones."""
        rows = self.store.ask(incidents.names_now(sorted(names))) if names else []
        return {row["alias"]: row["incident_id"] for row in rows}

    def _message(
        self, row: Mapping[str, Any], document: dict[str, Any], state: State, thread: str, number: int
    ) -> Message:
        shown = {name: value for name, value in document.items() if name not in _LEFT_OUT}
        link = f"{self.link}/incidents/{row['incident_id']}"
        return Message(
            row["incident_id"], state, row["severity"], document["title"], link, row["cluster"], shown, thread, number
        )

    def _withdrawn(self, name: str, reported: Sent, heir: str | None) -> News:
        """A message about an incident that was reported and no longer exists: whoever acted on it must know."""
        goes_on = f"it is part of {heir}" if heir else "later lines tell otherwise"
        message = Message(
            name, "withdrawn", "impact", f"{name} is concluded no more: {goes_on}", f"{self.link}/incidents/{heir or name}",
            reported.cluster, {}, reported.thread, reported.times,
        )  # fmt: skip
        return News(message, (Kept(name, WITHDRAWN, reported.cluster, reported.about),), reported.thread)


def _former(row: Mapping[str, Any], about: Mapping[str, Any], gone: Known, heirs: Mapping[str, str]) -> str | None:
    """The subject that is no longer concluded and that this incident continues: by its former name, else because it began
    at the same time on the same host, or hit the same run."""
    named = sorted(name for name in gone if heirs.get(name) == row["incident_id"])
    if named:
        return min(named, key=lambda name: gone[name].at)
    near = []
    for name, reported in gone.items():
        if name in heirs or reported.cluster != row["cluster"] or not reported.about.get("start"):
            continue
        gap = abs(datetime.fromisoformat(reported.about["start"]) - row["start"])
        same_host = about["host"] is not None and about["host"] == reported.about.get("host")
        if gap <= SAME_FAULT and (same_host or set(about["jobs"]) & set(reported.about.get("jobs") or ())):
            near.append((gap, name))
    return min(near)[1] if near else None


def _about(document: Mapping[str, Any], start: datetime) -> dict[str, Any]:
    """What shows that two incidents are about one fault."""
    root = document.get("root_cause") or {}
    jobs = [f"{job.get('job_id')}#{job.get('restart') or 0}" for job in document.get("jobs") or ()]
    return {
        "host": root.get("host"),
        "start": start.isoformat(),
        "jobs": jobs[:MOST_JOBS],
        "severity": document.get("severity"),
    }


def _digest(document: Mapping[str, Any]) -> str:
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
