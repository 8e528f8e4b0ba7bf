"""The service in difficulties: store held, disk full, batches set aside, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def running(data: Path) -> Iterator[Running]:
    made = Running(data, syslog=(), extra='[ingest]\ntokens = ["s3cret"]\nmin_free_mb = 1\n')
    yield made
    made.stop()


def send(service: Running, text: str, key: str = "") -> tuple[int, dict[str, str]]:
    headers = {
        "Content-Type": "text/plain",
        "Authorization": "Bearer s3cret",
        **({"Idempotency-Key": key} if key else {}),
    }
    status, _, answered = service.request("POST", "/api/v1/ingest", text.encode(), headers)
    return status, answered


def stored(service: Running) -> list[str]:
    return sorted(row[0] for row in service.query("Logs | project Message"))


@pytest.mark.long
def test_batches_wait_while_another_process_holds_the_store_and_go_in_when_it_is_done(
    running: Running, data: Path
) -> None:
    holding = "import sys, time; from store import open_store; s = open_store(sys.argv[1]); print('held', flush=True); sys.stdin.read(); s.close()"
    other = subprocess.Popen(
        [sys.executable, "-c", holding, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )  # fmt: skip
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    running.start()
    assert send(running, "one", "n/s/1/1")[0] == 200 and send(running, "one", "n/s/1/1")[0] == 200
    status, stated, _ = running.request("GET", "/readyz")
    assert status == 503 and b"not open" in stated
    assert running.request("GET", "/incidents")[0] == 503
    assert b"held by another process" in running.log.read_bytes()
    assert other.stdin is not None
    other.stdin.close()
    other.wait(240)
    until = time.monotonic() + 120
    while running.request("GET", "/readyz")[0] != 200 and time.monotonic() < until:
        time.sleep(0.1)
    assert running.until("Logs | project Message", 1) == [["one"]]
    # A second service on the same data is refused, by address.
    again = Running(data, syslog=())
    done = subprocess.run(
        [sys.executable, "-m", "faultline.entry", "serve", "--config", str(again.config)],
        capture_output=True, timeout=240, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 2 and str(running.http).encode() in done.stderr
    # When stopped, it stores what it accepted and exits in order.
    assert send(running, "two", "n/s/1/2")[0] == 200
    assert running.process is not None
    running.process.terminate()
    assert running.process.wait(240) == 0
    running.start()
    assert running.until("Logs | project Message", 2) and stored(running) == ["one", "two"]


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_refuses_and_recovers_without_hands_and_without_loss(data: Path, running: Running) -> None:
    data.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(data)], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        running.start()
        sure = []
        filler = data / "filler"
        for number in range(3):
            assert send(running, f"before {number}", f"n/s/1/{number}")[0] == 200
            sure.append(f"before {number}")
        with filler.open("wb") as file:  # another process fills the disk
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass
        answers = [send(running, f"full {n} " + "x" * 9000, f"n/s/2/{n}") for n in range(20)]
        assert {status for status, _ in answers} <= {200, 429, 503}
        refused = [headers for status, headers in answers if status != 200]
        assert refused and all(int(headers["retry-after"]) >= 1 for headers in refused)
        sure += [f"full {n} " + "x" * 9000 for n, (status, _) in enumerate(answers) if status == 200]
        filler.unlink()
        until = time.monotonic() + 120
        while send(running, "after", "n/s/3/1")[0] != 200 and time.monotonic() < until:
            time.sleep(0.2)
        sure.append("after")
        rows = running.until("Logs | project Message", len(sure))
        assert sorted(row[0] for row in rows) == sorted(sure)
        assert running.get("/api/v1/sources")[1]["intake"]["trouble"] is None
    finally:
        running.stop()
        subprocess.run(["umount", "-l", str(data)], check=False)
