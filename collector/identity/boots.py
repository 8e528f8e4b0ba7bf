"""Which boot a line with only an uptime belongs to, once the boot is known.

Such lines wait until then, some of them for ever. So the first question is which machines they are of, and lines are read
only of those whose boots are known.

The ring buffer's lines are the kernel's own, and count as that wherever they are placed. Any user of a host can write a
line of the kernel's with an uptime into its syslog, which would be another boot. So a boot is known from lines that no
user can have written, and from what Slurm or an agent reports. Otherwise it is known from copies: a line with the uptime of
one that waits is the same line, and the first copy of it has the right time, since no line can be repeated before it
was written. A file to which the rings of several boots were appended begins a new part where uptimes begin anew. If the
copies of a part show several boots, the one counts that most of them show. Without any, its lines wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from parsers.writers import NO_USERS
from store.boots import SAME_BOOT_S, is_same_boot
from store.door import Door
from store.functions import PLACE
from store.questions import settling
from store.tables import LOGS

#: A cluster and a host; and a file of it, and which part of that.
Machine = tuple[Any, Any]
Ring = tuple[Any, Any, Any, Any]
_MACHINE = ("cluster", "host")
_FILE = (*_MACHINE, "file")
_RING = (*_FILE, "part")
#: Processors write to the ring at the same time; uptimes that fall by more belong to another boot (seconds).
_BEGINS_ANEW_S = 5.0
#: The resolution (microseconds) of a time whose line does not give one.
_COARSE = 10**6
#: A line may give any number. Three centuries (seconds): no machine has run for longer. Boots are from 1970 on, and before
#: the year 5000: a time of such a line can be stored.
_LONGEST_UPTIME_S, _LAST_BOOT_S = 1e10, 1e11
#: No user can have written the line.
_SURE = pl.col("authority").is_in(sorted(NO_USERS))


def settle(store: Door) -> None:
    """Gives lines with only the machine's own clock their time, where the boot is known. Idempotent."""
    waiting = [(row["cluster"], row["host"]) for row in store.ask(settling.machines_with_uptime_only())]
    if not waiting:
        return
    by_lines = store.ask_frame(settling.boots_by_lines(_hosts(waiting)))
    boots = boots_of(by_lines.filter(_SURE), store.ask_frame(settling.boots()))
    open_lines = by_lines.filter(~_SURE)
    maybe = set(open_lines.select(*_MACHINE).unique().rows())
    hosts = _hosts([machine for machine in waiting if boots.get(machine) or machine in maybe])
    if not hosts:
        return
    lines = with_parts(store.ask_frame(settling.lines_with_uptime_only(hosts)))
    known = boots_of_rings(lines, boots, by_lines)
    times = times_of(lines, known, store.ask_frame(settling.last_lines_of_hosts(hosts)))
    if times.height:
        # A place may have become another line's meanwhile.
        lines = lines.select(pl.col(PLACE).cast(pl.Int64), *_FILE, "line")
        settled = times.join(lines, on=PLACE).with_columns(
            time_quality=pl.lit("inferred"), resolution_us=pl.lit(10_000, pl.Int64)
        )
        with store.write() as writer:
            writer.amend_by(LOGS, (PLACE, *_FILE, "line"), settled)


def _hosts(machines: Sequence[Machine]) -> list[str | None]:
    return sorted({host for _, host in machines}, key=lambda host: host or "")


def boots_of(by_lines: pl.DataFrame, reported: pl.DataFrame) -> dict[Machine, list[float]]:
    """When machines booted, in epoch seconds, ascending: from their most precise lines with both clocks (``by_lines``),
    and from reported boots that no line covers."""
    by_lines, reported = (rows.filter(pl.col("boot").is_between(0.0, _LAST_BOOT_S)) for rows in (by_lines, reported))
    finest = _finest(by_lines).group_by(_MACHINE).agg("boot")
    boots = {(row["cluster"], row["host"]): row["boot"] for row in finest.iter_rows(named=True)}
    for cluster, host, boot in reported.select(*_MACHINE, "boot").iter_rows():
        mine = boots.setdefault((cluster, host), [])
        if not any(is_same_boot(boot, known) for known in mine):
            mine.append(boot)
    return {machine: sorted(known) for machine, known in boots.items()}


