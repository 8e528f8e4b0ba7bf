"""How accurate and how fast the correlator is.

    python benchmarks/correlation.py --scenarios ../shared/scenarios     accuracy: simulated clusters with their truth
    python benchmarks/correlation.py --generate 1 2 3 [--hard]          accuracy: generated clusters, the same metrics
    python benchmarks/correlation.py [--lines 10000000]                  speed: a simulated cluster day, then ticks

The first ingests every scenario (``logs.tar.xz`` beside ``truth.json``) and prints the output of ``score.py`` beside
them. The second does the same with clusters from simulators/scenario.py and simulators/hard_scenario.py. The third
makes a day of 1,000 nodes and 20,000 jobs, one line in a hundred an event, and times a full pass over the stored lines
and ticks of ten seconds of 100,000 lines/s each. Times are wall and CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import polars as pl

from benchmarks import peers
from benchmarks.simulators import hard_scenario, scenario
from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from parsers.record import conform, frame
from store import open_store
from store.changes import Change
from store.duckdb.segments import SEGMENT_ROWS, insert_sealed
from store.duckdb.store import DuckStore
from store.duckdb.writing import insert
from store.line_frames import coded

#: Lines over which other programs are measured in the same run: their figures show the machine's present speed.
PEER_LINES = 300_000
SEC = "SEC, three rules"

#: Goals that the table compares the measurements with.
GOALS = {
    "COMPOSITE": 0.92,
    "culprit_precision": 0.97,
    "trap_false_blame_rate": 0.02,
    "pair_f1": 0.90,
    "ece": 0.08,
    "benign_incidents_blamed": 0,
}

#: Memory of the database while speed is measured, unless FAULTLINE_MEMORY sets it. More keeps pages that no tick reads
#: again; ticks take as long with 350 MB, 500 MB and 14 GB.
DATABASE_MEMORY = "256MB"

#: The scenarios beside a checkout, with the script that scores results.
SCENARIOS = Path(__file__).resolve().parents[2] / "shared" / "scenarios"

START = datetime(2026, 3, 2)
NODES = [f"gpu-{n:04d}" for n in range(1000)]


# -- right ------------------------------------------------------------------------------------------------------------


def score(folder: Path, truth: Path, archive: Path) -> dict[str, Any]:
    """Ingests one scenario into its own store and lets the scenarios' script score the result."""
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as scratch:
        place = Path(scratch)
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
        return judged(folder, truth, place)


def judged(folder: Path, truth: Path, place: Path) -> dict[str, Any]:
    """The output of ``score.py`` in ``folder`` for the logs in ``place/logs``."""
    with open_store(place / "store") as store:
        begun = time.perf_counter()
        Ingest(store).run([place / "logs"])
        ingested = time.perf_counter()
        correlate(store)
        concluded = time.perf_counter()
        found = result(store)
    (place / "result.json").write_text(json.dumps(found))
    ours = subprocess.run([sys.executable, folder / "convert.py", place / "result.json"], capture_output=True, text=True, check=True)  # fmt: skip
    (place / "score.json").write_text(ours.stdout)
    reported = subprocess.run([sys.executable, folder / "score.py", truth, place / "score.json", "--json"], capture_output=True, text=True, check=True)  # fmt: skip
    metrics: dict[str, Any] = json.loads(reported.stdout)["metrics"]
    return metrics | {"ingest_s": round(ingested - begun, 1), "correlate_s": round(concluded - ingested, 2)}


def scenarios(folder: Path) -> int:
    packed = sorted(folder.glob("*/logs.tar.xz"))
    if not packed:
        sys.stderr.write(f"{folder}: no */logs.tar.xz here; nothing was scored\n")
        return 2
    return table({a.parent.name: score(folder, a.parent / "truth.json", a) for a in packed})


def generated(folder: Path, seeds: list[int], hard: bool) -> int:
    """The same for generated clusters, whose truth is written when they are broken."""
    if not (folder / "score.py").exists():
        sys.stderr.write(f"{folder}: no score.py here; give the scenarios' folder with --scenarios\n")
        return 2
    columns = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="faultline-bench-") as scratch:
            (hard_scenario if hard else scenario).make(seed, Path(scratch))
            columns[f"seed {seed}"] = judged(folder, Path(scratch) / "truth.json", Path(scratch))
    return table(columns)


