"""The tables: ``raw`` holds what was read, ``model`` what was concluded, ``kql`` the names people query.

``raw`` is made from the record shapes, so that a new column there needs no second place. Nothing in ``model`` is
primary: the correlator rebuilds it from ``raw``. ``kept`` is what cannot be rebuilt: when the running service said what
(versions, first detection), former ids of incidents, and what operators answered.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import polars as pl

from parsers.record import TABLES
from store import archive, segments
from store.node_states import STATES

#: Of the tables. A store of a newer one holds what this version would not know, and would destroy by writing.
VERSION = 1
VERSION_FACT = "schema_version"

_TYPES: list[tuple[pl.DataType, str]] = [
    (pl.Datetime("us"), "TIMESTAMP"),
    (pl.String(), "VARCHAR"),
    (pl.Int64(), "BIGINT"),
    (pl.Float64(), "DOUBLE"),
    (pl.Boolean(), "BOOLEAN"),
    (pl.Binary(), "BLOB"),
    (pl.List(pl.String()), "VARCHAR[]"),
]

#: Long texts: zstd halves the file (measured on 10 M syslog lines, docs/architecture.md).
_LONG_TEXT = {"raw", "message", "entities", "content"}


def duckdb_type(kind: pl.DataType | type[pl.DataType]) -> str:
    for known, name in _TYPES:
        if known == kind:
            return name
    raise TypeError(f"no DuckDB type for {kind}")


def raw_table(name: str) -> str:
    columns = []
    for column, kind in TABLES[name].items():
        compression = " USING COMPRESSION zstd" if column in _LONG_TEXT else ""
        columns.append(f'"{column}" {duckdb_type(kind)}{compression}')
    if name == "logs":
        # Message is nearly always the tail of the raw line: keep where it starts instead of keeping it twice.
        columns.append("msg_start INTEGER")
    return f"CREATE TABLE IF NOT EXISTS raw.{name} ({', '.join(columns)})"


FILES = """CREATE TABLE IF NOT EXISTS raw.files (
  path VARCHAR, cluster VARCHAR, host VARCHAR, kind VARCHAR, source VARCHAR, reason VARCHAR,
  consumed BIGINT, digest VARCHAR, lines BIGINT, events BIGINT, unparsed BIGINT, warnings VARCHAR[], ingested_at TIMESTAMP, tail VARCHAR
)"""

#: Stores that were made before cables had a time: what they hold was always so.
LINKS_TIME = "ALTER TABLE raw.links ADD COLUMN IF NOT EXISTS time TIMESTAMP"

MODEL = [
    """CREATE TABLE IF NOT EXISTS model.events (
  event_id VARCHAR, time TIMESTAMP, time_quality VARCHAR, resolution_us BIGINT, received_time TIMESTAMP,
  cluster VARCHAR, host VARCHAR, source VARCHAR, unit VARCHAR, layer VARCHAR, event VARCHAR, severity VARCHAR,
  device VARCHAR, job_id BIGINT, message VARCHAR, entities VARCHAR, count BIGINT, incident_id VARCHAR,
  file VARCHAR, line BIGINT, refs VARCHAR
)""",
    """CREATE TABLE IF NOT EXISTS model.runs (
  run_key VARCHAR, cluster VARCHAR, job_id BIGINT, attempt BIGINT, array_job_id BIGINT, array_task_id BIGINT,
  name VARCHAR, "user" VARCHAR, account VARCHAR, partition VARCHAR, state VARCHAR, exit_code BIGINT, exit_signal BIGINT,
  submit TIMESTAMP, start TIMESTAMP, "end" TIMESTAMP, node_list VARCHAR, nodes VARCHAR[], node_count BIGINT, gpus BIGINT,
  gpu_index VARCHAR, time_limit_s BIGINT, work_dir VARCHAR, submit_line VARCHAR,
  category VARCHAR, incident_id VARCHAR, confidence DOUBLE, document VARCHAR
)""",
    """CREATE TABLE IF NOT EXISTS model.incidents (
  incident_id VARCHAR, cluster VARCHAR, start TIMESTAMP, "end" TIMESTAMP, severity VARCHAR, category VARCHAR,
  root_event VARCHAR, root_host VARCHAR, root_device VARCHAR, document VARCHAR
)""",
    """CREATE TABLE IF NOT EXISTS model.node_states (
  time TIMESTAMP, until TIMESTAMP, cluster VARCHAR, host VARCHAR, state VARCHAR, reason VARCHAR, actor VARCHAR,
  source VARCHAR
)""",
    "CREATE TABLE IF NOT EXISTS model.facts (name VARCHAR, value VARCHAR)",
]

KEPT = [
    "CREATE TABLE IF NOT EXISTS kept.detections (cluster VARCHAR, incident_id VARCHAR, detected_at TIMESTAMP)",
    """CREATE TABLE IF NOT EXISTS kept.versions (
  cluster VARCHAR, kind VARCHAR, name VARCHAR, version BIGINT, said_at TIMESTAMP, final BOOLEAN, category VARCHAR,
  incident_id VARCHAR, confidence DOUBLE, summary VARCHAR, digest VARCHAR
)""",
    "CREATE TABLE IF NOT EXISTS kept.aliases (cluster VARCHAR, alias VARCHAR, incident_id VARCHAR, since TIMESTAMP)",
    "CREATE TABLE IF NOT EXISTS kept.notices (target VARCHAR, cluster VARCHAR, name VARCHAR, digest VARCHAR, told_at TIMESTAMP)",
    """CREATE TABLE IF NOT EXISTS kept.feedback (
  feedback_id VARCHAR, cluster VARCHAR, run_key VARCHAR, incident_id VARCHAR, answer VARCHAR, category VARCHAR,
  event VARCHAR, host VARCHAR, device VARCHAR, note VARCHAR, author VARCHAR, given_at TIMESTAMP, said_category VARCHAR,
  said_event VARCHAR, said_host VARCHAR, said_confidence DOUBLE
)""",
]

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

#: What is read of all lines, also where ``raw.log_view`` stands for those of a stretch of time (correlator.window); and the
#: names of clusters in lines, which the archive knows without reading its files.
_OF_ALL_LINES = [
    "CREATE OR REPLACE VIEW raw.all_logs AS SELECT * FROM raw.log_view",
    """CREATE OR REPLACE VIEW raw.log_clusters AS SELECT cluster FROM raw.logs UNION ALL SELECT coalesce(name, cluster) AS cluster
    FROM (SELECT unnest(clusters) AS name, cluster FROM raw.archive WHERE state = 'kept')""",
]

#: The tables of the contract that are made of log lines. Strings are never null there: KQL has no null strings.
_KQL_LINES = [
    """CREATE OR REPLACE VIEW kql."Logs" AS SELECT
  time AS "Time", received_time AS "ReceivedTime", coalesce(cluster, '') AS "Cluster", coalesce(host, '') AS "Host",
  coalesce(source, '') AS "Source", coalesce(unit, '') AS "Unit", pid AS "Pid", coalesce(facility, '') AS "Facility",
  coalesce(severity, '') AS "Severity", coalesce(message, '') AS "Message",
  coalesce(event, 'other') AS "Event", job_id AS "JobId", entities AS "Fields", coalesce(file, '') AS "File", line AS "Line",
  block AS "$block"
