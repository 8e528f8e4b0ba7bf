"""How fast lines become rows: our engine on one and two processes beside two naive designs, in one run.

    python benchmarks/parsers.py [--lines 2000000]

The lines are made here: hundreds of templates over 1,000 hosts in the framings that clusters really write. The naive
designs do less than the engine (no times, no entities), which favours them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one process is one core here: what is measured is CPU

from parsers.engine import LineParser
from parsers.patterns import Catalogue, Pattern, load
from parsers.record import Origin

BATCH = 50_000
#: Share of lines that mean something; the rest is the usual noise. Real logs have about one in a hundred.
EVENTS = 0.05
HOSTS = tuple(f"gpu-{number:04d}" for number in range(1000))
ORIGIN = Origin(reference=datetime(2026, 7, 1), received=datetime(2026, 7, 1))
_NOISE_WORDS = (
    "accepted", "session", "cache", "worker", "refresh", "scan", "lookup", "renewed", "lease", "queue", "sync", "probe",
    "bucket", "index", "reader", "agent", "update", "query", "tick", "buffer", "slot", "mount", "token", "signal", "batch",
)  # fmt: skip
_PROGRAMS = ("sshd", "systemd", "CRON", "dhclient", "chronyd", "rsyslogd", "nslcd", "dbus-daemon", "telegraf", "sudo")


def _noise(rng: random.Random) -> list[tuple[str, str]]:
    """200 templates that no pattern is for, as (program, text with {n})."""
    return [
        (rng.choice(_PROGRAMS), " ".join(rng.sample(_NOISE_WORDS, 5)) + " id {n} from 10.0.{n}.7 in {n} ms")
        for _ in range(200)
    ]  # fmt: skip


def _events(catalogue: Catalogue) -> list[tuple[str, str]]:
    """Every example of the catalogue, with a program of its source."""
    programs = {"job": "srun", "switch": "swss", "syslog": "systemd"}
    found = []
    for entry in catalogue.entries:
        source = min(entry.sources) if entry.sources else "kernel"
        found += [
            (programs.get(source, source), example.text.replace("{", "(").replace("}", ")"))
            for example in entry.examples
        ]
    return found


def _framed(rng: random.Random, at: datetime, host: str, program: str, text: str) -> str:
    """One line in one of the framings."""
    pid = rng.randrange(100, 99_999)
    kernel = program == "kernel"
    tag = "kernel:" if kernel else f"{program}[{pid}]:"
    kind = rng.random()
    if program.startswith("slurm") and kind < 0.8:
        return f"[{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}] {text}"
    if kernel and kind < 0.25:
        return f"[{rng.random() * 1e6:12.6f}] {text}"
    if kernel and kind < 0.35:
        return f"6,{pid},{rng.randrange(10**12)},-;{text}"
    if kind < 0.65:
        return f"{at:%b} {at.day:2d} {at:%H:%M:%S} {host} {tag} {text}"
    if kind < 0.75:
        return f"<30>{at:%b} {at.day:2d} {at:%H:%M:%S} {host} {tag} {text}"
    if kind < 0.9:
        return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} {tag} {text}"
    return f"<30>1 {at:%Y-%m-%dT%H:%M:%S.%f}Z {host} {program} {'-' if kernel else pid} - - {text}"


def lines(count: int, seed: int = 1) -> Iterator[bytes]:
    """``count`` lines in the order of time, the same ones for the same seed."""
    rng = random.Random(seed)
    noise, events = _noise(rng), _events(load())
    slurm = [("slurmctld", f"{words} node_space n={{n}}") for _, words in noise[:40]]
    at = datetime(2026, 6, 1)
    for _ in range(count):
        at += timedelta(milliseconds=rng.randrange(20))
        pick = rng.random()
        program, text = rng.choice(events if pick < EVENTS else slurm if pick < 0.3 else noise)
        yield _framed(rng, at, rng.choice(HOSTS), program, text.replace("{n}", str(rng.randrange(250)))).encode()


_parser: LineParser | None = None


def _engine(batch: list[bytes]) -> tuple[int, float]:
    """(events found, CPU seconds) of one batch; the parser is built once per process."""
    global _parser
    if _parser is None:
        _parser = LineParser()
    before = time.process_time()
    table = _parser.parse(batch, ORIGIN)
    return int((table["event"] != "other").sum()), time.process_time() - before


_HEADER = re.compile(r"(?:<\d+>)?(?:1 )?\[?(\S+ +\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[^\] ]+)\]? (?:(\S+) (\S+?)(?:\[(\d+)\])?: )?(.*)", re.DOTALL)  # fmt: skip


def _naive(batch: list[bytes], first: Callable[[str, tuple[Pattern, ...]], Pattern | None]) -> int:
    entries = load_once().entries
    hits = 0
    for line in batch:
        text = line.decode(errors="replace")
        found = _HEADER.match(text)
        hits += first(found[5] if found else text, entries) is not None
    return hits


_catalogue: Catalogue | None = None


def load_once() -> Catalogue:
    global _catalogue
    if _catalogue is None:
        _catalogue = load()
    return _catalogue


def _sequential(text: str, entries: tuple[Pattern, ...]) -> Pattern | None:
    """One regex after another."""
    return next((entry for entry in entries if any(regex.search(text) for regex in entry.regexes)), None)


def _literals(text: str, entries: tuple[Pattern, ...]) -> Pattern | None:
    """Any literal in the text first, then that entry's regexes."""
    low = text.lower()
    for entry in entries:
        if any(literal in low for literal in entry.literals) and any(regex.search(text) for regex in entry.regexes):
            return entry
    return None


def _batches(count: int) -> list[list[bytes]]:
    made = lines(count)
    return list(iter(lambda: list(islice(made, BATCH)), []))


def _print(name: str, count: int, wall: float, cpu: float, hits: int) -> float:
    print(
        f"{name:34} {count / wall:12,.0f} lines/s {count / cpu:12,.0f} lines/CPU-s   {hits / count:6.1%} events",
        flush=True,
    )
    return count / cpu


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--lines", type=int, default=2_000_000)
    options.add_argument(
        "--naive-lines", type=int, default=20_000, help="the naive designs are slow: how many lines for them"
    )
    wanted = options.parse_args()
    batches = _batches(wanted.lines)
    count = sum(map(len, batches))
    templates = 200 + 40 + len(_events(load()))
    print(
        f"{count:,} lines, {templates} templates, {len(HOSTS):,} hosts, {len(load().entries)} patterns, {datetime.now(UTC):%Y-%m-%d}"
    )
    _engine(batches[0][:1000])
    start = time.perf_counter()
    results = [_engine(batch) for batch in batches]
    ours = _print(
        "engine, one process",
        count,
        time.perf_counter() - start,
        sum(c for _, c in results),
        sum(h for h, _ in results),
    )
    # Not forked: Polars' threads do not survive a fork.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(_engine, [batches[0][:1000]] * 4))
        start = time.perf_counter()
        results = list(pool.map(_engine, batches))
        _print(
            "engine, two processes",
            count,
            time.perf_counter() - start,
            sum(c for _, c in results),
            sum(h for h, _ in results),
        )
    for name, first in (("naive: one re after another", _sequential), ("naive: any literal, then re", _literals)):
        part = batches[0][: wanted.naive_lines]
        start, before = time.perf_counter(), time.process_time()
        hits = _naive(part, first)
        theirs = _print(name, len(part), time.perf_counter() - start, time.process_time() - before, hits)
        print(f"{'':34} ratio engine : this = {ours / theirs:.1f}")


if __name__ == "__main__":
    main()
