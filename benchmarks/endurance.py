"""Does the cost of a service follow what is new, or all that it ever stored?

Simulated days of 1,000 nodes (``correlation.Day``) are stored and concluded hour by hour, in one process, as fast as it
can. After each day the process's memory, the CPU of its ticks and the size of the store are noted; at the end the
service is stopped and started again. ``benchmarks/soak.py --hours`` calls this.

The same number of lines and faults comes every day, so whatever grows follows the history.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path

from benchmarks import correlation
from correlator.live.ticker import Ticker
from parsers.record import frame
from store import open_store
from store.duckdb.store import DuckStore

#: Ticks in a simulated hour. A service ticks more often, and looks back as far.
TICKS_AN_HOUR = 4
HOUR_S = 3600.0
#: Jobs that begin in an hour, for each line of an hour.
JOBS_A_LINE = 0.004


@dataclass(frozen=True)
class Day:
    """One simulated day: what the process held at its end (bytes), CPU seconds of its ticks, and the store's files (bytes)."""

    number: int
    lines: int
    events: int
    incidents: int
    rss: int
    ticks: tuple[float, ...]
    storing: float
    files: int

    @property
    def tick_p50(self) -> float:
        return sorted(self.ticks)[len(self.ticks) // 2]

    @property
    def tick_p95(self) -> float:
        return sorted(self.ticks)[math.ceil(0.95 * len(self.ticks)) - 1]


@dataclass(frozen=True)
class Restart:
    """Seconds to stop, to open the store, and to conclude what was stored; memory after that (bytes)."""

    stopped: float
    opened: float
    concluded: float
    rss: int


def resident() -> int:
    """The resident memory of this process now, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def endure(hours: int, lines: int, share: float) -> tuple[list[Day], Restart]:
    """``lines`` an hour, ``share`` of them events. Prints a line for each day."""
    with tempfile.TemporaryDirectory(prefix="faultline-endurance-") as scratch:
        folder = Path(scratch)
        store = open_store(folder)
        ticker = Ticker(store)
        conf = {"cluster": "made", "scope": "cluster", "name": "SlurmdTimeout", "value": "300", "source": "slurm.conf"}
        store.add({"settings": frame("settings", [conf])})
        made = correlation.Day(11)
        days = [_day(store, ticker, made, folder, number, lines, share) for number in range(math.ceil(hours / 24))]
        begun = time.perf_counter()
        store.close()
        stopped = time.perf_counter() - begun
        del ticker, store
        return days, _restart(folder, stopped)


def _day(
    store: DuckStore, ticker: Ticker, made: correlation.Day, folder: Path, number: int, lines: int, share: float
) -> Day:
    ticks, storing, events = [], 0.0, 0
    each = HOUR_S / TICKS_AN_HOUR
    for part in range(24 * TICKS_AN_HOUR):
        low = (number * 24 * TICKS_AN_HOUR + part) * each
        wanted = int(lines * share / TICKS_AN_HOUR)
        made.fill(low, low + each, int(lines * JOBS_A_LINE / TICKS_AN_HOUR), wanted)
        rows = {"logs": frame("logs", made.logs), "jobs": frame("jobs", made.jobs)}
        events += rows["logs"].height
        made.logs, made.jobs = [], []
        begun = time.process_time()
        correlation.plain_lines(store, max(lines // TICKS_AN_HOUR - rows["logs"].height, 0), low, low + each)
        store.add(rows)
        storing += time.process_time() - begun
        now = correlation.START.replace(tzinfo=UTC) + timedelta(seconds=low + each)
        _, cpu, _ = correlation.timed(lambda at=now: ticker.tick(at))
        ticks.append(cpu)
    (count,) = store.rows("SELECT count(*) AS n FROM model.incidents")
    day = Day(number + 1, 24 * lines, events, count["n"], resident(), tuple(ticks), storing, size_of(folder))
    print(row(day), flush=True)
    return day


def _restart(folder: Path, stopped: float) -> Restart:
    begun = time.perf_counter()
    with open_store(folder) as store:
        opened = time.perf_counter() - begun
        begun = time.perf_counter()
        Ticker(store).tick()
        return Restart(stopped, opened, time.perf_counter() - begun, resident())


HEADER = "  day      lines    events  incidents    RSS MB  tick p50 ms  p95 ms  concluding/storing CPU  store MB"


def row(day: Day) -> str:
    ratio = sum(day.ticks) / day.storing if day.storing else float("nan")
    return (
        f"{day.number:5d} {day.lines:10,d} {day.events:9,d} {day.incidents:10,d} {day.rss / 2**20:9,.0f}"
        f" {day.tick_p50 * 1e3:12.0f} {day.tick_p95 * 1e3:7.0f} {ratio:23.2f} {day.files / 2**20:9,.0f}"
    )


def slope(days: Sequence[Day], value: str) -> float:
    """By how much a figure grows in a day (least squares), without the first day, in which caches fill."""
    some = days[1:] if len(days) > 2 else days
    xs, ys = [float(d.number) for d in some], [float(getattr(d, value)) for d in some]
    middle, mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle) ** 2 for x in xs)
    return sum((x - middle) * (y - mean) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def picture(days: Sequence[Day], title: str) -> str:
    """Memory, p95 of ticks and the store's size, over the days, as SVG."""
    width, height, gap = 720, 130, 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {3 * (height + gap) + 30}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="18" font-weight="bold">{title}</text>',
    ]
    figures = (("RSS, MB", "rss", 2**20), ("tick p95, CPU ms", "tick_p95", 1e-3), ("store, MB", "files", 2**20))
    for place, (name, value, unit) in enumerate(figures):
        top = 40 + place * (height + gap)
        ys = [getattr(day, value) / unit for day in days]
        most = max(ys) * 1.1 or 1.0
        points = " ".join(
            f"{60 + (width - 80) * at / max(len(days) - 1, 1):.1f},{top + height - height * y / most:.1f}"
            for at, y in enumerate(ys)
        )
        parts += [
            f'<text x="60" y="{top - 4}">{name}: {ys[0]:,.0f} on day 1, {ys[-1]:,.0f} on day {days[-1].number}</text>',
            f'<path d="M60 {top}V{top + height}H{width - 20}" fill="none" stroke="#999"/>',
            f'<text x="54" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
            f'<polyline points="{points}" fill="none" stroke="#1f5fbf" stroke-width="2"/>',
        ]
    return "\n".join([*parts, "</svg>"])


