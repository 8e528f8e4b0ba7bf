"""The agent as a process, with a log that it follows."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ingest_server import IngestServer, lines_of, records_of

from collector.agent import wire
from collector.agent.frames import frames

ONLY_FILES = "\n".join(
    f"[sources.{name}]\nenabled = false"
    for name in (
        "journald",
        "kmsg",
        "links",
        "ethtool",
        "infiniband",
        "nvml",
        "scrape",
        "units",
        "platform",
        "software",
    )
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
    return Counter(numbered(server.records()))


def numbered(records: Iterable[dict[str, Any]]) -> Iterator[int]:
    """The numbers of this module's lines in records."""
    return (int(line.split()[0]) for line in lines_of(records) if "numbered line" in line)


def traced(agent: Started, server: IngestServer, written: int) -> str:
    """Where the missing lines are: in which files, read up to where, whether the spool holds them or the server
    acknowledged them. Lines that wait in the spool are late; others are lost."""
    found = counted(server)
    missing = {n for n in range(1, written + 1) if n not in found}
    spooled: set[int] = set()
    positions: dict[str, int] = {}
    acknowledged = int((agent.spool / "acknowledged").read_bytes().split()[0])
    last = acknowledged
    for key, (_, place) in json.loads((agent.spool / "state.json").read_bytes())["positions"].items():
        if key.startswith("files:"):
            positions[key] = place["offset"]
    for segment in sorted(agent.spool.glob("*.seg")):
        with segment.open("rb") as stream:
            for frame in frames(stream):
                last = max(last, frame.header["sequence"])
                for key, place in frame.header.get("positions", {}).items():
                    if key.startswith("files:") and place:
                        positions[key] = place["offset"]
                payload = stream.read(frame.length)
                if frame.header["sequence"] > acknowledged:
                    spooled |= set(numbered(records_of(payload, wire.encoding_of(payload))))
    told = [
        f"{len(found)} of {written} lines stored; missing: {_ranges(missing)}; waiting in the spool: {_ranges(spooled & missing)}",
        f"batches acknowledged {acknowledged}, written {last}; the server has {len(server.stored)}, and saw {server.cut} "
        f"requests cut off and {server.repeated} again; blind: {server.blind('files')}",
    ]
    for path in sorted(agent.log.parent.iterdir()):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            lines = stream.read().splitlines(keepends=True)
        numbers = [int(line.split()[0]) for line in lines]
        status = path.stat()
        read = [at for key, at in positions.items() if key.endswith(f"|{status.st_dev}:{status.st_ino}")]
        gaps = _ranges(missing & set(numbers))
        told.append(
            f"{path.name}: lines {_ranges(set(numbers))}, {sum(map(len, lines))} bytes, read up to {read}; missing {gaps}"
        )
    return "\n".join(told)


def _ranges(numbers: set[int]) -> str:
    """ "1-4, 7" """
    told: list[tuple[int, int]] = []
    for n in sorted(numbers):
        told[-1:] = [(told[-1][0], n)] if told and told[-1][1] == n - 1 else [*told[-1:], (n, n)]
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in told) or "none"


def end_all() -> None:
    """Agents of a test that failed in the middle must not outlive it."""
    for process in RUNNING:
        if process.poll() is None:
            process.kill()
            process.wait()
    RUNNING.clear()
