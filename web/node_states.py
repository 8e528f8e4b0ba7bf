"""What nodes do at one moment: one answer for the map, the list of nodes, a node's page and the API.

slurmctld's log says when a node is put back into service, and not when a job begins on it. Where only the log has states, accounting's
runs say that a node runs jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from parsers.node_states import RUNS_JOBS
from store.errors import NoSuchTable
from store.questions import fleet as questions
from web.node_history import FROM_LOG
from web.reading import Reader, Row
from web.shaping import state_kind

UNKNOWN = "unknown"
#: States that a run of accounting's on the node completes.
_COMPLETED = ("idle", "up", UNKNOWN)
#: The agent's sources that read accounting: what has no end there has not ended.
_ACCOUNTING = ("accounting", "slurmrestd")


@dataclass(frozen=True)
class Nodes:
    """All nodes, each once, and the moment that is asked about (naive UTC)."""

    frame: pl.DataFrame
    at: datetime

    def bring(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with ``host`` and ``cluster`` as rows of a node (``name``): those of its cluster, and those without one."""
        named = self.frame.select("name", "host", "cluster")
        own = rows.filter(pl.col("cluster").is_not_null())
        anybodys = rows.filter(pl.col("cluster").is_null()).drop("cluster")
        parts = [named.join(own, on=["host", "cluster"]), named.join(anybodys, on="host")]
        return pl.concat([part.drop("host", "cluster") for part in parts], how="vertical_relaxed")


def at_moment(read: Reader, nodes: Nodes, hosts: Sequence[str] | None = None) -> pl.DataFrame:
    """``name`` of each node of which something is known, its ``class`` (of ``state_kind``) and ``says``, a text; ``state`` and ``reason`` as
    Slurm has them; ``jobs``, how many runs make it busy, and ``began``, when the first of them did (null: its state does not come of runs).

    A state that its source says is over holds no more, and what followed is not known. ``hosts``: only those.
    """
    rows = nodes.bring(read.ask_frame(questions.states(nodes.at, hosts)))
    # Of several at one time: the newest, then one that lasts.
    last = rows.sort("name", "time", pl.col("until").fill_null(pl.datetime(9999, 1, 1)), "state").unique(
        "name", keep="last"
    )
    held = last.filter(pl.col("until").is_null() | (pl.col("until") > nodes.at)).drop_nulls("state")
    classes = {text: state_kind(text) for text in held["state"].unique().to_list()}
    reason = pl.col("reason").fill_null("").str.strip_chars()
    says = (
        pl.when(reason.str.to_lowercase().is_in(["", "none"]))
        .then("state")
        .otherwise(pl.format("{}, {}", "state", reason))
    )
    kind = pl.col("state").replace_strict(classes, default=UNKNOWN, return_dtype=pl.String)
    # The log does not say when jobs run: what it puts back as idle is in service.
    of_log = pl.col("source") == FROM_LOG
    kind = pl.when(of_log & (kind == "idle")).then(pl.lit("up")).otherwise(kind)
    stated = held.select(
        "name", "state", "reason", kind.alias("class"), says.alias("says"), (~of_log).fill_null(value=True).alias("polled")
    )  # fmt: skip
    return _with_runs(read, nodes, stated, hosts)


def _with_runs(read: Reader, nodes: Nodes, stated: pl.DataFrame, hosts: Sequence[str] | None) -> pl.DataFrame:
    """States, and "running jobs" where accounting has a run and no poll of the node's state says otherwise."""
    asked = questions.running(nodes.at, list(_collected_now(read)), hosts)
    runs = nodes.bring(read.ask_frame(asked)).group_by("name").agg(
        pl.col("run_key").max(), pl.col("n").sum(), pl.col("began").min()
    )  # fmt: skip
    both = stated.join(runs, on="name", how="full", coalesce=True)
    runs_here = pl.col("run_key").is_not_null() & ~pl.col("polled").fill_null(value=False)
    busy = runs_here & pl.col("class").fill_null(UNKNOWN).is_in(_COMPLETED)
    what = pl.when(pl.col("n") > 1).then(pl.format("{} jobs", "n")).otherwise(pl.format("job {}", "run_key"))
    return both.select(
        "name", pl.when(busy).then(pl.lit("busy")).otherwise("class").alias("class"), pl.when(busy).then(what).otherwise("says").alias("says"),
        "state", "reason", pl.when(busy).then("n").alias("jobs"), pl.when(busy).then("began").alias("began"),
    ).drop_nulls("class")  # fmt: skip


def _collected_now(read: Reader) -> Iterator[tuple[str | None, Any]]:
    """Clusters whose accounting an agent reads, each with the moment at which an agent last reported that it can. Rows are sent
    when they change: without this, a cluster on which nobody submits a job looks like one whose accounting is no longer read."""
    try:
        rows = read.ask(questions.reports_of_agents(_ACCOUNTING))
    except NoSuchTable:  # a store that never received anything, or a person's view
        return
    for row in rows:
        try:
            sources = json.loads(row["status"] or "{}").get("sources") or ()
            fine = any(one["name"] in _ACCOUNTING and one["state"] == "ok" for one in sources)
        except (ValueError, KeyError, TypeError, AttributeError):  # an agent of another version
            continue
        if fine:
            yield row["cluster"], row["status_at"]


def complete(read: Reader, rows: Sequence[Row]) -> None:
    """Gives rows of ``Reader.nodes`` what the nodes do now: ``service`` (the map's class), ``state``, ``reason`` and ``since`` as it
    follows, and ``running_jobs``, how many of accounting's runs say so (0: the state is Slurm's)."""
    at = read.ask(questions.span())[0]["last"] if rows else None
    if at is None:
        for row in rows:
            row |= {"service": UNKNOWN, "running_jobs": 0}
        return
    # As in the whole store: the same host may be a node of several clusters.
    schema: dict[str, Any] = dict.fromkeys(("name", "host", "cluster"), pl.String)
    frame = pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema)
    known = at_moment(read, Nodes(frame, at), sorted({row["host"] for row in rows}))
    found = {one["name"]: one for one in known.iter_rows(named=True)}
    for row in rows:
        one = found.get(row["name"])
        if one is None:  # nothing, or a state that is over
            row |= {"service": UNKNOWN, "state": None, "reason": None, "since": None, "running_jobs": 0}
        elif one["jobs"] is not None:
            row |= {
                "service": "busy",
                "state": RUNS_JOBS,
                "reason": one["reason"],
                "since": one["began"],
                "running_jobs": int(one["jobs"]),
            }
        else:
            row |= {"service": one["class"], "state": one["state"], "reason": one["reason"], "running_jobs": 0}
