"""Every table and view of the store as SQLAlchemy Core objects: the one declaration of names, columns and types.

``raw`` is derived from the record schemas (``parsers.record.TABLES``), so a new column there needs no second
declaration. The DDL of an engine (``store.duckdb.schema`` for DuckDB) and the queries (``store.questions``) are built
from these objects. ``model`` can be rebuilt from ``raw``; ``kept`` cannot; ``intake`` is the intake's state, changed in
the transaction of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from parsers.record import TABLES

METADATA = sa.MetaData()

TEXT, NUMBER, TIME, FLAG = sa.String(), sa.BigInteger(), sa.DateTime(), sa.Boolean()
REAL: sa.Double[float] = sa.Double()
TEXTS = sa.ARRAY(sa.String())

_OF_POLARS: list[tuple[pl.DataType, TypeEngine[Any]]] = [
    (pl.Datetime("us"), TIME), (pl.String(), TEXT), (pl.Int64(), NUMBER), (pl.Float64(), REAL), (pl.Boolean(), FLAG),
    (pl.Binary(), sa.LargeBinary()), (pl.List(pl.String()), TEXTS),
]  # fmt: skip


def sql_type(kind: pl.DataType | type[pl.DataType]) -> TypeEngine[Any]:
    """The SQL type of a column of a record schema. Raises ``TypeError`` for a type that no schema uses."""
    for known, name in _OF_POLARS:
        if known == kind:
            return name
    raise TypeError(f"no SQL type for {kind}")


#: Columns that a row may omit, and their defaults.
_DEFAULTS: dict[tuple[str | None, str, str], str] = {("raw", "logs", "block"): "0", ("intake", "sources", "ahead"): "0"}


def _table(schema: str | None, name: str, columns: Mapping[str, TypeEngine[Any]]) -> sa.Table:
    made = (
        sa.Column(column, kind, server_default=_DEFAULTS.get((schema, name, column)))
        for column, kind in columns.items()
    )
    return sa.Table(name, METADATA, *made, schema=schema)


def _raw(name: str, **more: TypeEngine[Any]) -> sa.Table:
    return _table("raw", name, {column: sql_type(kind) for column, kind in TABLES[name].items()} | more)


# -- raw: what was read ----------------------------------------------------------------------------------------------

#: Lines as they are stored. The message is mostly the tail of the raw line: then it is null and ``msg_start`` is its
#: offset. ``block`` numbers closed segments; 0: not in one yet. Read ``LINES`` instead.
LOGS = _raw("logs", msg_start=sa.Integer(), block=sa.Integer())
JOBS, STEPS, NODE_STATES, METRICS = _raw("jobs"), _raw("steps"), _raw("node_states"), _raw("metrics")
SETTINGS, LINKS, TOPOLOGY, BOOTS, ARTIFACTS, ENVIRONMENTS = (
    _raw("settings"), _raw("links"), _raw("topology"), _raw("boots"), _raw("artifacts"), _raw("environments"),
)  # fmt: skip
_LINE = {column: sql_type(kind) for column, kind in TABLES["logs"].items()} | {"block": sa.Integer()}
#: View: every line with its message, stored and archived. ``ALL_LINES`` is the same under another name.
LINES, ALL_LINES = _table("raw", "log_view", _LINE), _table("raw", "all_logs", _LINE)
#: View: the lines whose day is not closed, also those that are in files already. What is learned about lines later is
#: learned from these.
RECENT_LINES = _table("raw", "recent_logs", _LINE)
#: View: the clusters that lines name, without reading the archive's files.
LINE_CLUSTERS = _table("raw", "log_clusters", {"cluster": TEXT})
#: The ledger of ingested files.
FILES = _table("raw", "files", {
    **dict.fromkeys(("path", "cluster", "host", "kind", "source", "reason"), TEXT), "consumed": NUMBER, "digest": TEXT,
    "lines": NUMBER, "events": NUMBER, "unparsed": NUMBER, "warnings": TEXTS, "ingested_at": TIME, "tail": TEXT,
})  # fmt: skip
#: Files of log lines. ``early``: the day of its lines is not closed yet. ``hosts``: which hosts of its lines were learned
#: to be which nodes since, as JSON (``store.duckdb.early``).
ARCHIVE = _table("raw", "archive", {
    "file": TEXT, "state": TEXT, "day": sa.Date(), "lines": NUMBER, "bytes": NUMBER, "digest": TEXT, "first_time": TIME,
    "last_time": TIME, "last_received": TIME, "first_block": sa.Integer(), "last_block": sa.Integer(), "clusters": TEXTS,
    "cluster": TEXT, "since": TIME, "early": FLAG, "hosts": TEXT,
})  # fmt: skip

#: Commits that changed rows of the tables above, and by how many rows (``store.changes``).
BATCHES = _table(
    "raw",
    "batches",
    {"batch": NUMBER, "table": TEXT, **dict.fromkeys(("added", "amended", "removed", "moved"), NUMBER)},
)

# -- model: what was concluded ---------------------------------------------------------------------------------------

EVENTS = _table("model", "events", {
    "event_id": TEXT, "time": TIME, "time_quality": TEXT, "resolution_us": NUMBER, "received_time": TIME,
    **dict.fromkeys(("cluster", "host", "source", "unit", "layer", "event", "severity", "device"), TEXT), "job_id": NUMBER,
    "message": TEXT, "entities": TEXT, "count": NUMBER, "incident_id": TEXT, "file": TEXT, "line": NUMBER, "refs": TEXT,
    "authority": TEXT,
})  # fmt: skip
RUNS = _table("model", "runs", {
    "run_key": TEXT, "cluster": TEXT, **dict.fromkeys(("job_id", "attempt", "array_job_id", "array_task_id"), NUMBER),
    **dict.fromkeys(("name", "user", "account", "partition", "state"), TEXT), "exit_code": NUMBER, "exit_signal": NUMBER,
    "submit": TIME, "start": TIME, "end": TIME, "node_list": TEXT, "nodes": TEXTS, "node_count": NUMBER, "gpus": NUMBER,
    "gpu_index": TEXT, "time_limit_s": NUMBER, "work_dir": TEXT, "submit_line": TEXT, "category": TEXT,
    "incident_id": TEXT, "confidence": REAL, "document": TEXT,
})  # fmt: skip
INCIDENTS = _table("model", "incidents", {
    "incident_id": TEXT, "cluster": TEXT, "start": TIME, "end": TIME,
    **dict.fromkeys(("severity", "category", "root_event", "root_host", "root_device", "document"), TEXT),
})  # fmt: skip
MODEL_NODE_STATES = _table("model", "node_states", {
    "time": TIME, "until": TIME, **dict.fromkeys(("cluster", "host", "state", "reason", "actor", "source"), TEXT),
})  # fmt: skip
#: Named facts about the store itself; what the correlator concluded is in ``CONCLUDED_FACTS``.
FACTS = _table("model", "facts", {"name": TEXT, "value": TEXT})
#: What happened, as the correlator concluded it (``correlator.model.nouns.Fact``): ``sigma`` is in seconds, ``evidence``
#: the ids of events. ``fact_id`` is made of all other columns.
CONCLUDED_FACTS = _table("model", "concluded_facts", {
    **dict.fromkeys(("fact_id", "cluster", "kind", "subject", "host", "device", "run_key"), TEXT), "start": TIME, "end": TIME,
    "sigma": REAL, "attributes": TEXT, "evidence": TEXT,
})  # fmt: skip

# -- kept: what cannot be rebuilt ------------------------------------------------------------------------------------

DETECTIONS = _table("kept", "detections", {"cluster": TEXT, "incident_id": TEXT, "detected_at": TIME})
VERSIONS = _table("kept", "versions", {
    "cluster": TEXT, "kind": TEXT, "name": TEXT, "version": NUMBER, "said_at": TIME, "final": FLAG, "category": TEXT,
    "incident_id": TEXT, "confidence": REAL, "summary": TEXT, "digest": TEXT,
})  # fmt: skip
ALIASES = _table("kept", "aliases", {"cluster": TEXT, "alias": TEXT, "incident_id": TEXT, "since": TIME})
#: ``thread``: the subject of the first message about it; ``about``: what the incident was about then, as JSON.
NOTICES = _table("kept", "notices", {
    "target": TEXT, "cluster": TEXT, "name": TEXT, "digest": TEXT, "told_at": TIME, "thread": TEXT, "about": TEXT,
})  # fmt: skip
FEEDBACK = _table("kept", "feedback", {
    **dict.fromkeys(("feedback_id", "cluster", "run_key", "incident_id", "answer", "category", "event", "host", "device",
                     "note", "author"), TEXT),
    "given_at": TIME, **dict.fromkeys(("said_category", "said_event", "said_host"), TEXT), "said_confidence": REAL,
})  # fmt: skip
#: What operators did about incidents, one row a change; ``incident_id`` is the name at that time. ``state`` and
#: ``assignee`` are null if the change left them; an empty assignee is nobody. ``events`` and ``jobs``: the evidence that
#: the incident had, if the state was set. ``signed``: the author signed in, or a proxy named them.
TRIAGE = _table("kept", "triage", {
    **dict.fromkeys(("cluster", "incident_id", "state", "assignee", "comment", "author"), TEXT), "signed": FLAG, "at": TIME,
    "events": TEXTS, "jobs": TEXTS,
})  # fmt: skip
#: What the drain advisor decided about nodes, one row a step (faultline.drain_acting). ``decision`` names the drain that a
#: step belongs to; ``reason`` is what Slurm was given, ``stamp`` who set it and when, as Slurm reported afterwards.
DRAIN_DECISIONS = _table("kept", "drain_decisions", {
    **dict.fromkeys(("decision", "cluster", "host", "device", "incident_id", "step", "guard", "detail", "reason", "stamp", "evidence"), TEXT),
    "at": TIME,
})  # fmt: skip

# -- intake: the way in ----------------------------------------------------------------------------------------------

#: The position up to which a spool's segments are in the store.
WATERMARK = _table("intake", "watermark", {"spool": TEXT, "segment": NUMBER, "offset": NUMBER, "moved_at": TIME})
#: The pipeline's last transaction, and the file with lines before the watermark that wait for their segment.
CARRIED = _table("intake", "carried", {"spool": TEXT, "step": TEXT, "file": TEXT})
#: Stored sequence numbers of a sender's stream: "1-41,43-50".
STREAMS = _table("intake", "streams", {**dict.fromkeys(("agent", "stream", "epoch", "ranges"), TEXT), "received": TIME})
KEYS = _table("intake", "keys", {"key": TEXT, "received": TIME})
#: One row per host, source and stream. Durations in seconds; times from the service's clock, ``last_time`` from the
#: lines; ``ahead``: lines whose timestamps are held back (parsers.future); ``gap_s`` and ``longest_s`` between arrivals.
SOURCES = _table("intake", "sources", {
    **dict.fromkeys(("host", "source", "file", "transport"), TEXT), **dict.fromkeys(("first_seen", "last_seen", "last_time"), TIME),
    **dict.fromkeys(("lines", "events", "unparsed", "bytes"), NUMBER), "lag_s": REAL, "max_lag_s": REAL, "late": NUMBER,
    "gap_s": REAL, "ahead": NUMBER, "longest_s": REAL,
})  # fmt: skip
NODES = _table("intake", "nodes", {
    "host": TEXT, "cluster": TEXT, "first_seen": TIME, "last_seen": TIME, "boot_id": TEXT, "boot_time": TIME, "boots": NUMBER,
    "status": TEXT, "status_at": TIME,
})  # fmt: skip
#: Nothing was seen of the stream between start and end.
BLIND = _table("intake", "blind", {
    "host": TEXT, "source": TEXT, "stream": TEXT, "start": TIME, "end": TIME, "reason": TEXT, "lines": NUMBER,
    "bytes": NUMBER, "told_by": TEXT, "received": TIME,
})  # fmt: skip
QUARANTINE = _table("intake", "quarantine", {
    **dict.fromkeys(("id", "kind", "peer", "key", "reason"), TEXT), "bytes": NUMBER,
    **dict.fromkeys(("received", "set_aside_at", "replayed_at"), TIME),
})  # fmt: skip

# -- derived: what an engine makes of others when it is asked ---------------------------------------------------------

#: Node states: from polls and accounting, and from slurmctld's log for nodes without any such record.
STATES = _table(None, "states_of_nodes", {
    "time": TIME, "until": TIME, **dict.fromkeys(("cluster", "host", "state", "reason", "actor", "source"), TEXT),
})  # fmt: skip
#: Periods in which nodes were out of service: ``state`` is drained, down, failed, invalid, maintenance or reboot; ``end``
#: is null while it lasts, and then ``seconds`` counts up to the cluster's newest record. ``times``: how often the node was
#: taken out of service in the 30 days up to ``begin``. ``jobs_waiting``: pending jobs that were seen waiting for it
#: meanwhile; null if none was.
DRAINS = _table(None, "drains_of_nodes", {
    **dict.fromkeys(("cluster", "host", "state", "actor", "reason", "owner"), TEXT), "begin": TIME, "end": TIME,
    "evidence": TEXT, "undone_by": TEXT, "seconds": REAL, "times": NUMBER, "jobs_waiting": NUMBER,
})  # fmt: skip

#: Stored tables, by schema and name. Views and derived tables are not included.
STORED = [
    table
    for table in METADATA.tables.values()
    if table not in (LINES, ALL_LINES, RECENT_LINES, LINE_CLUSTERS, STATES, DRAINS)
]
