"""The part of a store that one user may see: a catalog of views with only their rows.

The catalog ``visible`` has the store's schemas and in them, under the same names, the tables for which ``RULES`` has a
SELECT. A cursor from :func:`cursor` resolves names only there, so the SQL that reads a whole store reads one user's
part of it. A table without a rule, or a refused one, does not exist: the engine raises ``CatalogException``. The reader
is a variable of the connection; if it is not set, no row is visible.

What belongs to a job belongs to the run, not to its ID, which clusters reuse: a row is a user's if its time is within
one of their runs and within nobody else's. A run whose user is unknown or disputed (null) is nobody's. Lines about
nodes are visible if they concern hardware, on a node of the user's own run, during it; the text is omitted if it could
name somebody. Documents of the correlator are null here: ``web.access.own_documents`` returns them field by field.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from store.door import WITHHELD
from store.duckdb.querying import Asks, store_errors
from store.questions.software import METRIC

CATALOG = "visible"
#: The connection's variable that holds the reader.
VARIABLE = "faultline_reader"
#: Hardware, links and switches: their lines describe a device. Their writers were checked when they became events.
DEVICE_KINDS = r"^(nic|fabric|switch|gpu|pcie|platform)\.|^kernel\.(boot|mce|panic|lockup|thermal)$|^storage\."
#: slurmctld's messages about nodes. Reasons typed by people (slurm.node_reason) are not among them.
NODE_KINDS = r"^slurm\.node_(not_responding|down|up|drain|invalid|reboot|power)$"
#: A text that contains this may name a person, a job or their files.
NAMES_SOMEBODY = r"""(?i)job|step|task|uid|gid|user|name|comm|reason|['"@~=]|(^|[^a-z0-9])/[a-z_.]"""
#: Reasons that Slurm itself gives a node (slurm src/slurmctld); reasons typed by people are private.
SLURMS_REASONS = (
    "Not responding", "Node unexpectedly rebooted", "Kill task failed", "Prolog error", "Epilog error", "Low RealMemory",
    "Low CPUs", "Low TmpDisk", "NO NETWORK ADDRESS FOUND", "batch job complete failure", "Duplicate jobid", "Low socket*core",
)  # fmt: skip
#: Margins around a run: timestamps of slurmctld and nodes against accounting's whole seconds, and epilogs after a
#: node's failure.
BEFORE, AFTER = "INTERVAL 60 SECOND", "INTERVAL 600 SECOND"
#: How long after a run its nodes' lines count, unless a verdict blames them.
NODES_AFTER = "INTERVAL 120 SECOND"
#: Margin for an ID that nobody else ever had: timestamps may be in another zone.
LOOSELY = "INTERVAL 26 HOUR"

_ME = f"CAST(getvariable('{VARIABLE}') AS VARCHAR)"
_MINE = f'"user" = {_ME} AND "user" <> \'\''
_LAST = "TIMESTAMP '9999-01-01'"


@dataclass(frozen=True)
class Rule:
    """``select``: the rows and columns that a user may read, None for none; ``why``: the reason, in a word for
    people."""

    why: str
    select: str | None = None


def _numbers(whose: str, begin: str) -> str:
    """Job IDs, including those of arrays, with the cluster and the time during which they denoted a run."""
    return f"""SELECT cluster, unnest([job_id, array_job_id]) AS number, coalesce(attempt, 0) AS attempt,
    coalesce(submit, start, TIMESTAMP '{begin}') AS since, coalesce("end", {_LAST}) AS till
  FROM {{whole}}.model.runs WHERE {whose}"""


#: ``numbered``: those of the user's own runs, and with ``own`` false those of others that had the same ID. Runs without a known
#: user count as others'. A run without a time has always existed.
_OWNERS = f"""mine AS ({_numbers(_MINE, "9999-01-01")}), numbered AS (
  SELECT true AS own, * FROM mine UNION ALL
  SELECT false AS own, * FROM ({_numbers(f'"user" IS DISTINCT FROM {_ME}', "0001-01-01")}) WHERE number IN (SELECT number FROM mine))"""


def _belongs(row: str, number: str, moment: str) -> str:
    """Whether a row concerns one of the user's own runs. ``moment`` is null if the time is unknown: then nobody else
    may have had the ID.

    One correlated subquery: planning each of four, as EXISTS, took most of the time of a page.
    """
    mine = f"n.own AND ({row}.cluster IS NULL OR {row}.cluster IS NOT DISTINCT FROM n.cluster)"
    others = f"NOT n.own AND ({row}.cluster IS NULL OR n.cluster IS NULL OR n.cluster = {row}.cluster)"
    loosely = f"({moment} IS NULL OR {moment} BETWEEN n.since - {LOOSELY} AND n.till + {LOOSELY})"
    meanwhile = f"{moment} BETWEEN n.since - {BEFORE} AND n.till + {AFTER}"
    return f"""({number} IN (SELECT number FROM mine) AND coalesce((
    SELECT (count(*) FILTER ({mine} AND {loosely}) > 0 AND count(*) FILTER ({others}) = 0)
      OR (count(*) FILTER ({mine} AND {meanwhile}) > 0 AND count(*) FILTER ({others} AND {meanwhile}) = 0)
    FROM numbered n WHERE n.number = {number}), false))"""


#: Nodes of the user's own runs, with the time; and incidents that their verdicts blame.
_PLACES = f"""places AS (SELECT DISTINCT cluster, unnest(nodes) AS host, coalesce(start, submit, {_LAST}) - {BEFORE} AS since,
    coalesce("end", {_LAST}) + {NODES_AFTER} AS till FROM {{whole}}.model.runs WHERE {_MINE}),
  touched AS (SELECT i.* FROM {{whole}}.model.incidents i WHERE EXISTS (SELECT 1 FROM {{whole}}.model.runs r
    WHERE {_MINE} AND r.incident_id = i.incident_id AND r.cluster IS NOT DISTINCT FROM i.cluster))"""


def _same(one: str, other: str) -> str:
    return f"({one}.cluster IS NULL OR {one}.cluster IS NOT DISTINCT FROM {other}.cluster)"


_NODES_OF = """CASE json_type(e.entities, '$.nodes') WHEN 'ARRAY' THEN CAST(json_extract(e.entities, '$.nodes') AS VARCHAR[])
    ELSE [coalesce(json_extract_string(e.entities, '$.nodes'), e.device)] END"""
_JOBS_IN_TEXT = r"(?i)(?:jobs?(?:id)?|stepid|step)[ =:#]*([0-9]+)"
#: Programs that a driver or the kernel names beside a device: they may be another user's on the same node.
_PROCESS = r"(?i),? ?\(?pid=[^,]*,? *name=[^,]*,?|\[[^\]]*:[0-9]+\]|comm[:=] ?\S+"


def _reason(column: str) -> str:
    cases = " ".join(f"WHEN starts_with(lower({column}), '{text.lower()}') THEN '{text}'" for text in SLURMS_REASONS)
    return f"CASE {cases} END"


_EVENTS = f"""WITH {_OWNERS}, {_PLACES}, rated AS (
  SELECT e.*, e.job_id IS NOT NULL AND {_belongs("e", "e.job_id", "e.time")} AS of_job,
    e.job_id IS NULL AND regexp_matches(e.event, '{DEVICE_KINDS}') AS of_device,
    e.job_id IS NULL AND e.layer = 'slurmctld' AND regexp_matches(e.event, '{NODE_KINDS}') AS of_controller,
    {_NODES_OF} AS named,
    (SELECT list(DISTINCT CAST(number AS VARCHAR)) FROM mine) AS own_numbers, (SELECT list(DISTINCT host) FROM places) AS own_hosts,
    coalesce(e.incident_id IN (SELECT incident_id FROM touched t WHERE {_same("e", "t")}), false) AS blamed
  FROM {{whole}}.model.events e
), seen AS (
  SELECT e.*, [n FOR n IN e.named IF list_contains(own_hosts, n)] AS own_nodes
  FROM rated e WHERE of_job OR ((of_device OR of_controller) AND (
    EXISTS (SELECT 1 FROM places p WHERE (p.host = e.host AND of_device OR list_contains(e.named, p.host) AND of_controller)
            AND {_same("e", "p")} AND (blamed OR e.time BETWEEN p.since AND p.till))
    OR (blamed AND of_device AND (layer = 'switch' OR host IN (SELECT root_host FROM touched)))))
)
SELECT event_id, time, time_quality, resolution_us, received_time, cluster, host, source, unit, layer, event, severity,
  CASE WHEN of_controller THEN array_to_string(own_nodes, ',') WHEN of_job OR NOT regexp_matches(device, '/[A-Za-z_.]') THEN device END AS device,
  job_id,
  CASE WHEN of_job AND source IN ('job_stdout', 'job_stderr') THEN message
       WHEN of_job AND len([n FOR n IN regexp_extract_all(message, '{_JOBS_IN_TEXT}', 1) IF NOT list_contains(own_numbers, n)]) = 0
         THEN regexp_replace(message, '(?i)\\b(uid|gid|user(?:_?name)?)([ =:]*)[^ ,;)]+', '\\1\\2...', 'g')
       WHEN of_device AND NOT regexp_matches(regexp_replace(message, '{_PROCESS}', '', 'g'), $names${NAMES_SOMEBODY}$names$)
         THEN regexp_replace(message, '{_PROCESS}', '', 'g')
       WHEN of_controller AND len(own_nodes) = len(named) AND NOT regexp_matches(message, $names${NAMES_SOMEBODY}$names$) THEN message
       ELSE $words${WITHHELD}$words$ END AS message,
  CASE WHEN of_controller THEN CAST(json_object('nodes', own_nodes, 'state', json_extract_string(entities, '$.state')) AS VARCHAR) END AS entities,
  "count", CASE WHEN blamed THEN incident_id END AS incident_id, file, line, CAST(NULL AS VARCHAR) AS refs,
  authority
FROM seen"""

_OUTPUT = f"""WITH {_OWNERS} SELECT l.* FROM {{whole}}.raw.log_view l WHERE l.source IN ('job_stdout', 'job_stderr')
  AND {_belongs("l", "l.job_id", "(CASE WHEN l.time_quality = 'received' THEN NULL ELSE l.time END)")}"""

_ARTIFACTS = (
    f"""WITH {_OWNERS} SELECT a.* FROM {{whole}}.raw.artifacts a WHERE {_belongs("a", "a.job_id", "a.taken_at")}"""
)

_ENVIRONMENTS = (
    f"""WITH {_OWNERS} SELECT e.* FROM {{whole}}.raw.environments e WHERE {_belongs("e", "e.job_id", "e.seen_at")}"""
)

_OF_SCOPE = "TRY_CAST(regexp_extract(s.scope, '^job:([0-9]+)', 1) AS BIGINT)"
_JOBS = f"""WITH {_OWNERS} SELECT j.* REPLACE (CAST(NULL AS VARCHAR) AS cancelled_by, CAST(NULL AS VARCHAR) AS host, CAST(NULL AS VARCHAR) AS file)
FROM {{whole}}.raw.jobs j WHERE coalesce(j."user", {_ME}) = {_ME} AND {_belongs("j", "j.job_id", 'coalesce(j."end", j.start, j.submit)')}"""
_STEPS = f"""WITH {_OWNERS} SELECT s.* REPLACE (CAST(NULL AS VARCHAR) AS file)
FROM {{whole}}.raw.steps s WHERE {_belongs("s", "s.job_id", 'coalesce(s."end", s.start, s.submit)')}"""

_METRICS = f"""WITH {_PLACES} SELECT m.* FROM {{whole}}.raw.metrics m WHERE m.metric = '{METRIC}' AND EXISTS (
  SELECT 1 FROM places p WHERE p.host = m.host AND {_same("m", "p")} AND m.time BETWEEN p.since - INTERVAL 2 DAY AND p.till)"""

_SETTINGS = f"""WITH {_OWNERS} SELECT s.* FROM {{whole}}.raw.settings s WHERE starts_with(s.scope, 'job:')
  AND {_belongs("s", _OF_SCOPE, "CAST(NULL AS TIMESTAMP)")}"""

_INCIDENTS = f"""WITH {_PLACES} SELECT incident_id, cluster, start, "end", severity, category, root_event, root_host,
  CASE WHEN NOT regexp_matches(root_device, '/[A-Za-z_.]+/') THEN root_device END AS root_device, CAST(NULL AS VARCHAR) AS document
FROM touched"""

_STATES = f"""WITH {_PLACES} SELECT time, until, cluster, host, state, {_reason("reason")} AS reason, CAST(NULL AS VARCHAR) AS actor, source
FROM {{whole}}.model.node_states s WHERE EXISTS (SELECT 1 FROM places p WHERE p.host = s.host AND {_same("s", "p")}
  AND ((s.time <= p.till AND coalesce(s.until, {_LAST}) >= p.since)
       OR EXISTS (SELECT 1 FROM touched t WHERE {_same("s", "t")} AND s.time <= coalesce(t."end", {_LAST}) + {AFTER}
                  AND coalesce(s.until, {_LAST}) >= t.start - {BEFORE})))"""

_FEEDBACK = f"""SELECT CAST(NULL AS VARCHAR) AS feedback_id, f.cluster, f.run_key, f.incident_id, f.answer, f.category,
  CAST(NULL AS VARCHAR) AS event, CAST(NULL AS VARCHAR) AS host, CAST(NULL AS VARCHAR) AS device, CAST(NULL AS VARCHAR) AS note,
  'operator ' || dense_rank() OVER (PARTITION BY f.cluster, f.run_key ORDER BY f.author) AS author, f.given_at, f.said_category, f.said_event
FROM {{whole}}.kept.feedback f WHERE EXISTS (SELECT 1 FROM {{whole}}.model.runs r
  WHERE {_MINE} AND r.run_key = f.run_key AND r.cluster IS NOT DISTINCT FROM f.cluster)"""

_TRIAGE = f"""WITH {_PLACES} SELECT t.cluster, t.incident_id, t.state, CAST(NULL AS VARCHAR) AS assignee, CAST(NULL AS VARCHAR) AS comment,
  CAST(NULL AS VARCHAR) AS author, CAST(NULL AS BOOLEAN) AS signed, t.at, CAST(NULL AS VARCHAR[]) AS events, CAST(NULL AS VARCHAR[]) AS jobs
FROM {{whole}}.kept.triage t WHERE t.state IS NOT NULL AND EXISTS (SELECT 1 FROM touched i WHERE i.cluster IS NOT DISTINCT FROM t.cluster
  AND (i.incident_id = t.incident_id OR i.incident_id IN (SELECT a.incident_id FROM {{whole}}.kept.aliases a WHERE a.alias = t.incident_id)))"""

_ALIASES = f"""WITH {_PLACES} SELECT a.* FROM {{whole}}.kept.aliases a WHERE EXISTS (SELECT 1 FROM touched t
  WHERE t.incident_id = a.incident_id AND t.cluster IS NOT DISTINCT FROM a.cluster)"""

_WITHHELD_TABLE = Rule("nothing of it is one user's own, or no page of theirs needs it")
_ASKED_IN_KQL = Rule("queries need the right to read everything")

#: Every table and view of the store. A missing one cannot be read through a restricted view (and fails a test).
RULES: dict[str, Rule] = {
    "model.runs": Rule(
        "runs of the user; documents through web.access.own_documents",
        f"SELECT * REPLACE (CAST(NULL AS VARCHAR) AS document) FROM {{whole}}.model.runs WHERE {_MINE}",
    ),
    "model.incidents": Rule("incidents that a verdict on a run of theirs blames", _INCIDENTS),
    "model.events": Rule("what is recorded of their runs, and of hardware of their runs' nodes meanwhile", _EVENTS),
    "model.node_states": Rule("states of their runs' nodes meanwhile; reasons that Slurm gives, no person's", _STATES),
    "raw.log_view": Rule("what their runs printed", _OUTPUT),
    "raw.artifacts": Rule("scripts, environments and output of their runs", _ARTIFACTS),
    "raw.environments": Rule("what steps of their runs ran with", _ENVIRONMENTS),
    "raw.jobs": Rule("records of their runs, without who cancelled them", _JOBS),
    "raw.steps": Rule("steps of their runs", _STEPS),
    "raw.metrics": Rule("what software their runs' nodes had", _METRICS),
    "raw.settings": Rule("environments of jobs whose number nobody else had", _SETTINGS),
    "kept.feedback": Rule("answers to verdicts on their runs, without who gave them and what they wrote", _FEEDBACK),
    "kept.triage": Rule("states of their incidents, without who set them and what was written", _TRIAGE),
    "kept.aliases": Rule("former names of their incidents", _ALIASES),
    **dict.fromkeys(
        ("raw.logs", "raw.all_logs", "raw.recent_logs", "raw.log_clusters", "raw.node_states", "raw.links",
         "raw.topology", "raw.boots", "raw.files", "raw.log_segments", "raw.archive", "raw.batches", "raw.log_words", "model.facts", "model.concluded_facts",
         "kept.detections", "kept.versions", "kept.notices", "kept.drain_decisions", "intake.watermark", "intake.carried", "intake.streams", "intake.keys",
         "intake.sources", "intake.nodes", "intake.blind", "intake.quarantine"), _WITHHELD_TABLE,
    ),
    **dict.fromkeys(
        ("kql.Logs", "kql.LogLines", "kql.Syslog", "kql.Events", "kql.Jobs", "kql.NodeStates", "kql.Drains", "kql.Metrics", "kql.Incidents", "kql.Facts", "kql.Environments", "kql.Links",
         "kql.slurmctld_raw_CL", "kql.slurmd_raw_CL", "kql.slurmdb_raw_CL", "kql.slurmrestd_raw_CL", "kql.slurmjobs_raw_CL",
         "kql.syslog_raw_CL", "kql.dmesg_raw_CL", "kql.jetpack_raw_CL", "kql.jetpackd_raw_CL", "kql.healthagent_raw_CL"), _ASKED_IN_KQL,
    ),
}  # fmt: skip


class Cursors(Protocol):
    """A store that provides cursors."""

    def cursor(self) -> Any: ...


class View(Asks):
    """A store restricted to one user's part: the same queries on that part."""

    def __init__(self, whole: Cursors, user: str) -> None:
        self._whole, self._user = whole, user

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection that sees what the user may see, and nothing else by any name that our SQL uses."""
        with store_errors():
            return cursor(self._whole, self._user)

    def info(self) -> Mapping[str, Any]:
        """Empty: a store's figures cover the whole site, not one user."""
        return {}

    def seen_by(self, user: str) -> View:
        """Another user's view of the same store."""
        return View(self._whole, user)


_INSTALLING = threading.Lock()


def cursor(store: Cursors, user: str) -> duckdb.DuckDBPyConnection:
    """A cursor that sees what ``user`` may see, and nothing else by any name that our SQL uses."""
    made: duckdb.DuckDBPyConnection = store.cursor()
    try:
        # A marker schema that exists once all views exist: the transaction below creates both.
        try:
            made.execute(f"USE {CATALOG}.ready")
        except duckdb.CatalogException:
            _install(made)
            made.execute(f"USE {CATALOG}.ready")
        made.execute(f"SET VARIABLE {VARIABLE} = ?", [user])
    except BaseException:
        made.close()
        raise
    return made


def _install(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the catalog, in memory beside the store: once per opening of a store."""
    (whole,) = connection.execute("SELECT '\"' || replace(current_database(), '\"', '\"\"') || '\"'").fetchone() or (
        "",
    )
    with _INSTALLING:
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {CATALOG}")
        kept = connection.execute(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
        views = connection.execute(
            "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE database_name = current_database()"
        ).fetchall()
        there = {name for (name,) in [*kept, *views]}
        connection.execute("BEGIN")
        try:
            for name, rule in RULES.items():
                if rule.select is None or name not in there:  # a store of an older version lacks some
                    continue
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.{name.partition('.')[0]}")
                connection.execute(f"CREATE OR REPLACE VIEW {CATALOG}.{name} AS {rule.select.format(whole=whole)}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.ready")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
