"""When each row could first be known.

A log line that a service received has the time of its receipt. One that was read from a file afterwards counts from the receipt of
its copy, where a log host's file has one, else from when it was written, plus the delay that lines of its source usually have. Output without a time comes with the line before it
in its file, else at the end of its job. Rows about jobs, nodes and measurements have no time of receipt: they count from
the latest moment that they speak of. Configuration, cables and switches count as known from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise

import polars as pl

from correlator.live.ticker import TIMELESS
from correlator.replay.neighbourhood import Neighbourhood
from parsers.job_states import OPEN

#: The column with the moment from which a row counts.
ARRIVAL = "_arrival"
#: Copies of one line in two files have timestamps that are at most this far apart.
COPIES_WITHIN = timedelta(seconds=2)
#: For all but log lines: a row counts from the latest of these.
_SPEAKS_OF = {
    "jobs": ("end", "start", "submit"), "steps": ("end", "start", "submit"), "node_states": ("time", "until"), "metrics": ("time",),
    "boots": ("boot_time",), "artifacts": ("taken_at",),
}  # fmt: skip


def with_arrivals(near: Neighbourhood) -> dict[str, pl.DataFrame]:
    """The tables that are not timeless, each with the column ``ARRIVAL``, in that order."""
    ends = near.tables["jobs"].group_by("job_id").agg(pl.col("end").max().alias("_ended"))
    found = {}
    for name, rows in near.tables.items():
        if name in TIMELESS or not rows.height:
            continue
        made = _lines(rows, near.delays, ends) if name == "logs" else _others(name, rows, ends)
        found[name] = made.with_columns(pl.col(ARRIVAL).fill_null(near.until)).sort(ARRIVAL, maintain_order=True)
    return found


def assumed(rows: pl.DataFrame) -> int:
    """The number of log lines without a time of receipt."""
    return int(rows["received_time"].null_count())


def _lines(rows: pl.DataFrame, delays: Mapping[tuple[str, str], float], ends: pl.DataFrame) -> pl.DataFrame:
    known = pl.DataFrame(
        {"host": [host for host, _ in delays], "source": [source for _, source in delays], "_delay": list(delays.values())},
        schema={"host": pl.String, "source": pl.String, "_delay": pl.Float64},
    )  # fmt: skip
    joined = _with_copies(rows).join(known, on=["host", "source"], how="left", maintain_order="left").join(ends, on="job_id", how="left", maintain_order="left")  # fmt: skip
    delay = pl.duration(microseconds=(pl.col("_delay").fill_null(0.0) * 1e6).round(0).cast(pl.Int64))
    at = pl.coalesce("received_time", "_copy", (pl.col("time") + delay).cast(pl.Datetime("us")))
    in_file = joined.with_columns(at.alias(ARRIVAL)).sort("file", "line", maintain_order=True, nulls_last=True)
    before = pl.when(pl.col("file").is_not_null()).then(pl.col(ARRIVAL).fill_null(strategy="forward").over("file"))
    return in_file.with_columns(pl.coalesce(ARRIVAL, before, "_ended").alias(ARRIVAL)).drop("_delay", "_ended", "_copy")


def _with_copies(rows: pl.DataFrame) -> pl.DataFrame:
    """The lines with ``_copy``: when the copy of a line that has no time of receipt was received, in another file."""
    same, numbered = ["host", "message"], rows.with_row_index("_row")
    is_received = pl.col("received_time").is_not_null()
    received = numbered.filter(is_received, pl.col("time").is_not_null()).sort("time")
    others = (
        numbered.filter(~is_received, pl.col("time").is_not_null()).select("_row", *same, "time", "file").sort("time")
    )
    found = others.join_asof(
        received.select(*same, "time", pl.col("received_time").alias("_copy"), pl.col("file").alias("_file")), on="time", by=same, strategy="nearest", tolerance=COPIES_WITHIN,
        check_sortedness=False,
    )  # fmt: skip
    copies = found.filter(pl.col("file") != pl.col("_file")).select("_row", "_copy")
    return numbered.join(copies, on="_row", how="left", maintain_order="left").drop("_row")


def _others(name: str, rows: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    latest = pl.max_horizontal(*_SPEAKS_OF[name])
    if name == "jobs":  # a poll of a job that runs gives the end that its time limit would bring
        runs = pl.col("state").str.to_uppercase().str.extract(r"^([A-Z_]+)").is_in(list(OPEN)).fill_null(False)
        polled = pl.col("observed_at").is_not_null() & (runs | pl.col("end").is_null())
        latest = pl.when(polled).then("observed_at").otherwise(latest)
    made = rows.with_columns(latest.alias(ARRIVAL))
    if name != "artifacts":
        return made
    joined = made.join(ends, on="job_id", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce(ARRIVAL, "_ended").alias(ARRIVAL)).drop("_ended")


def until(tables: Mapping[str, pl.DataFrame], after: datetime, moment: datetime) -> dict[str, pl.DataFrame]:
    """The rows that arrived after one moment and by another, by table; without the column."""
    within = (pl.col(ARRIVAL) > after) & (pl.col(ARRIVAL) <= moment)
    found = {name: rows.filter(within).drop(ARRIVAL) for name, rows in tables.items()}
    return {name: rows for name, rows in found.items() if rows.height}


def few(moments: list[datetime], most: int) -> list[datetime]:
    """At most ``most`` of the moments, in order: of those that lie closest together, the last ones."""
    kept = sorted(set(moments))
    if len(kept) <= most:
        return kept
    gaps = [after - one for one, after in pairwise(kept)] + [timedelta.max]
    widest = sorted(range(len(kept)), key=lambda place: (gaps[place], place))[-most:]
    return [kept[place] for place in sorted(widest)]
