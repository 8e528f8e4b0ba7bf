"""How fast bytes become rows: our engine on one and two processes beside two naive designs, in one run.

    python benchmarks/parsers.py [--lines 2000000] [--patterns 20,100,300] [--ingest 10000000]

Lines come from benchmarks/simulators/log_lines.py. The engine receives bytes and produces whole rows (times in UTC,
host, program, severity, event, entities, raw line); the naive designs only split a header and search for the event,
which favours them. CPU is that of all processes together. ``--ingest N`` runs `faultline ingest` on N lines and prints
the peak memory of its processes.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, cycle, islice, repeat
from multiprocessing import get_context
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one process is one core here: the measurement is CPU time

import polars as pl  # noqa: E402

from benchmarks.simulators.log_lines import HOSTS, Cluster  # noqa: E402
from parsers.engine import LineParser  # noqa: E402
from parsers.pattern import Pattern  # noqa: E402
from parsers.patterns import Catalogue, load  # noqa: E402
from parsers.record import Origin  # noqa: E402

#: As many lines as a chunk of a file in `faultline ingest`, or a busy second of a receiver.
BATCH = 100_000
ORIGIN = Origin(reference=datetime(2026, 7, 1), received=datetime(2026, 7, 1))


def _batches(count: int, catalogue: Catalogue) -> Iterator[bytes]:
    made = Cluster(catalogue).lines(count)
    while batch := list(islice(made, BATCH)):
        yield b"\n".join(batch) + b"\n"


_parser: LineParser | None = None


def _prepare(catalogue: Catalogue | None = None) -> None:
    global _parser
    _parser = LineParser(catalogue or load())
    # As many as the index needs to choose its keys: the measurement is of a process that has been running for a second.
    _parser.parse(list(Cluster(_parser.catalogue).lines(10_000)), ORIGIN)


def _engine(batch: bytes) -> tuple[int, float]:
    """(events found, CPU seconds) of one batch."""
    assert _parser is not None
    before = time.process_time()
    table = _parser.parse_data(batch, ORIGIN)
    return int((table["event"] != "other").sum()), time.process_time() - before


def _print(name: str, count: int, wall: float, cpu: float, hits: int) -> float:
    print(f"{name:38}{count / wall:12,.0f} lines/s{count / cpu:12,.0f} lines/CPU-s   {hits / count:6.2%} events", flush=True)  # fmt: skip
    return count / cpu


def _one_process(name: str, batches: list[bytes], count: int) -> float:
    start = time.perf_counter()
    results = [_engine(batch) for batch in batches]
    return _print(name, count, time.perf_counter() - start, sum(c for _, c in results), sum(h for h, _ in results))


def _piece(path: Path, start: int, length: int) -> tuple[int, float]:
    with path.open("rb") as file:
        file.seek(start)
        return _engine(file.read(length))


def _two_processes(batches: list[bytes], count: int) -> None:
    """Each process reads its chunks of one file itself, as in `faultline ingest`."""
    # Not forked: Polars' threads do not survive a fork.
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=_prepare) as pool,
    ):
        path = Path(folder, "lines")
        path.write_bytes(b"".join(batches))
        lengths = list(map(len, batches))
        starts = [0, *accumulate(lengths)]
        list(pool.map(_engine, [b""] * 8))
        start, before = time.perf_counter(), time.process_time()
        results = list(pool.map(_piece, repeat(path), starts, lengths))
        wall = time.perf_counter() - start
        cpu = sum(c for _, c in results) + time.process_time() - before
        _print("engine, two processes", count, wall, cpu, sum(h for h, _ in results))


def _of_size(catalogue: Catalogue, size: int) -> Catalogue:
    """``size`` patterns: a sample of the catalogue, or the catalogue plus synthetic ones.

    The synthetic ones fit no line but cost as much.
    """
    entries = list(catalogue.entries)
    if size <= len(entries):
        chosen = sorted(random.Random(1).sample(range(len(entries)), size))
        return Catalogue(tuple(entries[at] for at in chosen))
    words = ("gasket", "flange", "spindle", "ratchet", "mandrel", "grommet", "sprocket")
    made: list[Pattern] = []
    for number in range(size - len(entries)):
        like = entries[number % len(entries)]
        literal = f"{words[number % 7]} {words[number // 7 % 7]} {number}"
        made.append(replace(like, id=f"made-{number}", literals=(literal,), regexes=(re.compile(literal),), order=len(entries) + number))  # fmt: skip
    return Catalogue((*entries, *made))


def _by_size(batches: list[bytes], sizes: list[int], catalogue: Catalogue) -> None:
    """The same lines with growing catalogues, which find more and more events; then lines of which all find as many."""
    some = batches[:3]
    print("the same lines: more patterns find more events")
    _compare(dict.fromkeys(sizes, some), catalogue)
    print("as many events for each: cost by the number of patterns alone")
    _compare(_of_one_share(some, sizes, catalogue), catalogue)


def _compare(batches: dict[int, list[bytes]], catalogue: Catalogue) -> None:
    rates = []
    for size, some in batches.items():
        _prepare(_of_size(catalogue, size))
        count = sum(batch.count(b"\n") for batch in some)
        rates.append(max(_one_process(f"engine, {size} patterns", some, count) for _ in range(3)))
    print(f"{'':38}fastest : slowest = {max(rates) / min(rates):.2f}")


def _of_one_share(batches: list[bytes], sizes: list[int], catalogue: Catalogue) -> dict[int, list[bytes]]:
    """For each catalogue size, lines with the same share of events.

    They are the lines in which no catalogue of ``sizes`` finds anything. Among them, as often as the largest finds
    events in ``batches``, is a line in which the size's own catalogue does, from equally many different lines for each.
    """
    lines = [line for batch in batches for line in batch.split(b"\n")[:-1]]
    events: dict[int, list[int]] = {}
    for size in sizes:
        _prepare(_of_size(catalogue, size))
        assert _parser is not None
        found = (_parser.parse_data(batch, ORIGIN)["event"] != "other" for batch in batches)
        events[size] = pl.concat(found).arg_true().to_list()
    quiet = sorted(set(range(len(lines))).difference(*events.values()))
    every = len(lines) // max(map(len, events.values()))
    different = min(map(len, events.values()))
    made: dict[int, list[bytes]] = {}
    for size, its in events.items():
        pool = cycle(random.Random(1).sample(its, different))
        mixed = [lines[next(pool) if number % every == 0 else at] for number, at in enumerate(quiet)]
        made[size] = [b"\n".join(mixed[at : at + BATCH]) + b"\n" for at in range(0, len(mixed), BATCH)]
    return made


_HEADER = re.compile(r"(?:<\d+>)?(?:1 )?\[?(\S+ +\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[^\] ]+)\]? (?:(\S+) (\S+?)(?:\[(\d+)\])?: )?(.*)", re.DOTALL)  # fmt: skip


def _sequential(text: str, entries: tuple[Pattern, ...]) -> Pattern | None:
    """One `re` after another."""
    return next((entry for entry in entries if any(regex.search(text) for regex in entry.regexes)), None)


class _AhoCorasick:
    """The textbook automaton in Python: one step a letter, then the regexes of the literals found."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.table: dict[str, list[Pattern]] = {}
        for entry in catalogue.entries:
            for literal in entry.literals:
                self.table.setdefault(literal, []).append(entry)
        self.next: list[dict[str, int]] = [{}]
        self.found: list[list[str]] = [[]]
        for literal in catalogue.literals:
            state = 0
            for letter in literal:
                if letter not in self.next[state]:
                    self.next[state][letter] = len(self.next)
                    self.next.append({})
                    self.found.append([])
                state = self.next[state][letter]
            self.found[state].append(literal)
        self.fail = [0] * len(self.next)
        queue = list(self.next[0].values())
        for state in queue:
            for letter, after in self.next[state].items():
                back = self.fail[state]
                while back and letter not in self.next[back]:
                    back = self.fail[back]
                self.fail[after] = self.next[back].get(letter, 0)
                self.found[after] += self.found[self.fail[after]]
                queue.append(after)

    def __call__(self, text: str, entries: tuple[Pattern, ...]) -> Pattern | None:
        state, met = 0, set()
        for letter in text.lower():
            while state and letter not in self.next[state]:
                state = self.fail[state]
            state = self.next[state].get(letter, 0)
            if self.found[state]:
                met.update(self.found[state])
        candidates = {entry.order: entry for literal in met for entry in self.table[literal]}
        for order in sorted(candidates):
            if any(regex.search(text) for regex in candidates[order].regexes):
                return candidates[order]
        return None


