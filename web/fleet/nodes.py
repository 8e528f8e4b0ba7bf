"""The nodes of the map, and rows of the store brought to them."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from store.questions import fleet as questions
from web.node_states import Nodes
from web.reading import Reader

#: ``name`` is the node's in the whole store. ``seen``: when an event or a state first named it; null: never.
SCHEMA = {
    "name": pl.String,
    "host": pl.String,
    "cluster": pl.String,
    "seen": pl.Datetime("us"),
    "of_slurm": pl.Boolean,
}


def read_nodes(read: Reader, at: datetime) -> Nodes:
    """Hosts that Slurm, an event or a cable names, without switches; where Slurm has nodes, only hosts that are among them
    or wrote lines themselves."""
    hosts = read.ask_frame(questions.hosts()).cast(SCHEMA_OF_ROWS)  # type: ignore[arg-type]
    switches = read.ask_frame(questions.switches())["host"].cast(pl.String).implode()
    hosts = hosts.filter(pl.col("of_slurm") | ~pl.col("host").is_in(switches))
    return Nodes(named(hosts), at)


SCHEMA_OF_ROWS = {name: kind for name, kind in SCHEMA.items() if name != "name"}


def named(hosts: pl.DataFrame) -> pl.DataFrame:
    """A row for each node: a row without a cluster is about every node of its host, and one of its own if there is none."""
    nobodys = hosts.filter(pl.col("cluster").is_null()).select(
        "host", pl.col("seen").alias("too"), pl.col("of_slurm").alias("also")
    )
    own = hosts.filter(pl.col("cluster").is_not_null())
    alone = hosts.join(own.select("host").unique(), on="host", how="anti")
    shared = own.join(nobodys, on="host", how="left").with_columns(
        pl.min_horizontal("seen", "too").alias("seen"), (pl.col("of_slurm") | pl.col("also").fill_null(value=False)).alias("of_slurm")
    )  # fmt: skip
    both = pl.concat([shared.select(hosts.columns), alone])
    several = pl.col("cluster").count().over("host") > 1
    name = pl.when(several).then(pl.concat_str("host", pl.lit("@"), "cluster")).otherwise("host").alias("name")
    return both.select(name, "host", "cluster", "seen", "of_slurm")


def in_natural_order(column: str) -> pl.Expr:
    """A key by which names sort as people count: gpu2 before gpu10."""
    padded = pl.col(column).str.replace_all(r"(\d+)", "00000000${1}").str.replace_all(r"\d*(\d{8})", "${1}")
    return padded.str.to_lowercase()
