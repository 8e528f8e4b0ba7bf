"""What the report rests on and what it cannot see. A number is worth no more than the logs under it."""

from __future__ import annotations

from queries.reports.model import Column, Figure, Section
from queries.reports.reader import BADLY, ENDED, INCIDENT_END, Reader, within
from queries.reports.wording import worded

#: Kinds of evidence: how to find them, and what stays hidden without them.
_WANTED = (
    ("slurmctld's log", "SELECT count(*) AS n FROM raw.log_view WHERE source = 'slurmctld'", "nodes set DOWN and why Slurm ended a job"),
    ("slurmd's logs", "SELECT count(*) AS n FROM raw.log_view WHERE source IN ('slurmd', 'slurmstepd')", "a slurmd that died, prologs and epilogs"),
    ("kernel lines of nodes", "SELECT count(*) AS n FROM raw.log_view WHERE source IN ('kernel', 'dmesg') OR unit = 'kernel' OR facility = 'kern'",
     "GPU errors, links lost, memory kills, reboots"),
    ("switch logs", "SELECT count(*) AS n FROM model.events WHERE event LIKE 'switch.%'", "whether a link was lost at its switch"),
    ("job output", "SELECT count(*) AS n FROM raw.log_view WHERE source IN ('job_stdout', 'job_stderr')", "errors of programs and of NCCL"),
    ("accounting of jobs", "SELECT count(*) AS n FROM raw.jobs", "jobs that ended, their users and GPUs"),
    ("states of nodes", "SELECT count(*) AS n FROM model.node_states", "how long nodes were out of service"),
    ("metrics", "SELECT count(*) AS n FROM raw.metrics", "heat, ECC counters and load before a fault"),
    ("table of cables", "SELECT count(*) AS n FROM raw.links", "which switch port belongs to which node"),
)  # fmt: skip

_SOURCES = """
SELECT coalesce(source, format, 'not recognised') AS source, count(*) AS lines, count(DISTINCT host) AS hosts,
  count(*) FILTER (coalesce(event, 'other') <> 'other') AS events, min(time) AS first_seen, max(time) AS last_seen
FROM raw.log_view GROUP BY ALL ORDER BY lines DESC, source
"""

_DOUBTS = f"""
SELECT doubt, count(*) AS incidents, list_sort(list(DISTINCT incident_id)) AS ids
FROM (SELECT incident_id, unnest(from_json(document->'$.doubts', '["VARCHAR"]')) AS doubt FROM model.incidents WHERE {within(INCIDENT_END)})
GROUP BY doubt ORDER BY incidents DESC, doubt
"""


def coverage(reader: Reader) -> Section:
    """Sources, span, and how many verdicts are unknown, doubtful or rest on lines that came late."""
    span = reader.store.info()
    verdicts = reader.one(f"""SELECT count(*) AS n, count(*) FILTER (category = 'unknown') AS unknown,
        count(*) FILTER (category IS NULL) AS missing, count(*) FILTER (coalesce(confidence, 0) < 0.5) AS weak,
        count(*) FILTER (coalesce(gpus, 0) = 0) AS no_gpus FROM model.runs WHERE {BADLY} AND {within('"end"')}""")
    told = reader.one(f"""SELECT count(*) FILTER (coalesce(json_array_length(document, '$.doubts'), 0) > 0) AS blind,
        count(*) FILTER (list_contains(from_json(document->'$.spans[*].kind', '["VARCHAR"]'), 'late')) AS late
        FROM model.incidents WHERE {within(INCIDENT_END)}""")
    open_runs = reader.plain(f"SELECT count(*) AS n FROM model.runs WHERE NOT {ENDED}")[0]["n"]
    stamps = reader.plain("""SELECT count(*) FILTER (time_quality = 'received') AS received,
        count(*) FILTER (coalesce(event, 'other') = 'other') AS other FROM raw.log_view""")[0]
    figures = (
        Figure("Lines stored", span["lines"], note="in the whole store"),
        Figure("First line", span["first"], "time"), Figure("Last line", span["last"], "time"),
        Figure("Verdicts", verdicts["n"], note="jobs that ended badly"),
        Figure("Unknown", verdicts["unknown"], note="the logs do not tell why"),
        Figure("With doubts", told["blind"], note="incidents with a gap in what was logged"),
        Figure("Late lines", told["late"], note="incidents whose lines came late"),
    )  # fmt: skip
    notes = [
        f"No {what} in the store: it would tell {hidden}."
        for what, sql, hidden in _WANTED
        if not reader.plain(sql)[0]["n"]
    ]
    counts = (
        ("Jobs that ended badly and have no verdict yet (correlate again)", verdicts["missing"]),
        ("Verdicts with a confidence below 0.5", verdicts["weak"]),
        ("Jobs that ended badly and count as 0 GPU-hours, having no GPU or none that was logged", verdicts["no_gpus"]),
        ("Runs without a known end (still running, or traces only), which are in no count", open_runs),
        ("Lines that bear only the time they were received", stamps["received"]),
        ("Lines that are stored and searchable but made no event", stamps["other"]),
    )
    notes += [f"{text}: {worded(number, 'count')}." for text, number in counts if number]
    columns = [Column("source", "Source", "name"), Column("lines", "Lines", "count", bar=True), Column("events", "With an event", "count"),
               Column("hosts", "Hosts", "count"), Column("first_seen", "First", "time"), Column("last_seen", "Last", "time")]  # fmt: skip
    doubts = [Column("doubt", "Doubt"), Column("incidents", "Incidents", "count"), Column("ids", "Which", "name")]
    return Section(
        "coverage", "What this report cannot see", "A fault that nobody logged is in no table above. This is what was there to read.", figures,
        (reader.table("Doubts that incidents state", doubts, reader.rows(_DOUBTS), empty="No incident states a doubt."),
         reader.table("Sources of the whole store", columns, reader.plain(_SOURCES), empty="No log line is stored."),), notes=tuple(notes),
    )  # fmt: skip
