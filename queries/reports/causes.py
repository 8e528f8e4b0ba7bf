"""What happened and what it cost: the summary, causes in order of harm, and jobs that fail repeatedly."""

from __future__ import annotations

from datetime import timedelta

from parsers.moments import later
from queries.reports.model import Column, Figure, Section, Span, Table, Timeline, Tone
from queries.reports.reader import Reader
from queries.reports.wording import NONE, stretch
from store.questions import causes as root_causes
from store.questions import ended

#: A job name counts as failing repeatedly from this many bad ends on.
REPEATED = 2

#: The maximum number of lanes in a readable timeline.
LANES = 24


def summary(reader: Reader) -> Section:
    """Period, jobs, incidents, and the cost."""
    runs, lost = reader.one(ended.run_totals(reader.period)), reader.one(ended.incident_totals(reader.period))
    moments = [m for m in (runs["first"], runs["last"], lost["first"], lost["last"]) if m is not None]
    share = runs["badly"] / runs["ended"] if runs["ended"] else None
    figures = (
        Figure("First to last", stretch(min(moments), max(moments)) if moments else None, "text"),
        Figure("Jobs ended", runs["ended"]),
        Figure("Ended badly", runs["badly"], note=f"{share * 100:.1f} % of those that ended" if share is not None else ""),
        Figure("Cluster at fault", runs["infra"], note="of those that ended badly"),
        Figure("Incidents", lost["incidents"]),
        Figure("GPU-hours of bad ends", runs["wasted"], "hours", "computed by jobs that then ended badly"),
        Figure("GPU-hours lost to incidents", lost["lost"], "hours", "their jobs, and nodes out of service"),
    )  # fmt: skip
    return Section(
        "summary", "Summary", "How many jobs ended, how many of them badly, and what that cost.", figures,
        (_by_category(reader), _by_state(reader), _by_severity(reader)), _timeline(reader),
        () if moments else ("No job or incident ended in this period, so there is nothing to count.",),
    )  # fmt: skip


def _by_category(reader: Reader) -> Table:
    rows = reader.rows(ended.by_category(reader.period))
    columns = [Column("category", "Category", "name"), Column("jobs", "Jobs", "count", bar=True),
               Column("users", "Users", "count"), Column("gpu_hours", "GPU-hours", "hours")]  # fmt: skip
    return reader.table("Ended badly, by category", columns, rows, empty="No job ended badly.")


def _by_state(reader: Reader) -> Table:
    rows = reader.rows(ended.by_state(reader.period))
    columns = [
        Column("state", "State", "name"),
        Column("jobs", "Jobs", "count", bar=True),
        Column("gpu_hours", "GPU-hours", "hours"),
    ]
    return reader.table("Ended badly, by Slurm's state", columns, rows, empty="No job ended badly.")


def _by_severity(reader: Reader) -> Table:
    rows = reader.rows(ended.by_severity(reader.period))
    columns = [
        Column("severity", "Severity", "name"),
        Column("incidents", "Incidents", "count", bar=True),
        Column("jobs", "Jobs hurt", "count"),
    ]
    return reader.table("Incidents by severity", columns, rows, empty="No incident.",
                        note="impact: jobs ended by it; degraded: something was out of service; benign: no harm was seen.")  # fmt: skip


def _timeline(reader: Reader) -> tuple[Timeline, ...]:
    tones: dict[str, Tone] = {"impact": "impact", "degraded": "degraded", "benign": "benign"}
    lanes: dict[str, list[Span]] = {}
    for row in reader.rows(ended.spans_by_root(reader.period, NONE)):
        lanes.setdefault(row["host"], []).append(
            Span(row["start"], row["end"], tones.get(row["severity"], "plain"), row["title"])
        )
    if not lanes:
        return ()
    worst = sorted(lanes, key=lambda host: (-sum(s.tone == "impact" for s in lanes[host]), -len(lanes[host]), host))[
        :LANES
    ]
    spans = [span for host in worst for span in lanes[host]]
    start, end = min(s.start for s in spans), max(s.end or s.start for s in spans)
    title = "When incidents happened, by the node at their root"
    title += f" ({LANES} of {len(lanes)} nodes, the worst)" if len(lanes) > LANES else ""
    return (
        Timeline(title, start, max(end, later(start, timedelta(seconds=1))), {host: lanes[host] for host in worst}),
    )


def causes(reader: Reader) -> Section:
    """Root causes by harm done, faults of the cluster and of programs in one list."""
    columns = [
        Column("cause", "Cause", "name"), Column("host", "Host", "name"), Column("device", "Device", "name"),
        Column("category", "Category", "name"), Column("incidents", "Incidents", "count"), Column("impact", "With impact", "count"),
        Column("outages", "Link outages", "count"), Column("jobs", "Jobs hurt", "count"), Column("gpu_hours", "GPU-hours", "hours", bar=True),
        Column("first_seen", "First seen", "time"), Column("last_seen", "Last seen", "time"),
    ]  # fmt: skip
    rows = reader.rows(root_causes.by_harm(reader.period))
    flaps = {
        (r["cluster"], r["cause"], r["host"], r["device"]): r["outages"]
        for r in reader.rows(root_causes.link_outages(reader.period))
    }
    for row in rows:
        row["outages"] = flaps.get((row["cluster"], row["cause"], row["host"], row["device"]))
    return Section(
        "causes", "Failure causes", "Ranked by GPU-hours lost, then by jobs hurt. Rows without incidents are jobs whose verdict is "
        "no fault of the cluster, or one for which no root was found.", tables=(reader.table("", columns, rows, empty="No failure in this period."),),
    )  # fmt: skip


def repeated(reader: Reader) -> Section:
    """Users' jobs of one name that ended badly more than once."""
    columns = [
        Column("user", "User", "name"), Column("name", "Job name", "name"), Column("failed", "Ended badly", "count", bar=True),
        Column("runs", "Runs", "count"), Column("rate", "Share", "share"), Column("categories", "Categories", "name"),
        Column("gpu_hours", "GPU-hours", "hours"), Column("first_seen", "First", "time"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    rows = reader.rows(ended.repeated(reader.period, REPEATED))
    return Section(
        "repeated", "Repeated failures", f"Jobs of one user and name that ended badly {REPEATED} times or more. Several categories in "
        "one row mean that it was not one fault.", tables=(reader.table("", columns, rows, empty="No job name failed twice."),),
    )  # fmt: skip
