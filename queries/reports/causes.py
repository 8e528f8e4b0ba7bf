"""What happened and what it cost: the summary, causes in order of harm, and jobs that fail again and again."""

from __future__ import annotations

from datetime import timedelta

from parsers.moments import later
from queries.reports.model import Column, Figure, Section, Span, Table, Timeline, Tone
from queries.reports.reader import BADLY, ENDED, GPU_HOURS, INCIDENT_END, Reader, within
from queries.reports.wording import NONE, stretch

#: A job name counts as failing repeatedly from this many bad ends on.
REPEATED = 2

#: Lanes that a timeline can hold before it stops being one.
LANES = 24

_RUNS = f"""FROM model.runs WHERE {ENDED} AND {within('"end"')}"""

_CATEGORY = "coalesce(category, 'without a verdict')"

#: What to call the cause of a run whose verdict names no root.
_UNROOTED = f"CASE WHEN starts_with(category, 'infra.') THEN 'root not found' ELSE {_CATEGORY} END"

#: Incidents by root, and ended runs that belong to no incident by the root their verdict names, else by category.
_CAUSES = f"""
WITH told AS (
  SELECT cluster, root_event AS cause, category, root_host AS host, root_device AS device, start, {INCIDENT_END} AS "end",
    1 AS incidents, severity, coalesce(json_array_length(document, '$.jobs'), 0) AS jobs,
    coalesce(TRY_CAST(document->>'$.gpu_hours_lost' AS DOUBLE), 0) AS gpu_hours
  FROM model.incidents WHERE {within(INCIDENT_END)}
  UNION ALL
  SELECT cluster, coalesce(document->>'$.root_cause.event', {_UNROOTED}), category, document->>'$.root_cause.host',
    document->>'$.root_cause.device', coalesce(start, "end"), "end", 0, NULL, 1, {GPU_HOURS}
  FROM model.runs WHERE {BADLY} AND {within('"end"')}
    AND NOT EXISTS (SELECT 1 FROM model.incidents i WHERE i.incident_id = runs.incident_id)
)
SELECT cluster, cause, coalesce(category, 'without a verdict') AS category, host, device,
  CAST(sum(incidents) AS BIGINT) AS incidents, CAST(count(*) FILTER (severity = 'impact') AS BIGINT) AS impact,
  CAST(sum(jobs) AS BIGINT) AS jobs, round(sum(gpu_hours), 6) AS gpu_hours, min(start) AS first_seen, max("end") AS last_seen
FROM told GROUP BY ALL
ORDER BY gpu_hours DESC, jobs DESC, incidents DESC, cause, host NULLS LAST, device NULLS LAST, cluster
"""

_REPEATED = f"""
SELECT cluster, "user", name, count(*) AS runs, count(*) FILTER ({BADLY}) AS failed,
  count(*) FILTER ({BADLY}) / count(*) AS rate,
  list_sort(list(DISTINCT coalesce(category, 'without a verdict')) FILTER ({BADLY})) AS categories,
  coalesce(sum({GPU_HOURS}) FILTER ({BADLY}), 0) AS gpu_hours,
  min("end") FILTER ({BADLY}) AS first_seen, max("end") FILTER ({BADLY}) AS last_seen
{_RUNS} GROUP BY cluster, "user", name HAVING count(*) FILTER ({BADLY}) >= $least
ORDER BY failed DESC, gpu_hours DESC, "user", name, cluster
"""

_LANES = f"""
SELECT coalesce(root_host, '{NONE}') AS host, start, "end", severity,
  coalesce(document->>'$.title', root_event) AS title
FROM model.incidents WHERE {within(INCIDENT_END)} ORDER BY start, incident_id
"""


