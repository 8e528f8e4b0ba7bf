"""The agent as a process, with a log that it follows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ingest_server import IngestServer

ONLY_FILES = "\n".join(
    f"[sources.{name}]\nenabled = false"
    for name in ("journald", "kmsg", "links", "ethtool", "infiniband", "nvml", "scrape", "units", "platform")
)


RUNNING: list[subprocess.Popen[bytes]] = []


class Started:
    """An agent with a log folder that it follows."""

    def __init__(self, folder: Path, server: IngestServer, more: str = "", spool: Path | None = None) -> None:
        self.log = folder / "logs" / "app.log"
        self.log.parent.mkdir(exist_ok=True)
        self.spool = spool or folder / "spool"
        self.config = folder / "agent.toml"
        self.config.write_text(
            f'server = "{server.url}"\nspool = "{self.spool}"\nflush_s = 0.05\nlast_gasp_s = 2.0\n{more}\n{ONLY_FILES}\n'
            f'[sources.files]\npaths = ["{self.log}"]\nrescan_s = 0.2\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: Sequence[str] = ("-m", "faultline.entry", "agent"), **environment: str) -> Started:
        command = [sys.executable, *program, "--config", str(self.config)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **environment}
        )
        RUNNING.append(self.process)
        return self

    def is_up(self) -> bool:
        """Has it read once? From then on SIGTERM ends it in order."""
        try:
            reported = json.loads((self.spool / "status.json").read_text())
        except (OSError, ValueError):
            return False
        return self.process is not None and reported["pid"] == self.process.pid

    def kill(self) -> None:
        assert self.process is not None and self.process.stderr is not None
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def terminate(self) -> int:
        assert self.process is not None and self.process.stderr is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self.process.stderr.close()
        return code


def until(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def write(path: Path, first: int, last: int) -> None:
    with path.open("a") as stream:
        stream.writelines(f"{n} numbered line of this test\n" for n in range(first, last + 1))


def counted(server: IngestServer) -> Counter[int]:
    return Counter(int(line.split()[0]) for line in server.lines() if "numbered line" in line)


def end_all() -> None:
    """Agents of a test that failed in the middle must not outlive it."""
    for process in RUNNING:
        if process.poll() is None:
            process.kill()
            process.wait()
    RUNNING.clear()
