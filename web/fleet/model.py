"""The model of the map: what the API answers with and the page draws."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import polars as pl

from parsers.moments import later
from store.questions import fleet as questions
from web.fleet.measures import MEASURES, Measure
from web.fleet.nodes import read_nodes
from web.fleet.places import Grouping, grouped
from web.fleet.spread import reached
from web.node_states import Nodes
from web.reading import Reader
from web.shaping import moment
from web.timerange import rfc3339

Row = dict[str, Any]
#: Before and after an incident the map shows this share of its length, at least a minute.
AROUND, LEAST = 0.1, timedelta(minutes=1)


@dataclass(frozen=True)
class Spread:
    """An incident on the map: ``nodes`` has the ``place`` of each node that it hurt and ``after_s`` (null: not known when)."""

    row: Row
    nodes: pl.DataFrame

    def document(self) -> Row:
        """As JSON; ``node`` is the place in the lists of the nodes."""
        hurt = [
            {"node": place, "name": name, "after_s": after and round(after, 3)}
            for place, name, after in self.nodes.iter_rows()
        ]
        start, end = (moment(self.row[name]) for name in ("start", "end"))
        times = {"start": start and rfc3339(start), "end": end and rfc3339(end)}
        return {
            "incident": self.row["incident_id"],
            "title": self.row["document"].get("title") or self.row["root_event"],
            **times,
            "hurt": hurt,
        }


@dataclass(frozen=True)
class Fleet:
    """Every node at ``at``, in the order of the map: ``name``, ``group``, ``class``, ``value``, ``says``. ``first`` and ``last``: the
    moments between which another one may be chosen."""

    at: datetime
    first: datetime
    last: datetime
    measure: Measure
    grouping: Grouping
    nodes: pl.DataFrame
    #: How many of them are nodes of Slurm's; the others are hosts that wrote lines: controllers, switches without topology.
    slurm_nodes: int
    spread: Spread | None = None

    def counts(self) -> dict[str, int]:
        """How many nodes are in each class of the measure."""
        found = dict(self.nodes.group_by("class").len().iter_rows())
        return {one.name: found.get(one.name, 0) for one in self.measure.classes}

    def groups(self) -> list[tuple[str, int]]:
        """The groups in the order of the map, with their sizes."""
        return list(self.nodes.group_by("group", maintain_order=True).len().iter_rows())

    def digest(self) -> str:
        """Differs if any node is another, elsewhere, or drawn otherwise."""
        columns = (self.nodes[name] for name in ("name", "group", "class", "says"))
        return blake2b(repr([column.to_list() for column in columns]).encode(), digest_size=8).hexdigest()

    def document(self) -> Row:
        """The map as JSON. The lists under ``nodes`` have one entry for each node: ``class`` and ``says`` are places in ``classes``
        and ``texts`` (null: nothing to say)."""
        counts, classes = self.counts(), [one.name for one in self.measure.classes]
        texts = self.nodes["says"].drop_nulls().unique(maintain_order=True).to_list()
        place = {name: n for n, name in enumerate(classes)}
        text_place = {text: n for n, text in enumerate(texts)}
        columns: Row = {
            "name": self.nodes["name"].to_list(),
            "class": self.nodes["class"].replace_strict(place, return_dtype=pl.Int64).to_list(),
            "says": self.nodes["says"].replace_strict(text_place, default=None, return_dtype=pl.Int64).to_list() if text_place else [None] * self.nodes.height,
        }  # fmt: skip
        if self.measure.name != "state":
            columns["value"] = [None if value is None else round(value, 3) for value in self.nodes["value"].to_list()]
        return {
            "at": rfc3339(self.at), "first": rfc3339(self.first), "last": rfc3339(self.last), "digest": self.digest(),
            "measure": self.measure.name, "about": self.measure.about,
            "classes": [{"name": one.name, "words": one.words, "nodes": counts[one.name]} for one in self.measure.classes],
            "grouped": {"by": self.grouping.by, "from": self.grouping.source, "known": self.grouping.known, "missing": self.grouping.missing or None},
            "groups": [{"name": name, "nodes": size} for name, size in self.groups()], "slurm_nodes": self.slurm_nodes, "texts": texts, "nodes": columns,
            "spread": self.spread and self.spread.document(),
        }  # fmt: skip


def fleet(read: Reader, *, at: datetime | None, measure: str, by: str | None, incident: str | None) -> Fleet:
    """The map at a moment (naive UTC; none: the last one that something is recorded of, with an incident its end)."""
    span = read.ask(questions.span())[0]
    now = datetime.now(UTC).replace(tzinfo=None)
    first, last = span["first"] or now, span["last"] or now
    row = read.incident(incident) if incident else None
    if row is not None:
        begun, ended = moment(row["start"]) or first, moment(row["end"]) or last
        around = max(LEAST, AROUND * (ended - begun))
        first, last = later(begun, -around), min(last, later(ended, around))
    at = last if at is None or at > last else at
    nodes = read_nodes(read, at)
    chosen, places = MEASURES[measure], grouped(read, nodes, by)
    drawn = places.groups.join(chosen.of(read, nodes), on="name", how="left", maintain_order="left")
    of_slurm = int(nodes.frame["of_slurm"].sum())
    return Fleet(at, first, last, chosen, places, drawn, of_slurm, _spread(read, nodes, drawn, row))


def _spread(read: Reader, nodes: Nodes, drawn: pl.DataFrame, row: Row | None) -> Spread | None:
    if row is None:
        return None
    found = reached(read, nodes, row)
    begun = moment(row["start"]) or nodes.at
    after = ((pl.col("first") - begun).dt.total_microseconds() / 1e6).alias("after_s")
    placed = drawn.select("name").with_row_index("place").join(found, on="name").sort("first", "place", nulls_last=True)
    return Spread(row, placed.select("place", "name", after))
