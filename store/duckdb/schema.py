"""DuckDB's DDL: the tables of ``store.tables``, the views over log lines, and ``kql``, the schema that people query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from parsers.record import TABLES
from store.duckdb import segments
from store.duckdb.derived import STATES
from store.duckdb.dialect import ddl
from store.duckdb.drains import DRAINS
from store.tables import STORED

#: Version of the tables. This version would not understand a newer store, and would destroy its data by writing.
VERSION = 1
VERSION_FACT = "schema_version"

#: For stores created before cables had a time: their cables have always existed.
LINKS_TIME = "ALTER TABLE raw.links ADD COLUMN IF NOT EXISTS time TIMESTAMP"
#: For stores created before what was allocated to a job, and what it waits for, was kept.
JOBS_COLUMNS = tuple(
    f"ALTER TABLE raw.jobs ADD COLUMN IF NOT EXISTS {column}" for column in ("tres VARCHAR", "waits_for VARCHAR[]")
)
#: For stores created before events had an authority: it is null until the next pass of the correlator.
EVENTS_AUTHORITY = "ALTER TABLE model.events ADD COLUMN IF NOT EXISTS authority VARCHAR"
#: For stores created before notifications of one fault formed a thread.
NOTICES_THREADS = tuple(
    f"ALTER TABLE kept.notices ADD COLUMN IF NOT EXISTS {name} VARCHAR" for name in ("thread", "about")
)

#: For stores created before settled lines moved into files while their day went on.
ARCHIVE_EARLY = (
    "ALTER TABLE raw.archive ADD COLUMN IF NOT EXISTS early BOOLEAN",
    "ALTER TABLE raw.archive ADD COLUMN IF NOT EXISTS hosts VARCHAR",
)

_MESSAGE = "CASE WHEN message IS NULL THEN substr(raw, msg_start + 1) ELSE message END"

_RAW_CL = {
    "slurmctld_raw_CL": "source = 'slurmctld'",
    "slurmd_raw_CL": "source IN ('slurmd', 'slurmstepd')",
    "slurmdb_raw_CL": "source = 'slurmdbd'",
    "slurmrestd_raw_CL": "source = 'slurmrestd'",
    "slurmjobs_raw_CL": "source IN ('job_stdout', 'job_stderr', 'sacct', 'jobcomp', 'scontrol_jobs')",
    "syslog_raw_CL": "format IN ('rfc3164', 'rfc5424', 'rfc3339', 'loghost')",
    "dmesg_raw_CL": "source = 'kernel'",
    "jetpack_raw_CL": "source = 'jetpack'",
    "jetpackd_raw_CL": "source = 'jetpackd'",
    "healthagent_raw_CL": "source = 'healthagent'",
}

#: Views over all lines, even where ``raw.log_view`` is limited to a time range (correlator.window); and the cluster
#: names in lines, which the archive knows without reading its files.
_OF_ALL_LINES = [
    "CREATE OR REPLACE VIEW raw.all_logs AS SELECT * FROM raw.log_view",
    """CREATE OR REPLACE VIEW raw.log_clusters AS SELECT cluster FROM raw.logs UNION ALL SELECT coalesce(name, cluster) AS cluster
    FROM (SELECT unnest(clusters) AS name, cluster FROM raw.archive WHERE state = 'kept')""",
]

#: The other tables of the contract that are made of log lines. Strings are never null there: KQL has no null strings.
_KQL_LINES = [
    """CREATE OR REPLACE VIEW kql."Syslog" AS SELECT
  time AS "TimeGenerated", coalesce(host, '') AS "Computer", coalesce(facility, '') AS "Facility",
  coalesce(severity, '') AS "SeverityLevel", coalesce(unit, '') AS "ProcessName", pid AS "ProcessID",
  coalesce(message, '') AS "SyslogMessage", '' AS "HostIP",
  block AS "$block"