def with_parts(waiting: pl.DataFrame) -> pl.DataFrame:
    """The waiting lines with the number of their ``part``: a file's first boot, its second... What came over a network has no
    order and one part."""
    ordered = waiting.sort(*_FILE, "line", nulls_last=True, maintain_order=True)
    begins = (pl.col("uptime").diff() < -_BEGINS_ANEW_S) & pl.col("line").is_not_null()
    return ordered.with_columns(begins.fill_null(False).cum_sum().over(_FILE).alias("part"))


def boots_of_rings(
    waiting: pl.DataFrame, boots: Mapping[Machine, Sequence[float]], by_lines: pl.DataFrame
) -> dict[Ring, list[float]]:
    """When the machines of files with waiting lines booted. ``boots``: as far as it is known for sure; ``by_lines``: all
    lines with both clocks."""
    exact = set(by_lines.filter(_SURE).select(*_MACHINE).unique().rows())
    copies = _copies(waiting, by_lines.filter(~_SURE))
    found: dict[Ring, list[float]] = {}
    for ring in waiting.select(*_RING).unique().iter_rows():
        machine, copied = (ring[0], ring[1]), copies.get(ring, [])
        sure = boots.get(machine, ())
        if machine in exact:
            found[ring] = list(sure)
        elif sure:  # a reported boot is known to some seconds, and a copy gives it exactly
            near = [[c for c in copied if is_same_boot(c, boot)] or [boot] for boot in sure]
            found[ring] = sorted({boot for some in near for boot in some})
        else:
            found[ring] = max(_groups(copied), key=len, default=[])
    return found


def _copies(waiting: pl.DataFrame, open_lines: pl.DataFrame) -> dict[Ring, list[float]]:
    """The boots by the first copy of each waiting line that has one, ascending."""
    uptimes = waiting.select(*_RING, "uptime").unique().drop_nulls("uptime")
    stamped = _finest(open_lines.filter(pl.col("boot").is_between(0.0, _LAST_BOOT_S)))
    first = stamped.group_by(*_MACHINE, "uptime").agg(pl.col("boot").min())
    both = uptimes.join(first, on=[*_MACHINE, "uptime"], nulls_equal=True).group_by(_RING).agg(pl.col("boot").sort())
    return {tuple(row[name] for name in _RING): row["boot"] for row in both.iter_rows(named=True)}


def _groups(boots: Sequence[float]) -> list[list[float]]:
    """Boot times, ascending, by boot."""
    groups: list[list[float]] = []
    for boot in boots:
        if groups and is_same_boot(boot, groups[-1][0]):
            groups[-1].append(boot)
        else:
            groups.append([boot])
    return groups


def _finest(by_lines: pl.DataFrame) -> pl.DataFrame:
    """The lines of each machine with the most precise times."""
    resolution = pl.col("resolution_us").replace(0, None).fill_null(_COARSE)
    return by_lines.filter(resolution == resolution.min().over(_MACHINE))


def times_of(waiting: pl.DataFrame, boots: Mapping[Ring, Sequence[float]], last: pl.DataFrame) -> pl.DataFrame:
    """``place`` and ``time`` (naive UTC) of each waiting line whose boot is known (``boots_of_rings``): the newest boot after which the line does
    not lie beyond the machine's ``last`` line, as exactly as a boot is known; of several timestamps of that boot, the
    median."""
    latest = {(cluster, host): time for cluster, host, time in last.select(*_MACHINE, "last").iter_rows()}
    found = [_BEFORE_ANY]
    for ring, lines in waiting.filter(pl.col("uptime").is_between(0.0, _LONGEST_UPTIME_S)).group_by(_RING):
        known = np.array(boots.get(ring, ()), np.float64)
        uptimes = lines["uptime"].to_numpy()
        fitting = np.searchsorted(known, latest.get(ring[:2], np.inf) + SAME_BOOT_S - uptimes, "right")
        lines, uptimes, fitting = lines.filter(fitting > 0), uptimes[fitting > 0], fitting[fitting > 0]
        first = np.searchsorted(known, known[fitting - 1] - SAME_BOOT_S, "left")
        at = known[first + (fitting - first) // 2] + uptimes
        time = pl.Series("time", np.rint(at * 1e6).astype(np.int64)).cast(pl.Datetime("us"))
        found.append(lines.select(pl.col(PLACE).cast(pl.Int64), time))
    return pl.concat(found)


_BEFORE_ANY = pl.DataFrame(schema={PLACE: pl.Int64, "time": pl.Datetime("us")})