def table(columns: dict[str, dict[str, Any]]) -> int:
    names = list(dict.fromkeys(name for metrics in columns.values() for name in metrics))
    print(f"{'':28s}" + "".join(f"{c:>14s}" for c in columns) + f"{'goal':>10s}")
    for name in names:
        cells = [metrics.get(name) for metrics in columns.values()]
        shown = "".join(f"{c:14.3f}" if isinstance(c, float) else f"{c!s:>14s}" for c in cells)
        print(f"{name:28s}{shown}{GOALS.get(name, ''):>10}")
    return 0


# -- fast -------------------------------------------------------------------------------------------------------------


class Day:
    """Makes rows as the parsers would: a share of job lines, noise, and faults with their consequences."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.logs: list[dict[str, object]] = []
        self.jobs: list[dict[str, object]] = []
        self.job_id = 100
        self.line = 0

    def say(self, at: float, host: str, source: str, event: str, message: str, *, job: int | None = None, **entities: object) -> None:  # fmt: skip
        self.line += 1
        text = json.dumps(entities, sort_keys=True) if entities else None
        file = f"controller/{source}.log" if source in ("slurmctld",) else f"jobs/{job}/stdout" if source == "job_stdout" else f"nodes/{host}/{source}.log"  # fmt: skip
        self.logs.append({
            "time": START + timedelta(seconds=round(at, 3)), "time_quality": "line", "resolution_us": 1000, "cluster": "made", "host": host,
            "source": source, "format": "slurm" if source.startswith("slurm") else "kmsg" if source == "kernel" else "rfc5424", "severity": "error", "message": message,
            "event": event, "job_id": job, "entities": text, "raw": message, "file": file, "line": self.line,
        })  # fmt: skip

    def job(self, low: float, high: float) -> None:
        """One job somewhere in [low, high): submitted, started, ended, mostly well."""
        rng = self.random
        count = rng.choice((1, 1, 1, 2, 2, 4, 8))
        first = rng.randrange(len(NODES) - count)
        nodes = NODES[first : first + count]
        start = low + rng.random() * (high - low) * 0.8
        end = start + min(30 + rng.expovariate(1 / 900), max(5.0, (high - low) * 0.15))
        job, self.job_id = self.job_id, self.job_id + 1
        state = rng.choices(("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"), (90, 6, 2, 1, 1))[0]
        self._lifecycle(job, nodes, start, end, state)

    def _lifecycle(self, job: int, nodes: list[str], start: float, end: float, state: str) -> None:
        folded = ",".join(nodes)
        self.say(
            start - 1,
            "ctl",
            "slurmctld",
            "slurm.job_submit",
            f"_slurm_rpc_submit_batch_job: JobId={job} InitPrio=1",
            job=job,
        )
        self.say(start, "ctl", "slurmctld", "slurm.job_start", f"sched: Allocate JobId={job} NodeList={folded} #CPUs=8", job=job, nodes=nodes, nodelist=folded)  # fmt: skip
        if state == "FAILED":
            self.say(
                end - 2,
                nodes[0],
                "job_stdout",
                "job.exit_error",
                f"ValueError: shapes of job {job} do not match",
                job=job,
            )
        kind = {"COMPLETED": "slurm.job_end", "FAILED": "slurm.job_failed", "CANCELLED": "slurm.job_cancelled", "TIMEOUT": "slurm.job_timeout",
                "OUT_OF_MEMORY": "slurm.job_oom", "NODE_FAIL": "slurm.job_node_fail"}[state]  # fmt: skip
        self.say(end, "ctl", "slurmctld", kind, f"_job_complete: JobId={job} ended {state}", job=job)
        self.jobs.append({
            "cluster": "made", "job_id": job, "restarts": 0, "db_index": job, "name": f"train{job % 50}", "user": f"u{job % 40}", "uid": 1000 + job % 40,
            "partition": "gpu", "state": state, "exit_code": int(state == "FAILED"), "exit_signal": 0, "submit": START + timedelta(seconds=int(start) - 1),
            "start": START + timedelta(seconds=int(start)), "end": START + timedelta(seconds=int(end)), "nodes": nodes, "node_list": folded,
            "gpus": 8 * len(nodes), "source": "sacct", "file": "accounting/sacct.txt", "line": job,
        })  # fmt: skip

    def noise(self, at: float) -> None:
        """An event without consequences."""
        rng, host = self.random, self.random.choice(NODES)
        event, source, text, entities = rng.choice((
            ("pcie.aer", "kernel", "pcieport: AER: Corrected error received", {"pci": f"0000:{rng.randrange(8):02x}:00.0", "severity": "Corrected"}),
            ("sys.service_failed", "systemd", "telegraf.service: Failed with result 'exit-code'.", {"unit": "telegraf.service"}),
            ("gpu.ecc", "kernel", "EDAC MC0: 1 CE memory read error", {"dimm": f"DIMM_{rng.randrange(16)}"}),
            ("fabric.link_errors", "syslog", "mlx5_0: symbol errors 3", {"ibdev": f"mlx5_{rng.randrange(8)}"}),
            ("slurm.step_start", "slurmd", "launch task StepId=1.0 request from UID:1000", {}),
        ))  # fmt: skip
        self.say(at, host, source, event, text, **entities)

    def fault(self, at: float) -> None:
        """A fault; one in four ends a job."""
        rng, place = self.random, self.random.randrange(len(NODES) - 32)
        host = NODES[place]
        kind = rng.choice(("flap", "flap", "xid", "down", "storage", "switch"))
        if kind == "flap":
            self.link(host, "ib0", at, rng.choice((2.0, 8.0, 70.0)))
        elif kind == "xid":
            self.say(
                at,
                host,
                "kernel",
                "gpu.xid",
                "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.",
                xid=79,
                pci="0000:3a:00",
            )
            self._lifecycle(self.job_id, [host], at - 600, at + 3, "FAILED")
            self.job_id += 1
        elif kind == "down":
            self.link(host, "eth0", at, 600.0)
            self.say(
                at + 310,
                "ctl",
                "slurmctld",
                "slurm.node_down",
                f"error: Nodes {host} not responding, setting DOWN",
                nodes=[host],
            )
            self.say(at + 630, "ctl", "slurmctld", "slurm.node_up", f"Node {host} now responding", nodes=[host])
            self._lifecycle(self.job_id, [host, NODES[place + 1]], at - 500, at + 310, "NODE_FAIL")
            self.job_id += 1
        elif kind == "storage":
            for node in NODES[place : place + 16]:
                self.say(at + rng.random() * 30, node, "kernel", "storage.lustre_error", "LustreError: work-OST0003: Connection was lost", lustre_target="work-OST0003")  # fmt: skip
        else:
            for node in NODES[place : place + 16]:
                self.link(node, "ib1", at + rng.random(), 12.0)

    def link(self, host: str, port: str, at: float, seconds: float) -> None:
        self.say(at, host, "kernel", "nic.link_down", f"mlx5_core 0000:53:00.0 {port}: Link down", port=port)
        self.say(at + 0.4, host, "syslog", "nic.link_down", f"NetworkManager: {port}: carrier lost", port=port)
        self.say(at + seconds, host, "kernel", "nic.link_up", f"mlx5_core 0000:53:00.0 {port}: Link up", port=port)

    def fill(self, low: float, high: float, jobs: int, events: int) -> None:
        """Rows of [low, high): this many jobs, and noise and faults (1 in 40) until there are ``events`` rows more."""
        goal = len(self.logs) + events
        for _ in range(jobs):
            self.job(low, high)
        while len(self.logs) < goal:
            at = low + self.random.random() * (high - low)
            self.fault(at) if self.random.random() < 1 / 40 else self.noise(at)

    def store(self, store: DuckStore) -> int:
        rows = len(self.logs)
        store.add({"logs": frame("logs", self.logs), "jobs": frame("jobs", self.jobs)})
        self.logs, self.jobs = [], []
        return rows


def plain_lines(store: DuckStore, count: int, low: float, high: float) -> None:
    """Lines without events: only their number matters to the correlator.

    Stored in transactions of a segment each, and announced as by the service.
    """
    each = (high - low) / max(count, 1)
    for first in range(0, count, SEGMENT_ROWS):
        size = min(SEGMENT_ROWS, count - first)
        lines = coded(_plain_lines(store, size, low + first * each, low + (first + size) * each))
        with store.transaction() as connection:
            if size == SEGMENT_ROWS:
                insert_sealed(connection, lines)
            else:
                insert(connection, "raw.logs", lines)
            store.note("logs", Change(lines.height))
            store.announce([("logs", lines)])


def _plain_lines(store: DuckStore, count: int, low: float, high: float) -> pl.DataFrame:
    """Made inside the database."""
    made = store.frame("""SELECT CAST(? AS TIMESTAMP) + to_microseconds(CAST(i * ? AS BIGINT)) AS time, 'line' AS time_quality, 1000 AS resolution_us,
          'made' AS cluster, 'gpu-' || lpad(CAST(i % 1000 AS VARCHAR), 4, '0') AS host, 'syslog' AS source, 'rfc5424' AS format, 'info' AS severity, 'other' AS event,
          'sshd[' || i % 9999 || ']: session of user ' || hash(i) % 1000 || ' from 10.0.' || i % 250 || '.7 opened' AS raw, 'nodes/syslog' AS file, i AS line
        FROM range(?) t(i)""", [START + timedelta(seconds=low), (high - low) * 1e6 / max(count, 1), count])  # fmt: skip
    return conform("logs", made).with_columns(pl.lit(0, pl.Int32).alias("msg_start"))


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work()
    return time.perf_counter() - wall, time.process_time() - cpu, answer


def make(folder: Path, lines: int, jobs: int) -> None:
    """Writes a simulated day into a store, in its own process, so that its memory is not the correlator's."""
    with open_store(folder) as store:
        day = Day(7)
        day.fill(0, 86_400, jobs, lines // 100)
        events = day.store(store)
        conf = {"cluster": "made", "scope": "cluster", "name": "SlurmdTimeout", "value": "300", "source": "slurm.conf"}
        store.add({"settings": frame("settings", [conf])})
        plain_lines(store, lines - events, 0, 86_400)
    print(
        f"made           {lines:,} lines, {events:,} of them events, {len(NODES):,} nodes, {jobs:,} jobs, 24 h",
        flush=True,
    )


def make_bursts(folder: Path, ticks: int, separate: float) -> None:
    """Writes the rows of each tick as Parquet, in its own process, so that its memory is not the correlator's."""
    day = Day(8)
    day.job_id = 10_000_000
    for number in range(ticks):
        low = 86_400 + separate * (number + 1)
        day.fill(low, low + 10, 2_000, 10_000)
        for table, rows in (("logs", day.logs), ("jobs", day.jobs)):
            frame(table, rows).write_parquet(folder / f"{number}-{table}.parquet")
        day.logs, day.jobs = [], []


def speed(lines: int, jobs: int, ticks: int, separate: float) -> int:
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as scratch:
        folder = Path(scratch)
        made = ["--lines", str(lines), "--jobs", str(jobs), "--ticks", str(ticks), "--apart", str(separate)]
        subprocess.run([sys.executable, __file__, "--make", folder, *made], check=True)
        # The database's cache limit: more only keeps pages in memory that no tick reads again.
        limit = os.environ.setdefault("FAULTLINE_MEMORY", DATABASE_MEMORY)
        with open_store(folder) as store:
            ticker = Ticker(store)
            wall, cpu, first = timed(ticker.tick)
            print(f"full pass      {wall:.2f} s wall, {cpu:.2f} s CPU (goal 10 s): {lines / cpu:,.0f} lines of history per CPU second"
                  f" (SEC with three rules reads {peers.KNOWN[SEC]:,} where the goals were set; below, what it does here); {len(first.final) + len(first.provisional):,} verdicts")  # fmt: skip
            print(
                f"memory         peak {peak_mb():,.0f} MB resident after it, the database's cache included (goal 1,024 MB); FAULTLINE_MEMORY={limit}"
            )
            rows = tick_times(store, ticker, folder, ticks, separate)
            walls, cpus = sorted(r[0] for r in rows), sorted(r[1] for r in rows)
            worst = math.ceil(0.95 * len(walls)) - 1  # the nearest rank
            print(f"tick           10 s of 100,000 lines/s, 10,000 events: wall p50 {walls[len(walls) // 2] * 1e3:.0f} ms, p95 {walls[worst] * 1e3:.0f} ms;"
                  f" CPU p50 {cpus[len(cpus) // 2] * 1e3:.0f} ms, p95 {cpus[worst] * 1e3:.0f} ms (goal 300 ms), {ticks} ticks")  # fmt: skip
            print(
                f"the next one   without news, CPU p50 {sorted(r[3] for r in rows)[len(rows) // 2] * 1e3:.0f} ms: it does what a burst's tick leaves to it"
            )
            print(
                f"taken in       CPU p50 {sorted(r[2] for r in rows)[len(rows) // 2] * 1e3:.0f} ms for storing the events of a tick and making them ready for it, by whoever stores them"
            )
            idle, _, _ = timed(ticker.tick)
            cached = (
                sum(r["memory_usage_bytes"] for r in store.rows("SELECT memory_usage_bytes FROM duckdb_memory()"))
                / 2**20
            )
            print(f"idle tick      {idle * 1e3:.1f} ms")
            print(
                f"memory         peak {peak_mb():,.0f} MB resident at the end, the storing of {ticks} million lines included; of which the database holds {cached:,.0f} MB"
            )
    rates = peers.measured(PEER_LINES, (SEC, "DuckDB, read_json"))
    print("\n".join(f"{'' if at else 'peers':14s} {line}" for at, line in enumerate(peers.described(rates))))
    if (there := peers.ratio(rates)) is not None:
        print(f"estimated      tick p95 at the speed of that machine: {walls[worst] * there * 1e3:.0f} ms")
    return 0


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


#: The bursts of ten seconds are this far from each other: a tick looks back over an hour, and is to meet one of them,
#: not all. ``--apart 10`` shows the cost of a sustained rate of 1,000 events a second.
BURSTS_APART_S = 7_200.0


def tick_times(
    store: DuckStore, ticker: Ticker, made: Path, ticks: int, separate: float
) -> list[tuple[float, float, float, float]]:
    """For each tick wall and CPU seconds, and the CPU seconds of storing its events before and of the next tick."""
    rows = []
    for number in range(ticks):
        low = 86_400 + separate * (number + 1)
        plain_lines(store, 990_000, low, low + 10)
        burst = {table: pl.read_parquet(made / f"{number}-{table}.parquet") for table in ("logs", "jobs")}
        _, storing, _ = timed(partial(store.add, burst))
        wall, cpu, report = timed(ticker.tick)
        assert report.worked
        _, after, _ = timed(ticker.tick)  # there is time for many without news before the next burst
        rows.append((wall, cpu, storing, after))
        sys.stderr.write(
            f"tick {number + 1}: {wall:.2f} s wall, {cpu:.2f} s CPU{', everything anew' if report.full else ''}\n"
        )
    return rows


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scenarios", type=Path, help="folder with */logs.tar.xz, */truth.json, score.py, convert.py")
    options.add_argument(
        "--generate",
        type=int,
        nargs="+",
        metavar="SEED",
        help="score made clusters of these seeds with the score.py of --scenarios",
    )
    options.add_argument("--hard", action="store_true", help="with --generate: clusters that are broken in harder ways")
    options.add_argument("--lines", type=int, default=10_000_000)
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--ticks", type=int, default=20)
    options.add_argument(
        "--apart", type=float, default=BURSTS_APART_S, help="seconds between the bursts; 10: one behind the other"
    )
    options.add_argument(
        "--make", type=Path, help="only write the made day into a store in this folder, and the ticks' rows beside it"
    )
    given = options.parse_args()
    pl.Config.set_tbl_rows(50)
    if given.generate:
        return generated(given.scenarios or SCENARIOS, given.generate, given.hard)
    if given.make:
        make(given.make, given.lines, given.jobs)
        make_bursts(given.make, given.ticks, given.apart)
        return 0
    return scenarios(given.scenarios) if given.scenarios else speed(given.lines, given.jobs, given.ticks, given.apart)


if __name__ == "__main__":
    sys.exit(main())