def _naive(name: str, lines: list[bytes], first: Callable[[str, tuple[Pattern, ...]], Pattern | None],
           catalogue: Catalogue, ours: float) -> None:  # fmt: skip
    start, before, hits = time.perf_counter(), time.process_time(), 0
    for line in lines:
        text = line.decode(errors="replace")
        found = _HEADER.match(text)
        hits += first(found[5] if found else text, catalogue.entries) is not None
    theirs = _print(name, len(lines), time.perf_counter() - start, time.process_time() - before, hits)
    print(f"{'':38}engine : this = {ours / theirs:.0f}")


def _ingest(count: int, catalogue: Catalogue) -> None:
    """`faultline ingest` of ``count`` lines in 20 files; the peak of the summed memory of all its processes."""
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as folder:
        tree, data = Path(folder) / "nodes", Path(folder) / "data"
        size = 0
        files = 20
        for number in range(files):
            path = tree / f"gpu-{number:04d}" / "syslog"
            path.parent.mkdir(parents=True)
            with path.open("wb") as stream:
                made = Cluster(catalogue, seed=number).lines(count // files)
                while part := list(islice(made, BATCH)):
                    size += stream.write(b"\n".join(part) + b"\n")
        command = [sys.executable, "-m", "faultline.entry", "ingest", str(tree), "--data", str(data)]
        environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
        start = time.perf_counter()
        work = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        peak, single = 0, 0
        while work.poll() is None:
            sizes = [_resident(pid) for pid in _family(work.pid)]
            peak, single = max(peak, sum(sizes)), max(single, *sizes, 0)
            time.sleep(0.2)
        wall = time.perf_counter() - start
        used = os.times()
        print(work.stdout.read() if work.stdout else "")
        stored = sum(file.stat().st_size for file in data.glob("*"))
        count = count // files * files
        print(f"ingest: {count:,} lines, {size / 1e6:,.0f} MB, exit code {work.returncode}: {wall:,.1f} s, {count / wall:,.0f} lines/s, "
              f"{count / (used.children_user + used.children_system):,.0f} lines/CPU-s; peak {peak / 1e6:,.0f} MB in all processes, "
              f"{single / 1e6:,.0f} MB in one; store {stored / 1e6:,.0f} MB")  # fmt: skip


def _family(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--lines", type=int, default=2_000_000)
    options.add_argument(
        "--naive-lines", type=int, default=20_000, help="the naive designs are slow: how many for them"
    )
    options.add_argument("--patterns", default="20,100,300", help="sizes of catalogues to compare")
    options.add_argument(
        "--ingest", type=int, default=0, metavar="N", help="only: `faultline ingest` of N lines, and its memory"
    )
    wanted = options.parse_args()
    catalogue = load()
    if wanted.ingest:
        _ingest(wanted.ingest, catalogue)
        return
    batches = list(_batches(wanted.lines, catalogue))
    count = sum(batch.count(b"\n") for batch in batches)
    first = batches[0].split(b"\n")[:-1]
    literals = [literal.encode() for literal in catalogue.literals]
    near = sum(any(literal in line.lower() for literal in literals) for line in first[:5_000]) / len(first[:5_000])
    print(f"{count:,} lines ({sum(map(len, batches)) / count:.0f} bytes each), {Cluster(catalogue).count} templates, {len(HOSTS):,} hosts, "
          f"{len(catalogue.entries)} patterns; {near:.0%} of lines hold a literal; {datetime.now(UTC):%Y-%m-%d}")  # fmt: skip
    _prepare()
    ours = _one_process("engine, one process", batches, count)
    _two_processes(batches, count)
    _by_size(batches, [int(size) for size in wanted.patterns.split(",")], catalogue)
    some = first[: wanted.naive_lines]
    _naive("naive: one `re` after another", some, _sequential, catalogue, ours)
    _naive("naive: Aho-Corasick in Python, then re", some, _AhoCorasick(catalogue), catalogue, ours)


if __name__ == "__main__":
    main()
