"""What a closed day costs on disk, what closing it costs, and how fast queries over it are.

    python benchmarks/archive.py [--rows 1000000] [--runs 5]

Synthetic lines of one day (benchmarks/simulators/query_store.py) are in closed segments; the same queries are timed,
then the day is archived and they are timed again. ``benchmarks/ingest.py --close`` archives the more varied lines that
it sent.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # before this folder, which has files named as the rooms

import pyarrow.parquet as pq

from queries import kql
from store import open_store
from store.duckdb import archive, segments
from store.duckdb.open_store import DATABASE
from store.duckdb.store import DuckStore

QUESTIONS = {
    "count by host": "Logs | summarize count() by Host",
    "one host, 10 min": 'Logs | where Host == "gx0123" and Time between (datetime(2026-02-27 10:10) .. 10m) | project Time, Unit, Message',
    "rare phrase": 'Logs | where Message has "fallen off the bus" | project Time, Host, Message',
    "a job's number": 'Logs | where Message has "804281" | count',
    "whole lines of a host": 'syslog_raw_CL | where Computer == "gx0123" | summarize sum(strlen(RawData))',
    "one kind of event": 'Logs | where Event == "gpu.xid" | summarize count() by Host',
}


def close(data: Path, raw: int) -> None:
    """Archives every day of the store in ``data`` and compares its size with ``raw``, the bytes that were sent.

    Runs in its own process: peak memory is only meaningful for a process that has not used more before.
    """
    worker = get_context("spawn").Process(target=_close, args=(data, raw))
    worker.start()
    worker.join()
    if worker.exitcode:
        raise SystemExit(f"closing failed: exit code {worker.exitcode}")


def _close(data: Path, raw: int) -> None:
    with open_store(data) as store:
        before, used, begun = _peak_kb(), time.process_time(), time.perf_counter()
        done = archive.close_days(store, date.max, least=1)
        used, begun = time.process_time() - used, time.perf_counter() - begun
        changed = _peak_kb() - before
        left = store.rows("SELECT count(*) AS n FROM raw.logs")[0]["n"]
        filters = store.rows("SELECT coalesce(sum(octet_length(filter)), 0)::BIGINT AS n FROM raw.log_segments")[0]["n"]
        cursor = store.cursor()
        cursor.execute("CHECKPOINT")
        free, taken = cursor.execute(
            "SELECT free_blocks * block_size, used_blocks * block_size FROM pragma_database_size()"
        ).fetchall()[0]
    size = (data / DATABASE).stat().st_size
    print(f"  archived            {done.lines:,} lines of {done.days} days in {done.files} files, {left:,} stay in DuckDB; "
          f"{begun:.1f} s, {used / max(1, done.lines) * 1e6:.1f} CPU-s a million lines, peak RSS +{changed / 1e3:.0f} MB")  # fmt: skip
    print(
        f"  closed              {(done.bytes + filters) / raw:10.3f} bytes on disk per raw byte: {done.bytes / raw:.3f} lines, {filters / raw:.3f} text filters"
    )
    print(f"  with DuckDB         {(done.bytes + taken) / raw:10.3f} ({taken / 1e6:.0f} MB used there: filters, conclusions, sources; "
          f"its file has {size / 1e6:.0f} MB, {free / 1e6:.0f} MB of them free for the next days)")  # fmt: skip
    columns = Counter[str]()
    for path in (data / archive.FOLDER).glob("*/*.parquet"):
        found = pq.read_metadata(path)
        for group in range(found.num_row_groups):
            for number in range(found.num_columns):
                column = found.row_group(group).column(number)
                columns[column.path_in_schema.split(".")[0]] += column.total_compressed_size
    print("  by column           " + ", ".join(f"{name} {n / raw:.4f}" for name, n in columns.most_common(12)))


def _peak_kb() -> int:
    """Peak memory of this process so far. (``ru_maxrss`` would be that of the process which started it.)"""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


def ask(store: DuckStore, runs: int) -> dict[str, tuple[float, float]]:
    """Median wall and CPU ms of warm runs."""
    answers = {}
    for name, text in QUESTIONS.items():
        walls, cpus = [], []
        for _ in range(runs + 1):
            wall, cpu = time.perf_counter(), time.process_time()
            kql.run(store.cursor(), text)
            walls.append((time.perf_counter() - wall) * 1e3)
            cpus.append((time.process_time() - cpu) * 1e3)
        answers[name] = (median(walls[1:]), median(cpus[1:]))
    return answers


def main() -> None:
    from benchmarks.simulators.query_store import fill

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="archive-") as folder:
        data = Path(folder)
        with open_store(data) as store:
            fill(store, options.rows)
            segments.seal(store, least=1)
            store.cursor().execute("CHECKPOINT")
            raw = int(store.rows("SELECT sum(octet_length(encode(raw)) + 1)::BIGINT AS n FROM raw.logs")[0]["n"])
            hot = ask(store, options.runs)
        close(data, raw)
        with open_store(data) as store:
            cold = ask(store, options.runs)
    print("\n  median ms (CPU ms)          in DuckDB         archived")
    for name in QUESTIONS:
        print(f"  {name:24} {hot[name][0]:8.0f} ({hot[name][1]:.0f}) {cold[name][0]:10.0f} ({cold[name][1]:.0f})")


if __name__ == "__main__":
    main()
