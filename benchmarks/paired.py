"""The same work on two checkouts, in turn, and the ratio of their CPU times.

    python benchmarks/paired.py OTHER [--what parsers,compile,queries,correlation,trusted,pages,start,ingest] [--pairs 5]

OTHER is another checkout, for instance a worktree of an earlier commit. Each pair runs both checkouts one after the
other, each in its own process, and every second pair begins with the other one, so that other load on the machine slows
both. CPU time is compared, user and system, of the process, its children, and the processes that run expensive
queries. One line is printed for each figure: the medians of both, the median of the ratios of the pairs (above 1: this
checkout needs more) and their range.

Both read the same lines: the simulators of this checkout write them once, and lines that other people's machines wrote are read
where they lie beside the repository ("real lines"; not measured where there are none). Each has its own stores, made
by its own code.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from itertools import islice
from pathlib import Path
from queue import Queue
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[1]
#: Captures, logs and scenarios beside the repository; the last are enough for a page.
SHARED = HERE.parent / "shared"
SCENARIOS = SHARED / "scenarios"
#: Files of lines there: of a cluster in which faults were made, and of machines of others.
REAL_LINES = (
    "captures/*/hosts/*/*.log",
    "captures/*/hosts/*/syslog",
    "captures/*/hosts/*/messages",
    "data/raw/**/*.log",
)

PARSED_LINES, BATCH_LINES = 300_000, 100_000
REAL_REPEATED = 10
WAYS = ("tcp", "ndjson", "otlp", "otlp-json")
#: What takes a second is sent this many times: a pass of the live engine more or less would be a quarter of it.
MORE = {"tcp": 4, "ndjson": 4}
QUERIED_LINES = 300_000
HISTORY_LINES, HISTORY_JOBS, TICKS, PASSES = 500_000, 5_000, 4, 5
#: A service is idle after so many seconds with less CPU time than that in each, and is not waited for longer. It may pause
#: for 30 seconds before it concludes and writes the filters that it left for later (``LONGEST_PAUSE`` in faultline/pacing.py).
CALM_LOOKS, CALM_CPU_S, LONGEST_REST_S = 35, 0.1, 300.0
#: Lines that a service takes before it is measured: more than a segment. It may conclude them in the seconds after.
WARMING_LINES, REST_S = 150_000, 5.0
#: Each question is asked this many times, and its first answer does not count.
ASKED = 12

_AT_TEN = "Time between (datetime(2026-02-27 10:00) .. 30m)"
_FEW = f"Logs | where {_AT_TEN} | take 2000"
#: Searches over the lines, and one query of each kind of operator over few of them; run in the process, without HTTP.
RUN = {
    "has": 'Logs | where Message has "checkpoint" | summarize count() by Host',
    "has, rare": 'Logs | where Message has "fallen off the bus" | project Time, Host, Message',
    "contains": 'Logs | where Message contains "ssion opene" or Message contains "port 2" | count',
    "event": 'Events | where Event == "gpu.xid" | project Time, Host, Message',
    "host": 'Logs | where Host == "gx0123" | project Time, Unit, Message',
    "time": f"Logs | where {_AT_TEN} | summarize count() by Source",
    "host, time, has": f'Logs | where {_AT_TEN} and Host startswith "gx01" and Message has "StepId" | take 100',
    "bin": "Logs | summarize count() by bin(Time, 5m), Severity",
    "newest lines": "Logs | top 100 by Time desc",
    "join": f"{_FEW} | join kind=inner (Events | summarize Events = count() by Host) on Host | count",
    "union": "union (Logs | where Source == 'kernel'), (Events) | summarize count() by Source",
    "make-series": f"Logs | where {_AT_TEN} | make-series count() default=0 on Time from datetime(2026-02-27 10:00)"
    " to datetime(2026-02-27 10:30) step 1m by Source",
    "mv-expand": f'{_FEW} | extend Word = split(Message, " ") | mv-expand Word to typeof(string) | summarize count() by Word | top 10 by count_',
    "parse": f'{_FEW} | parse Message with * "JobId=" Job:long * | summarize dcount(Job)',
    "extract": f'{_FEW} | extend Port = toint(extract(@"port (\\d+)", 1, Message)) | summarize percentile(Port, 90)',
    "top-nested": f"{_FEW} | top-nested 3 of Source by count(), top-nested 2 of Host by count()",
    "serialize": f"{_FEW} | order by Host asc, Time asc | extend Gap = Time - prev(Time) | summarize max(Gap)",
    "dynamic": f'{_FEW} | extend Bag = bag_pack("host", Host, "unit", Unit) | summarize count() by tostring(Bag.unit)',
    "let": f"let Wanted = dynamic(['slurmd', 'kernel']); let Few = {_FEW}; Few | where Source in (Wanted) | count",
    "dates": f'{_FEW} | summarize count() by format_datetime(Time, "HH:mm"), dayofweek(Time)',
}

#: CPU seconds by purpose.
Figures = dict[str, float]


def used() -> float:
    """CPU seconds of this process, of its children that have ended, and of processes that ran expensive queries."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + used_by_queries()


