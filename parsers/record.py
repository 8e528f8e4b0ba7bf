"""The schema of parsed lines and observations.

Parsers produce *tables* (Polars frames) of the schemas below; the store keeps them; nothing else passes between the
packages. All times are naive UTC in microseconds ("us"), never with a zone. A missing value is null.

``LOGS`` has one row per input line and never drops one. ``resolution_us`` is the resolution of the time (1_000_000 for
an RFC 3164 timestamp, 1_000 for Slurm's own files), which the correlator turns into uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache

import polars as pl

TIME = pl.Datetime("us")
TEXTS = pl.List(pl.String)
#: The range of the calendar (years 1 to 9999), in microseconds since 1970. Other values can be stored but not read.
FIRST_MOMENT, LAST_MOMENT = (
    (edge - datetime(1970, 1, 1)) // timedelta(microseconds=1) for edge in (datetime.min, datetime.max)
)

#: The sources of what a job itself wrote: anybody who runs jobs can write such a line.
JOB_OUTPUT = ("job_stdout", "job_stderr")

#: One row per input line. ``entities`` is a JSON object with sorted keys (null if empty); ``raw`` is the line without
#: its line end, undecodable bytes as U+FFFD; ``raw_bytes`` holds the exact bytes only where ``raw`` cannot.
#: ``time_quality``: "line" (written in the line, zone and year included or certain), "inferred" (year, zone or boot
#: time was inferred), "received" (the line has no time: the receiver's, or null until a boot time is known).
LOGS: dict[str, pl.DataType | type[pl.DataType]] = {
    "time": TIME, "time_quality": pl.String, "sender_time": TIME, "received_time": TIME, "resolution_us": pl.Int64,
    "cluster": pl.String, "host": pl.String, "source": pl.String, "format": pl.String, "unit": pl.String,
    "pid": pl.Int64, "facility": pl.String, "severity": pl.String, "message": pl.String, "event": pl.String,
    "job_id": pl.Int64, "entities": pl.String, "tags": TEXTS, "raw": pl.String, "raw_bytes": pl.Binary,
    "file": pl.String, "line": pl.Int64,
}  # fmt: skip

#: What one source reports about one run of one job. Several rows describe the same run; the correlator merges them.
#: ``source``: sacct, sacct_json, jobcomp, jobcomp_json, scontrol, squeue, hook, slurmrestd. ``tres``: what was allocated
#: ("cpu=4,gres/gpu=4,mem=800M,node=2"). ``waits_for``: nodes that a pending job was seen waiting for at
#: ``observed_at``. New columns come last: an older store has them there. ``exit_code``/``exit_signal`` as Slurm
#: prints them ("1:0"). ``restarts`` is null if the source does not know it. ``db_index`` is slurmdbd's row.
JOBS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "job_id": pl.Int64, "array_job_id": pl.Int64, "array_task_id": pl.Int64,
    "restarts": pl.Int64, "db_index": pl.Int64, "name": pl.String, "user": pl.String, "uid": pl.Int64,
    "account": pl.String, "partition": pl.String, "qos": pl.String, "state": pl.String, "cancelled_by": pl.String,
    "reason": pl.String, "exit_code": pl.Int64, "exit_signal": pl.Int64, "derived_exit_code": pl.String,
    "submit": TIME, "start": TIME, "end": TIME, "time_limit_s": pl.Int64, "node_list": pl.String, "nodes": TEXTS,
    "gpus": pl.Int64, "gpu_index": pl.String, "work_dir": pl.String, "std_out": pl.String, "std_err": pl.String,
    "submit_line": pl.String, "requeue": pl.Boolean, "failed_node": pl.String, "reservation": pl.String,
    "flags": pl.String, "observed_at": TIME, "host": pl.String, "source": pl.String, "file": pl.String,
    "line": pl.Int64, "tres": pl.String, "waits_for": TEXTS,
}  # fmt: skip

#: Steps of a run: ``step_id`` as Slurm writes it ("batch", "extern", "0").
STEPS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "job_id": pl.Int64, "db_index": pl.Int64, "submit": TIME, "step_id": pl.String,
    "name": pl.String, "state": pl.String, "exit_code": pl.Int64, "exit_signal": pl.Int64, "start": TIME, "end": TIME,
    "node_list": pl.String, "nodes": TEXTS, "file": pl.String, "line": pl.Int64,
}  # fmt: skip

#: A node was in ``state`` at ``time`` ("idle", "down*", "drain", "mixed*"), lower case, flags kept. ``until`` if the
#: source gives the end (sacctmgr events).
NODE_STATES: dict[str, pl.DataType | type[pl.DataType]] = {
    "time": TIME, "until": TIME, "cluster": pl.String, "host": pl.String, "state": pl.String, "reason": pl.String,
    "actor": pl.String, "source": pl.String, "file": pl.String, "line": pl.Int64,
}  # fmt: skip

METRICS: dict[str, pl.DataType | type[pl.DataType]] = {
    "time": TIME, "cluster": pl.String, "host": pl.String, "metric": pl.String, "value": pl.Float64,
    "device": pl.String, "labels": pl.String, "file": pl.String,
}  # fmt: skip

#: A configuration value. ``scope``: "cluster", "job:ID" / "job:ID#RESTART" for a job's environment, "node:NAME" for a
#: node's address and host name, "alias" for another name of a host under which rows arrived (value: the node),
#: "address" for an address of a controller (value: the controller).
SETTINGS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "scope": pl.String, "name": pl.String, "value": pl.String, "source": pl.String,
    "file": pl.String, "line": pl.Int64,
}  # fmt: skip

#: A cable. ``time``: when it was reported; a later row that names another port for the same NIC replaces it from then
#: on.
LINKS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "host": pl.String, "device": pl.String, "switch": pl.String, "switch_port": pl.String,
    "plane": pl.String, "rail": pl.String, "source": pl.String, "file": pl.String, "time": TIME,
}  # fmt: skip

#: Slurm's tree: one row per (switch, child); ``kind`` is "node" or "switch".
TOPOLOGY: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "switch": pl.String, "child": pl.String, "kind": pl.String, "file": pl.String,
}  # fmt: skip

#: When a host booted: ``boot_time`` +- ``error_us``; ``until`` is null for the boot that was running.
BOOTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "host": pl.String, "boot_time": TIME, "error_us": pl.Int64, "source": pl.String,
    "file": pl.String,
}  # fmt: skip

#: A file that a job left: ``kind`` is script, env, stdout or stderr. ``truncated``: only head and tail are stored.
ARTIFACTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "job_id": pl.Int64, "restarts": pl.Int64, "kind": pl.String, "path": pl.String,
    "host": pl.String, "content": pl.String, "truncated": pl.Boolean, "taken_at": TIME, "file": pl.String,
}  # fmt: skip

#: A variable of a step's environment, as far as it may leave the node: the user's word. ``step``: "0", "batch". ``seen_at``:
#: when the step began.
ENVIRONMENTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "cluster": pl.String, "job_id": pl.Int64, "restarts": pl.Int64, "step": pl.String, "host": pl.String, "name": pl.String,
    "value": pl.String, "seen_at": TIME, "file": pl.String,
}  # fmt: skip

TABLES = {
    "logs": LOGS, "jobs": JOBS, "steps": STEPS, "node_states": NODE_STATES, "metrics": METRICS, "settings": SETTINGS,
    "links": LINKS, "topology": TOPOLOGY, "boots": BOOTS, "artifacts": ARTIFACTS, "environments": ENVIRONMENTS,
}  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where lines come from, and what is known before reading them.

    ``host`` comes from the path; a host in a syslog header takes precedence. ``timezone`` is the zone (IANA name) of
    timestamps without one. ``reference`` is a time near the *end* of the content (UTC): a timestamp without a year gets
    the newest year that puts it no later than reference + 1 day. ``boots`` are known boot times of the host, oldest
    first, for monotonic timestamps. ``latest`` is when a file was read: a later timestamp is rejected (parsers.future).
    ``job_id``/``restarts`` are known for job output. ``of_job``: a job wrote this, and it refers to ``job_id`` or, if
    that is unknown, to no job, whatever number it names. ``of_person``: a person's account owns the file.
    """

    path: str | None = None
    cluster: str | None = None
    host: str | None = None
    source: str | None = None
    timezone: str = "UTC"
    timezone_known: bool = False
    received: datetime | None = None
    reference: datetime | None = None
    latest: datetime | None = None
    boots: tuple[datetime, ...] = ()
    job_id: int | None = None
    restarts: int | None = None
    of_job: bool = False
    of_person: bool = False

    def but(self, **changes: object) -> Origin:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass
