"""What a bundle contains: an incident with its runs, its time axis, the lines around it, and what was done about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from web import api, triage
from web.problems import ProblemError
from web.reading import Reader
from web.shaping import moment
from web.timerange import Range

Row = dict[str, Any]
#: The maximum length of one line's text; the rest of it is cut.
LINE_CHARS = 4_000
#: Raw lines from this long before the first cause to this long after the last effect.
AROUND = timedelta(seconds=30)
LINE_COLUMNS = (
    "time", "time_quality", "received_time", "cluster", "host", "source", "unit", "severity", "event", "job_id", "message",
    "file", "line", "authority",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """The maximum number of raw lines, and of marks on the time axis; those of the chain come first."""

    lines: int = 3_000
    marks: int = 4_000


@dataclass
class Content:
    """``cut``: sentences about what was left out. ``others``: users whose jobs the incident did not touch."""

    incident: Row
    runs: list[Row]
    states: list[Row]
    axis: Row | None
    lines: list[Row]
    changes: list[Row]
    similar: list[Row]
    cut: list[str] = field(default_factory=list)
    own: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)


def content(read: Reader, incident_id: str, limits: Limits) -> Content:
    """Reads it. Raises ``ProblemError`` if there is no such incident."""
    row = read.incident(incident_id)
    document = row["document"]
    runs = read.runs_by_key(api.incident_jobs(document, api.SURVIVOR_LANES))
    hosts = api.incident_hosts(document, row)
    hurt = {str(job.get("job_id")) for job in document.get("jobs") or []} | {
        str(key) for key in document.get("slowed_jobs") or []
    }
    own = {str(run["user"]) for run in runs if run["user"] and str(run["run_key"]) in hurt}
    people = {str(run["user"]) for run in runs if run["user"]}  # of survivors, too
    changes = triage.history(read, row["incident_id"])
    people |= {str(change["by"]) for change in changes if change["by"]}
    people |= {str(change["assignee"]) for change in changes if change["assignee"]}
    found = Content(
        row, runs, read.node_states(hosts, row["start"], row["end"], of=row), None, [], changes, read.similar(row, 5), own=own,
        others={*read.users(), *people} - own,
    )  # fmt: skip
    try:
        found.axis = _axis(read, found, limits.marks)
    except ProblemError:  # no event of it has a time
        found.cut.append("The time axis: no event of this incident has a time.")
    found.lines = _lines(read, found, hosts, limits.lines)
    return found


def _axis(read: Reader, found: Content, most: int) -> Row:
    axis: Row = api.read_axis(read, found.incident)
    marks = axis["marks"]
    if len(marks) > most:
        chained = {arrow[end] for arrow in axis["arrows"] for end in ("from", "to")} | {
            root["id"] for root in axis["roots"]
        }
        low, high = axis["focus"]
        order = sorted(
            marks,
            key=lambda mark: (
                mark["id"] not in chained, mark["role"] == "context", max(low - mark["t"], mark["t"] - high, 0.0)
            ),
        )  # fmt: skip
        kept = {mark["id"] for mark in order[:most]}
        axis["marks"] = [mark for mark in marks if mark["id"] in kept]
        axis["arrows"] = [arrow for arrow in axis["arrows"] if {arrow["from"], arrow["to"]} <= kept]
        axis["roots"] = [root for root in axis["roots"] if root["id"] in kept]
        found.cut.append(
            f"The time axis: {len(marks) - most:,} of {len(marks):,} events, those farthest from the chain."
        )
    return axis


def _lines(read: Reader, found: Content, hosts: list[str], most: int) -> list[Row]:
    times = [when for event in found.incident["document"].get("events") or [] if (when := moment(event.get("time")))]
    start, end = min(times, default=found.incident["start"]), max(times, default=found.incident["end"])
    if found.axis is not None:
        t0, (low, high) = moment(found.axis["t0"]), found.axis["focus"]
        if isinstance(t0, datetime):
            start, end = t0 + timedelta(seconds=low), t0 + timedelta(seconds=high)
    within = Range(start - AROUND if start else None, end + AROUND if end else None)
    rows, more = read.lines(within, host=",".join(hosts) or None, cluster=found.incident["cluster"], limit=max(most, 1))
    rows, more = rows[:most], more or len(rows) > most
    if more:
        last = max((row["time"] for row in rows if row["time"]), default=None)
        found.cut.append(f"Raw lines: those after the first {most:,}" + (f", after {last} UTC." if last else "."))
    long = 0
    out = []
    for row in rows:
        kept: Row = {name: row.get(name) for name in LINE_COLUMNS}
        if len(kept["message"] or "") > LINE_CHARS:
            kept["message"], long = kept["message"][:LINE_CHARS] + "…", long + 1
        out.append(kept)
    if long:
        found.cut.append(f"Raw lines: the ends of {long:,} lines of more than {LINE_CHARS:,} characters.")
    return out
