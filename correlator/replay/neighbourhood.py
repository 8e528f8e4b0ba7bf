"""The rows around an incident, bounded, with which it is concluded anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator.live.ticker import INPUTS
from store.errors import NoSuchTable
from store.questions import neighbourhood as asked

if TYPE_CHECKING:
    from store.door import Asks

#: The time before and after an incident whose rows are read, seconds: the widest with few enough lines. The longest
#: causal windows are six hours; most causes precede their effect by less than half an hour.
WIDTHS_S = ((24 * 3600.0, 24 * 3600.0), (6 * 3600.0, 6 * 3600.0), (2 * 3600.0, 2 * 3600.0), (1800.0, 3600.0))
#: A replay reads no more lines or samples than this; a store with more of them in the narrowest time is not replayed.
MOST_LINES, MOST_SAMPLES = 150_000, 300_000
#: Of jobs' output without a time, at most so many lines.
MOST_UNSTAMPED = 20_000


class TooManyLinesError(Exception):
    """Even the narrowest time around the incident has more lines than a replay may read."""


@dataclass
class Neighbourhood:
    """Rows by table of ``raw``. ``delays``: by how many seconds lines of a (host, source) usually arrive late. ``left_out``:
    sentences about what was not read."""

    tables: dict[str, pl.DataFrame]
    since: datetime
    until: datetime
    delays: dict[tuple[str, str], float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def neighbourhood(
    store: Asks, cluster: str | None, start: datetime, end: datetime, hosts: Sequence[str]
) -> Neighbourhood:
    """Reads the rows around an incident from ``start`` to ``end`` on ``hosts``. Raises ``TooManyLinesError``."""
    since, until = _width(store, cluster, start, end)
    jobs = store.ask_frame(asked.jobs(cluster, since, until))
    numbers = sorted(set(jobs["job_id"].drop_nulls().to_list()))
    lines = [
        store.ask_frame(asked.lines(cluster, since, until)),
        store.ask_frame(asked.unstamped(cluster, numbers, MOST_UNSTAMPED)),
    ]
    tables = {
        "logs": pl.concat(lines), "jobs": jobs, "steps": store.ask_frame(asked.steps(cluster, numbers)),
        "node_states": store.ask_frame(asked.node_states(cluster, since, until)),
        "artifacts": store.ask_frame(asked.artifacts(cluster, numbers)),
        **{name: store.ask_frame(question) for name, question in asked.timeless(cluster).items()},
    }  # fmt: skip
    found = Neighbourhood(tables, since, until, _delays(store))
    several = store.ask(asked.sample_count(cluster, since, until))[0]["n"] > MOST_SAMPLES
    samples = store.ask_frame(asked.samples(cluster, since, until, hosts if several else None))
    if several:
        found.left_out.append("Measurements of hosts outside of the incident were not read: there are too many.")
    if samples.height > MOST_SAMPLES:
        samples = samples.sort("time").head(MOST_SAMPLES)
        found.left_out.append(f"Only the first {MOST_SAMPLES:,} measurements of the incident's hosts were read.")
    tables["metrics"] = samples
    missing = [name for name in INPUTS if name not in tables]
    assert not missing, f"tables that the correlator reads and a replay does not: {missing}"
    return found


def _width(store: Asks, cluster: str | None, start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The widest time with few enough lines."""
    count = 0
    for before, after in WIDTHS_S:
        since, until = start - timedelta(seconds=before), end + timedelta(seconds=after)
        count = store.ask(asked.line_count(cluster, since, until))[0]["n"]
        if count <= MOST_LINES:
            return since, until
    raise TooManyLinesError(
        f"{count:,} lines were written from half an hour before the incident to an hour after it; a replay reads {MOST_LINES:,} at most"
    )


def _delays(store: Asks) -> dict[tuple[str, str], float]:
    try:
        rows: list[dict[str, Any]] = store.ask(asked.delays())
    except NoSuchTable:  # a store into which files were read, by no service
        return {}
    return {(row["host"], row["source"]): max(0.0, row["delay_s"]) for row in rows if row["host"] and row["source"]}
