"""By what the nodes of the map are grouped: rack, switch or plane, as far as the store knows, else their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from store.questions import fleet as questions
from web.fleet.nodes import in_natural_order
from web.node_states import Nodes
from web.reading import Reader

#: A rack or cabinet in a name, with something behind it that has a number of its own: gpu-r12-n03, rack7node2, and HPE
#: Cray's x1000c0s0b0n0 (cabinet, chassis, slot, board, node).
RACK = r"(?i)^((?:.*[^a-z])?(?:rack|cabinet|cab|rk|r|x)[-_]?\d+)[^0-9].*\d"
#: The name without its last number.
SERIES = r"^(.*?)\d+\D*$"
#: More switches or planes of a node than this are counted, not named.
NAMED = 2
#: The share of nodes of which a place must be known before the map groups by it unasked.
ENOUGH = 0.5
ELSEWHERE = "place not known"
#: Names that are alone of their kind are one group.
OTHERS = "other names"


@dataclass(frozen=True)
class Grouping:
    """``groups``: ``name`` of a node and its ``group``, in the order of the map. ``by``: rack, switch, plane or name;
    ``source``: where that was taken from, in words; ``known``: of how many nodes; ``missing``: what was asked for and is not known."""

    groups: pl.DataFrame
    by: str
    source: str
    known: int
    missing: str = ""


def _rack(read: Reader, nodes: Nodes) -> list[tuple[str, pl.DataFrame]]:
    found = nodes.frame.select("name", pl.col("host").str.extract(RACK).alias("group")).drop_nulls("group")
    # One rack, or a rack for each node, is no arrangement: then r is a letter of the name.
    is_one = 1 < found["group"].n_unique() < max(2, found.height)
    return [("the names of nodes", found)] if is_one else []


def _switch(read: Reader, nodes: Nodes) -> list[tuple[str, pl.DataFrame]]:
    tree = read.ask_frame(questions.tree()).cast(pl.String)
    # In several topologies a node has several switches: the smallest is the nearest.
    size = pl.len().over("cluster", "switch")
    nearest = tree.sort(size, "switch").group_by("cluster", "host", maintain_order=True).first()
    slurms = nodes.bring(nearest).select("name", pl.col("switch").alias("group")).unique("name", keep="first")
    return [("Slurm's topology", slurms), ("the far ends of their cables", _cabled(read, nodes, "switch"))]


def _plane(read: Reader, nodes: Nodes) -> list[tuple[str, pl.DataFrame]]:
    return [("their cables", _cabled(read, nodes, "plane"))]


def _cabled(read: Reader, nodes: Nodes, column: str) -> pl.DataFrame:
    """The far ends of a node's cables as one group: nodes with the same ones are together."""
    rows = nodes.bring(read.ask_frame(questions.cables(nodes.at)).cast(pl.String)).drop_nulls(column)
    ends = (
        rows.select("name", column)
        .unique()
        .sort("name", in_natural_order(column))
        .group_by("name", maintain_order=True)
    )
    more = pl.format("{} and {} more, to {}", pl.col(column).list.head(NAMED).list.join(", "), pl.col(column).list.len() - NAMED,
                     pl.col(column).list.last())  # fmt: skip
    words = pl.when(pl.col(column).list.len() > NAMED).then(more).otherwise(pl.col(column).list.join(", "))
    return ends.agg(pl.col(column)).select("name", words.alias("group"))


def _name(read: Reader, nodes: Nodes) -> list[tuple[str, pl.DataFrame]]:
    series = nodes.frame.select("name", pl.col("host").str.extract(SERIES).alias("group"))
    together = pl.when(pl.len().over("group") > 1).then("group").otherwise(pl.lit(OTHERS)).fill_null(OTHERS)
    found = series.select("name", together.alias("group"))
    if found["group"].n_unique() > max(1, found.height // 2):
        found = found.with_columns(pl.lit("all nodes").alias("group"))
    return [("the names of nodes without their last number", found)]


#: In the order in which the map tries them unasked: what Slurm's configuration states comes before what names suggest.
WAYS: dict[str, Callable[[Reader, Nodes], list[tuple[str, pl.DataFrame]]]] = {
    "switch": _switch, "rack": _rack, "plane": _plane, "name": _name,
}  # fmt: skip


def grouped(read: Reader, nodes: Nodes, by: str | None) -> Grouping:
    """The nodes by the place that is asked for, or by the first that is known of most of them."""
    total, missing = nodes.frame.height, ""
    if by is not None:
        found = _by(read, nodes, by)
        if found.known or not total:
            return found
        missing = f"No {by} is known of any node."
    for way in WAYS:
        found = _by(read, nodes, way)
        if way == "name" or (found.known >= ENOUGH * total and found.groups["group"].n_unique() > 1):
            break
    return Grouping(found.groups, found.by, found.source, found.known, missing)


def _by(read: Reader, nodes: Nodes, by: str) -> Grouping:
    parts = [(source, found) for source, found in WAYS[by](read, nodes) if found.height]
    empty = pl.DataFrame(schema={"name": pl.String, "group": pl.String})
    places = pl.concat([found for _, found in parts]).unique("name", keep="first") if parts else empty
    every = nodes.frame.select("name", "of_slurm").join(places, on="name", how="left")
    shown = every.with_columns(pl.col("group").fill_null(ELSEWHERE), pl.col("group").is_null().alias("last"))
    # Of each group once: the order of names costs more than the rest of the map's arrangement.
    groups = shown.group_by("group").len("size").sort(in_natural_order("group"), "group").with_row_index("place")
    # Those that only wrote lines, such as the controller, come behind Slurm's nodes.
    order = (
        pl.col("last"), pl.col("size") == 1, pl.col("place"), ~pl.col("of_slurm"), in_natural_order("name"), pl.col("name"),
    )  # fmt: skip
    source = " and ".join(source for source, _ in parts)
    placed = shown.join(groups, on="group", how="left", maintain_order="left").sort(order)
    return Grouping(placed.select("name", "group"), by, source, places.height)
