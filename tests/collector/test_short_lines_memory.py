"""Millions of lines of two bytes, through each way in, and full bodies of the most lines in a row, in a running service:
the workers' memory stays below what docs/security.md promises."""

from __future__ import annotations

import gzip
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from running import Running
from test_agent_to_service import Agent
from test_short_lines import protobuf

from collector.pipeline import MOST_BYTES
from collector.receivers.base import MAX_BODY, MOST_LINES, MOST_RECORDS
from collector.receivers.unpacking import MAX_UNPACKED
from collector.segment_file import LINE_BYTES
from tests.measured import Measured

#: MB of one worker at its peak, with the libraries that all share.
PROMISED = 750
LINE = b"y\n"
#: Twice as many as all workers may have at once: with eight million, no worker's peak was higher.
COUNT = 2 * MOST_BYTES // LINE_BYTES


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("service") / "data").start()
    yield running
    running.stop()


def peaks(service: Running) -> tuple[int, list[int]]:
    """VmHWM in MB of the service and of its workers."""
    assert service.process is not None
    found: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            text = status.read_text()
            pid, parent = (int(re.findall(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[0]) for name in ("Pid", "PPid"))
            command = (status.parent / "cmdline").read_bytes()
            if pid == service.process.pid or (parent == service.process.pid and b"spawn_main" in command):
                found[pid] = int(re.findall(r"^VmHWM:\s+(\d+)", text, re.MULTILINE)[0]) // 1024
    return found.pop(service.process.pid), list(found.values())


def stored(service: Running, where: str, count: int) -> int:
    until, found = time.monotonic() + 600, 0
    while found < count and time.monotonic() < until:
        time.sleep(2)
        ((found,),) = service.query(f"Logs | where {where} | summarize n = count()")
    return found


def over_http(service: Running, _: Path) -> tuple[str, int]:
    whole = LINE * (MAX_BODY // len(LINE))
    assert service.post("/api/v1/ingest", whole, content_type="application/x-ndjson")[0] == 413
    packed = gzip.compress(LINE * (MAX_UNPACKED // len(LINE)), 1)
    assert service.post("/api/v1/ingest", packed, content_encoding="gzip")[0] == 413
    whole, step = LINE * COUNT, MOST_LINES * len(LINE)
    for at in range(0, len(whole), step):
        part = gzip.compress(whole[at : at + step], 1)
        headers = {"content_encoding": "gzip", "content_type": "application/x-ndjson", "idempotency_key": f"http {at}"}
        assert service.post("/api/v1/ingest", part, **headers)[0] == 200
    return 'File startswith "http:"', COUNT


def over_syslog(service: Running, _: Path) -> tuple[str, int]:
    with socket.create_connection(("127.0.0.1", service.ports["tcp"])) as to:
        to.sendall(LINE * COUNT)
    return 'File startswith "syslog:"', COUNT


def over_otlp(service: Running, _: Path) -> tuple[str, int]:
    body = protobuf(MOST_RECORDS)
    assert service.post("/v1/logs", protobuf(MOST_RECORDS + 1), content_type="application/x-protobuf")[0] == 413
    times = -(-MAX_BODY // len(body))
    for number in range(times):
        headers = {"content_type": "application/x-protobuf", "idempotency_key": f"otlp {number}"}
        assert service.post("/v1/logs", body, **headers)[0] == 200
    return 'File startswith "otlp:"', times * MOST_RECORDS


#: Lines of a body that has the most lines: plain ones of 60 bytes, and records that each have their own origin.
FULL = (
    b"line %09d, some words that mean nothing, and a few more..\n",
    b'{"raw":"line %09d","host":"full","path":"/var/log/%d"}\n',
)


def in_full_bodies(service: Running, _: Path) -> tuple[str, int]:
    """The most lines that one body may have, packed; again and again."""
    for number, line in enumerate(FULL * 2):
        whole = b"".join(line % ((at,) if line.count(b"%") == 1 else (at, at % 100)) for at in range(MOST_LINES))
        headers = {
            "content_encoding": "gzip",
            "content_type": "application/x-ndjson",
            "x_faultline_host": "full",
            "idempotency_key": f"full {number}",
        }
        assert service.post("/api/v1/ingest", gzip.compress(whole, 1), **headers)[0] == 200
    return 'Host == "full"', 2 * len(FULL) * MOST_LINES


def over_agent(service: Running, folder: Path) -> tuple[str, int]:
    """The output of a job that ran ``yes``."""
    agent = Agent(folder, service)
    agent.log.write_bytes(LINE * COUNT)
    agent.start()
    where = 'File endswith "app.log"'
    try:
        stored(service, where, COUNT)
    finally:
        agent.kill()
    return where, COUNT


@pytest.mark.long
@pytest.mark.parametrize("way", [over_syslog, over_agent, over_http, over_otlp, in_full_bodies])
def test_short_lines_take_no_more_memory_than_promised(
    way: object, service: Running, tmp_path: Path, measured: Measured
) -> None:
    begun = time.monotonic()
    where, count = way(service, tmp_path)  # type: ignore[operator]
    assert stored(service, where, count) == count
    own, workers = peaks(service)
    measured(f"{way.__name__}: {count:,} lines in {time.monotonic() - begun:.0f} s; peak of each worker "  # type: ignore[attr-defined]
          f"{workers} MB, of the service {own} MB")  # fmt: skip
    assert workers and max(workers) < PROMISED
