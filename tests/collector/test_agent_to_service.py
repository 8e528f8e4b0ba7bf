"""The agent and the service as processes: either is killed at any moment, files rotate, and every line is stored once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import ROOT, Running

from tests.measured import Measured

KILLS = int(os.environ.get("FAULTLINE_KILLS", "3"))
#: Seconds for which the service is down; the full length is run by hand: FAULTLINE_AWAY_S=600.
AWAY_S = float(os.environ.get("FAULTLINE_AWAY_S", "2"))
OFF = ("journald", "kmsg", "links", "ethtool", "infiniband", "nvml", "scrape", "units", "platform", "software")


class Agent:
    def __init__(self, folder: Path, service: Running, more: str = "", token: str = "") -> None:
        self.log, self.config = folder / "logs" / "app.log", folder / "agent.toml"
        self.log.parent.mkdir()
        others = "".join(f"[sources.{name}]\nenabled = false\n" for name in OFF)
        self.config.write_text(
            f'server = "http://127.0.0.1:{service.http}"\nhost = "gpu01"\nspool = "{folder}/agent-spool"\nflush_s = 0.05\n'
            f'token = "{token}"\n'
            f'{others}[sources.files]\npaths = ["{self.log}"]\nrescan_s = 0.2\n{more}'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "faultline.entry", "agent", "--config", str(self.config)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data", syslog=()).start()
    yield running
    running.stop()


@pytest.mark.long
def test_lines_arrive_once_whoever_is_killed(service: Running, tmp_path: Path, measured: Measured) -> None:
    agent, chance, written = Agent(tmp_path, service), random.Random(3), 0
    try:
        agent.start()
        for turn in range(KILLS):
            for _ in range(20):
                with agent.log.open("a") as file:
                    file.writelines(f"numbered {written + n:07d}\n" for n in range(50))
                written += 50
                time.sleep(chance.uniform(0.0, 0.06))
            if turn % 3 == 2:
                agent.log.rename(agent.log.with_suffix(f".log.{turn}"))
            victim = agent if turn % 2 else service
            victim.kill()
            victim.start()
        stored = numbers_stored(service, written)
        twice = sum(1 for times in stored.values() if times > 1)
        missing = [number for number in range(written) if number not in stored]
        measured(f"{KILLS} kills of agent and service in turn: {written:,} lines written, {sum(stored.values()):,} stored, "
              f"{len(missing)} lost, {twice} twice")  # fmt: skip
        assert not missing and not twice
        sources = service.get("/api/v1/sources?q=app.log")[1]["sources"]
        assert {s["host"] for s in sources} == {"gpu01"} and sum(s["lines"] for s in sources) == written
    finally:
        agent.kill()


def numbers_stored(service: Running, written: int) -> Counter[int]:
    """How often each numbered line is stored, once all are there or a timeout has passed."""
    question = 'Logs | where Message startswith "numbered" | project toint(substring(Message, 9))'
    until = time.monotonic() + 120 + AWAY_S / 4
    stored: Counter[int] = Counter()
    while len(stored) < written and time.monotonic() < until:
        time.sleep(0.3)
        stored = Counter(row[0] for row in service.query(question))
    return stored


@pytest.mark.long
def test_what_is_written_while_the_service_is_away_arrives_once(
    service: Running, tmp_path: Path, measured: Measured
) -> None:
    """Lines continue to be written and the log is rotated, also over a second agent's start in the middle."""
    agent, written, rotations = Agent(tmp_path, service), 0, 0

    def write_for(seconds: float) -> None:
        nonlocal written, rotations
        for turn in range(max(1, int(seconds / 0.1))):
            with agent.log.open("a") as file:
                file.writelines(f"numbered {written + n:07d}\n" for n in range(50))
            written += 50
            if turn % 300 == 299:
                rotations += 1
                agent.log.rename(agent.log.with_suffix(f".log.{rotations}"))
            time.sleep(0.1)

    try:
        agent.start()
        write_for(1.0)
        service.kill()
        write_for(AWAY_S / 2)
        agent.kill()
        agent.start()
        write_for(AWAY_S / 2)
        service.start()
        begun = time.monotonic()
        write_for(1.0)
        stored = numbers_stored(service, written)
        lost, twice = written - len(stored), sum(1 for times in stored.values() if times > 1)
        measured(f"service away for {AWAY_S:.0f} s, agent killed once, {rotations} rotations: {written:,} lines written, "
              f"{lost} lost, {twice} twice; all stored {time.monotonic() - begun:.1f} s after it was back")  # fmt: skip
        assert not lost and not twice
    finally:
        agent.kill()
