"""A run's pace by its own output: seconds per step of each rank, and against the median of all ranks.

It is the job's word: the panel and the lane of the axis say so, and no verdict rests on them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from correlator.gather.telemetry import STEP_TIME, STEP_WORD
from store.questions import job_files as questions
from web.axis_measures import MOST_POINTS, Point, without_gaps
from web.job_files import whose_output
from web.reading import Reader, Row
from web.shaping import short_file

#: Parts of a run by which its pace is given.
BINS = 120
#: Lanes of the axis: so many hurt jobs have one for their pace.
MOST_JOBS = 3
#: The slowest ranks: so many are named, and so many are drawn on the page.
MOST_RANKS, DRAWN = 64, 6
_EPOCH = datetime(1970, 1, 1)


def of_run(read: Reader, run: Row, attempts: Sequence[Row]) -> Row | None:
    """The pace of a run; None if its output reports none, or only once.

    ``all``: ``points`` (time, and of all ranks in that part of the run the fastest, the median, and the slowest), ``median_s``.
    ``ranks``: the slowest first, each with ``name``, ``reports``, ``median_s``, ``ratio`` to the median of all at the same time (null if it
    is alone) and ``points`` (time, seconds per step). ``ranks_total``: how many there are.
    """
    begun = run["start"] or run["submit"]
    if begun is None:
        return None
    until = run["end"] or read.newest() or begun
    bin_s = max(1.0, (until - begun).total_seconds() / BINS)
    frame = _frame(read, run, attempts, begun, None, bin_s)
    if frame["bin"].n_unique() < 2:
        return None
    together = frame.group_by("bin").agg(
        pl.col("t").max(), pl.col("middle").min().alias("least"), pl.col("middle").median().alias("usual"),
        pl.col("middle").max().alias("most"), pl.len().alias("ranks"),
    ).sort("bin")  # fmt: skip
    beside = pl.when(pl.col("ranks") > 1).then(pl.col("middle") / pl.col("usual"))
    ranks = (
        frame.join(together.select("bin", "usual", "ranks"), on="bin")
        .group_by("name")
        .agg(
            pl.col("reports").sum(), pl.col("middle").median().alias("median_s"), beside.median().alias("ratio"),
            pl.struct("t", "middle").sort_by("t").alias("points"),
        )
        .sort(pl.col("ratio").fill_null(0.0), "name", descending=[True, False])
    )  # fmt: skip
    points = [[_time(t), *(round(v, 6) for v in values)] for t, *values in
              together.select("t", "least", "usual", "most").iter_rows()]  # fmt: skip
    return {
        "all": {"points": points, "median_s": round(float(together["usual"].median()), 6)},  # type: ignore[arg-type]
        "ranks": [_rank(row) for row in ranks.head(MOST_RANKS).iter_rows(named=True)], "ranks_total": ranks.height,
    }  # fmt: skip


def lanes(read: Reader, runs: Iterable[Row], start: datetime, end: datetime) -> list[Row]:
    """The pace of runs on the axis, in the shape of ``axis_measures.measures``: from the fastest rank to the slowest."""
    bin_s = max(1.0, (end - start).total_seconds() / MOST_POINTS)
    found = []
    for run in list(runs)[:MOST_JOBS]:
        frame = _frame(read, run, read.attempts(run), start, end, bin_s)
        together = frame.group_by("bin").agg(pl.col("t").max(), pl.col("low").min(), pl.col("high").max()).sort("bin")
        points: list[Point] = [(_time(t), low, high) for _, t, low, high in together.iter_rows()]
        count = frame["name"].n_unique()
        found.append({
            "host": str(run["run_key"]), "layer": "job", "name": "step time", "unit": "s", "devices": count, "noun": "ranks", "zero": True,
            "pieces": without_gaps(points),
        })  # fmt: skip
    return [one for one in found if one["pieces"]]


def _frame(
    read: Reader, run: Row, attempts: Sequence[Row], start: datetime, end: datetime | None, bin_s: float
) -> pl.DataFrame:
    """Rows of ``job_files.paces`` with the ``name`` of the writer, one for each writer and bin."""
    which = whose_output(run, attempts)
    asked = questions.paces(*which, start=start, end=end, bin_s=bin_s, forms=STEP_TIME, words=STEP_WORD)
    rows = read.ask_frame(asked).cast({"rank": pl.String, "local": pl.String, "file": pl.String})
    short = pl.col("file").fill_null("output").map_elements(short_file, return_dtype=pl.String)
    name = pl.coalesce(pl.format("rank {}", "rank"), pl.format("local rank {}, {}", "local", short), short)
    # A rank that reports in several files (stdout and stderr) is one.
    return rows.with_columns(name.alias("name")).group_by("name", "bin", maintain_order=True).agg(
        pl.col("t").max(), pl.col("low").min(), pl.col("middle").median(), pl.col("high").max(), pl.col("reports").sum()
    )  # fmt: skip


def _rank(row: Row) -> Row:
    ratio = row["ratio"]
    return {
        "name": row["name"], "reports": row["reports"], "median_s": round(row["median_s"], 6),
        "ratio": None if ratio is None else round(ratio, 4),
        "points": [[_time(point["t"]), round(point["middle"], 6)] for point in row["points"]],
    }  # fmt: skip


def _time(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


# -- as the page draws it ----------------------------------------------------------------------------------------------

#: The picture's width and height in its own units; lines keep off the edges.
WIDE, HIGH, EDGE = 600, 56, 3


def picture(pace: Row | None) -> Row | None:
    """What the panel shows: for all ranks a band and the line of the median, and beside it the line of each of the slowest ranks, all on
    one scale from 0."""
    if pace is None:
        return None
    every = pace["all"]["points"]
    drawn = pace["ranks"][:DRAWN] if pace["ranks_total"] > 1 else []
    first, last = every[0][0], every[-1][0]
    lowest, highest = min(least for _, least, *_ in every), max(most for *_, most in every)

    def path(points: Iterable[tuple[datetime, float]]) -> str:
        spread = max((last - first).total_seconds(), 1e-9)
        places = [
            (EDGE + (WIDE - 2 * EDGE) * (at - first).total_seconds() / spread, HIGH - EDGE - (HIGH - 2 * EDGE) * value / highest)
            for at, value in points
        ]  # fmt: skip
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)

    def lines(points: list[Any], place: int) -> str:
        pieces = without_gaps([(point[0], point[place], point[place]) for point in points])
        return "".join(path((at, value) for at, value, _ in piece) for piece in pieces)

    def bands() -> str:
        pieces = without_gaps([(at, least, most) for at, least, _, most in every])
        return "".join(
            path([*((at, most) for at, _, most in piece), *((at, least) for at, least, _ in reversed(piece))]) + "Z"
            for piece in pieces
        )

    return {
        **pace, "first": first, "last": last, "lowest": lowest, "highest": highest, "wide": WIDE, "high": HIGH, "edge": EDGE, "usual": lines(every, 2),
        "band": bands() if pace["ranks_total"] > 1 else "", "drawn": [{**one, "line": lines(one["points"], 1)} for one in drawn],
    }  # fmt: skip
