"""Jobs that hit the limits they had requested, or those of the system: memory, time, disks."""

from __future__ import annotations

from correlator.facts.registry import exhaustions
from queries.reports.model import Column, Section
from queries.reports.reader import Reader
from store.questions import causes, ended

#: Events of memory and time.
_EVENTS = ("kernel.oom_kill", "job.oom", "slurm.job_oom", "slurm.job_timeout", "job.time_limit")


def limits(reader: Reader) -> Section:
    """Memory and time, by the user whose request was too small; then what kernel and Slurm logged about it, by host."""
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
        tables=(reader.table("Jobs at their limits", jobs, reader.rows(ended.limits_met(reader.period)), empty="No job ran out of memory or time."),
                reader.table("What was logged of it", hosts, reader.rows(causes.events_of_kinds(reader.period, _EVENTS)), empty="No line tells of memory or time limits.",
                             note="One kill makes several lines, and a central log may repeat them without the host: lines are no count of jobs."),
                reader.table("Full disks, heat, lost storage", full, reader.rows(causes.of_root_events(reader.period, tuple(sorted(exhaustions())))), empty="None.")),
    )  # fmt: skip
