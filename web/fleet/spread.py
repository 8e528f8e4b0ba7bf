"""How an incident spread: the nodes that it hurt, in the order in which it reached them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import polars as pl

from web.axis_ends import hops_of
from web.node_states import Nodes
from web.reading import Reader
from web.shaping import moment

Row = dict[str, Any]
#: Bands of an incident that say that something was not seen, not that it was hurt.
_UNSEEN = {"late", "blind"}
#: Lines that are about other hosts than the one that wrote them.
_ABOUT_OTHERS = {"slurmctld", "switch", "job"}


def reached(read: Reader, nodes: Nodes, row: Row) -> pl.DataFrame:
    """``name`` and the time ``first`` at which the incident reached it (null: not known), earliest first. ``row``: of
    ``Reader.incident``."""
    document = row["document"]
    found: list[tuple[str, datetime | None]] = [*_moments(read, document)] or [*_of_events(document)]
    known = {host for host, _ in found}
    if row["root_host"] and row["root_host"] not in known:
        found.append((str(row["root_host"]), None))
    schema: dict[str, Any] = {"host": pl.String, "first": pl.Datetime("us")}
    rows = pl.DataFrame(found, schema=schema, orient="row").group_by("host").agg(pl.col("first").min())
    brought = nodes.bring(rows.with_columns(pl.lit(row["cluster"], pl.String).alias("cluster")))
    return brought.select("name", "first").sort("first", "name", nulls_last=True)


def _moments(read: Reader, document: Row) -> Iterator[tuple[str, datetime]]:
    """Hosts of the chain's facts, of its bands, and of the runs that it ended."""
    for hop in hops_of(document):
        for end in (hop.cause, hop.effect):
            if end.host:
                yield end.host, end.at
    for span in document.get("spans") or []:
        at = moment(span.get("start"))
        if at and span.get("host") and span.get("kind") not in _UNSEEN and span.get("layer") not in _ABOUT_OTHERS:
            yield str(span["host"]), at
    for run in read.runs_by_key([str(job["job_id"]) for job in document.get("jobs") or [] if job.get("job_id")]):
        if run["end"]:
            yield from ((str(node), run["end"]) for node in run["nodes"] or [])


def _of_events(document: Row) -> Iterator[tuple[str, datetime]]:
    for event in document.get("events") or []:
        at = moment(event.get("time"))
        if at and event.get("host") and event.get("role") != "recovery" and event.get("layer") not in _ABOUT_OTHERS:
            yield str(event["host"]), at