class Parsed:
    """The result of parsing one input: tables by name, and named warnings for a person."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def rows(self, table: str) -> pl.DataFrame:
        return self.tables.get(table, empty(table))


def empty(table: str) -> pl.DataFrame:
    return pl.DataFrame(schema=TABLES[table])


def frame(table: str, rows: list[dict[str, object]]) -> pl.DataFrame:
    """Rows as dicts -> a frame of exactly the table's columns; absent keys become null."""
    named = set().union(*rows)
    nothing = _nothing(table)
    return pl.DataFrame([
        pl.Series(name, [row.get(name) for row in rows], kind, strict=False) if name in named
        else nothing[name].new_from_index(0, len(rows))  # most columns, at a fraction of the cost
        for name, kind in TABLES[table].items()
    ])  # fmt: skip


@cache
def _nothing(table: str) -> pl.DataFrame:
    """One row of nulls."""
    schema = TABLES[table]
    return pl.DataFrame({name: [None] for name in schema}, schema=schema)


def conform(table: str, data: pl.DataFrame) -> pl.DataFrame:
    """Adds missing columns as null, drops unknown ones, casts and orders as in the table's schema."""
    schema = TABLES[table]
    return data.select(
        (pl.col(name) if name in data.columns else pl.lit(None)).cast(kind).alias(name) for name, kind in schema.items()
    )
