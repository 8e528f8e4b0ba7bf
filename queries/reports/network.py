"""Links that come and go: outages counted per device from link events, whether or not they became an incident."""

from __future__ import annotations

from datetime import timedelta

from correlator.facts.registry import restarts
from parsers.moments import later
from queries.reports.model import Column, Section, Span, Timeline
from queries.reports.reader import Reader
from store.questions import causes, outages

LANES = 24


def network(reader: Reader) -> Section:
    """Outages per link end, a timeline of the nodes' ends, and the incidents they became."""
    columns = [
        Column("host", "Host", "name"), Column("device", "Device", "name"), Column("side", "Seen by", "name"),
        Column("outages", "Outages", "count", bar=True), Column("down_s", "Down in all", "seconds"), Column("longest_s", "Longest", "seconds"),
        Column("open", "Never seen up again", "count"), Column("jobs", "Jobs hurt", "count"),
        Column("first_seen", "First", "time"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    links = reader.rows(outages.per_link(reader.period, restarts()))
    cause_columns = [Column("cause", "Cause", "name"), Column("host", "Host", "name"), Column("device", "Device", "name"), Column("start", "Start", "time"),
            Column("severity", "Severity", "name"), Column("jobs", "Jobs hurt", "count"), Column("title", "What happened")]  # fmt: skip
    return Section(
        "network", "Network instability", "Both ends of one cable are listed when both logged: the node's and the switch's rows then tell "
        "of the same outages. Down in all leaves out outages whose end nobody logged.",
        tables=(reader.table("Outages per link end", columns, links, empty="No link outage was logged."),
                reader.table("Network incidents", cause_columns, reader.rows(causes.of_network(reader.period)), empty="No network incident.")),
        timelines=_timeline(reader),
    )  # fmt: skip


def _timeline(reader: Reader) -> tuple[Timeline, ...]:
    lanes: dict[str, list[Span]] = {}
    for row in reader.rows(outages.spans(reader.period, restarts())):
        name = f"{reader.called(row['host'], row['cluster'])} {row['device']}".strip()
        length = f"{(row['end'] - row['start']).total_seconds():.1f} s" if row["end"] else "not seen up again"
        lanes.setdefault(name, []).append(
            Span(row["start"], row["end"], "impact", f"no carrier from {row['start']:%H:%M:%S}, {length}")
        )
    if not lanes:
        return ()
    worst = sorted(lanes, key=lambda name: (-len(lanes[name]), name))[:LANES]
    spans = [span for name in worst for span in lanes[name]]
    start, end = min(s.start for s in spans), max(s.end or s.start for s in spans)
    return (Timeline("When links were down, as their nodes saw it", start, max(end, later(start, timedelta(seconds=1))),
                     {name: lanes[name] for name in worst}),)  # fmt: skip
