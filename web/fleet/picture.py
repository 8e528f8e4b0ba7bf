"""The map as one SVG of few elements: for each class one path, in which a stroke of dashes draws a row of nodes.

A node is a dash of ``SIDE`` units in a row of that width; nodes of one class beside each other are one line. 12,500 nodes are
then a few paths and the names of their groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from web.fleet.model import Fleet
from web.shaping import moment

#: Units of the picture: the side of a node, the distance to the next one, the height of a group's name, the width of a letter.
SIDE, PITCH, LABEL, LETTER = 10, 12, 17, 6.5
#: Between two groups, in nodes.
GAP = 1
#: A row of the whole picture has this many nodes unless another number is asked for.
COLUMNS, FEWEST, MOST = 112, 12, 400
#: A group has at least this many columns.
NARROWEST = 8
#: More groups than this are not named in the picture: pointer, keys and the table name them.
NAMED = 400
#: A path draws this much of the height at most, units: a browser paints a path again for each part of it that comes into sight.
BAND = 72
#: Steps in which the order of an incident's spread is shaded.
STEPS = 4


@dataclass(frozen=True)
class Block:
    """A group in the picture: its corner in units, its columns, how many nodes it has, and its name as far as it fits."""

    name: str
    label: str
    x: int
    y: int
    columns: int
    count: int


@dataclass(frozen=True)
class Picture:
    """``paths``: the look of a class and a path of its nodes. ``hurt``: paths of the nodes that an incident had reached."""

    width: int
    height: int
    blocks: tuple[Block, ...]
    paths: tuple[tuple[str, str], ...]
    hurt: tuple[str, ...]

    def geometry(self) -> str:
        """x, y, columns and count of each block: what a script needs to find a node."""
        return ";".join(f"{one.x},{one.y},{one.columns},{one.count}" for one in self.blocks)

    @property
    def labelled(self) -> bool:
        """Are the groups named in the picture?"""
        return len(self.blocks) <= NAMED


def arrange(groups: Sequence[tuple[str, int]], columns: int) -> tuple[list[Block], int]:
    """Groups side by side as words in lines; the height in units."""
    blocks: list[Block] = []
    at, top, tallest = 0, 0, 0
    for name, count in groups:
        wide = (
            columns if len(groups) == 1 else min(columns, max(min(count, NARROWEST), math.ceil(math.sqrt(2 * count))))
        )
        room = max(wide, min(NARROWEST, columns))
        if at and at + room > columns:
            at, top = 0, top + tallest
            tallest = 0
        letters = int(room * PITCH / LETTER)
        label = name if len(name) <= letters else f"{name[: letters - 1]}…"
        blocks.append(Block(name, label, at * PITCH, top + LABEL, wide, count))
        tallest = max(tallest, LABEL + math.ceil(count / wide) * PITCH + PITCH // 2)
        at += room + GAP
    return blocks, top + tallest


def _placed(fleet: Fleet, blocks: Sequence[Block]) -> pl.DataFrame:
    """The nodes with the middle of the left edge of each."""
    corners = pl.DataFrame(
        [(one.x, one.y, one.columns, one.count) for one in blocks], orient="row",
        schema=dict.fromkeys(("left", "top", "columns", "count"), pl.Int64),
    ).with_row_index("block")  # fmt: skip
    each = corners.select(pl.all().repeat_by("count").explode()).with_columns(
        pl.int_range(pl.len()).over("block").alias("number")
    )
    row = pl.col("number") // pl.col("columns")
    return pl.concat([fleet.nodes, each], how="horizontal").with_columns(
        (pl.col("left") + PITCH * (pl.col("number") % pl.col("columns"))).alias("x"),
        (pl.col("top") + PITCH * row + SIDE // 2).alias("y"), row.alias("row"),
    )  # fmt: skip


def _paths(cells: pl.DataFrame, classes: Sequence[str]) -> list[tuple[str, str]]:
    """The paths with their classes, in the order of ``classes``: nodes of one class beside each other are one line."""
    runs = cells.group_by(pl.struct("block", "row", "class").rle_id(), maintain_order=True).agg(
        pl.col("class", "x", "y").first(), (pl.len() * PITCH - (PITCH - SIDE)).alias("long")
    )  # fmt: skip
    lines = runs.select("class", pl.col("y") // BAND, pl.format("M{} {}h{}", "x", "y", "long").alias("line"))
    paths = lines.group_by("class", "y", maintain_order=True).agg(pl.col("line").str.join(""))
    return sorted(paths.select("class", "line").iter_rows(), key=lambda path: classes.index(path[0]))


def _hurt(fleet: Fleet, cells: pl.DataFrame) -> tuple[str, ...]:
    """Frames around the nodes that the incident had reached at the moment, the first ones in the first path."""
    spread = fleet.spread
    if spread is None or not spread.nodes.height:
        return ()
    until = (fleet.at - (moment(spread.row["start"]) or fleet.at)).total_seconds()
    hurt = spread.nodes.with_columns(
        (pl.int_range(pl.len()) * STEPS // max(1, spread.nodes.height)).alias("step")
    ).filter(pl.col("after_s").is_null() | (pl.col("after_s") <= until))  # fmt: skip
    xy = cells.select("x", "y").with_row_index("place")
    frames = hurt.join(xy, on="place", maintain_order="left").select(
        "step", pl.format("M{} {}h12v12h-12z", pl.col("x") - 1, pl.col("y") - SIDE // 2 - 1).alias("frame")
    )
    found = dict(frames.group_by("step").agg(pl.col("frame").str.join("")).iter_rows())
    return tuple(found.get(step, "") for step in range(STEPS))


def picture(fleet: Fleet, columns: int = COLUMNS) -> Picture:
    """The picture of a map with this many nodes in a row."""
    blocks, height = arrange(fleet.groups(), columns)
    cells = _placed(fleet, blocks) if blocks else None
    looks = {one.name: one.look for one in fleet.measure.classes}
    paths = tuple((looks[name], path) for name, path in ([] if cells is None else _paths(cells, list(looks))))
    return Picture(
        columns * PITCH, max(height, PITCH), tuple(blocks), paths, () if cells is None else _hurt(fleet, cells)
    )
