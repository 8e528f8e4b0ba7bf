"""Jobs that ran into what they had asked for, or into the end of what there is: memory, time, disks."""

from __future__ import annotations

from correlator.facts.registry import exhaustions
from queries.reports.model import Column, Section
from queries.reports.reader import BADLY, GPU_HOURS, Reader, within

_JOBS = f"""
SELECT cluster, CASE category WHEN 'app.oom' THEN 'memory' ELSE 'time limit' END AS what, "user", name, count(*) AS jobs,
  sum({GPU_HOURS}) AS gpu_hours, max(time_limit_s) AS limit_s, max(epoch("end") - epoch(start)) AS longest_s, max("end") AS last_seen
FROM model.runs WHERE {BADLY} AND category IN ('app.oom', 'app.timeout') AND {within('"end"')}
GROUP BY ALL ORDER BY jobs DESC, gpu_hours DESC, what, "user", name, cluster
"""

_HOSTS = f"""
SELECT cluster, coalesce(host, 'host not told') AS host, event, CAST(sum(greatest(coalesce(count, 1), 1)) AS BIGINT) AS events,
  count(DISTINCT job_id) AS jobs, min(time) AS first_seen, max(time) AS last_seen
FROM model.events WHERE event IN ('kernel.oom_kill', 'job.oom', 'slurm.job_oom', 'slurm.job_timeout', 'job.time_limit')
  AND {within("time")} GROUP BY ALL ORDER BY events DESC, host, event, cluster
"""

_FULL = f"""
SELECT cluster, root_host AS host, root_device AS device, root_event AS cause, count(*) AS incidents,
  CAST(coalesce(sum(json_array_length(document, '$.jobs')), 0) AS BIGINT) AS jobs, max(coalesce("end", start)) AS last_seen
FROM model.incidents WHERE root_event IN (SELECT unnest($exhausted::VARCHAR[])) AND {within('coalesce("end", start)')}
GROUP BY ALL ORDER BY incidents DESC, host, device, cluster
"""


def limits(reader: Reader) -> Section:
    """Memory and time, by who asked for too little; then what kernel and Slurm logged of it, by host."""
    jobs = [
        Column("what", "Ran out of", "name"), Column("user", "User", "name"), Column("name", "Job name", "name"),
        Column("jobs", "Jobs", "count", bar=True), Column("gpu_hours", "GPU-hours", "hours"), Column("limit_s", "Largest time limit", "seconds"),
        Column("longest_s", "Longest run", "seconds"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    hosts = [Column("host", "Logged by", "name"), Column("event", "Event", "name"), Column("events", "Lines", "count", bar=True),
             Column("jobs", "Jobs named", "count"), Column("first_seen", "First", "time"), Column("last_seen", "Last", "time")]  # fmt: skip
    full = [Column("host", "Host", "name"), Column("device", "Device", "name"), Column("cause", "Cause", "name"),
            Column("incidents", "Incidents", "count"), Column("jobs", "Jobs hurt", "count"), Column("last_seen", "Last", "time")]  # fmt: skip
    return Section(
        "limits", "Resource exhaustion", "Jobs that met their own limits are no fault of the cluster; many of one name ask for a larger "
        "request or a smaller program.",
        tables=(reader.table("Jobs at their limits", jobs, reader.rows(_JOBS), empty="No job ran out of memory or time."),
                reader.table("What was logged of it", hosts, reader.rows(_HOSTS), empty="No line tells of memory or time limits.",
                             note="One kill makes several lines, and a central log may repeat them without the host: lines are no count of jobs."),
                reader.table("Full disks, heat, lost storage", full, reader.rows(_FULL, exhausted=sorted(exhaustions())), empty="None.")),
    )  # fmt: skip