def used_by_queries() -> float:
    """CPU seconds of the process that forks for expensive queries, and what the forked ones reported.

    They do not report what their own end costs. 0 in commits that have no such processes or no report.
    """
    forker = getattr(sys.modules.get("queries.kql.wall.remote_query"), "FORKER", None)
    process = getattr(forker, "_process", None)
    if process is None:
        return 0.0
    own = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9
    return own + float(getattr(forker, "cpu_s", 0.0))


def cost(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    before = used()
    work()
    return used() - before


# -- what is measured; each runs in a process of the checkout whose code it measures ------------------------------------


def parsers(root: Path, folder: Path) -> Figures:
    """Bytes to rows, on one process."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    from datetime import datetime

    from parsers.engine import LineParser
    from parsers.record import Origin

    origin = Origin(reference=datetime(2026, 7, 1), received=datetime(2026, 7, 1))
    parts = [path.read_bytes() for path in sorted(folder.parent.glob("lines/*"))]
    parser = LineParser()

    def parse(parts: list[bytes]) -> None:
        for part in parts:
            parser.parse_data(part, origin)

    parse([parts[0][:1_000_000]])
    found = {f"parsers, {PARSED_LINES:,} lines": cost(partial(parse, parts))}
    if real := b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in real_files()):
        parse([real])
        found[f"parsers, {real.count(10) * REAL_REPEATED:,} real lines"] = cost(partial(parse, [real] * REAL_REPEATED))
    return found


def compile_time(root: Path, folder: Path) -> Figures:
    """Texts of KQL to SQL: each text is new every time."""
    from benchmarks.queries import written_queries
    from queries.kql.compile import compile_script

    _, catalog, texts = written_queries()
    for text in texts:
        compile_script(f"{text}\n// first", catalog)
    used = {n: [cost(partial(compile_script, f"{t}\n// {n}", catalog)) for t in texts] for n in range(ASKED)}
    return {
        "KQL, compile a new text, median text": median(map(median, zip(*used.values(), strict=True))),
        "KQL, compile new texts, all": median(map(sum, used.values())),
    }


def queries(root: Path, folder: Path) -> Figures:
    """The questions of benchmarks/queries.py through the API, then ``RUN`` and the saved queries in the process."""
    from benchmarks import queries as benchmark
    from queries import kql
    from store import open_store

    try:
        from store.duckdb import segments
    except ImportError:  # earlier commits have it elsewhere
        segments = import_module("store.segments")

    made = folder / "queries"
    if not made.exists():
        with open_store(made) as store:
            benchmark.fill(store, QUERIED_LINES)
            segments.seal(store, least=segments.SEGMENT_ROWS // 4)
            store.cursor().execute("CHECKPOINT")
    found: Figures = {}
    with open_store(made) as store, benchmark.served(store) as ask:
        # The process that forks for expensive queries starts with the service and loads what it needs for a second.
        ask("print strlen(strrep('x', 2))")
        for question in [*benchmark.QUESTIONS, *benchmark.MORE]:
            found[f"query, {question.name}"] = repeated(partial(ask, question.kql))
        found["queries through the API, all"] = sum(found.values())
        for name, text in RUN.items():
            found[f"run, {name}"] = repeated(partial(kql.run, store.cursor(), text))
        found["queries run in the process, all"] = sum(found[f"run, {name}"] for name in RUN)
    scenarios = folder / "scenarios"
    if not scenarios.exists():
        store_of_scenarios(scenarios)
    with open_store(scenarios) as store:
        saved = [path.read_text() for path in sorted((folder.parent / "saved").glob("*.kql"))]
        found["saved queries, all"] = sum(repeated(partial(kql.run, store.cursor(), text)) for text in saved)
    return found


def trusted(root: Path, folder: Path) -> Figures:
    """``correlation`` at a site whose users cannot write to syslog: there, every line of the simulated day counts, as it did
    everywhere before commits of November asked who can have written it."""
    try:
        setting = import_module("correlator.site.senders").USERS_SETTING
    except (ImportError, AttributeError):  # earlier commits trust it
        setting = None
    found = correlation(root, folder, {setting: False} if setting else None)
    return {name.replace("correlation", "correlation, syslog trusted"): cpu for name, cpu in found.items()}


def correlation(root: Path, folder: Path, settings: dict[str, object] | None = None) -> Figures:
    """Full passes over a simulated day, and bursts after it.

    The first pass of a process also makes what it keeps: statements, patterns, tables of names. It is measured apart
    from later ones, each over a copy of the same store.

    Two hours lie between two bursts: a service ticks thousands of times without news meanwhile, and leaves some work of a
    burst's tick to the first of these. That one is measured, too.
    """
    from benchmarks import correlation as benchmark
    from store import open_store

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch, "store")
        benchmark.make(place, HISTORY_LINES, HISTORY_JOBS)
        copies = [shutil.copytree(place, Path(scratch, f"copy-{number}")) for number in range(PASSES)]
        benchmark.make_bursts(place, TICKS, benchmark.BURSTS_APART_S)
        os.environ.setdefault("FAULTLINE_MEMORY", benchmark.DATABASE_MEMORY)
        with open_store(place) as store:
            ticker = benchmark.Ticker(store, settings=settings)
            full = cost(ticker.tick)
            rows = [_burst(benchmark, store, ticker, place, number) for number in range(TICKS)]
            idle = median(cost(ticker.tick) for _ in range(ASKED))
        again = []
        for copy in copies:
            with open_store(copy) as store:
                again.append(cost(benchmark.Ticker(store, settings=settings).tick))
    return {
        "correlation, full pass, the first of a process": full,
        "correlation, full pass": median(again),
        "correlation, tick": median(row[1] for row in rows),
        "correlation, tick and the next one, without news": median(row[1] + row[2] for row in rows),
        "correlation, storing before a tick": median(row[0] for row in rows),
        "correlation, idle tick": idle,
    }


def _burst(benchmark: Any, store: Any, ticker: Any, place: Path, number: int) -> tuple[float, float, float]:
    """CPU seconds of storing the events of one burst, of its tick, and of the next one."""
    import polars as pl

    low = 86_400 + benchmark.BURSTS_APART_S * (number + 1)
    benchmark.plain_lines(store, 990_000, low, low + 10)
    burst = {table: pl.read_parquet(place / f"{number}-{table}.parquet") for table in ("logs", "jobs")}
    storing = cost(partial(store.add, burst))
    return storing, cost(ticker.tick), cost(ticker.tick)


def pages(root: Path, folder: Path) -> Figures:
    """The requests of pages, as HTML and through the API, over the scenarios."""
    made = folder / "scenarios"
    if not made.exists():
        store_of_scenarios(made)
    from store import open_store

    found: Figures = {}
    with open_store(made) as store, reading(store) as get:
        incidents = json.loads(get("/api/v1/incidents?limit=50"))["incidents"]
        jobs = json.loads(get("/api/v1/jobs?limit=50"))["jobs"]
        incident, job = incidents[len(incidents) // 2], next(one for one in jobs if one["state"] == "FAILED")
        start, host = incident["start"], (incident.get("hosts") or [""])[0]
        lines = f"/api/v1/lines?from={start}&host={host}&limit=120"
        paths = {
            "jobs list": "/jobs",
            "job page": f"/jobs/{job['job_id'] if 'job_id' in job else job['id']}",
            "incidents list": "/incidents",
            "incident page": f"/incidents/{incident['id']}",
            "timeline": f"/api/v1/axis/{incident['id']}",
            "lines": lines.replace("+", "%2B"),
            "node page": f"/nodes/{host}",
            "nodes": "/nodes",
            "search": "/search?q=link",
            "sources": "/sources",
        }
        for name, path in paths.items():
            get(path)
            found[f"page, {name}"] = repeated(partial(get, path))
    return found | {"pages, all": sum(found.values())}


def start(root: Path, folder: Path) -> Figures:
    """Short commands, and a service until it answers, without its parser processes."""
    command = [sys.executable, "-m", "faultline.entry"]

    def ran(*arguments: str) -> None:
        subprocess.run([*command, *arguments], cwd=root, check=True, stdout=subprocess.DEVNULL)

    found = {"start, faultline --help": median(cost(partial(ran, "--help")) for _ in range(5))}
    made = folder / "scenarios"
    if made.exists():
        found["start, faultline incidents"] = median(
            cost(partial(ran, "incidents", "--data", str(made))) for _ in range(3)
        )
    from benchmarks import ingest as benchmark

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        service = benchmark.Service(Path(scratch) / "data", 1)
        found["start, service until it answers"] = own_cpu(service.process.pid)
        service.stop()
    return found


def ingest(root: Path, folder: Path) -> Figures:
    """Lines until they can be queried, by each way in: CPU of the service and its parser process; of files, of the command.

    A service may leave work for later. So its CPU time until it is idle is a figure, too.
    """
    from benchmarks import ingest as benchmark
    from collector.ingest import Ingest
    from store import open_store

    def read_files(tree: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch, open_store(Path(scratch)) as store:
            Ingest(store, workers=1).run([tree])

    read_files(folder.parent / "few")  # loads what is loaded once
    found = {f"ingest, files, {PARSED_LINES:,} lines": cost(partial(read_files, folder.parent / "lines"))}
    if (captures := SHARED / "captures").exists():
        found["ingest, files, captures (real lines)"] = cost(partial(read_files, captures))
    # The run's CPU time is passed to the function that prints it.
    given: list[float] = []
    benchmark.report = lambda lines, used, service, watched, *rest: given.extend(
        (stored := sum(used.values()), stored + _until_idle(watched))
    )
    data = [part for path in sorted(folder.parent.glob("lines/*")) for part in batches(path.read_bytes())]
    for way in WAYS:
        times = MORE.get(way, 1)
        lines = times * PARSED_LINES
        options = argparse.Namespace(
            folder=str(folder), workers=1, clients=2, rate=0.0, pages=False, close=False, lines=lines
        )
        benchmark.warm_up = partial(_warm_up, benchmark, way, (folder.parent / "segment").read_bytes())
        with redirect_stdout(StringIO()):
            benchmark.run(way, data * times, lines, options)
        stored, idle = given[-2:]
        found |= {f"ingest, {way}, {lines:,} lines": stored, f"ingest, {way}, {lines:,} lines, until idle": idle}
    return found


def _until_idle(watched: Any) -> float:
    """CPU seconds of what a service leaves for later: text filters of what it stored, conclusions."""
    used = dict(watched.cpu())  # by process; what one used stays when it ends
    begun = last = sum(used.values())
    calm, until = 0, time.monotonic() + LONGEST_REST_S
    while calm < CALM_LOOKS:
        if time.monotonic() > until:
            raise SystemExit(f"the service was not idle within {LONGEST_REST_S:.0f} s")
        time.sleep(1.0)
        used |= {pid: max(cpu, used.get(pid, 0.0)) for pid, cpu in watched.cpu().items()}
        now = sum(used.values())
        calm, last = calm + 1 if now - last < CALM_CPU_S else 0, now
    return last - begun


def _warm_up(benchmark: Any, way: str, few: bytes, service: Any) -> None:
    """A segment of lines by the measured way: what one checkout loads at its first lines or its first segment, and another
    at its start, counts in neither. They are left out of what the service is asked for later."""
    if way == "tcp":
        benchmark.send_tcp(service.tcp, [few], 0.0)
    else:
        requests = (
            benchmark.ndjson_requests([few]) if way == "ndjson" else benchmark.otlp_requests([few], way == "otlp-json")
        )
        renamed = (
            (path, {k: v.replace("bench/", "few/") for k, v in headers.items()}, body)
            for path, headers, body in requests
        )
        benchmark.send_http(service.http, list(renamed), 0.0, Queue())
    while service.stored() < few.count(b"\n"):
        time.sleep(benchmark.POLL_S)
    time.sleep(REST_S)
    stored, query, more = service.stored, service.query, few.count(b"\n") - 1
    service.stored = lambda: stored() - more
    service.query = lambda kql: query(kql) - more


MEASURED: dict[str, Callable[[Path, Path], Figures]] = {
    "parsers": parsers,
    "compile": compile_time,
    "queries": queries,
    "correlation": correlation,
    "trusted": trusted,
    "pages": pages,
    "start": start,
    "ingest": ingest,
}


def real_files() -> list[Path]:
    """Files of lines that were not made here; none where nothing lies beside the repository."""
    return sorted(path for pattern in REAL_LINES for path in SHARED.glob(pattern))


def batches(text: bytes) -> Iterator[bytes]:
    """Whole lines, 5,000 at a time, as senders of the benchmark of ingest take them."""
    lines = iter(text.splitlines(keepends=True))
    while part := b"".join(islice(lines, 5_000)):
        yield part


def repeated(ask: Callable[[], object]) -> float:
    """The median of ``ASKED`` calls, after one to warm up."""
    ask()
    return median(cost(ask) for _ in range(ASKED))


def own_cpu(pid: int) -> float:
    """CPU seconds of a running process, without its children."""
    cells = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(cells[11]) + int(cells[12])) / os.sysconf("SC_CLK_TCK")


def store_of_scenarios(place: Path) -> None:
    """Every scenario in one store, with conclusions."""
    from collector.ingest import Ingest
    from correlator.engine import correlate
    from store import open_store

    with open_store(place) as store, tempfile.TemporaryDirectory() as scratch:
        for packed in sorted(SCENARIOS.glob("*/logs.tar.xz")):
            with tarfile.open(packed) as archive:
                archive.extractall(Path(scratch) / packed.parent.name, filter="data")
            Ingest(store).run([Path(scratch) / packed.parent.name / "logs"])
        correlate(store)


@contextmanager
def reading(store: Any) -> Iterator[Callable[[str], bytes]]:
    """A function that requests a path from the service's pages, over one connection."""
    import http.client
    import threading

    import uvicorn

    from web.app import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(store), port=0, log_level="error", timeout_keep_alive=3600))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    client = http.client.HTTPConnection(*server.servers[0].sockets[0].getsockname())

    def get(path: str) -> bytes:
        client.request("GET", path)
        answer = client.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: status {answer.status}: {body[:300]!r}")
        return body

    try:
        yield get
    finally:
        client.close()
        server.should_exit = True
        thread.join()


