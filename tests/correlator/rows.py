"""Stored rows of one store, delivered to another in another order, twice, late, or with another clock."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.ingest import Ingest
from correlator.engine import Conclusions, correlate, result, write
from correlator.live.ticker import INPUTS
from store import open_store
from store.duckdb.store import DuckStore
from tests.line_parser import remembering

CAPTURES = sorted(p.parent for p in (Path(__file__).resolve().parents[1] / "captures").glob("*/truth.json"))

#: The capture that ``make test`` uses for what holds whatever the fault was, and those of ``make test-long``: one of each
#: kind of failure. The verdict on each capture is in test_captures.py.
FEW = ("mgmt_flap_requeue",)
KINDS = (
    *FEW,
    "disk_full",
    "fabric_flap_long",
    "job_faults",
    "munge_dies",
    "node_reboot",
    "oom",
    "slurmd_restarted",
    "switch_down",
)
EACH = [
    pytest.param(c, id=c.name, marks=() if c.name in FEW else pytest.mark.long) for c in CAPTURES if c.name in KINDS
]


@cache
def rows_of(folder: Path) -> dict[str, pl.DataFrame]:
    """All rows that ingesting a capture produces."""
    with open_store(None) as store:
        Ingest(store, parser=remembering()).run([folder])
        return rows_in(store)


def rows_in(store: DuckStore) -> dict[str, pl.DataFrame]:
    """All rows of a store."""
    return {t: store.frame(f"SELECT * FROM raw.{'log_view' if t == 'logs' else t}") for t in INPUTS}


def answer(store: DuckStore) -> str:
    """The result as text, without the time when a service first published it, which is not part of the conclusions."""
    found = result(store)
    for incident in found["incidents"]:
        incident["detected_at"] = None
    return json.dumps(found, sort_keys=True)


@cache
def conclusions_of(folder: Path) -> list[Conclusions]:
    """The result of a full pass over a capture's rows."""
    with open_store(None) as store:
        store.add(rows_of(folder))
        return correlate(store)


@contextmanager
def concluded(folder: Path) -> Iterator[DuckStore]:
    """A store with a capture's rows and the result of a full pass over them."""
    with open_store(None) as store:
        store.add(rows_of(folder))
        write(store, conclusions_of(folder))
        yield store


@cache
def wanted(folder: Path) -> str:
    with concluded(folder) as store:
        return answer(store)


def shuffled(rows: dict[str, pl.DataFrame], seed: int) -> dict[str, pl.DataFrame]:
    return {t: d.sample(fraction=1.0, shuffle=True, seed=seed) for t, d in rows.items()}


def disordered(logs: pl.DataFrame, seconds: float, seed: int) -> pl.DataFrame:
    """Log lines in an order of arrival in which each came up to ``seconds`` late."""
    rng = random.Random(seed)
    arrival = pl.Series(
        "arrival", [timedelta(seconds=rng.random() * seconds) for _ in range(logs.height)], dtype=pl.Duration("us")
    )
    return (
        logs.with_columns((pl.col("time") + arrival).alias("arrival")).sort("arrival", nulls_last=True).drop("arrival")
    )


def skewed(logs: pl.DataFrame, seconds: float, seed: int) -> pl.DataFrame:
    """Every host's clock off by its own amount, up to ``seconds`` either way."""
    rng = random.Random(seed)
    hosts = sorted(h for h in logs["host"].unique().to_list() if h is not None)
    off = {h: timedelta(seconds=rng.uniform(-seconds, seconds)) for h in hosts}
    by_host = pl.DataFrame(
        {"host": hosts, "off": list(off.values())}, schema={"host": pl.String, "off": pl.Duration("us")}
    )
    joined = logs.join(by_host, on="host", how="left", maintain_order="left")
    return joined.with_columns((pl.col("time") + pl.col("off").fill_null(timedelta())).alias("time")).drop("off")


def lossy(logs: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    rng = random.Random(seed)
    return logs.filter(pl.Series([rng.random() >= share for _ in range(logs.height)]))


def slices(rows: dict[str, pl.DataFrame], parts: int) -> list[dict[str, Any]]:
    """Rows in this many deliveries; rows other than log lines come with the last but one."""
    logs = rows["logs"]
    cuts = [logs.height * n // parts for n in range(parts + 1)]
    found: list[dict[str, Any]] = [{"logs": logs[a:b]} for a, b in itertools.pairwise(cuts)]
    found[max(0, parts - 2)].update({t: d for t, d in rows.items() if t != "logs"})
    return found
