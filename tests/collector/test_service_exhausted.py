"""The whole service without one resource: disk, the store's disk alone, file handles, memory.

Each state is reported in visible places (``/readyz``, ``/metrics``, the sources page and API, the log), and senders are
asked to retry. The service recovers by itself once there is enough again, and nothing acknowledged is lost. (A disk
that turns read-only: test_service_disks.py.)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Running
from small_disks import fill, needs_root, small_disk

from tests.measured import Measured

PATIENCE_S = 120.0
ROOMY = "[ingest]\nmin_free_mb = 1\n"


class Sending:
    """Numbered batches over one connection, which stays open, as an agent's does."""

    def __init__(self, service: Running) -> None:
        self.service, self.number = service, 0
        self.acknowledged: list[int] = []
        self.refused: list[tuple[int, int]] = []  # status, Retry-After
        self.broken = 0
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Raises ``OSError`` or ``HTTPException``; then the next request uses a new connection."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.service.http, timeout=30)
        try:
            self._connection.request(method, path, body, {name.replace("_", "-"): v for name, v in headers.items()})
            answer = self._connection.getresponse()
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            raise

    def send(self, count: int = 1, size: int = 0) -> None:
        for _ in range(count):
            self.number += 1
            text = b"line %d" % self.number + (b" " + os.urandom(size // 2).hex().encode() if size else b"")
            key = f"n1/s/1/{self.number}"
            try:
                status, _, headers = self.ask(
                    "POST", "/api/v1/ingest", text, Content_Type="text/plain", Idempotency_Key=key
                )
            except (OSError, http.client.HTTPException):
                self.broken += 1
                continue
            if status == 200:
                self.acknowledged.append(self.number)
            else:
                self.refused.append((status, int(headers.get("retry-after", 0))))

    def come_again(self) -> None:
        """Repeats until a batch is accepted."""
        before, end = len(self.acknowledged), time.monotonic() + PATIENCE_S
        while len(self.acknowledged) == before and time.monotonic() < end:
            self.send()
            time.sleep(0.2)
        assert len(self.acknowledged) > before, self.refused[-1:]


def told(sending: Sending, *words: str) -> None:
    """The trouble is reported everywhere, at once or later; over the open connection, if there is one."""
    end = time.monotonic() + PATIENCE_S
    missing: dict[str, Any] = {"nothing": "asked"}
    while missing and time.monotonic() < end:
        try:
            missing = _not_reported(sending, words)
        except (OSError, http.client.HTTPException) as error:
            missing = {"answer": repr(error)}
        if missing:
            time.sleep(0.2)
    assert not missing, missing


def _not_reported(sending: Sending, words: tuple[str, ...]) -> dict[str, Any]:
    missing: dict[str, Any] = {}
    status, body, headers = sending.ask("GET", "/readyz", Accept="application/json")
    text = body.decode()
    if status != 503 or not any(word in text for word in words) or int(headers.get("retry-after", 0)) < 1:
        missing["/readyz"] = (status, text)
    text = sending.ask("GET", "/metrics")[1].decode()
    if "\nfaultline_intake_ok 0.0\n" not in text:
        missing["/metrics"] = [line for line in text.splitlines() if line.startswith("faultline_intake_ok")]
    answer = json.loads(sending.ask("GET", "/api/v1/sources")[1])
    # While a store that the engine gave up is opened again, the answer is a problem: repeated like any other.
    if not any(word in (answer.get("intake", {}).get("trouble") or "") for word in words):
        missing["/api/v1/sources"] = answer.get("intake", answer)
    text = sending.ask("GET", "/sources")[1].decode()
    if not any(word in text for word in words):
        missing["/sources"] = text[:3000]
    text = sending.service.log.read_text()
    if not any(
        "not all is taken in or stored" in line and word in line for line in text.splitlines() for word in words
    ):
        missing["log"] = text[-2000:]
    return missing


def well(sending: Sending) -> str:
    """It is ready without intervention; what was acknowledged is stored once. Returns the counts."""
    sending.come_again()
    service, end = sending.service, time.monotonic() + PATIENCE_S
    while (answer := service.request("GET", "/readyz"))[0] != 200 and time.monotonic() < end:
        time.sleep(0.2)
    assert answer[0] == 200, answer
    assert "\nfaultline_intake_ok 1.0\n" in service.request("GET", "/metrics")[1].decode()
    counts = stored_once(sending)
    assert service.get("/api/v1/sources")[1]["intake"]["trouble"] is None
    return counts


def stored_once(sending: Sending) -> str:
    """Asserts it; returns the counts."""
    service, end = sending.service, time.monotonic() + PATIENCE_S
    rows: list[int] = []
    while set(sending.acknowledged) - set(rows) and time.monotonic() < end:
        with contextlib.suppress(AssertionError):
            found = service.query(
                "Logs | where Message startswith 'line ' | project toint(extract('line ([0-9]+)', 1, Message))"
            )
            rows = [row[0] for row in found]
        time.sleep(0.2)
    lost, twice = set(sending.acknowledged) - set(rows), len(rows) - len(set(rows))
    counts = (
        f"acknowledged {len(sending.acknowledged)}, refused {len(sending.refused)}, broken {sending.broken}, "
        f"stored {len(rows)}, lost {len(lost)}, twice {twice}"
    )
    assert not lost and not twice, counts
    return counts


def polite(sending: Sending) -> None:
    """Every refused sender was asked to retry."""
    assert sending.refused
    assert {status for status, _ in sending.refused} <= {429, 503} and all(wait >= 1 for _, wait in sending.refused)


@pytest.fixture
def made() -> Iterator[list[Running]]:
    services: list[Running] = []
    yield services
    for service in services:
        service.stop()


@pytest.mark.long
@needs_root
def test_spool_and_store_on_one_full_disk(tmp_path: Path, made: list[Running]) -> None:
    with small_disk(tmp_path / "data", 48) as disk:
        made.append(Running(disk, syslog=(), extra=ROOMY).start())
        sending = Sending(made[0])
        sending.send(5)
        assert len(sending.acknowledged) == 5
        filler = fill(disk)
        sending.send(10, 9000)
        polite(sending)
        told(sending, "free on the disk", "is full")
        filler.unlink()
        well(sending)
        made[0].stop()


@pytest.mark.long
@needs_root
def test_only_the_stores_disk_is_full(tmp_path: Path, made: list[Running]) -> None:
    with small_disk(tmp_path / "data", 48) as disk:
        made.append(Running(disk, syslog=(), extra=f'{ROOMY}spool = "{tmp_path / "spool"}"\n').start())
        sending = Sending(made[0])
        sending.send(5)
        filler = fill(disk)
        sending.send(40, 20_000)
        assert len(sending.acknowledged) == 45, "the spool has room: it goes on taking"
        told(sending, "the store cannot be written")
        sending.send(5)
        filler.unlink()
        well(sending)
        made[0].stop()


def lowest_free(pid: int) -> int:
    """The number of the next handle that a process opens: with this as the limit, there is none."""
    used = {int(handle.name) for handle in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in range(len(used) + 1) if number not in used)


@pytest.mark.long
def test_out_of_file_handles(tmp_path: Path, made: list[Running]) -> None:
    made.append(Running(tmp_path / "data", syslog=(), extra=ROOMY).start())
    sending = Sending(made[0])
    sending.send(5)
    assert made[0].process is not None
    pid = made[0].process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free(pid), before[1]))
    turned_away = 0
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            made[0].request("GET", "/healthz", timeout_s=5)
            continue
        turned_away += 1
        sending.send()
    assert turned_away, "nobody waits in vain"
    told(sending, "out of file handles")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    well(sending)
    assert made[0].process.poll() is None