FROM raw.log_view""",
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
  entities AS "Fields", coalesce(incident_id, '') AS "IncidentId"
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
    """CREATE OR REPLACE VIEW kql."Links" AS SELECT DISTINCT
  coalesce(host, '') AS "Host", coalesce(device, '') AS "Device", coalesce(switch, '') AS "Switch",
  coalesce(switch_port, '') AS "SwitchPort", coalesce(plane, '') AS "Plane", coalesce(rail, '') AS "Rail"
FROM raw.links""",
]


def newer_than_known(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The version of a store that a newer program wrote; None where this one knows it, or there is nothing yet."""
    known = "SELECT 1 FROM duckdb_tables() WHERE schema_name = 'model' AND table_name = 'facts'"
    if connection.execute(known).fetchone() is None:
        return None
    row = connection.execute("SELECT value FROM model.facts WHERE name = ?", [VERSION_FACT]).fetchone()
    if row is None:
        return None
    told = str(row[0])
    return None if told.isascii() and told.isdigit() and int(told) <= VERSION else told


def log_views(archived: Sequence[str] = ()) -> list[str]:
    """The views over log lines: of those in DuckDB, and of each SELECT of ``archived`` (of the columns of a line, ``block``
    behind them)."""
    columns = ", ".join(f"{_MESSAGE} AS message" if c == "message" else f'"{c}"' for c in (*TABLES["logs"], "block"))
    tiers = " UNION ALL ".join([f"SELECT {columns} FROM raw.logs", *archived])
    return [f"CREATE OR REPLACE VIEW raw.log_view AS {tiers}", *_OF_ALL_LINES, *_KQL_LINES]


def statements() -> list[str]:
    """All DDL in order but ``log_views``; safe to run again."""
    return [
        *(f"CREATE SCHEMA IF NOT EXISTS {schema}" for schema in ("raw", "model", "kept", "kql")),
        *(raw_table(name) for name in TABLES),
        LINKS_TIME,
        FILES,
        *segments.SCHEMA,
        *archive.SCHEMA,
        *MODEL,
        *KEPT,
        *KQL_VIEWS,
    ]
