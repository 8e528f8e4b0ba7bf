"""How fast lines come in: over syslog TCP, as NDJSON batches and as OTLP, until acknowledged and queryable with their
events.

    python benchmarks/ingest.py [--lines 5000000] [--ways tcp,ndjson,otlp,otlp-json] [--clients 4] [--workers 1] [--rate 0] [--pages] [--close]
        [--generator catalogue|storm] [--events 20] [--file LOG]

Lines come from benchmarks/simulators/log_lines.py, from its twin storm_lines.py (texts that our catalogue did not give; ``--events``
per cent of them of faults), or from anybody's file of syslog lines, and are in memory before the clock starts. A run starts a fresh
``faultline serve`` with its store in --folder. When it has started, the clock runs from the first byte sent until every
line is committed and counted by KQL. CPU is that of the service and its workers together meanwhile (the senders' is
shown, too, since they share the machine). RSS and PSS are the highest sums seen: RSS counts pages of libraries, which
all processes share, once for each of them, PSS (a proportional share) once.

``--pages``: the first ``FIRST`` lines are stored and concluded about before the clock starts. The incident page's
requests about them (the list, one incident, its time axis, the lines around its start) are timed when the service is
idle, while all other lines come in, and when it is idle again (benchmarks/incident_page.py). ``--rate`` limits the
senders to this many lines a second: for the latency of acknowledgements below the maximum load. ``--close`` also closes
the day (segments, checkpoint) and prints bytes on disk per raw byte.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # before this folder, which has files named as the rooms

from benchmarks.incident_page import IncidentPage
from benchmarks.peers import described, measured

ROOT = Path(__file__).resolve().parents[1]
#: Lines of a batch over HTTP, and of a write to the socket.
BATCH = 5_000
#: After the last line is stored, conclusions are made and filters built. A service is idle when it has used less than
#: this much of a core for ``RESTED_S``; after ``MOST_REST_S`` it is not expected to be, and its pages are timed as it
#: is.
IDLE_CORE = 0.1
RESTED_S, MOST_REST_S = 3.0, 90.0
#: A round of concluding waits this long at most once no lines come any more (faultline/pacing.py, collector/pipeline.py).
CALM_S = 20.0
#: Other programs are measured over this many lines in the same run (benchmarks/peers.py), as a measure of the machine's
#: speed.
PEER_LINES, PEERS = 300_000, ("SEC, three rules", "DuckDB, read_json")
#: With --pages: lines that are there before the clock starts; many of them are events.
FIRST = 300_000
#: How often memory is read: the kernel walks through all pages for it, which four times a second is a tenth of a core.
MEMORY_S = 1.0
#: How often the number of stored lines is queried; 20 times a second it was a tenth of the service's work.
POLL_S = 0.25
#: Between two single lines that are sent beside the others; so often that the slowest in a hundred are several in a
#: run.
LONE_S = 0.05
TICK = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def lines_of(options: argparse.Namespace) -> Iterator[bytes]:
    """At most ``--lines`` lines of a file, or of one of the two generators."""
    if options.file:
        with options.file.open("rb") as read:
            # A receiver takes no empty line for a message, and the benchmark waits for as many as it sent.
            yield from (line.rstrip(b"\r\n") for line in islice(read, options.lines) if line.strip())
    elif options.generator == "storm":
        from benchmarks.simulators import storm_lines

        yield from (line.encode() for line in storm_lines.lines(options.lines, events=options.events))
    else:
        from benchmarks.simulators.log_lines import Cluster
        from parsers.patterns import load

        yield from Cluster(load()).lines(options.lines)


def batches(options: argparse.Namespace) -> Iterator[bytes]:
    made = lines_of(options)
    while part := list(islice(made, BATCH)):
        yield b"\n".join(part) + b"\n"


def memory(pid: int) -> tuple[int, int]:
    """RSS and PSS of a process, bytes."""
    try:
        reported = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        return int(reported["Rss"].split()[0]) * 1024, int(reported["Pss"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0, 0


class Watched:
    """CPU seconds and memory of a process and its children.

    ``peak``: RSS, ``share``: PSS, ``own``: RSS of the process alone when ``peak`` was seen, bytes.
    """

    def __init__(self, pid: int) -> None:
        self.pid, self.peak, self.share, self.own, self.ending = pid, 0, 0, 0, threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _tree(self) -> list[int]:
        pids = [self.pid]
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(path.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    pids.append(int(path.parent.name))
            except (OSError, ValueError):
                continue
        return pids

    def cpu(self) -> dict[int, float]:
        found = {}
        for pid in self._tree():
            try:
                cells = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[pid] = (int(cells[11]) + int(cells[12])) / TICK
        return found

    def _run(self) -> None:
        while not self.ending.wait(MEMORY_S):
            held = [memory(pid) for pid in self._tree()]  # the process itself first
            size, share = (sum(pair[at] for pair in held) for at in (0, 1))
            if size > self.peak:
                self.peak, self.own = size, held[0][0]
            self.share = max(self.share, share)


class Service:
    """A fresh service."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.http, self.tcp = folder, free_port(), free_port()
        config = folder.parent / f"{folder.name}.toml"
        config.write_text(
            # As a site's log host: packets of an address that nobody named are stored, and nothing is concluded from them.
            f'listen = "127.0.0.1:{self.http}"\ndata = "{folder}"\nrelays = ["127.0.0.1"]\n[ingest]\nworkers = {workers}\n'
            f'[[syslog]]\nlisten = "127.0.0.1:{self.tcp}"\ntransport = "tcp"\n'
        )
        command = [sys.executable, "-m", "faultline.entry", "serve", "--config", str(config)]
        self.log = (folder.parent / f"{folder.name}.log").open("wb")
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                self.ask("GET", "/readyz")
                break
            except OSError:
                time.sleep(0.05)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=600)
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        connection.close()
        return json.loads(answer)

    def query(self, kql: str) -> Any:
        answer = self.ask("POST", "/api/v1/query", {"query": kql, "timeout_s": 120})
        if "rows" not in answer:
            raise SystemExit(f"{kql}: {answer}")
        return answer["rows"][0][0]

    def stored(self) -> int:
        """Lines in the store, read where it costs the service nothing."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=60) as answer:
            found = re.search(rb"^faultline_intake_stored_lines(?:_total)? (\S+)", answer.read(), re.M)
        return int(float(found[1])) if found else 0

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def send_tcp(port: int, parts: list[bytes], rate: float, answers: Any = None) -> None:
    used = time.process_time()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        for part in paced(parts, rate):
            sock.sendall(part)
    if answers is not None:
        answers.put(([], time.process_time() - used))


def send_http(port: int, parts: list[tuple[str, dict[str, str], bytes]], rate: float, answers: Any) -> None:
    """Requests, each a path, headers and a body, until each is acknowledged."""
    used, waits = time.process_time(), []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for path, headers, body in paced(parts, rate):
        while True:
            begun = time.perf_counter()
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                waits.append(time.perf_counter() - begun)
                break
            time.sleep(float(answer.headers.get("retry-after", 1)))
    answers.put((waits, time.process_time() - used))


class Lone:
    """Single lines sent beside all others, each when the one before is acknowledged.

    Other data goes to the same disk by the same path meanwhile, so this is how long every sender waits. ``waits``:
    seconds.
    """

    def __init__(self, port: int) -> None:
        self.waits: list[float] = []
        self._port, self._ending = port, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while not self._ending.wait(LONE_S):
            body = json.dumps({"host": "loghost", "raw": f"lone line {len(self.waits)}"})
            begun = time.perf_counter()
            connection.request("POST", "/api/v1/ingest", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            self.waits.append(time.perf_counter() - begun)
        connection.close()


def ndjson_requests(data: list[bytes]) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """Each batch under a key of its own."""
    pack = zstandard.ZstdCompressor(level=1)
    for number, part in enumerate(data, 1):
        text = json.dumps({"host": "loghost", "lines": part[:-1].decode("utf-8", "replace")})
        headers = {"Content-Encoding": "zstd", "Idempotency-Key": f"bench/lines/1/{number}"}
        yield "/api/v1/ingest", headers, pack.compress(text.encode())


def otlp_requests(data: list[bytes], as_json: bool) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """The lines as a collector's filelog receiver sends them, a thousand a request."""
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    number = 0
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json" if as_json else "application/x-protobuf"}
    for part in data:
        lines = part[:-1].decode("utf-8", "replace").split("\n")
        for at in range(0, len(lines), 1_000):
            request = ExportLogsServiceRequest()
            group = request.resource_logs.add()
            group.resource.attributes.add(key="host.name").value.string_value = "loghost"
            scope = group.scope_logs.add()
            for line in lines[at : at + 1_000]:
                number += 1
                record = scope.log_records.add(observed_time_unix_nano=time.time_ns())
                record.body.string_value = line
                record.attributes.add(key="log.file.name").value.string_value = "messages"
                record.attributes.add(key="log.record.number").value.int_value = number
            text = MessageToJson(request, indent=None).encode() if as_json else request.SerializeToString()
            yield "/v1/logs", headers, gzip.compress(text, 1)


