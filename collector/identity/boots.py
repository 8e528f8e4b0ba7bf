"""Which boot a line with only an uptime belongs to, once the boot is known.

Such lines wait until then, some of them for ever. So the first question is which machines they are of, and lines are read
only of those whose boots are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from store.boots import SAME_BOOT_S, is_same_boot
from store.door import Door
from store.functions import PLACE
from store.questions import settling
from store.tables import LOGS

#: A cluster and a host.
Machine = tuple[Any, Any]
_MACHINE = ("cluster", "host")
#: The resolution (microseconds) of a time whose line does not give one.
_COARSE = 10**6
#: A line may give any number. Three centuries (seconds): no machine has run for longer. Boots are from 1970 on, and before
#: the year 5000: a time of such a line can be stored.
_LONGEST_UPTIME_S, _LAST_BOOT_S = 1e10, 1e11


def settle(store: Door) -> None:
    """Gives lines with only the machine's own clock their time, where the boot is known. Idempotent."""
    waiting = [(row["cluster"], row["host"]) for row in store.ask(settling.machines_with_uptime_only())]
    if not waiting:
        return
    boots = boots_of(store.ask_frame(settling.boots_by_lines(_hosts(waiting))), store.ask_frame(settling.boots()))
    hosts = _hosts([machine for machine in waiting if boots.get(machine)])
    if not hosts:
        return
    lines = store.ask_frame(settling.lines_with_uptime_only(hosts))
    times = times_of(lines, boots, store.ask_frame(settling.last_lines_of_hosts(hosts)))
    if times.height:
        settled = times.with_columns(time_quality=pl.lit("inferred"), resolution_us=pl.lit(10_000, pl.Int64))
        with store.write() as writer:
            writer.amend_by(LOGS, (PLACE,), settled)


def _hosts(machines: Sequence[Machine]) -> list[str | None]:
    return sorted({host for _, host in machines}, key=lambda host: host or "")


def boots_of(by_lines: pl.DataFrame, reported: pl.DataFrame) -> dict[Machine, list[float]]:
    """When machines booted, in epoch seconds, ascending: from their most precise lines with both clocks (``by_lines``),
    and from reported boots that no line covers."""
    resolution = pl.col("resolution_us").replace(0, None).fill_null(_COARSE)
    by_lines, reported = (rows.filter(pl.col("boot").is_between(0.0, _LAST_BOOT_S)) for rows in (by_lines, reported))
    finest = by_lines.filter(resolution == resolution.min().over(_MACHINE)).group_by(_MACHINE).agg("boot")
    boots = {(row["cluster"], row["host"]): row["boot"] for row in finest.iter_rows(named=True)}
    for cluster, host, boot in reported.select(*_MACHINE, "boot").iter_rows():
        mine = boots.setdefault((cluster, host), [])
        if not any(is_same_boot(boot, known) for known in mine):
            mine.append(boot)
    return {machine: sorted(known) for machine, known in boots.items()}


def times_of(waiting: pl.DataFrame, boots: Mapping[Machine, Sequence[float]], last: pl.DataFrame) -> pl.DataFrame:
    """``place`` and ``time`` (naive UTC) of each waiting line whose boot is known: the newest boot after which the line does
    not lie beyond the machine's ``last`` line, as exactly as a boot is known; of several timestamps of that boot, the
    median."""
    latest = {(cluster, host): time for cluster, host, time in last.select(*_MACHINE, "last").iter_rows()}
    found = [_BEFORE_ANY]
    for machine, lines in waiting.filter(pl.col("uptime").is_between(0.0, _LONGEST_UPTIME_S)).group_by(_MACHINE):
        known = np.array(boots.get(machine, ()), np.float64)
        uptimes = lines["uptime"].to_numpy()
        fitting = np.searchsorted(known, latest.get(machine, np.inf) + SAME_BOOT_S - uptimes, "right")
        lines, uptimes, fitting = lines.filter(fitting > 0), uptimes[fitting > 0], fitting[fitting > 0]
        first = np.searchsorted(known, known[fitting - 1] - SAME_BOOT_S, "left")
        at = known[first + (fitting - first) // 2] + uptimes
        time = pl.Series("time", np.rint(at * 1e6).astype(np.int64)).cast(pl.Datetime("us"))
        found.append(lines.select(pl.col(PLACE).cast(pl.Int64), time))
    return pl.concat(found)


_BEFORE_ANY = pl.DataFrame(schema={PLACE: pl.Int64, "time": pl.Datetime("us")})
