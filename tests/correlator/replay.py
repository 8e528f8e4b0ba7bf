"""Rows of a store delivered to a service at the time at which they were written, or up to a stated time later."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from correlator.engine import result
from correlator.live.ticker import TIMELESS, Ticker
from store import open_store

#: When a row is written: the first of these columns that has a value. Output without a timestamp is written with the
#: line before it; rows without any moment are there from the beginning.
_WRITTEN = {
    "logs": ("time",), "jobs": ("end", "observed_at", "start", "submit"), "steps": ("end", "start"), "metrics": ("time",),
    "node_states": ("time",), "boots": ("time",), "artifacts": ("time",),
}  # fmt: skip

#: What a final verdict keeps.
Said = tuple[str, str | None, str | None]


@dataclass
class Replayed:
    """``final``: minutes from the end of each run to the tick that called its verdict final, by its key.

    ``changed``: verdicts that said something else after they had been called final, as (key, before, after).
    ``opened``: verdicts that were final and became provisional, although they say the same.
    ``said``: what each verdict said, one after the other.
    """

    final: dict[str, float] = field(default_factory=dict)
    changed: list[tuple[str, Said, Said]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    said: dict[str, list[Said]] = field(default_factory=dict)
    verdicts: dict[str, Any] = field(default_factory=dict)


def written(name: str, rows: pl.DataFrame) -> pl.Series:
    columns = [c for c in _WRITTEN.get(name, ()) if c in rows.columns]
    if not columns:
        return pl.Series("at", [None] * rows.height, pl.Datetime("us"))
    at = pl.coalesce(columns)
    if name == "logs":
        at = at.fill_null(strategy="forward").over("file")
    return rows.select(at.alias("at")).to_series()


def replay(rows: Mapping[str, pl.DataFrame], late_s: float, step_s: float, seed: int = 1, beyond_s: float = 6000.0, share: float = 1 / 3) -> Replayed:  # fmt: skip
    """Ticks every ``step_s`` from the first row to ``beyond_s`` after the last one; ``share`` of the rows come up to
    ``late_s`` late, and if it is 1 all by that time."""
    rng = random.Random(seed)
    timed = {
        n: t.with_columns(written(n, t).alias("_arrival")) for n, t in rows.items() if n not in TIMELESS and t.height
    }
    known = [m for t in timed.values() for m in (t["_arrival"].min(), t["_arrival"].max()) if isinstance(m, datetime)]
    first, last = min(known), max(known)
    for name, table in timed.items():
        late = [late_s * (1.0 if share == 1.0 else rng.random()) * (rng.random() < share) for _ in range(table.height)]
        delays = [timedelta(seconds=seconds) for seconds in late]
        timed[name] = table.with_columns(
            pl.col("_arrival").fill_null(first) + pl.Series(delays, dtype=pl.Duration("us"))
        )
    found, said = Replayed(), {}
    with open_store(None) as store:
        store.add({n: rows[n] for n in rows if n in TIMELESS})
        ticker, low, now = Ticker(store), datetime(1970, 1, 1), first
        while low < last + timedelta(seconds=late_s + beyond_s):
            part = {n: t.filter((pl.col("_arrival") > low) & (pl.col("_arrival") <= now)).drop("_arrival") for n, t in timed.items()}  # fmt: skip
            if any(t.height for t in part.values()):
                store.add({n: t for n, t in part.items() if t.height})
            if ticker.tick(now.replace(tzinfo=UTC)).worked:
                found.verdicts = dict(result(store)["verdicts"])
                _compare(found, said, now)
            low, now = now, now + timedelta(seconds=step_s)
    return found


def _compare(found: Replayed, said: dict[str, dict[str, Any]], now: datetime) -> None:
    for key, verdict in found.verdicts.items():
        before = said.get(key)
        if before is not None and before["final"] and _said(before) != _said(verdict):
            found.changed.append((key, _said(before), _said(verdict)))
        elif before is not None and before["final"] and not verdict["final"]:
            found.opened.append(key)
        if verdict["final"] and key not in found.final and verdict["end"] is not None:
            found.final[key] = (now - _naive(verdict["end"])).total_seconds() / 60.0
        said[key] = verdict
        if found.said.setdefault(key, [])[-1:] != [_said(verdict)]:
            found.said[key].append(_said(verdict))


def _said(verdict: Mapping[str, Any]) -> Said:
    root = verdict["root_cause"]
    return verdict["category"], None if root is None else f"{root['event']} {root['host']} {root['device']}", verdict["incident_id"]  # fmt: skip


def _naive(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def spread(minutes: list[float]) -> str:
    """The distribution of minutes in words."""
    if not minutes:
        return "none"
    quarters = statistics.quantiles(minutes, n=4) if len(minutes) > 1 else [minutes[0]] * 3
    return f"{len(minutes)} verdicts, {min(minutes):.0f} to {max(minutes):.0f}, quartiles {', '.join(f'{q:.0f}' for q in quarters)}"
