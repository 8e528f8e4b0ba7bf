"""What the service would have concluded at each moment at which something that matters arrived.

The live engine runs over a store in memory, which receives the rows in the order of their arrival: at each moment only
those that had arrived exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from correlator.engine import result
from correlator.live.ticker import TIMELESS, Ticker
from correlator.replay.arrivals import ARRIVAL, assumed, few, until, with_arrivals
from correlator.replay.neighbourhood import Neighbourhood
from parsers.moments import utc
from store import open_store

Document = dict[str, Any]

#: At most so many moments at which something arrived, and after them so many at which only waiting ended.
MOST_ARRIVALS, MOST_ENDS = 26, 3
#: Of what arrived at one moment, at most so many lines are listed.
LISTED = 6
#: Accounting has a run's end to the second, and slurmctld's log may be of another clock.
SAME_END = timedelta(seconds=5)
#: What is kept of a verdict and of an incident.
_VERDICT = ("category", "confidence", "root_cause", "incident_id", "headline", "summary", "state", "final", "final_at", "waits_for")  # fmt: skip
_INCIDENT = ("id", "title", "headline", "confidence", "category", "severity", "root_cause", "status", "final_at", "waits_for")  # fmt: skip
#: The first moment of all, for rows that are there from the beginning.
_BEGINNING = datetime(1, 1, 1)


@dataclass(frozen=True)
class Subject:
    """The incident that is replayed. ``jobs``: keys of runs in their cluster, the number of each's job and when it ended (RFC 3339,
    None: not known); ``evidence``: rows of its documents (``incidents.rows.event_row``)."""

    incident_id: str
    root_host: str | None
    root_device: str | None
    jobs: Mapping[str, tuple[int, str | None]] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()


@dataclass
class Replay:
    """``moments``: one document a moment, oldest first. ``lines``: log lines that were read; ``assumed``: those of them
    without a time of receipt."""

    moments: list[Document] = field(default_factory=list)
    lines: int = 0
    assumed: int = 0
    since: datetime = _BEGINNING
    until: datetime = _BEGINNING
    left_out: list[str] = field(default_factory=list)


def replay(
    near: Neighbourhood, subject: Subject, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = ()
) -> Replay:
    """Replays the rows around an incident. Raises ``ValueError`` for invalid edge files."""
    tables = with_arrivals(near)
    arrived = _evidence(tables, subject)
    found = Replay(
        lines=near.tables["logs"].height, assumed=assumed(near.tables["logs"]), since=near.since, until=near.until,
        left_out=list(near.left_out),
    )  # fmt: skip
    with open_store(None) as store:
        store.append({name: near.tables[name] for name in TIMELESS if near.tables[name].height})
        course = _Course(tables, subject, arrived, Ticker(store, settings=settings, edge_paths=edge_paths))
        for moment in few([at for at, _ in arrived], MOST_ARRIVALS):
            found.moments.append(course.at(moment))
        for _ in range(MOST_ENDS):
            if found.moments and (over := _waits_until(found.moments[-1])) is not None:
                found.moments.append(course.at(over))
        last = max((rows[ARRIVAL].max() for rows in tables.values()), default=None)  # type: ignore[type-var]
        if isinstance(last, datetime) and (not found.moments or last > course.now):
            latest = course.at(last)
            if not found.moments or _says(latest) != _says(found.moments[-1]):
                found.moments.append(latest)
    return found


class _Course:
    """The store in memory as it fills."""

    def __init__(
        self, tables: Mapping[str, pl.DataFrame], subject: Subject, arrived: Sequence[tuple[datetime, Document]], ticker: Ticker
    ) -> None:  # fmt: skip
        self._tables, self._subject, self._arrived, self._ticker = tables, subject, arrived, ticker
        self.now = _BEGINNING

    def at(self, moment: datetime) -> Document:
        """What is concluded at a moment, from the rows that arrived by then."""
        rows = until(self._tables, self.now, moment)
        if rows:
            self._ticker.store.append(rows)
        self._ticker.tick(moment.replace(tzinfo=UTC))
        stated = result(self._ticker.store)
        listed = [row for at, row in self._arrived if self.now < at <= moment]
        self.now = moment
        return {
            "time": _text(moment), "lines": rows["logs"].height if "logs" in rows else 0,
            "arrived": listed[:LISTED], "more": max(0, len(listed) - LISTED),
            "incident": _picked(_incident(stated, self._subject), _INCIDENT),
            "verdicts": {key: _picked(stated["verdicts"].get(key), _VERDICT) for key in self._subject.jobs},
        }  # fmt: skip


def _evidence(tables: Mapping[str, pl.DataFrame], subject: Subject) -> list[tuple[datetime, Document]]:
    """The lines of evidence and the ends of the jobs that it hurt, with the moment at which each arrived."""
    found = []
    places = {(row.get("source"), row.get("line")): row for row in subject.evidence if row.get("line") is not None}
    logs = tables.get("logs")
    if logs is not None and places:
        names = pl.coalesce("file", "source").alias("_name")
        wanted = pl.DataFrame(
            {"_name": [str(name) for name, _ in places], "line": [line for _, line in places]}, schema={"_name": pl.String, "line": pl.Int64}
        )  # fmt: skip
        for at, name, line in (
            logs.select(ARRIVAL, names, "line").join(wanted, on=["_name", "line"], how="semi").iter_rows()
        ):
            found.append((at, dict(places[name, line])))
    hurt = [(key, job, _moment(end)) for key, (job, end) in subject.jobs.items() if end]
    ends: dict[tuple[Any, ...], tuple[datetime, Document]] = {}  # several sources report the same end
    for row in tables["jobs"].iter_rows(named=True) if "jobs" in tables and hurt else ():
        for key, job, end in hurt:
            if job == row["job_id"] and row["end"] is not None and abs(row["end"] - end) <= SAME_END:
                words = f"Job {key} ended {row['state'] or ''}".strip()
                ends.setdefault((words, row["end"].replace(microsecond=0)), (row[ARRIVAL], {
                    "id": None, "time": _text(row["end"]), "host": None, "event": "job.end", "message": words,
                    "source": row["source"], "line": None, "role": "effect", "run": key,
                }))  # fmt: skip
    found += ends.values()
    return sorted(found, key=lambda item: (item[0], str(item[1].get("time")), str(item[1].get("message"))))


def _incident(stated: Document, subject: Subject) -> Document | None:
    """The incident as it stood: by its name, by what the jobs blame, else by its root's place."""
    by_name: dict[str, Document] = {one["id"]: one for one in stated["incidents"]}
    if subject.incident_id in by_name:
        return by_name[subject.incident_id]
    blamed = [stated["verdicts"][key]["incident_id"] for key in subject.jobs if key in stated["verdicts"]]
    for name in blamed:
        if name in by_name:
            return by_name[name]
    place = (subject.root_host, subject.root_device)
    alike = [one for one in by_name.values() if (one["root_cause"]["host"], one["root_cause"]["device"]) == place]
    return max(alike, key=lambda one: str(one["start"]), default=None)


def _waits_until(moment: Document) -> datetime | None:
    """When the last of what is provisional at a moment becomes final, if nothing else arrives."""
    texts = [one["final_at"] for one in _stated(moment) if one["final_at"]]
    return max(map(_moment, texts), default=None)


def _stated(moment: Document) -> Iterable[Document]:
    return [one for one in (moment["incident"], *moment["verdicts"].values()) if one is not None]


def _says(moment: Document) -> Any:
    return [moment["incident"], moment["verdicts"]]


def _picked(document: Mapping[str, Any] | None, names: Iterable[str]) -> Document | None:
    return None if document is None else {name: document.get(name) for name in names}


def _moment(text: str) -> datetime:
    return utc(datetime.fromisoformat(text))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds") + "Z"


__all__ = ["Replay", "Subject", "replay"]