def paced(parts: list[Any], rate: float) -> Iterator[Any]:
    """Batches of ``BATCH`` lines (OTLP: of fewer), at most ``rate`` lines a second (0: as fast as possible)."""
    begun = time.perf_counter()
    for at, part in enumerate(parts):
        if rate and (early := begun + at * BATCH / rate - time.perf_counter()) > 0:
            time.sleep(early)
        yield part


def senders(way: str, data: list[bytes], service: Service, options: argparse.Namespace, answers: Any) -> list[Any]:
    """The sending processes, not started yet; their data is ready."""
    if way == "tcp":
        shares: list[Any] = [data]
        send, port = send_tcp, service.tcp
    else:
        requests = list(ndjson_requests(data) if way == "ndjson" else otlp_requests(data, way == "otlp-json"))
        shares = [requests[at :: options.clients] for at in range(options.clients)]
        send, port = send_http, service.http
    rate = options.rate / len(shares)
    context = get_context("fork")
    return [context.Process(target=send, args=(port, share, rate, answers)) for share in shares]


def warm_up(service: Service) -> None:
    """Sends one line and waits until it is stored: then the parser processes, which start in parallel, have started."""
    service.ask("POST", "/api/v1/ingest", {"host": "loghost", "raw": "the first line"})
    while not service.stored():
        time.sleep(POLL_S)
    time.sleep(1.0)


