"""Does a service that ticks for a long time reach the same result, byte for byte, as a full pass at the end?

    python benchmarks/soak.py [SEED...] [--ticks 30]
    python benchmarks/soak.py --hours 720 [--events 2,20] [--lines 5000] [--pictures DIR]

With ``--hours``, days are compressed instead, and memory, ticks and the store's size are printed for each
(``endurance.py``). Otherwise every seed is a simulated cluster (``simulators/scenario.py``) or, with ``--days``, a day of the speed benchmark's. Its
rows are delivered in pieces: a fifth of the lines up to an hour late, some hosts silent for a while and then all at
once, some lines twice, and the service is stopped and started in the middle. Then everything stored in ``model`` is
compared with the result of concluding anew. Odd seeds compare every fifth tick, even ones at the end only.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import polars as pl

from benchmarks import correlation, endurance
from benchmarks.simulators import scenario
from collector.ingest import Ingest
from correlator.engine import correlate
from correlator.live.ticker import INPUTS, TIMELESS, Ticker
from parsers.record import frame
from store import open_store
from store.duckdb import batches
from store.duckdb import commit_mark as mark
from store.duckdb.store import DuckStore

#: How late a line may come, seconds; most come at once.
LATE_S = (0.0, 60.0, 600.0, 3600.0)

#: Shares of what is late, of what is delivered twice, and of what is there before the service starts.
LATE, TWICE, BEFORE = 0.2, 0.05, 0.4

#: The columns with the time at which a row was written, the best first.
_WRITTEN = {"logs": ("time",), "jobs": ("end", "observed_at", "start", "submit"), "steps": ("end", "start"), "metrics": ("time",),
            "node_states": ("time",)}  # fmt: skip

#: Later than anything that is stored: by then every verdict is final.
LATER = datetime(2030, 1, 1, tzinfo=UTC)

Rows = Mapping[str, pl.DataFrame]


@dataclass
class Outcome:
    """``partly``: how many of the ``ticks`` concluded about a time window only. ``differs``: the differences, by tick."""

    seed: int
    ticks: int = 0
    partly: int = 0
    incidents: int = 0
    verdicts: int = 0
    differs: list[str] = field(default_factory=list)


def cluster_rows(seed: int) -> Rows:
    """All rows of a simulated cluster, through the real parser. One seed in four has clocks that are off by minutes."""
    with tempfile.TemporaryDirectory(prefix="faultline-soak-") as scratch, open_store(None) as store:
        scenario.make(seed, Path(scratch), clocks_off=seed % 4 == 3)
        Ingest(store).run([Path(scratch) / "logs"])
        return {t: store.frame(f"SELECT * FROM raw.{'log_view' if t == 'logs' else t}") for t in INPUTS}


def day_rows(seed: int, events: int = 6_000) -> Rows:
    """Rows of a simulated day of 1,000 nodes, most of them in bursts."""
    day = correlation.Day(seed)
    day.fill(0, 40_000, events // 12, events // 2)
    for number in range(10):
        low = 40_000 + 4_000 * number
        day.fill(low, low + 60, events // 120, events // 20)
    conf = {"cluster": "made", "scope": "cluster", "name": "SlurmdTimeout", "value": "300", "source": "slurm.conf"}
    return {"logs": frame("logs", day.logs), "jobs": frame("jobs", day.jobs), "settings": frame("settings", [conf])}


def _arrivals(name: str, rows: pl.DataFrame, rng: random.Random) -> pl.Series:
    """When each row arrives."""
    written = pl.coalesce(_WRITTEN.get(name, ())) if name in _WRITTEN else pl.lit(None, pl.Datetime("us"))
    if name == "logs":  # output without a timestamp arrives with the output before it
        written = written.fill_null(strategy="forward").over("file")
    moments = rows.select(written.alias("at")).to_series()
    moments = moments.fill_null(moments.min() if moments.null_count() < len(moments) else datetime(2026, 1, 1))
    late = rng.choice(LATE_S)
    delays = [timedelta(seconds=late * rng.random() if rng.random() < LATE else rng.random()) for _ in range(rows.height)]  # fmt: skip
    if name == "logs" and rows.height:
        hosts = sorted(h for h in rows["host"].unique().to_list() if h)
        first, last = moments.min(), moments.max()
        assert isinstance(first, datetime) and isinstance(last, datetime)
        mute = {h: first + rng.random() * (last - first) for h in hosts if rng.random() < 0.1}
        for place, (host, at) in enumerate(zip(rows["host"].to_list(), moments.to_list(), strict=True)):
            if host in mute and mute[host] <= at < mute[host] + timedelta(seconds=900):
                delays[place] = mute[host] + timedelta(seconds=900 + rng.random()) - at
    return moments + pl.Series(delays, dtype=pl.Duration("us"))


def deliveries(rows: Rows, seed: int, ticks: int) -> Iterator[tuple[datetime, dict[str, pl.DataFrame]]]:
    """Pieces of the rows in order of arrival, each with the time at which it is complete."""
    rng = random.Random(seed)
    timed = {}
    for name, table in rows.items():
        if name not in TIMELESS and table.height:
            timed[name] = table.with_columns(_arrivals(name, table, rng).alias("_arrival"))
    again = timed["logs"].sample(fraction=TWICE, seed=seed)
    later = [timedelta(seconds=rng.random() * 1800) for _ in range(again.height)]
    timed["logs"] = pl.concat([timed["logs"], again.with_columns(pl.col("_arrival") + pl.Series(later, dtype=pl.Duration("us")))])  # fmt: skip
    moments = pl.concat([t["_arrival"] for t in timed.values()]).sort()
    start = int(len(moments) * BEFORE)
    places = [start, *sorted(rng.sample(range(start + 1, len(moments) - 1), ticks - 1)), len(moments) - 1]
    low = datetime(1970, 1, 1)
    for number, place in enumerate(places):
        high = moments[place]
        part = {n: t.filter((pl.col("_arrival") > low) & (pl.col("_arrival") <= high)).drop("_arrival") for n, t in timed.items()}  # fmt: skip
        if number == 0:
            part |= {n: rows[n] for n in rows if n in TIMELESS}
        yield high.replace(tzinfo=UTC), part
        low = high


def stored(store: DuckStore) -> dict[str, list[str]]:
    """All conclusions, as texts in order. The number of transactions (``commit_mark``, ``batches``) is no conclusion."""
    counted = (mark.FACT, batches.BATCH, batches.INSTANCE)
    tables = {
        t: store.rows(f"SELECT * FROM model.{t}")
        for t in ("events", "runs", "incidents", "node_states", "concluded_facts", "facts")
    }
    return {
        t: sorted(repr(sorted(r.items())) for r in rows if r.get("name") not in counted) for t, rows in tables.items()
    }


def _differences(reported: Mapping[str, list[str]], whole: Mapping[str, list[str]], tick: int) -> list[str]:
    found = []
    for table, rows in reported.items():
        only, other = sorted(set(rows) - set(whole[table])), sorted(set(whole[table]) - set(rows))
        if rows != whole[table]:
            found.append(f"after tick {tick} {table}: {len(only)} rows of the ticks, {len(other)} of the full pass\n  - {only[:1]}\n  + {other[:1]}")  # fmt: skip
    return found


def soak(rows: Rows, seed: int, ticks: int) -> Outcome:
    """Delivers the rows in pieces to a service that is restarted in the middle."""
    found = Outcome(seed)
    often = bool(seed % 2)
    with tempfile.TemporaryDirectory(prefix="faultline-soak-") as scratch:
        store = open_store(Path(scratch))
        ticker = Ticker(store)
        for number, (at, part) in enumerate(deliveries(rows, seed, ticks)):
            if number == ticks // 2:
                store.close()
                store = open_store(Path(scratch))
                ticker = Ticker(store)
            store.add(part)
            last = number == ticks
            report = ticker.tick(LATER if often or last else at)
            found.ticks += 1
            found.partly += report.worked and not report.full
            if last or (often and number % 5 == 4):
                reported = stored(store)
                correlate(store)
                whole = stored(store)
                found.differs += _differences(reported, whole, number)
                found.incidents, found.verdicts = len(whole["incidents"]), sum("'document', '" in r for r in whole["runs"])  # fmt: skip
        store.close()
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("seeds", type=int, nargs="*", default=[1, 2, 3])
    options.add_argument("--ticks", type=int, default=30)
    options.add_argument("--days", action="store_true", help="days of 1,000 nodes instead of whole made clusters")
    options.add_argument("--hours", type=int, help="compress this many hours, and print what grows")
    options.add_argument("--lines", type=int, default=5_000, help="with --hours: lines an hour")
    options.add_argument("--events", default="2,20", help="with --hours: percent of the lines that are events")
    options.add_argument("--pictures", type=Path, help="with --hours: the folder for the pictures")
    given = options.parse_args()
    if given.hours:
        return endurance.report(
            given.hours, given.lines, [float(e) / 100 for e in given.events.split(",")], given.pictures
        )
    wrong = 0
    for seed in given.seeds:
        begun = time.process_time()
        found = soak((day_rows if given.days else cluster_rows)(seed), seed, given.ticks)
        wrong += bool(found.differs)
        print(f"seed {seed:6d}  {found.ticks} ticks, {found.partly} of them in part  {found.incidents} incidents, {found.verdicts} verdicts"
              f"  {'DIFFERS' if found.differs else 'the same'}  {time.process_time() - begun:.0f} s", flush=True)  # fmt: skip
        for line in found.differs:
            print(f"  {line}", flush=True)
    print(f"{len(given.seeds)} seeds, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
