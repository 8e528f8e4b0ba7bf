"""Which boot a line with only an uptime belongs to, once the boot is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from store.boots import SAME_BOOT_S, is_same_boot
from store.door import Door
from store.functions import PLACE
from store.questions import settling
from store.tables import LOGS

#: A cluster and a host.
Machine = tuple[Any, Any]
Row = Mapping[str, Any]


def settle(store: Door) -> None:
    """Gives lines with only the machine's own clock their time, where the boot is known. Idempotent."""
    waiting = store.ask(settling.lines_with_uptime_only())
    if not waiting:
        return
    known = boots_of(store.ask(settling.boots_by_lines()), store.ask(settling.boots()))
    times = times_of(waiting, known, store.ask(settling.last_lines_of_hosts()))
    if not times:
        return
    data = pl.DataFrame(times, schema={PLACE: pl.Int64, "time": pl.Datetime("us")}, orient="row")
    data = data.with_columns(time_quality=pl.lit("inferred"), resolution_us=pl.lit(10_000, pl.Int64))
    with store.write() as writer:
        writer.amend_by(LOGS, (PLACE,), data)


def boots_of(by_lines: Iterable[Row], reported: Iterable[Row]) -> dict[Machine, list[float]]:
    """When machines booted, in epoch seconds, in no order: from their most precise lines with both clocks
    (``by_lines``), and from reported boots that no line covers."""
    lines = list(by_lines)
    finest: dict[Machine, int] = {}
    for row in lines:
        finest[_machine(row)] = min(finest.get(_machine(row), 10**9), row["resolution_us"] or 10**6)
    boots: dict[Machine, list[float]] = defaultdict(list)
    for row in lines:
        if (row["resolution_us"] or 10**6) == finest[_machine(row)]:
            boots[_machine(row)].append(row["boot"])
    for row in reported:
        mine = boots[_machine(row)]
        if not any(is_same_boot(row["boot"], known) for known in mine):
            mine.append(row["boot"])
    return boots


def times_of(
    waiting: Iterable[Row], boots: Mapping[Machine, list[float]], last: Iterable[Row]
) -> list[tuple[int, datetime]]:
    """(row, naive UTC) of each waiting line whose boot is known: the newest boot after which the line does not lie
    beyond the machine's ``last`` line, as exactly as a boot is known; of several timestamps of that boot, the median."""
    latest = {_machine(row): row["last"] for row in last}
    found = []
    for row in waiting:
        known = sorted(boots.get(_machine(row), ()))
        fitting = [b for b in known if b + row["uptime"] <= latest.get(_machine(row), float("inf")) + SAME_BOOT_S]
        if fitting:
            close = [b for b in fitting if is_same_boot(b, fitting[-1])]
            boot = sorted(close)[len(close) // 2]
            found.append((row[PLACE], datetime.fromtimestamp(boot + row["uptime"], UTC).replace(tzinfo=None)))
    return found


def _machine(row: Row) -> Machine:
    return row["cluster"], row["host"]
