"""How many agents one service can serve: each with its own connection, and a small batch a second.

    python benchmarks/fleet.py [--agents 1000,3000,5000] [--lines 20] [--every 1.0] [--seconds 30] [--workers 1]

benchmarks/ingest.py has few senders with many lines; here many senders have few. Every agent sends what ``faultline
agent`` sends: its facts, some lines of its syslog, now and then its counters and its state. All open their connections
in the same second, as after a restart of the service, and wait for one answer before the next batch; what their nodes
log meanwhile goes into the next one (docs/agent.md). The output is batches a second, how long answers take, and what
the service needs for it; at the end every acknowledged line is counted in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # before this folder, which has files named as the rooms

from ingest import POLL_S, Service, Watched, told_waits, warm_up

from collector.agent.agent import BEHIND_FLUSH

#: Between two readings of an agent's counters, and two of its states, batches (docs/agent.md has the seconds).
COUNTERS_EVERY, STATE_EVERY = 15, 60
#: Ports of a node whose counters are read, and counters of each.
PORTS, COUNTERS = 9, 12


@dataclass
class Answered:
    """The measurements of all agents, in seconds.

    ``waits``: until a batch was acknowledged. ``connects``: until a connection was open. ``behind``: between the last
    line's time and its acknowledgement.
    """

    waits: list[float] = field(default_factory=list)
    connects: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    behind: list[float] = field(default_factory=list)
    lines: int = 0


class Node:
    """What one agent sends."""

    def __init__(self, number: int, lines: list[str]) -> None:
        self.host = f"gpu-{number:05d}"
        self._lines, self._pack = lines, zstandard.ZstdCompressor(level=3)
        self._first = random.Random(number).randrange(len(lines))
        self._offset = 0

    def batch(self, sequence: int, count: int) -> bytes:
        """A request, headers and body."""
        at = (self._first + sequence * 97) % (len(self._lines) - count)
        text = "\n".join(self._lines[at : at + count])
        now = time.time_ns()
        read = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 10**9))}.{now // 1000 % 10**6:06d}Z"
        rows: list[dict[str, Any]] = [
            {"defaults": {"agent": self.host, "host": self.host, "cluster": "fleet", "timezone": "UTC"}},
            {"stream": "syslog", "source": "syslog", "path": "/var/log/syslog", "inode": "259:2:7", "offset": self._offset, "read": read, "lines": text},
        ]  # fmt: skip
        self._offset += len(text) + 1
        if sequence % COUNTERS_EVERY == self._first % COUNTERS_EVERY:
            rows.append({"stream": "counters", "document": "prometheus", "raw": counters(sequence), "read": read})
        if sequence % STATE_EVERY == self._first % STATE_EVERY:
            rows.append({"status": {"version": "0", "sources": [{"name": "files", "state": "ok", "detail": ""}]}})
        body = self._pack.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        head = (
            "POST /api/v1/ingest HTTP/1.1\r\nHost: faultline\r\nContent-Type: application/x-ndjson\r\nContent-Encoding: zstd\r\n"
            f"Idempotency-Key: {self.host}/logs/1/{sequence}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def counters(sequence: int) -> str:
    return "".join(
        f'node_infiniband_{name}_total{{device="mlx5_{port}",port="1"}} {sequence * 17 + name}\n'
        for port in range(PORTS)
        for name in range(COUNTERS)
    )


async def agent(node: Node, port: int, options: argparse.Namespace, reported: Answered) -> None:
    """Sends its node's lines until the end; a refused batch is sent again at the time that the service named."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reported.connects.append(time.perf_counter() - begun)
    # The time up to which the node's lines are sent: at the start each node is at another point of its second.
    sent, until, sequence = begun - random.random() * options.every, begun + options.seconds, 0
    while sent + options.every < until:
        await asyncio.sleep(max(0.0, sent + options.every - time.perf_counter()))
        gathered = min(time.perf_counter() - sent, BEHIND_FLUSH * options.every)
        count, sent, sequence = max(1, round(gathered / options.every * options.lines)), sent + gathered, sequence + 1
        request, asked = node.batch(sequence, count), time.perf_counter()
        while True:
            writer.write(request)
            status, wait = await answer(reader)
            reported.statuses[status] += 1
            if status == "200":
                break
            await asyncio.sleep(wait * (1 + 0.2 * random.random()))
        reported.waits.append(time.perf_counter() - asked)
        reported.lines += count
    reported.behind.append(max(0.0, time.perf_counter() - until))
    writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[str, float]:
    """The status, and the seconds of Retry-After."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    fields = dict(line.partition(":")[::2] for line in head.split("\r\n")[1:] if line)
    await reader.readexactly(int(fields["content-length"]))
    return head.split(" ", 2)[1], float(fields.get("retry-after", 1))


def fleet(agents: int, port: int, lines: list[str], options: argparse.Namespace, answers: Any) -> None:
    """All agents, in their own process."""
    reported, used = Answered(), time.process_time()
    nodes = [Node(number, lines) for number in range(agents)]

    async def all_of_them() -> list[Any]:
        running = (agent(node, port, options, reported) for node in nodes)
        return await asyncio.gather(*running, return_exceptions=True)

    failed = [e for e in asyncio.run(all_of_them()) if e is not None]
    reported.statuses.update(type(e).__name__ for e in failed)
    answers.put((reported, time.process_time() - used))


def run(agents: int, lines: list[str], options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=options.folder))
    service = Service(folder / "data", options.workers)
    watched = Watched(service.process.pid)
    try:
        measure(agents, service, watched, lines, options)
    finally:
        watched.ending.set()
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(agents: int, service: Service, watched: Watched, lines: list[str], options: argparse.Namespace) -> None:
    """Lets all agents send, counts what is stored, and prints the cost."""
    warm_up(service)
    context = get_context("fork")
    answers = context.Queue()
    before, begun = watched.cpu(), time.perf_counter()
    context.Process(target=fleet, args=(agents, service.http, lines, options, answers)).start()
    reported, senders = answers.get()
    taken_s, seconds_used = time.perf_counter() - begun, watched.cpu()
    while service.stored() < reported.lines + 1:
        time.sleep(POLL_S)
        if service.process.poll() is not None:
            raise SystemExit("the service ended: see its log")
    stored_s = time.perf_counter() - begun
    counted = service.query("Logs | count") - 1  # the line that warmed it up
    assert counted == reported.lines, (counted, reported.lines)
    used = {pid: cpu - before.get(pid, 0.0) for pid, cpu in seconds_used.items()}
    own, batches = used.get(service.process.pid, 0.0), len(reported.waits)
    print(f"{agents:,} agents, {options.lines} lines every {options.every:g} s each: {agents / options.every:,.0f} batches/s wanted, {options.workers} parser process(es)")  # fmt: skip
    print(f"  acknowledged        {batches / taken_s:10,.0f} batches/s, {reported.lines / taken_s:,.0f} lines/s   answers: {dict(reported.statuses)}")  # fmt: skip
    told_waits("acknowledged in", reported.waits, "a batch each")
    told_waits("connected in", reported.connects, "all at once")
    told_waits("the last line after", reported.behind, "an agent each")
    print(f"  CPU of a batch      {own / batches * 1e3:10.2f} ms of the service, {(sum(used.values()) - own) / batches * 1e3:.2f} ms of the parsers meanwhile")  # fmt: skip
    print(f"  CPU meanwhile       service {own / taken_s:.2f} cores, parsers {(sum(used.values()) - own) / taken_s:.2f}, agents {senders / taken_s:.2f}")  # fmt: skip
    print(
        f"  peak RSS            {watched.peak / 1e6:10,.0f} MB, of which the service {watched.own / 1e6:,.0f}; peak PSS {watched.share / 1e6:,.0f} MB"
    )
    print(
        f"  all stored          {stored_s - taken_s:10.1f} s after the last answer; {counted:,} lines counted",
        flush=True,
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--agents", default="1000,3000,5000")
    options.add_argument("--lines", type=int, default=20, help="lines of a batch")
    options.add_argument("--every", type=float, default=1.0, help="seconds between two batches of an agent")
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--folder", type=Path, help="where the store lies while it runs")
    found = options.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from benchmarks.simulators.log_lines import Cluster
    from parsers.patterns import load

    lines = [line.decode("utf-8", "replace") for line in islice(Cluster(load()).lines(100_000), 100_000)]
    for agents in map(int, found.agents.split(",")):
        run(agents, lines, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
