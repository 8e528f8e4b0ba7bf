"""Times queries over ten million log lines, through the API, beside a plain DuckDB scan in the same run.

    python benchmarks/queries.py [--rows 10000000] [--data FOLDER] [--runs 5]
    python benchmarks/queries.py --when during,after,later [--rows 10000000] [--events 2,20,100] [--rate 0]
        [--generator storm]

Eight queries of an operator are each sent to ``POST /api/v1/query`` of a server in this process, over a connection that
stays open, and timed until the answer's JSON is read. Each is compared with the same query in SQL over a table of the
same lines in order of arrival: no sorting, no filters, no typed events. Wall time and CPU time (all threads) are
medians of warm runs; the first run is printed too. FOLDER keeps the synthetic store for the next time; without it a
temporary one is made and removed.

Before that, it times how long it takes to parse, bind and compile one query without any cache: of the operator queries
in ../shared if they exist, else of the saved queries. ``--compile`` prints only that.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # before this folder, which has files named as the rooms

import duckdb  # the yardstick: a plain scan of the same lines
import uvicorn

from benchmarks.simulators.query_store import fill
from queries.kql.catalog import CATALOG, Catalog, Column, Table
from queries.kql.compile import compile_script
from store import open_store
from store.duckdb import segments
from store.duckdb.store import DuckStore
from store.line_order import SEGMENT_ROWS
from web.app import create_app

WINDOW = "time BETWEEN TIMESTAMP '2026-02-27 10:10:00' AND TIMESTAMP '2026-02-27 10:20:00'"


@dataclass(frozen=True)
class Question:
    """``limit_ms`` is the wall time that a warm run may take on two idle cores."""

    name: str
    kql: str
    sql: str
    limit_ms: float


QUESTIONS = [
    Question("count by host, 24 h", "Logs | summarize count() by Host", "SELECT host, count(*) FROM plain GROUP BY host", 25),
    Question("top 20 programs", "Logs | summarize Lines = count() by Unit | top 20 by Lines",
             "SELECT unit, count(*) AS n FROM plain GROUP BY unit ORDER BY n DESC LIMIT 20", 25),
    Question("rare phrase", 'Logs | where Message has "fallen off the bus" | project Time, Host, Message',
             "SELECT time, host, message FROM plain WHERE contains(lower(message), 'fallen off the bus')", 60),
    Question("same, not word-aligned", 'Logs | where Message contains "allen off the bu" | project Time, Host, Message',
             "SELECT time, host, message FROM plain WHERE contains(lower(message), 'allen off the bu')", 60),
    Question("Xid by host", 'Events | where Event == "gpu.xid" | summarize count() by Host, Xid = tolong(Fields.xid)',
             r"SELECT host, regexp_extract(message, 'Xid \([^)]*\): (\d+)', 1) AS xid, count(*) FROM plain"
             r" WHERE regexp_matches(message, 'Xid \([^)]*\): \d+') GROUP BY ALL", 40),
    Question("one host, 10 min", 'Logs | where Host == "gx0123" and Time between (datetime(2026-02-27 10:10) .. 10m)'
             " | project Time, Unit, Message", f"SELECT time, unit, message FROM plain WHERE host = 'gx0123' AND {WINDOW}", 10),
    Question("minute chart, 24 h", "Logs | summarize count() by bin(Time, 1m)",
             "SELECT date_trunc('minute', time) AS m, count(*) FROM plain GROUP BY m", 60),
    Question("link down, slurmd error in 60 s",
             'Events | where Event == "nic.link_down" | project Host, Down = Time\n| join kind=inner (Events'
             ' | where Event == "slurm.comm_error" | project Host, Failed = Time) on Host\n'
             "| where Failed between (Down .. 60s)",
             "SELECT d.host, d.time, e.time FROM plain AS d JOIN plain AS e ON d.host = e.host"
             " AND e.time BETWEEN d.time AND d.time + INTERVAL 60 SECOND WHERE contains(d.message, 'Link down')"
             " AND contains(e.message, 'unable to contact slurm controller')", 40),
]  # fmt: skip
#: Queries of the lines, not of the typed events; no limit, for comparison.
MORE = [
    Question("Xid by host, from the lines", r'Logs | where Message has "Xid" | extend Xid = tolong(extract(@"Xid \([^)]*\): (\d+)", 1, Message))'
             " | summarize count() by Host, Xid", QUESTIONS[4].sql, 0),
    Question("regex", r'Logs | where Message matches regex @"GPU-\w+ has fallen off" | count',
             r"SELECT count(*) FROM plain WHERE regexp_matches(message, 'GPU-\w+ has fallen off')", 0),
    Question("a job's number", 'Logs | where Message has "804281" | count',
             r"SELECT count(*) FROM plain WHERE contains(message, '804281')", 0),
]  # fmt: skip


def timed(ask: Callable[[], Any], runs: int) -> tuple[float, float, float, int]:
    """First wall, median wall, median CPU in ms, and rows."""
    walls, cpus, rows = [], [], 0
    for _ in range(runs + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        rows = len(ask())
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    return walls[0], median(walls[1:]), median(cpus[1:]), rows


ROOT = Path(__file__).resolve().parents[1]
OPERATOR_QUERIES = ROOT.parent / "shared" / "data" / "kql" / "operator_queries.kql"
COMPILE_MS = 10  # the median that a query may take until it is SQL


def written_queries() -> tuple[str, Catalog, list[str]]:
    """The source of the queries, the tables they may name, and the queries."""
    if not OPERATOR_QUERIES.exists():
        folder = ROOT / "queries" / "library"
        return "saved queries", CATALOG, [path.read_text() for path in sorted(folder.glob("*.kql"))]
    text = OPERATOR_QUERIES.read_text()
    tables = dict(CATALOG.tables)
    # The file's head declares the tables that its queries assume: // Xid(Time:datetime, Host:string, ...)
    for name, columns in re.findall(r"^//\s+(\w+)\(((?:\w+:\w+(?:, )?)+)\)", text, re.M):
        pairs = (column.split(":") for column in columns.split(", "))
        tables[name] = Table(name, tuple(Column(column, kind) for column, kind in pairs), f'kql."{name}"')
    parts = re.split(r"\n\s*\n(?=//)", text)
    found = ["\n".join(line for line in part.splitlines() if not line.startswith("//")) for part in parts]
    return OPERATOR_QUERIES.name, Catalog(tables), [query for query in found if query.strip()]


def compiling(runs: int) -> None:
    """The time until a query is SQL: median over the queries of the median over runs, and the slowest query."""
    where, catalog, texts = written_queries()
    walls, cpus = [], []
    for text in texts:
        one: list[tuple[float, float]] = []
        for number in range(runs):
            fresh = f"{text}\n// {number}"  # parsed queries are cached by their text
            wall, cpu = time.perf_counter(), time.process_time()
            compile_script(fresh, catalog)
            one.append(((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000))
        walls.append(median(w for w, _ in one))
        cpus.append(median(c for _, c in one))
    print(
        f"parse, bind, compile: {len(texts)} {where}: median {median(walls):.2f} ms, CPU {median(cpus):.2f} ms"
        f" (limit {COMPILE_MS}), slowest {max(walls):.1f} ms",
        flush=True,
    )


def prepare(store: DuckStore, rows: int) -> None:
    """Creates the lines in closed segments, and a plain copy of them in order of arrival."""
    began = time.process_time()
    fill(store, rows)
    with store.transaction() as connection:
        connection.execute(
            "CREATE TABLE plain AS SELECT time, host, unit, substr(raw, msg_start + 1) AS message FROM raw.logs"
        )
    print(f"made {rows:,} lines in {time.process_time() - began:.0f} CPU s", flush=True)
    began, wall = time.process_time(), time.perf_counter()
    sealed = segments.seal(store, least=SEGMENT_ROWS // 4)
    used, elapsed = time.process_time() - began, time.perf_counter() - wall
    store.cursor().execute("CHECKPOINT")
    print(
        f"closed {sealed.segments} segments in {elapsed:.0f} s, {used:.0f} CPU s: {used / max(1, sealed.lines) * 1e6:.1f} us/line"
    )
    size = store.rows(
        "SELECT sum(octet_length(filter))::DOUBLE AS n, sum(lines)::DOUBLE AS lines FROM raw.log_segments"
    )[0]
    if size["lines"]:
        print(f"text filters: {size['n'] / size['lines']:.1f} bytes a line")


@contextmanager
def served(store: DuckStore) -> Iterator[Callable[[str], list[Any]]]:
    """The service's API on a free port; yields a function that sends a query and returns the rows."""
    config = uvicorn.Config(create_app(store), port=0, log_level="error", timeout_keep_alive=3600)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    client = http.client.HTTPConnection(*server.servers[0].sockets[0].getsockname())

    def ask(query: str) -> list[Any]:
        body = json.dumps({"query": query, "max_rows": 100_000})
        client.request("POST", "/api/v1/query", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        document = json.loads(answer.read())
        assert answer.status == 200, document
        rows: list[Any] = document["rows"]
        return rows

    try:
        yield ask
    finally:
        client.close()
        server.should_exit = True
        thread.join()


def compare(store: DuckStore, runs: int) -> None:
    """Runs each query through the API and as a plain scan, one after the other."""
    plain = store.cursor()
    print(f"\nDuckDB {duckdb.__version__}; wall ms first / warm median, CPU ms; plain scan: warm median, CPU ms")
    print(
        f"{'question':33}{'rows':>7}{'first':>9}{'warm':>9}{'CPU':>9}{'limit':>7}   {'plain':>9}{'CPU':>9}{'times':>7}"
    )

    def scan(sql: str) -> list[Any]:
        return plain.execute(sql).fetchall()

    with served(store) as ask:
        for question in [*QUESTIONS, *MORE]:
            first, warm, cpu, rows = timed(partial(ask, question.kql), runs)
            _, plain_warm, plain_cpu, _ = timed(partial(scan, question.sql), runs)
            limit = f"{question.limit_ms:.0f}" if question.limit_ms else "-"
            print(f"{question.name:33}{rows:>7}{first:>9.1f}{warm:>9.1f}{cpu:>9.1f}{limit:>7}   {plain_warm:>9.1f}{plain_cpu:>9.1f}"
                  f"{plain_cpu / cpu:>7.1f}", flush=True)  # fmt: skip


def at_moments(arguments: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """The questions during a load, at once after it, and a minute later (benchmarks/loaded_queries.py)."""
    from benchmarks.loaded_queries import WHENS, run

    whens = chosen.when.split(",")
    if unknown := set(whens) - set(WHENS):
        arguments.error(f"--when {', '.join(sorted(unknown))}: unknown; any of {','.join(WHENS)}")
    for share in chosen.events.split(","):
        run(chosen.rows, float(share) / 100, whens, chosen)
    return 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--data", type=Path)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--compile", action="store_true", help="only the time until a query is SQL")
    arguments.add_argument("--when", help="ask a service while lines arrive, and after: during,after,later")
    arguments.add_argument(
        "--events", default="2", help="with --when: per cent of the lines that are events, such as 2,20,100"
    )
    arguments.add_argument("--generator", choices=["log", "storm"], default="log", help="with --when: whose lines")
    arguments.add_argument("--rate", type=float, default=0.0, help="with --when: at most so many lines a second")
    arguments.add_argument("--workers", type=int, default=1, help="with --when: parser processes")
    arguments.add_argument("--folder", default=tempfile.gettempdir(), help="with --when: where the stores are made")
    chosen = arguments.parse_args()
    if chosen.when:
        return at_moments(arguments, chosen)
    compiling(chosen.runs)
    if chosen.compile:
        return 0
    with tempfile.TemporaryDirectory() as temporary, open_store(chosen.data or Path(temporary)) as store:
        if not store.rows("SELECT 1 FROM duckdb_tables() WHERE table_name = 'plain'"):
            prepare(store, chosen.rows)
        compare(store, chosen.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