# -- in turn ------------------------------------------------------------------------------------------------------------


def write_lines(folder: Path) -> None:
    """The lines that both checkouts parse."""
    from benchmarks.simulators.log_lines import Cluster
    from parsers.patterns import load

    folder.mkdir()
    (folder.parent / "few").mkdir()
    (folder.parent / "few" / "0").write_bytes(b"\n".join(Cluster(load()).lines(1_000)) + b"\n")
    (folder.parent / "segment").write_bytes(b"\n".join(Cluster(load()).lines(WARMING_LINES)) + b"\n")
    made = Cluster(load()).lines(PARSED_LINES)
    for number in range(PARSED_LINES // BATCH_LINES):
        (folder / str(number)).write_bytes(b"\n".join(islice(made, BATCH_LINES)) + b"\n")


def write_saved(folder: Path, other: Path) -> None:
    """The saved queries that both checkouts have, as the other one has them: it may lack tables that later ones read."""
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run beside another checkout
    folder.mkdir()
    for path in (other / "queries" / "library").glob("*.kql"):
        if (HERE / "queries" / "library" / path.name).exists():
            shutil.copy(path, folder)


def figures(what: str, root: Path, folder: Path) -> Figures:
    """One measurement in a process of a checkout. Raises ``CalledProcessError`` if it fails."""
    folder.mkdir(exist_ok=True)
    own = root / ".venv" / "bin" / "python"
    command = [own if own.exists() else sys.executable, __file__, str(root), "--one", what, "--folder", str(folder)]
    # Bytecode is cached, as in an installation, in its own folder, so that neither checkout is written to.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    answer = subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: Figures = json.loads(answer.stdout.splitlines()[-1])
    return found


def compare(what: str, other: Path, folder: Path, pairs: int) -> None:
    """Measures both in turn and prints a line for each figure."""
    places = {other: folder / "other", HERE: folder / "here"}
    taken: dict[str, list[tuple[float, float]]] = {}
    for pair in range(pairs):
        order = (other, HERE) if pair % 2 == 0 else (HERE, other)
        found = {root: figures(what, root, places[root]) for root in order}
        for name in found[HERE]:
            taken.setdefault(name, []).append((found[other][name], found[HERE][name]))
            theirs, ours = taken[name][-1]
            # A pair can take a quarter of an hour: whoever interrupts the run has what was measured.
            print(f"pair {pair + 1}: {name}: {ours / theirs:.2f}", file=sys.stderr, flush=True)
    for name, both in taken.items():
        ratios = sorted(ours / theirs for theirs, ours in both)
        theirs, ours = (median(one[side] for one in both) * 1000 for side in (0, 1))
        print(
            f"| {name} | {theirs:,.1f} | {ours:,.1f} | {median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} | {len(both)} |",
            flush=True,
        )


def main() -> int:
    """Runs the command; the exit code is 0 whatever the ratios are."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("other", type=Path, help="the other checkout")
    options.add_argument("--what", default=",".join(MEASURED))
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--folder", type=Path, help="where stores are made, and kept for the next time")
    options.add_argument("--one", choices=MEASURED, help=argparse.SUPPRESS)
    given = options.parse_args()
    root = given.other.resolve()
    if given.one:
        sys.path[0] = str(root)  # in place of this folder, whose modules have the names of packages
        sys.path.append(str(root / "benchmarks"))  # where benchmarks of earlier commits find each other
        print(json.dumps(MEASURED[given.one](root, given.folder)))
        return 0
    sys.path[0] = str(HERE)
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as scratch:
        folder = (given.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "lines").exists():
            write_lines(folder / "lines")
        write_saved(folder / "saved", root)
        print("| what | other, CPU ms | here, CPU ms | ratio, median | range | pairs |\n|---|---|---|---|---|---|")
        for what in given.what.split(","):
            compare(what, root, folder, given.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