def summary(reader: Reader) -> Section:
    """Period, jobs, incidents, and the bill."""
    runs = reader.one(f"""SELECT count(*) AS ended, count(*) FILTER ({BADLY}) AS badly, min("end") AS first, max("end") AS last,
        coalesce(sum({GPU_HOURS}), 0) AS used, coalesce(sum({GPU_HOURS}) FILTER ({BADLY}), 0) AS wasted {_RUNS}""")
    lost = reader.one(f"""SELECT count(*) AS incidents, min(start) AS first, max({INCIDENT_END}) AS last,
        coalesce(sum(TRY_CAST(document->>'$.gpu_hours_lost' AS DOUBLE)), 0) AS lost
        FROM model.incidents WHERE {within(INCIDENT_END)}""")
    infra = reader.one(f"SELECT count(*) AS n {_RUNS} AND {BADLY} AND starts_with(category, 'infra.')")["n"]
    moments = [m for m in (runs["first"], runs["last"], lost["first"], lost["last"]) if m is not None]
    share = runs["badly"] / runs["ended"] if runs["ended"] else None
    figures = (
        Figure("First to last", stretch(min(moments), max(moments)) if moments else None, "text"),
        Figure("Jobs ended", runs["ended"]),
        Figure("Ended badly", runs["badly"], note=f"{share * 100:.1f} % of those that ended" if share is not None else ""),
        Figure("Cluster at fault", infra, note="of those that ended badly"),
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
    rows = reader.rows(f"""SELECT {_CATEGORY} AS category, count(*) AS jobs, count(DISTINCT "user") AS users,
        sum({GPU_HOURS}) AS gpu_hours {_RUNS} AND {BADLY} GROUP BY ALL ORDER BY jobs DESC, category""")
    columns = [Column("category", "Category", "name"), Column("jobs", "Jobs", "count", bar=True),
               Column("users", "Users", "count"), Column("gpu_hours", "GPU-hours", "hours")]  # fmt: skip
    return reader.table("Ended badly, by category", columns, rows, empty="No job ended badly.")


def _by_state(reader: Reader) -> Table:
    rows = reader.rows(f"""SELECT state, count(*) AS jobs, sum({GPU_HOURS}) AS gpu_hours {_RUNS} AND {BADLY}
        GROUP BY ALL ORDER BY jobs DESC, state""")
    columns = [
        Column("state", "State", "name"),
        Column("jobs", "Jobs", "count", bar=True),
        Column("gpu_hours", "GPU-hours", "hours"),
    ]
    return reader.table("Ended badly, by Slurm's state", columns, rows, empty="No job ended badly.")


def _by_severity(reader: Reader) -> Table:
    rows = reader.rows(f"""SELECT severity, count(*) AS incidents,
        CAST(coalesce(sum(json_array_length(document, '$.jobs')), 0) AS BIGINT) AS jobs
        FROM model.incidents WHERE {within(INCIDENT_END)} GROUP BY severity
        ORDER BY list_position(['impact', 'degraded', 'benign'], severity) NULLS LAST, severity""")
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
    for row in reader.rows(_LANES):
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
    rows = reader.rows(_CAUSES)
    flaps = {(r["cluster"], r["cause"], r["host"], r["device"]): r["outages"] for r in reader.rows(_FLAPS)}
    for row in rows:
        row["outages"] = flaps.get((row["cluster"], row["cause"], row["host"], row["device"]))
    return Section(
        "causes", "Failure causes", "Ranked by GPU-hours lost, then by jobs hurt. Rows without incidents are jobs whose verdict is "
        "no fault of the cluster, or one for which no root was found.", tables=(reader.table("", columns, rows, empty="No failure in this period."),),
    )  # fmt: skip


#: Link outages that the incidents of a link tell of, each once.
_FLAPS = f"""
WITH spans AS (
  SELECT DISTINCT cluster, root_event, root_host, root_device, s->>'$.start' AS start
  FROM (SELECT cluster, root_event, root_host, root_device, unnest(from_json(document->'$.spans', '["JSON"]')) AS s
        FROM model.incidents WHERE {within(INCIDENT_END)})
  WHERE s->>'$.kind' = 'no_carrier' AND s->>'$.host' = root_host AND s->>'$.device' = root_device
)
SELECT cluster, root_event AS cause, root_host AS host, root_device AS device, count(*) AS outages FROM spans GROUP BY ALL
"""


def repeated(reader: Reader) -> Section:
    """Users' jobs of one name that ended badly more than once."""
    columns = [
        Column("user", "User", "name"), Column("name", "Job name", "name"), Column("failed", "Ended badly", "count", bar=True),
        Column("runs", "Runs", "count"), Column("rate", "Share", "share"), Column("categories", "Categories", "name"),
        Column("gpu_hours", "GPU-hours", "hours"), Column("first_seen", "First", "time"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    rows = reader.rows(_REPEATED, least=REPEATED)
    return Section(
        "repeated", "Repeated failures", f"Jobs of one user and name that ended badly {REPEATED} times or more. Several categories in "
        "one row mean that it was not one fault.", tables=(reader.table("", columns, rows, empty="No job name failed twice."),),
    )  # fmt: skip