def rest(watched: Watched) -> None:
    """Waits until the service is idle."""
    until, used = time.monotonic() + MOST_REST_S, -1.0
    while time.monotonic() < until:
        before, used = used, sum(watched.cpu().values())
        if before >= 0.0 and used - before < IDLE_CORE * RESTED_S:
            return
        time.sleep(RESTED_S)
    print(f"  idle                not within {MOST_REST_S:.0f} s")


def page_over(first: list[bytes], service: Service, watched: Watched) -> IncidentPage:
    """The incident page of a service with some stored lines and conclusions; timed while it is idle."""
    send_tcp(service.tcp, first, 0.0)
    lines = sum(part.count(b"\n") for part in first)
    while service.stored() < lines + 1:
        time.sleep(POLL_S)
    rest(watched)
    page = IncidentPage(service.ask)
    page.idle()
    return page


def run(way: str, data: list[bytes], lines: int, options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"ingest-{way}-", dir=options.folder))
    service = Service(folder / "data", options.workers)
    watched = Watched(service.process.pid)
    answers = get_context("fork").Queue()
    first = data[: FIRST // BATCH] if options.pages else []
    all_lines, data, lines = lines, data[len(first) :], lines - len(first) * BATCH
    sending = senders(way, data, service, options, answers)
    warm_up(service)
    page = page_over(first, service, watched) if options.pages else None
    lone = Lone(service.http) if way == "tcp" and options.rate else None
    before, begun = watched.cpu(), time.perf_counter()
    if page is not None:
        page.start()
    for sender in sending:
        sender.start()
    if lone is not None:
        lone.start()
    collected = [answers.get() for _ in sending]
    sent_s = time.perf_counter() - begun
    if lone is not None:
        lone.stop()
        all_lines += len(lone.waits)
    while service.stored() < all_lines + 1:
        time.sleep(POLL_S)
        if service.process.poll() is not None:
            raise SystemExit("the service ended: see its log")
    stored_s = time.perf_counter() - begun
    if page is not None:
        page.stop()
    seconds_used = {pid: used - before.get(pid, 0.0) for pid, used in watched.cpu().items()}
    counted, events = service.query("Logs | count"), service.query('Logs | where Event != "other" | count')
    assert counted == all_lines + 1, (counted, all_lines)
    raw = sum(map(len, data))
    held = f", held to {options.rate:,.0f} lines/s" if options.rate else ""
    print(
        f"{way:7} {lines:,} lines, {raw / 1e6:.0f} MB raw, {options.workers} parser process(es), {len(sending)} sender(s){held}"
    )
    print(
        f"  stored and counted  {lines / stored_s:10,.0f} lines/s   ({stored_s:.1f} s; taken in after {sent_s:.1f} s)"
    )
    print(f"  started with        {sum(before.values()):10.1f} s of CPU, which are not counted")
    report(lines, seconds_used, service, watched, collected)
    if lone is not None:
        print_waits("a line beside them", lone.waits, "single lines over HTTP")
    print(f"  events found        {events:10,}, {100 * events / counted:.1f} % of the lines")
    concluded(watched, seconds_used, before)
    if page is not None:
        rest(watched)
        page.idle()
        page.report()
    watched.ending.set()
    service.stop()
    if options.close:
        close_day(folder / "data", raw + sum(map(len, first)))
    shutil.rmtree(folder, ignore_errors=True)


def concluded(watched: Watched, used: dict[int, float], before: dict[int, float]) -> None:
    """Prints what the service still does after the last line is stored: conclusions, filters."""
    begun, there = time.perf_counter(), sum(used.values())
    time.sleep(CALM_S)
    rest(watched)
    later = sum(used_s - before.get(pid, 0.0) for pid, used_s in watched.cpu().items()) - there
    print(f"  afterwards          {later:10.1f} CPU-s until idle, {later / there:.2f} of the CPU until stored ({time.perf_counter() - begun:.0f} s)")  # fmt: skip


def report(lines: int, used: dict[int, float], service: Service, watched: Watched, collected: list[Any]) -> None:
    """Prints the cost.

    ``collected``: for each sender the seconds until each batch was acknowledged, and its CPU seconds.
    """
    cpu, own = sum(used.values()), used.get(service.process.pid, 0.0)
    each = f"{lines / cpu:10,.0f} lines per CPU-second, {cpu / lines * 1e6:.1f} us each"
    print(
        f"  CPU                 {each}   ({cpu:.1f} s: service {own:.1f}, parsers {cpu - own:.1f}; senders {sum(c for _, c in collected):.1f} s)"
    )
    waits = [wait for reported, _ in collected for wait in reported]
    if waits:
        print_waits("acknowledged in", waits, f"{BATCH:,} lines a batch")
    print(
        f"  peak RSS            {watched.peak / 1e6:10,.0f} MB, of which the service {watched.own / 1e6:,.0f}; "
        f"peak PSS {watched.share / 1e6:,.0f} MB"
    )


def print_waits(what: str, waits: list[float], unit: str) -> None:
    """Prints how long acknowledgements took. ``waits``: seconds."""
    waits = sorted(waits)
    p50, p99 = (waits[int(len(waits) * share)] * 1e3 for share in (0.5, 0.99))
    print(
        f"  {what:19} p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {waits[-1] * 1e3:.0f} ms ({len(waits):,} times; {unit})"
    )


def close_day(data: Path, raw: int) -> None:
    """Closes what is not closed, checkpoints, and measures the store; then archives its days and measures it again."""
    from store import open_store
    from store.duckdb.segments import seal

    begun, used = time.perf_counter(), time.process_time()
    with open_store(data) as store:
        seal(store, least=1)
        with store.transaction() as connection:
            connection.execute("SELECT 1")
        store._connection.execute("CHECKPOINT")
        (free,) = store._connection.execute(
            "SELECT free_blocks * block_size FROM pragma_database_size()"
        ).fetchone() or (0,)
    size = (data / "faultline.duckdb").stat().st_size
    print(f"  closed              {size / raw:10.3f} bytes on disk per raw byte ({size / 1e6:.0f} MB, of which {free / 1e6:.0f} MB free for "
          f"new lines: {(size - free) / raw:.3f} used; {time.perf_counter() - begun:.1f} s, {time.process_time() - used:.1f} CPU-s)")  # fmt: skip
    from archive import close

    close(data, raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--ways", default="tcp,ndjson")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--generator", choices=("catalogue", "storm"), default="catalogue")
    parser.add_argument("--events", type=float, default=20.0, help="with --generator storm: lines of faults, per cent")
    parser.add_argument("--file", type=Path, help="lines of this file instead")
    parser.add_argument("--pages", action="store_true", help="time what the incident page asks, under load and idle")
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    if options.pages and options.lines <= FIRST:
        parser.error(f"--pages needs more than {FIRST:,} --lines: those are there before the clock starts")
    data = list(batches(options))
    options.lines = sum(part.count(b"\n") for part in data)
    for way in options.ways.split(","):
        run(way, data, options.lines, options)
    del data
    print("peers", *described(measured(PEER_LINES, PEERS)), sep="\n  ")


if __name__ == "__main__":
    main()