FROM raw.log_view WHERE format IN ('rfc3164', 'rfc5424', 'rfc3339', 'loghost', 'journald')""",
    *(
        f"""CREATE OR REPLACE VIEW kql."{name}" AS SELECT coalesce(received_time, time) AS "TimeGenerated",
  raw AS "RawData", coalesce(host, '') AS "Computer", coalesce(file, '') AS "FilePath", block AS "$block" FROM raw.log_view WHERE {where}"""
        for name, where in _RAW_CL.items()
    ),
]

#: The other tables of the contract.
KQL_VIEWS = [
    """CREATE OR REPLACE VIEW kql."Events" AS SELECT
  event_id AS "EventId", time AS "Time", coalesce(cluster, '') AS "Cluster", coalesce(host, '') AS "Host", event AS "Event",
  coalesce(severity, '') AS "Severity", coalesce(device, '') AS "Device", job_id AS "JobId", coalesce(message, '') AS "Message",
  entities AS "Fields", coalesce(incident_id, '') AS "IncidentId", coalesce(authority, 'unverified') AS "Authority"
FROM model.events""",
    """CREATE OR REPLACE VIEW kql."Jobs" AS SELECT
  coalesce(cluster, '') AS "Cluster", job_id AS "JobId", attempt AS "Attempt", array_job_id AS "ArrayJobId",
  array_task_id AS "ArrayTaskId", coalesce(name, '') AS "Name", coalesce("user", '') AS "User",
  coalesce(account, '') AS "Account", coalesce(partition, '') AS "Partition", coalesce(state, '') AS "State",
  exit_code AS "ExitCode", exit_signal AS "Signal", submit AS "Submit", start AS "Start", "end" AS "End",
  coalesce(node_list, '') AS "NodeList", CAST(to_json(nodes) AS VARCHAR) AS "Nodes", node_count AS "NodeCount", gpus AS "Gpus",
  coalesce(category, '') AS "Category", coalesce(incident_id, '') AS "IncidentId", confidence AS "Confidence"
FROM model.runs""",
    f"""CREATE OR REPLACE VIEW kql."NodeStates" AS SELECT
  time AS "Time", coalesce(cluster, '') AS "Cluster", coalesce(host, '') AS "Host", coalesce(state, '') AS "State",
  coalesce(reason, '') AS "Reason", coalesce(actor, '') AS "Actor"
FROM {STATES}""",
    f"""CREATE OR REPLACE VIEW kql."Drains" AS SELECT
  coalesce(cluster, '') AS "Cluster", host AS "Host", state AS "State", coalesce(actor, '') AS "Actor", coalesce(owner, '') AS "Owner",
  coalesce(reason, '') AS "Reason", begin AS "Begin", "end" AS "End", evidence AS "Evidence", coalesce(undone_by, '') AS "UndoneBy",
  seconds AS "Seconds", times AS "Times", jobs_waiting AS "JobsWaiting"
FROM {DRAINS}""",
    """CREATE OR REPLACE VIEW kql."Metrics" AS SELECT
  time AS "Time", coalesce(cluster, '') AS "Cluster", coalesce(host, '') AS "Host", coalesce(metric, '') AS "Metric",
  value AS "Value", coalesce(device, '') AS "Device", labels AS "Labels"
FROM raw.metrics""",
    """CREATE OR REPLACE VIEW kql."Incidents" AS SELECT
  incident_id AS "IncidentId", coalesce(cluster, '') AS "Cluster", start AS "Start", "end" AS "End", severity AS "Severity",
  category AS "Category", coalesce(root_event, '') AS "RootCause", coalesce(root_host, '') AS "RootHost",
  coalesce(root_device, '') AS "RootDevice", CAST(json_extract(document, '$.hosts') AS VARCHAR) AS "Hosts",
  CAST(json_extract(document, '$.jobs[*].job_id') AS VARCHAR) AS "Jobs",
  CAST(json_extract(document, '$.gpu_hours_lost') AS DOUBLE) AS "GpuHoursLost"
