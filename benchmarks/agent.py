"""The cost of the node agent.

    python benchmarks/agent.py [--seconds 30] [--catch-up 500000]

Measures memory, CPU share and wake-ups at 0, 20 and 1,000 lines a second; a stream of 50,000 a second; how fast it
catches up. All sources that this host has are on (missing devices are searched for once a minute). The service is a
stub in its own process that answers every batch with 200. CPU and wake-ups are the kernel's counts for the agent and
its children; one core is 100 %.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import zstandard

LINE = (
    "2026-11-21T16:40:{second:02d}.{fraction:06d}+00:00 gpu01 slurmd[4242]: launch task StepId={n}.0 request from "
    "UID:20001 GID:20001 HOST:10.77.0.1 PORT:52114\n"
)
MARK = b"launch task StepId"
TICK = os.sysconf("SC_CLK_TCK")
#: The budget of a compute node (docs/agent.md).
MOST_CPU, MOST_MB = 0.5, 40.0


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: Any = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # Lines of the benchmark, counted without parsing the records: each is in exactly one.
        self.seen.value += zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 28).count(MARK)
        text = b'{"status": "stored", "duplicate": false}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def _serve(port: Any, seen: Any) -> None:
    _Sink.seen = seen
    server = HTTPServer(("127.0.0.1", 0), _Sink)
    port.value = server.server_address[1]
    server.serve_forever()


def _family(pid: int) -> list[int]:
    """The agent and its children."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process with what its ended children used, and of its living children."""
    total = 0
    for member in _family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(fields[place]) for place in (11, 12, 13, 14))
    return total / TICK


def wake_ups(pid: int) -> int:
    """Voluntary context switches of all threads: each is a sleep that ended."""
    total = 0
    for member in _family(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            rows = dict(row.split(":", 1) for row in (task / "status").read_text().splitlines() if ":" in row)
            total += int(rows["voluntary_ctxt_switches"])
    return total


def resident_mb(pid: int) -> float:
    rows = dict(row.split(":", 1) for row in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in row)
    return int(rows["VmRSS"].split()[0]) / 1024


def write_lines(path: Path, rate: float, seconds: float) -> int:
    """Appends ``rate`` lines a second, evenly in tenths of a second; returns how many."""
    end, written = time.monotonic() + seconds, 0
    began = time.monotonic()
    while time.monotonic() < end:
        due = int((time.monotonic() - began) * rate)
        if due > written:
            append(path, written, due)
            written = due
        time.sleep(0.1)
    return written


def append(path: Path, first: int, last: int) -> None:
    with path.open("a") as stream:
        stream.writelines(LINE.format(second=n % 60, fraction=n % 1_000_000, n=n) for n in range(first, last))


def measured(agent: subprocess.Popen[bytes], log: Path, rate: float, seconds: float) -> dict[str, float]:
    cpu, woken, began = cpu_s(agent.pid), wake_ups(agent.pid), time.monotonic()
    write_lines(log, rate, seconds) if rate else time.sleep(seconds)
    took = time.monotonic() - began
    return {
        "lines/s": rate, "CPU %": 100 * (cpu_s(agent.pid) - cpu) / took,
        "wake-ups/s": (wake_ups(agent.pid) - woken) / took, "RSS MB": resident_mb(agent.pid),
    }  # fmt: skip


def kept_up(agent: subprocess.Popen[bytes], log: Path, seen: Any, rate: float, seconds: float) -> dict[str, float]:
    """A stream of this many lines a second: how far behind the service is when it ends, and for how long."""
    time.sleep(3.0)  # what was written before has arrived
    before, cpu, began = seen.value, cpu_s(agent.pid), time.monotonic()
    written = write_lines(log, rate, seconds)
    ended, behind = time.monotonic(), written - (seen.value - before)
    while seen.value - before < written and time.monotonic() - ended < 60:
        time.sleep(0.01)
    now = time.monotonic()
    return {
        "lines/s": written / (ended - began), "CPU %": 100 * (cpu_s(agent.pid) - cpu) / (now - began),
        "behind at the end": behind, "seconds to the last": now - ended, "lines lost": written - (seen.value - before),
        "RSS MB": resident_mb(agent.pid),
    }  # fmt: skip


def caught_up(agent: subprocess.Popen[bytes], log: Path, seen: Any, lines: int) -> dict[str, float]:
    """A burst: ``lines`` lines are there at once; timed until the service has acknowledged the last."""
    batch = log.with_suffix(".burst")
    append(batch, 0, lines)
    before, cpu = seen.value, cpu_s(agent.pid)
    batch.rename(log.with_name("burst.log"))
    while seen.value == before:  # the folder is polled once a second
        time.sleep(0.005)
    began, peak = time.monotonic(), 0.0
    while seen.value - before < lines and time.monotonic() - began < 300:
        peak = max(peak, resident_mb(agent.pid))
        time.sleep(0.01)
    took, used = time.monotonic() - began, cpu_s(agent.pid) - cpu
    return {
        "lines": seen.value - before, "seconds": took, "lines/s": lines / took, "lines/CPU-s": lines / max(used, 0.01),
        "RSS MB": peak,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each rate is measured")
    parser.add_argument("--catch-up", type=int, default=500_000, help="lines of the burst")
    given = parser.parse_args()
    port = multiprocessing.Value("i", 0)
    seen = multiprocessing.Value("q", 0)
    sink = multiprocessing.Process(target=_serve, args=(port, seen), daemon=True)
    sink.start()
    while not port.value:
        time.sleep(0.01)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, spool = folder / "app.log", folder / "spool"
        log.touch()
        config = folder / "agent.toml"
        config.write_text(
            f'server = "http://127.0.0.1:{port.value}"\nspool = "{spool}"\n[sources.files]\npaths = ["{folder}/*.log"]\n'
            "rescan_s = 1.0\n[sources.journald]\neven_with_syslog = true\n"
        )
        agent = subprocess.Popen([sys.executable, "-m", "faultline.entry", "agent", "--config", str(config)])
        time.sleep(8.0)  # start, first poll of all sources, the kernel's backlog
        try:
            rows = [measured(agent, log, rate, given.seconds) for rate in (0, 20, 1000)]
            stream = kept_up(agent, log, seen, 50_000, 10.0)
            burst = caught_up(agent, log, seen, given.catch_up)
            states = json.loads((spool / "status.json").read_text())["sources"]
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(20)
    sink.terminate()
    print("sources:", ", ".join(f"{s['name']} {s['state']}" for s in states))
    for row in rows:
        print("  ".join(f"{key} {value:8.2f}" for key, value in row.items()))
    print("stream: " + "  ".join(f"{key} {value:,.1f}" for key, value in stream.items()))
    print("burst:  " + "  ".join(f"{key} {value:,.1f}" for key, value in burst.items()))
    quiet = rows[1]
    fine = quiet["CPU %"] <= MOST_CPU and quiet["RSS MB"] <= MOST_MB
    print(
        f"at 20 lines/s: {quiet['CPU %']:.2f} % of a core (at most {MOST_CPU}), {quiet['RSS MB']:.1f} MB (at most {MOST_MB})"
    )
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