@pytest.mark.long
def test_out_of_memory(tmp_path: Path, made: list[Running], measured: Measured) -> None:
    """The address space is limited to its present size, and batches come.

    Parts of the service report it and go on. If a library ends the process because of it, the supervisor starts the
    service again. What was acknowledged is there.
    """
    made.append(Running(tmp_path / "data", syslog=(), extra=ROOMY).start())
    service, sending, starts = made[0], Sending(made[0]), 0
    sending.send(20)
    for more in (0, 4 << 20, 32 << 20, 128 << 20):
        assert service.process is not None
        size = int(Path(f"/proc/{service.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(service.process.pid, resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))
        end = time.monotonic() + 10.0
        while time.monotonic() < end and service.process.poll() is None:
            sending.send(1, 200_000)
            sending.send(4, 100)
            time.sleep(0.1)
        if service.process.poll() is None:
            resource.prlimit(service.process.pid, resource.RLIMIT_AS, unlimited)
        else:
            assert service.process.returncode in (70, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, 1), (
                service.process.returncode,
                service.log.read_text()[-3000:],
            )
            starts += 1
            service.start()
        sending.come_again()
    measured(f"out of memory, four times: begun anew {starts} times; {well(sending)}")
    assert all(status in (429, 503) and wait >= 1 for status, wait in sending.refused), set(sending.refused)
