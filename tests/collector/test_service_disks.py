"""The service on a disk whose file system turns read-only, and with a wall clock that jumps.

Its states report it, nothing acknowledged is lost, and nothing is stored twice. (Full disks and a held store:
test_service_intake.py.)
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import ROOT, Running
from small_disks import BreakableDisk, breakable_disk, needs_root
from test_service_exhausted import Sending, told
from turned_clock import SEEN_S, Clock, needs_faketime


def send(service: Running, number: int) -> tuple[int, str]:
    headers = {"Content-Type": "text/plain", "Idempotency-Key": f"n1/s/1/{number}"}
    status, body, _ = service.request("POST", "/api/v1/ingest", b"line %d" % number, headers)
    return status, body.decode()


def stored(service: Running, count: int) -> list[int]:
    rows = service.until("Logs | where Message startswith 'line ' | project toint(substring(Message, 5))", count)
    return sorted(row[0] for row in rows)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[BreakableDisk]:
    with breakable_disk(tmp_path / "disk", 128) as made:
        yield made


@pytest.mark.long
@needs_root
def test_a_disk_that_turns_read_only_is_stated_and_what_was_acknowledged_is_there(disk: BreakableDisk) -> None:
    service = Running(disk.folder / "data", syslog=(), extra="[ingest]\nmin_free_mb = 1\n")
    service.config = disk.image.with_suffix(".toml")  # the configuration and the log are elsewhere
    service.config.write_text((disk.folder / f"data-{service.http}.toml").read_text())
    service.log = disk.image.with_suffix(".log")
    try:
        service.start()
        acknowledged = [number for number in range(20) if send(service, number)[0] == 200]
        assert acknowledged == list(range(20))
        disk.break_()
        refused = [send(service, number) for number in range(20, 30)]
        assert {status for status, _ in refused} <= {429, 503}
        assert all("ead-only" in text for _, text in refused), refused[0]
        told(Sending(service), "ead-only")
        service.stop()
        # Started on it, it reports in one line what is wrong and where.
        done = subprocess.run(
            [sys.executable, "-m", "faultline.entry", "serve", "--config", str(service.config)],
            capture_output=True, text=True, timeout=240, cwd=ROOT,
        )  # fmt: skip
        stated = done.stderr.strip().splitlines()
        assert done.returncode == 2 and str(disk.folder) in stated[-1] and "ead-only" in stated[-1], done.stderr
        assert "Traceback" not in done.stderr
        disk.repair()
        service.start()
        assert [send(service, number)[0] for number in range(15, 30)] == [200] * 15
        assert stored(service, 30) == list(range(30))
    finally:
        service.stop()


@pytest.mark.long
@needs_faketime
def test_a_clock_that_jumps_loses_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    service = Running(tmp_path / "data", syslog=()).start()
    for name in clock.environment:
        monkeypatch.delenv(name)
    try:
        number = 0
        for jump in ("+2h", "-3d", "+400d", "+0"):
            clock.turn(jump)
            time.sleep(SEEN_S)
            for _ in range(5):
                assert send(service, number)[0] == 200
                assert send(service, number)[0] == 200, "the same again is the same, whatever the clock says"
                number += 1
            assert len(stored(service, number)) == number, jump
        assert service.request("GET", "/readyz")[0] == 200
        assert stored(service, number) == list(range(number))
        received = service.query("Logs | summarize min(ReceivedTime), max(ReceivedTime)")[0]
        assert received[0][:4] != received[1][:4], "the clock was turned indeed"
    finally:
        service.stop()
