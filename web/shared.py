"""What the hurt share and the others do not: of one incident, and of a range of time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any

import polars as pl
from fastapi import APIRouter, Query

from correlator.learning.shared_traits import FEWEST, SCHEMA, Comparison, compare
from parsers.job_states import NOT_FAILED
from store.questions import shared_traits as questions
from web.api import Read, Within, incident_jobs
from web.problems import ProblemError
from web.reading import Reader
from web.shaping import moment

router = APIRouter(prefix="/api/v1")
Row = dict[str, Any]

#: More runs are not compared; the answer says so.
MOST_RUNS = 20_000
#: How many of the shared traits are listed.
LISTED = 20
#: The traits of a run that are columns of it.
_COLUMNS = ("user", "account", "partition", "name")


def is_comparable(document: Row) -> bool:
    """Did it hurt several jobs, or does it have several nodes? One alone has nothing in common with others."""
    hurt = len(document.get("jobs") or []) + len(document.get("slowed_jobs") or [])
    return hurt >= FEWEST or len(document.get("hosts") or []) >= FEWEST


def of_incident(read: Reader, row: Row) -> Row:
    """Jobs that an incident ended or slowed beside those that ran when it began, and its nodes beside the others of the cluster."""
    document = row["document"]
    start, end = moment(row["start"]), moment(row["end"])
    if start is None:
        raise ProblemError(404, "The incident has no beginning to compare at.", do="Read its lines instead.")
    runs = read.ask_frame(questions.runs_meanwhile(start, end or start, row["cluster"], MOST_RUNS))
    places = read.ask_frame(questions.places(row["cluster"]))
    # Documents name jobs as in the whole store; here each has the name in its own cluster.
    hurt = {str(run["own_key"]) for run in read.runs_by_key(incident_jobs(document, 0))}
    began = runs.filter((pl.col("start") <= start) | pl.col("run_key").is_in(list(hurt)))
    jobs = compare(_traits_of(read, began, places, row["cluster"]), hurt, began["run_key"].to_list())
    nodes = _nodes(began, places)
    hosts = set(document.get("hosts") or []) & set(nodes["unit"].to_list())
    return {
        "incident_id": row["incident_id"], "jobs": _shown(jobs), "nodes": _shown(compare(nodes, hosts, nodes["unit"].unique().to_list())),
        "truncated": runs.height >= MOST_RUNS,
    }  # fmt: skip


def _traits_of(read: Reader, runs: pl.DataFrame, places: pl.DataFrame, cluster: str | None) -> pl.DataFrame:
    """The traits of runs: their columns, nodes, switches, and what they set for their communication."""
    unit = pl.col("run_key").alias("unit")
    parts = [
        runs.select(unit, pl.lit(name).alias("kind"), pl.col(name).cast(pl.String).alias("value")) for name in _COLUMNS
    ]
    on = runs.select(unit, pl.col("nodes").alias("host")).explode("host")
    parts.append(on.select("unit", pl.lit("node").alias("kind"), pl.col("host").alias("value")))
    parts.append(on.join(places, on="host").select("unit", "kind", "value"))
    settings = read.ask_frame(questions.environments(cluster))
    keyed = settings.with_columns(pl.col("scope").str.strip_prefix("job:").alias("unit"))
    parts.append(
        keyed.select("unit", pl.lit("environment").alias("kind"), pl.format("{}={}", "name", "value").alias("value"))
    )
    return pl.concat([part.cast(SCHEMA) for part in parts])  # type: ignore[arg-type]


def _nodes(runs: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """The traits of nodes: their switches, and the runs and users that were on them."""
    on = runs.select("run_key", "user", pl.col("nodes").alias("unit")).explode("unit").drop_nulls("unit")
    parts = [
        places.select(pl.col("host").alias("unit"), "kind", "value"),
        on.select("unit", pl.lit("job").alias("kind"), pl.col("run_key").alias("value")),
        on.select("unit", pl.lit("user").alias("kind"), pl.col("user").alias("value")),
    ]
    return pl.concat([part.cast(SCHEMA) for part in parts])  # type: ignore[arg-type]


def _shown(found: Comparison) -> Row:
    return {
        "hurt": found.hurt, "others": found.others, "tried": found.tried, "why_not": found.says_why_not or None,
        "shared": [
            {
                "traits": [{"kind": kind, "value": value} for kind, value in one.traits], "hurt": one.hurt, "others": one.others,
                "p": float(f"{one.p:.3g}"), "chance": float(f"{one.chance:.3g}"),
            }
            for one in found.shared[:LISTED]
        ],
    }  # fmt: skip


def _failed(runs: pl.DataFrame, category: str | None) -> Collection[str]:
    bad = ~pl.col("state").str.split(" ").list.first().is_in(sorted(NOT_FAILED))
    chosen = runs.filter(bad if category is None else bad & (pl.col("category") == category))
    return set(chosen["run_key"].to_list())


@router.get("/incidents/{incident_id}/shared", tags=["incidents"])
def shared(read: Read, incident_id: str) -> Row:
    """What the jobs and nodes that an incident hurt have in common and the others have not, with a test of chance."""
    return of_incident(read, read.incident(incident_id))


def _cluster(read: Reader, named: str | None) -> str | None:
    """The cluster whose runs are compared: the one that is named, or the only one."""
    known = [row["cluster"] for row in read.ask(questions.clusters())]
    if named is None and len(known) > 1:
        names = ", ".join(str(name) for name in known if name)
        raise ProblemError(
            400, "Runs of several clusters are not compared with each other.", do=f"Name one: cluster= {names}."
        )
    return named if named is not None else next(iter(known), None)


@router.get("/shared", tags=["jobs"])
def shared_by_failures(
    read: Read, within: Within, category: Annotated[str | None, Query(description="only failures of this category")] = None,
    cluster: str | None = None,
) -> Mapping[str, Any]:  # fmt: skip
    """What the jobs that failed in a range have in common and those that completed have not."""
    cluster = _cluster(read, cluster)
    start, end = within.start or datetime.min, within.end or datetime.max
    runs = read.ask_frame(questions.runs_ended(start, end, cluster, MOST_RUNS))
    hurt = _failed(runs, category)
    well = runs.filter(pl.col("state") == "COMPLETED")["run_key"].to_list()
    places = read.ask_frame(questions.places(cluster))
    found = compare(_traits_of(read, runs, places, cluster), hurt, {*hurt, *well})
    return {"jobs": _shown(found), "cluster": cluster, "category": category, "truncated": runs.height >= MOST_RUNS}
