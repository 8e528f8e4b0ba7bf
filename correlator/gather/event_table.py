"""Events as rows of ``model.events``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter, is_
from typing import Any

import numpy as np
import polars as pl

from correlator.gather.events import Lines, some_of
from correlator.model.json_text import sorted_json
from correlator.model.nouns import Event


def table(
    events: Sequence[Event], incident_of: Mapping[str, str], cluster: str | None, lines: Lines | None = None
) -> pl.DataFrame:
    """Events as rows of ``model.events``, in their order. ``lines``: some of them (the same objects) with their columns."""
    if lines is None:
        return _table(events, incident_of, cluster)
    between = _between(events, lines.events)
    if between is None:
        return _table_of_some(events, incident_of, cluster, lines)
    ready = _ready(lines, incident_of, cluster)
    if not between:
        return ready
    rest = _table([events[place] for place in between], incident_of, cluster)
    behind = np.arange(ready.height, ready.height + rest.height)
    among = np.array(between) - np.arange(rest.height)
    # In one piece, since rows are taken from two pieces at twice the cost.
    return pl.concat([ready, rest], rechunk=True)[np.insert(np.arange(ready.height), among, behind)]


def _between(events: Sequence[Event], some: Sequence[Event]) -> list[int] | None:
    """The places of the events that are not among ``some`` of them; None if not all of these are in ``events``. Both are in the
    total order."""
    before = len(events) - len(some)
    if before >= 0 and all(map(is_, islice(events, before, None), some)):  # a tick's new lines are the last
        return list(range(before))
    between = []
    ours = iter(some)
    awaited = next(ours, None)
    for place, event in enumerate(events):
        if event is awaited:
            awaited = next(ours, None)
        else:
            between.append(place)
    return between if awaited is None else None


def _table_of_some(
    events: Sequence[Event], incident_of: Mapping[str, str], cluster: str | None, lines: Lines
) -> pl.DataFrame:
    """``table`` if some of ``lines`` are not in ``events``."""
    wanted = set(map(id, events))
    lines = some_of(lines, [place for place, event in enumerate(lines.events) if id(event) in wanted])
    place_of = {id(event): place for place, event in enumerate(lines.events)}
    rest = [event for event in events if id(event) not in place_of]
    further = itertools.count(len(lines.events))
    places = [place_of[id(event)] if id(event) in place_of else next(further) for event in events]
    ready = _ready(lines, incident_of, cluster)
    return pl.concat([ready, _table(rest, incident_of, cluster)])[places] if rest else ready


def _ready(lines: Lines, incident_of: Mapping[str, str], cluster: str | None) -> pl.DataFrame:
    columns = lines.columns
    resolutions = {r: int(r / 1e6 / 2 * 2e6) for r in columns["resolution_us"].unique().to_list()}
    return columns.select(
        pl.col("id").alias("event_id"), pl.col("time").cast(pl.Datetime("us")), "time_quality",
        pl.col("resolution_us").replace_strict(resolutions, return_dtype=pl.Int64),
        pl.col("received_time").cast(pl.Datetime("us")), pl.lit(cluster, pl.String).alias("cluster"), "host", "source",
        pl.lit(None, pl.String).alias("unit"), "layer", "event", "severity", "device", "job_id",
        "message", lines.entities, pl.lit(1, pl.Int64).alias("count"),
        pl.Series("incident_id", [incident_of.get(event.id) for event in lines.events], pl.String), "file", "line",
        pl.lit("[]").alias("refs"), "authority",
    )  # fmt: skip


def _texts(events: Iterable[Event]) -> list[str | None]:
    """The JSON text of each event's entities; events with the same entities share one object."""
    texts: dict[int, str | None] = {}
    found = []
    for event in events:
        entities = event.entities
        if id(entities) not in texts:
            texts[id(entities)] = sorted_json(entities) if entities else None
        found.append(texts[id(entities)])
    return found


def _table(events: Sequence[Event], incident_of: Mapping[str, str], cluster: str | None) -> pl.DataFrame:

    def column(name: str, kind: Any = pl.String, attribute: str | None = None) -> pl.Series:
        return pl.Series(name, list(map(attrgetter(attribute or name), events)), kind)

    def moments(name: str, attribute: str) -> pl.Series:
        seconds = pl.Series(name, list(map(attrgetter(attribute), events)), pl.Float64)
        return (seconds * 1e6).round(0).cast(pl.Int64).cast(pl.Datetime("us"))

    return pl.DataFrame([
        column("event_id", attribute="id"), moments("time", "time"), column("time_quality"),
        pl.Series("resolution_us", [int(e.sigma * 2e6) for e in events], pl.Int64),
        moments("received_time", "received"), pl.Series("cluster", [cluster], pl.String).new_from_index(0, len(events)),
        column("host"), column("source"), pl.Series("unit", [None], pl.String).new_from_index(0, len(events)),
        column("layer"), column("event", attribute="kind"), column("severity"), column("device"), column("job_id", pl.Int64),
        column("message"), pl.Series("entities", _texts(events), pl.String), column("count", pl.Int64),
        pl.Series("incident_id", [incident_of.get(e.id) for e in events], pl.String), column("file"), column("line", pl.Int64),
        pl.Series("refs", [sorted_json([{"file": f, "line": n} for f, n in e.also]) if e.also else "[]" for e in events], pl.String),
        column("authority"),
    ])  # fmt: skip