FROM model.incidents""",
    """CREATE OR REPLACE VIEW kql."Facts" AS SELECT
  coalesce(cluster, '') AS "Cluster", kind AS "Kind", subject AS "Subject", coalesce(host, '') AS "Host", coalesce(device, '') AS "Device",
  coalesce(run_key, '') AS "Run", start AS "Begin", "end" AS "End", sigma AS "Sigma", attributes AS "Attributes", evidence AS "Evidence"
FROM model.concluded_facts""",
    """CREATE OR REPLACE VIEW kql."Environments" AS SELECT DISTINCT
  coalesce(cluster, '') AS "Cluster", job_id AS "JobId", restarts AS "Attempt", step AS "Step", coalesce(host, '') AS "Host", name AS "Name",
  value AS "Value", seen_at AS "Seen"
FROM raw.environments""",
    """CREATE OR REPLACE VIEW kql."Links" AS SELECT DISTINCT
  coalesce(host, '') AS "Host", coalesce(device, '') AS "Device", coalesce(switch, '') AS "Switch",
  coalesce(switch_port, '') AS "SwitchPort", coalesce(plane, '') AS "Plane", coalesce(rail, '') AS "Rail"
FROM raw.links""",
]


def facts_of(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """``model.facts``; empty if there is nothing yet. It asks for the table itself: the first look at DuckDB's list of
    tables costs a third of opening a store, since it makes DuckDB's own views."""
    try:
        return dict(connection.execute("SELECT name, value FROM model.facts").fetchall())
    except duckdb.CatalogException:
        return {}


def newer_than_known(facts: Mapping[str, str]) -> str | None:
    """The version of a store that a newer program wrote; None if this program knows it, or there is nothing yet."""
    version = facts.get(VERSION_FACT)
    if version is None:
        return None
    return None if version.isascii() and version.isdigit() and int(version) <= VERSION else version


def has_this_versions_views(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the views are those of this version: older ones had no ``Authority``, ``Facts``, ``JobsWaiting`` or
    ``raw.recent_logs``. True if there is no store yet."""
    try:
        connection.execute('SELECT "Authority" FROM kql."Events" LIMIT 0')
    except duckdb.BinderException:
        return False
    except duckdb.CatalogException:
        return True
    try:
        connection.execute('SELECT "Kind" FROM kql."Facts" LIMIT 0')
        connection.execute('SELECT "JobsWaiting" FROM kql."Drains" LIMIT 0')
        connection.execute("SELECT block FROM raw.recent_logs LIMIT 0")
    except (duckdb.CatalogException, duckdb.BinderException):
        return False
    return True


def log_views(archived: Sequence[str] = (), early: Sequence[str] = ()) -> list[str]:
    """The views over log lines except ``kql.Logs``: those in DuckDB, and each SELECT of ``archived`` (the columns of a
    line, then ``block``); ``early``: the same for the files of days that are not closed."""
    columns = ", ".join(f"{_MESSAGE} AS message" if c == "message" else f'"{c}"' for c in (*TABLES["logs"], "block"))
    recent = " UNION ALL ".join([f"SELECT {columns} FROM raw.logs", *early])
    tiers = " UNION ALL ".join([f"SELECT {columns} FROM raw.logs", *archived])
    return [
        f"CREATE OR REPLACE VIEW raw.recent_logs AS {recent}",
        f"CREATE OR REPLACE VIEW raw.log_view AS {tiers}",
        *_OF_ALL_LINES,
        *_KQL_LINES,
    ]


def statements() -> list[str]:
    """All DDL in order except ``log_views`` and ``kql.Logs`` (logs_view.py); safe to repeat."""
    return [
        *(f"CREATE SCHEMA IF NOT EXISTS {schema}" for schema in ("raw", "model", "kept", "kql")),
        *(ddl(table) for table in STORED if table.schema in ("raw", "model", "kept")),
        LINKS_TIME,
        *JOBS_COLUMNS,
        EVENTS_AUTHORITY,
        *NOTICES_THREADS,
        *ARCHIVE_EARLY,
        *segments.SCHEMA,
        *KQL_VIEWS,
    ]
