"""The view ``kql.Logs``, which applies the claims that the correlator disowned (``store.disowned``)."""

from __future__ import annotations

import duckdb

from parsers.writers import DAEMON, ROOT
from store import disowned
from store.disowned import IS_DISOWNED, NAMES
from store.duckdb import parsed
from store.duckdb.dialect import DIALECT
from store.questions.writers import authority
from store.tables import LINES

_AUTHORITY = str(authority(LINES).compile(dialect=DIALECT))

#: kql.Logs with claims that the correlator disowned, and without. Most stores have none, and the join costs: newest lines
#: first take five times as long with it, because DuckDB reads all columns of all lines then.
_WITH_CLAIMS = (
    f"CASE WHEN {IS_DISOWNED} THEN 'other' ELSE coalesce(event, 'other') END",
    f"CASE WHEN {IS_DISOWNED} THEN NULL ELSE job_id END",
    f"CASE WHEN {IS_DISOWNED} THEN CAST(json_merge_patch(coalesce(entities, '{{}}'), json_object('claims', event)) AS VARCHAR) ELSE entities END",
    # See store.questions.writers.of_disowned.
    f"CASE WHEN {IS_DISOWNED} AND {_AUTHORITY} = '{DAEMON}' THEN '{ROOT}' ELSE {_AUTHORITY} END",
    f" CROSS JOIN {NAMES}",
)
_WITHOUT = ("coalesce(event, 'other')", "job_id", "entities", _AUTHORITY, "")


def _logs(event: str, job: str, fields: str, written_by: str, names: str) -> list[str]:
    """The view, and ``kql.LogLines``: the same without ``Authority``, which takes five times as long to plan as the rest
    of the view, read or not."""
    return [
        _view("Logs", event, job, fields, f', {written_by} AS "Authority"', names),
        _view("LogLines", event, job, fields, "", names),
    ]


def _view(name: str, event: str, job: str, fields: str, more: str, names: str) -> str:
    """Strings are never null. ``concat`` leaves a column of few values in its dictionary, and ``coalesce`` writes it out: to
    count by a column with a null anywhere took five times as long. But ``coalesce`` of a column without nulls is the column,
    whose zone maps skip what a condition excludes: that matters for hosts, by which lines are sorted."""
    return f"""CREATE OR REPLACE VIEW kql."{name}" AS SELECT
  time AS "Time", received_time AS "ReceivedTime", concat(cluster, '') AS "Cluster", coalesce(host, '') AS "Host",
  concat(source, '') AS "Source", concat(unit, '') AS "Unit", pid AS "Pid", concat(facility, '') AS "Facility",
  concat(severity, '') AS "Severity", coalesce(message, '') AS "Message",
  {event} AS "Event", {job} AS "JobId", {fields} AS "Fields",
  coalesce(file, '') AS "File", line AS "Line"{more},
  block AS "$block"
FROM raw.log_view{names}"""


def has_claims(connection: duckdb.DuckDBPyConnection) -> bool:
    """Are claims disowned by the stored fact?"""
    row = connection.execute("SELECT value FROM model.facts WHERE name = ?", [disowned.FACT]).fetchone()
    return disowned.has_claims(row[0] if row else None)


def show_claims(connection: duckdb.DuckDBPyConnection, *, shown: bool | None = None) -> None:
    """Makes ``kql.Logs`` apply the claims that are disowned now. To be called where their fact was written, in the same
    transaction. ``shown``: ``has_claims`` before, which the view follows; the views are not created anew, which takes 6 ms,
    if that did not change."""
    wanted = has_claims(connection)
    if wanted is not shown:
        parsed.run(connection, _logs(*(_WITH_CLAIMS if wanted else _WITHOUT)))