def report(hours: int, lines: int, shares: Sequence[float], out: Path | None) -> int:
    for share in shares:
        print(f"\n{share:.0%} events, {lines:,} lines an hour, {TICKS_AN_HOUR} ticks an hour\n{HEADER}", flush=True)
        days, again = endure(hours, lines, share)
        first, last = days[min(1, len(days) - 1)], days[-1]
        print(
            f"growth a day: RSS {slope(days, 'rss') / 2**20:+.1f} MB, tick p95 {slope(days, 'tick_p95') * 1e3:+.2f} ms,"
            f" store {slope(days, 'files') / 2**20:+.1f} MB"
        )
        print(
            f"tick p50 on day {last.number} / day {first.number}: {last.tick_p50 / first.tick_p50:.2f} (goal 1.2 after 100 days); "
            f"RSS {last.rss / 2**20:,.0f} MB (goal 1,536)"
        )
        print(
            f"stopped in {again.stopped:.1f} s (goal 5), opened in {again.opened:.1f} s, concluded anew in {again.concluded:.1f} s, "
            f"RSS then {again.rss / 2**20:,.0f} MB",
            flush=True,
        )
        if out is not None:
            file = out / f"endurance-{round(share * 100)}.svg"
            out.mkdir(parents=True, exist_ok=True)
            file.write_text(picture(days, f"{last.number} days, {share:.0%} events, {lines:,} lines an hour"))
            sys.stderr.write(f"wrote {file}\n")
    return 0
