"""The questions of ``benchmarks/queries.py --when``: asked during a load, at once after it, and a minute later.

Lines of benchmarks/simulators/log_lines.py, of which a given share are events, are sent over syslog TCP to a fresh
service. A few are planted: ten lines in a million with a phrase that no other line has, and links that go down, some of
them followed by slurmd's error on the same host. ``--generator storm`` sends lines of benchmarks/simulators/storm_lines.py
instead, with the same rare phrase planted. Beside it, plain DuckDB answers the same questions in SQL over a table of
the same lines in order of arrival (time, host, program, message): of those stored so far while lines arrive, of all
after that. Both run on the same machine at the same time, each question on one and then on the other. A ratio is the
median wall time of the service through ``POST /api/v1/query`` divided by that of the plain scan: below 1, the service
is faster.

The share of lines that no text filter covers, as ``GET /api/v1/sources`` has it, is printed for each moment.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import duckdb  # the yardstick: a plain table of the same lines
import polars as pl

from benchmarks.ingest import BATCH, POLL_S, Service, Watched, memory, send_tcp, warm_up
from benchmarks.simulators.planted_lines import made_lines, storm
from parsers.engine import LineParser
from parsers.patterns import load
from parsers.record import Origin

WHENS = ("during", "after", "later")
#: Questions during the load begin when this share of the lines is stored; "later" is so many seconds after the last.
FROM_SHARE, LATER_S = 0.3, 60.0
_DOWN_TEXT, _ERROR_TEXT = "Link down", "unable to contact slurm controller"


@dataclass(frozen=True)
class Asked:
    """``goal``: the ratio that is aimed at."""

    name: str
    kql: str
    sql: str
    goal: float


@dataclass(frozen=True)
class Input:
    """Lines of a generator, and what is asked about them: a host and a span of its time (KQL, SQL)."""

    lines: Callable[[int, float], Iterator[bytes]]
    host: str
    span: tuple[str, str]
    error: str = _ERROR_TEXT
    counts: tuple[str, str] = ("", "d.host, d.time, e.time")  # of the join: its end in KQL, its columns in SQL


def asked_of(made: Input) -> list[Asked]:
    """The questions, the last two of the typed events: plain lines do not have those, and they have no goal."""
    end, columns = made.counts
    error, window = made.error, "where Failed between (Down .. 60s)" + end
    xid = Asked(
        "Xid by host",
        r'Logs | where Message matches regex @"NVRM: Xid \([^)]*\): \d+" | extend Xid = extract(@"Xid \([^)]*\): (\d+)", 1, Message)'
        " | summarize count() by Host, Xid",
        r"SELECT host, regexp_extract(message, 'Xid \([^)]*\): (\d+)', 1) AS xid, count(*) FROM plain"
        r" WHERE regexp_matches(message, 'NVRM: Xid \([^)]*\): \d+') GROUP BY ALL",
        0.17,
    )
    join = Asked(
        "link down, slurmd error in 60 s",
        f'Logs | where Message has_cs "{_DOWN_TEXT}" | project Host, Down = Time | join kind=inner (Logs'
        f' | where Message has_cs "{error}" | project Host, Failed = Time) on Host | {window}',
        f"SELECT {columns} FROM plain AS d JOIN plain AS e ON d.host = e.host"
        " AND e.time BETWEEN d.time AND d.time + INTERVAL 60 SECOND"
        f" WHERE contains(d.message, '{_DOWN_TEXT}') AND contains(e.message, '{error}')",
        0.06,
    )
    return [
        Asked("rare phrase", 'Logs | where Message has "maroon capacitor vented" | project Time, Host, Message',
              "SELECT time, host, message FROM plain WHERE contains(lower(message), 'maroon capacitor vented')", 0.12),
        Asked("same, not word-aligned", 'Logs | where Message contains "aroon capacitor vente" | project Time, Host, Message',
              "SELECT time, host, message FROM plain WHERE contains(lower(message), 'aroon capacitor vente')", 0.15),
        xid,
        join,
        Asked("one host, a short time", f'Logs | where Host == "{made.host}" and Time between ({made.span[0]}) | project Time, Unit, Message',
              f"SELECT time, unit, message FROM plain WHERE host = '{made.host}' AND time BETWEEN {made.span[1]}", 0.8),
        Asked("minute chart", "Logs | summarize count() by bin(Time, 1m)",
              "SELECT date_trunc('minute', time) AS m, count(*) FROM plain GROUP BY m", 1.1),
        Asked("count by host", "Logs | summarize count() by Host", "SELECT host, count(*) FROM plain GROUP BY host", 1.3),
        Asked("Xid by host, typed", 'Logs | where Event == "gpu.xid" | extend Xid = extract(@"Xid \\([^)]*\\): (\\d+)", 1, Message)'
              " | summarize count() by Host, Xid", xid.sql, 0.0),
        Asked("link down (typed), slurmd error",
              'Logs | where Event == "nic.link_down" | project Host, Down = Time | join kind=inner (Logs'
              f' | where Message has_cs "{error}" | project Host, Failed = Time) on Host | {window}', join.sql, 0.0),
    ]  # fmt: skip


#: By the name of the generator.
INPUTS = {
    "log": Input(
        made_lines, "gpu-0123", ("datetime(2026-06-01 00:05) .. 10m", "TIMESTAMP '2026-06-01 00:05:00' AND TIMESTAMP '2026-06-01 00:15:00'")
    ),
    # Its lines come so fast that two million are 100 seconds, and have many links that go down.
    "storm": Input(
        storm, "node00123", ("datetime(2026-02-27 10:00:20) .. 10s", "TIMESTAMP '2026-02-27 10:00:20' AND TIMESTAMP '2026-02-27 10:00:30'"),
        "Unable to contact slurm controller", (" | count", "count(*)"),
    ),
}  # fmt: skip


class Plain:
    """The same lines in a plain DuckDB table, in order of arrival."""

    def __init__(self, file: Path) -> None:
        self._connection = duckdb.connect(str(file))
        self._parser = LineParser(load())
        self._count = 0

    def add(self, batch: bytes) -> None:
        rows = self._parser.parse_data(batch, Origin(), self._count + 1)
        part = rows.select("time", pl.col("host").cast(pl.String), pl.col("unit").cast(pl.String), "message").to_arrow()
        self._connection.register("part", part)
        verb = "INSERT INTO every" if self._count else "CREATE TABLE every AS"
        self._connection.execute(f"{verb} SELECT * FROM part")
        self._count += len(rows)

    def upto(self, lines: int | None) -> None:
        """Makes ``plain`` the first ``lines`` lines; None: all."""
        self._connection.execute("DROP TABLE IF EXISTS part_of_them")
        if lines is None:
            self._connection.execute("CREATE OR REPLACE VIEW plain AS FROM every")
            return
        self._connection.execute(f"CREATE TABLE part_of_them AS FROM every LIMIT {int(lines)}")
        self._connection.execute("CREATE OR REPLACE VIEW plain AS FROM part_of_them")

    def ask(self, sql: str) -> list[Any]:
        return self._connection.execute(sql).fetchall()

    def close(self) -> None:
        self._connection.close()


@dataclass
class Times:
    """Wall times in ms of one question at one moment, and the rows of the last answers."""

    ours: list[float]
    plain: list[float]
    rows: tuple[int, int] = (0, 0)


def _timed(ask: Callable[[], Any]) -> tuple[float, int]:
    begun = time.perf_counter()
    rows = len(ask())
    return (time.perf_counter() - begun) * 1000, rows


def _ask_service(service: Service, kql: str) -> list[Any]:
    answer = service.ask("POST", "/api/v1/query", {"query": kql, "timeout_s": 120, "max_rows": 100_000})
    rows: list[Any] = answer["rows"]
    return rows


def _round(
    service: Service, plain: Plain, asked: list[Asked], times: dict[str, Times], until: Callable[[], bool]
) -> None:
    """Every question once, on one and on the other; ends early when ``until`` is true."""
    for question in asked:
        if until():
            return
        ours, rows = _timed(partial(_ask_service, service, question.kql))
        theirs, also = _timed(partial(plain.ask, question.sql))
        found = times[question.name]
        found.ours.append(ours)
        found.plain.append(theirs)
        found.rows = rows, also


def _report(when: str, asked: list[Asked], times: dict[str, Times], unfiltered: list[tuple[int, int]]) -> None:
    shares = ", ".join(f"{100 * without / max(1, stored):.1f} % of {stored:,}" for without, stored in unfiltered[:6])
    print(f"\n{when}: lines without a text filter {shares}")
    print(
        f"  {'question':33}{'rows':>9}{'plain':>9}{'times':>7}{'ms':>10}{'worst':>10}{'plain ms':>10}{'ratio':>8}{'goal':>7}"
    )
    for question in asked:
        found = times[question.name]
        if not found.ours:
            print(f"  {question.name:33} the load ended before it was asked")
            continue
        ours, theirs = median(found.ours), median(found.plain)
        goal = f"{question.goal:.2f}" if question.goal else "-"
        print(
            f"  {question.name:33}{found.rows[0]:>9,}{found.rows[1]:>9,}{len(found.ours):>7}{ours:>10.1f}{max(found.ours):>10.1f}"
            f"{theirs:>10.1f}{ours / theirs:>8.2f}{goal:>7}",
            flush=True,
        )


def _uncovered(service: Service) -> tuple[int, int]:
    """Lines that no filter covers, and all stored ones."""
    return int(service.ask("GET", "/api/v1/sources?limit=1").get("unfiltered") or 0), service.stored()


def run(rows: int, events: float, whens: list[str], options: argparse.Namespace) -> None:
    """One load, and its tables."""
    if options.folder:
        Path(options.folder).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="queries-", dir=options.folder))
    plain = Plain(folder / "plain.duckdb")
    made, data = INPUTS[options.generator].lines(rows, events), []
    while part := list(islice(made, BATCH)):
        data.append(b"\n".join(part) + b"\n")
        plain.add(data[-1])
    raw = sum(map(len, data))
    print(
        f"{rows:,} lines, {raw / 1e6:.0f} MB, DuckDB {duckdb.__version__}",
        flush=True,
    )
    service = Service(folder / "data", options.workers)
    watched = Watched(service.process.pid)
    try:
        warm_up(service)
        _load_and_ask(service, watched, plain, data, rows, whens, options)
    finally:
        watched.ending.set()
        service.stop()
        plain.close()
        shutil.rmtree(folder, ignore_errors=True)


def _load_and_ask(
    service: Service, watched: Watched, plain: Plain, data: list[bytes], rows: int, whens: list[str],
    options: argparse.Namespace,
) -> None:  # fmt: skip
    before, begun = sum(watched.cpu().values()), time.perf_counter()
    sender = threading.Thread(target=send_tcp, args=(service.tcp, data, options.rate))
    sender.start()
    if "during" in whens:
        while service.stored() < FROM_SHARE * rows:
            time.sleep(POLL_S)
        _ask_at("during", service, plain, lambda: service.stored() > rows, options)
    while service.stored() <= rows:
        time.sleep(POLL_S)
    ended = time.perf_counter()
    used = sum(watched.cpu().values()) - before
    asked = " and questions" if "during" in whens else ""
    print(
        f"\nstored after {ended - begun:.1f} s: {rows / (ended - begun):,.0f} lines/s, {rows / used:,.0f} lines per CPU-second with all{asked}"
    )
    found = service.query('Logs | where Event != "other" | count')
    print(f"events: {100 * found / rows:.1f} % of the lines")
    sender.join()
    plain.upto(None)
    for when in whens:
        if when == "during":
            continue
        if when == "later":
            time.sleep(max(0.0, ended + LATER_S - time.perf_counter()))
        _ask_at(when, service, plain, lambda: False, options)
    print(
        f"\nuntil now {rows / (sum(watched.cpu().values()) - before):,.0f} lines per CPU-second; peak RSS {watched.peak / 1e6:,.0f} MB,"
        f" of which the service {watched.own / 1e6:,.0f}; PSS {watched.share / 1e6:,.0f}; at the end the service has {memory(service.process.pid)[0] / 1e6:,.0f}"
    )


def _ask_at(when: str, service: Service, plain: Plain, until: Callable[[], bool], options: argparse.Namespace) -> None:
    asked = asked_of(INPUTS[options.generator])
    times = {question.name: Times([], []) for question in asked}
    uncovered = []
    for _ in range(options.runs):
        if until():
            break
        uncovered.append(_uncovered(service))
        if when == "during":
            plain.upto(uncovered[-1][1])
        _round(service, plain, asked, times, until)
    _report(when, asked, times, uncovered)
