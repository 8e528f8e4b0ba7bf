"""The agent as a process: what it imports, how it ends, and that kill -9 at any moment loses and repeats nothing."""

from __future__ import annotations

import gzip
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from ingest_server import IngestServer
from running_agent import Started, counted, traced, until, write

from collector.agent.frames import frames
from tests.measured import Measured

#: The full count is run by hand: FAULTLINE_KILLS=50 pytest tests/collector/agent/test_agent_process.py
KILLS = int(os.environ.get("FAULTLINE_KILLS", "8"))
#: A new one for each run, unless FAULTLINE_SEED asks for one again: what is done follows from it, only the timing does not.
SEED = int(os.environ.get("FAULTLINE_SEED") or secrets.randbelow(1 << 31))


def test_the_agent_imports_nothing_heavy(tmp_path: Path) -> None:
    """polars alone would cost a compute node 70 MB."""
    text = (
        "import sys\nfrom collector.agent import agent, commands, enrol, sources\nsources.kinds()\n"
        "print(' '.join(sorted({m.split('.')[0] for m in sys.modules})))\n"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "collector" in loaded
    heavy = {
        "polars",
        "duckdb",
        "fastapi",
        "typer",
        "pyarrow",
        "pydantic",
        "numpy",
        "pyroute2",
        "parsers",
        "store",
        "web",
    }
    assert not loaded & heavy


def test_sigterm_delivers_what_was_just_written(tmp_path: Path, server: IngestServer) -> None:
    agent = Started(tmp_path, server, "nice = 5")
    write(agent.log, 1, 10)
    agent.start()
    assert until(lambda: len(counted(server)) == 10)
    assert agent.process is not None and os.getpriority(os.PRIO_PROCESS, agent.process.pid) >= 5
    write(agent.log, 11, 20)
    assert agent.terminate() == 0
    assert counted(server) == Counter(range(1, 21))
    state = json.loads((agent.spool / "status.json").read_text())
    assert {s["name"]: s["state"] for s in state["sources"]}["files"] == "ok"


def test_what_sigterm_cannot_deliver_comes_after_the_next_start(tmp_path: Path, server: IngestServer) -> None:
    agent = Started(tmp_path, server)
    server.refuse = lambda key, body: (503, {"Retry-After": "1"}, "")
    write(agent.log, 1, 10)
    agent.start()
    assert until(lambda: bool(server.requests))
    assert agent.terminate() == 0
    assert not counted(server)
    server.refuse = lambda key, body: None
    agent.start()
    assert until(lambda: len(counted(server)) == 10)
    assert agent.terminate() == 0
    assert counted(server) == Counter(range(1, 11))


@pytest.mark.long
def test_kill_minus_nine_with_rotation_in_flight_and_the_server_away(
    tmp_path: Path, server: IngestServer, measured: Measured
) -> None:
    """Lines are numbered and written all the time; agent and server are killed at random, logs rotate meanwhile.

    No line may be lost: rotation keeps every generation, nothing is written between a copy and its truncation, and a
    packed original is removed only once its archive is complete.
    """
    chance, unanswered = random.Random(SEED), random.Random(SEED + 1)  # the server's threads draw from their own
    agent = Started(tmp_path, server)
    server.drop = lambda key: unanswered.random() < 0.1
    written, generation = 10, 0
    write(agent.log, 1, written)
    agent.start()
    assert until(lambda: len(counted(server)) == written)
    agent.kill()
    for _ in range(KILLS):
        agent.start()
        if chance.random() < 0.7:  # else it is killed while it starts
            until(lambda count=written: len(counted(server)) > count, 2)
        for _ in range(chance.randint(3, 10)):
            count = chance.choice([1, 10, 300, 3000])
            write(agent.log, written + 1, written + count)
            written += count
            time.sleep(chance.random() * 0.1)
            if chance.random() < 0.2:
                generation += 1
                rotate(agent.log, generation, chance.choice(["rename", "gzip", "copytruncate"]))
            if chance.random() < 0.1:
                server.close()
                time.sleep(chance.random() * 0.3)
                server.start()
        agent.kill()
    agent.start()
    arrived = until(lambda: len(counted(server)) == written)
    assert arrived, f"FAULTLINE_SEED={SEED} FAULTLINE_KILLS={KILLS}\n{traced(agent, server, written)}"
    assert until(agent.is_up)  # what was written may have been delivered by its predecessors
    assert agent.terminate() == 0
    found = counted(server)
    twice = [n for n, times in found.items() if times > 1]
    measured(f"{KILLS} kills, {generation} rotations, {written} lines: {written - len(found)} missing, {len(twice)} twice, "
             f"{server.cut} requests cut off by a kill, seed {SEED}")  # fmt: skip
    assert found == Counter(range(1, written + 1))
    assert server.blind("files") == []


#: The agent as its command starts it, killed in its first request: after the head and BYTES of the body.
KILLED_WHILE_IT_SENDS = """
import http.client, os, signal, sys
from pathlib import Path
from collector.agent import agent
from collector.agent.config import load
whole = http.client.HTTPConnection.send
def send(connection, data):
    if data.startswith(b"POST "):
        return whole(connection, data)
    whole(connection, data[:BYTES])
    os.kill(os.getpid(), signal.SIGKILL)
http.client.HTTPConnection.send = send
sys.exit(agent.main(load(Path(sys.argv[2]))))
"""


@pytest.mark.parametrize("sent", [0, 100])
def test_a_request_cut_off_by_a_kill_is_offered_again_in_full(tmp_path: Path, server: IngestServer, sent: int) -> None:
    """A server that stored what it had of it under its key lost the rest: the batch, offered again, was a repetition."""
    agent = Started(tmp_path, server)
    write(agent.log, 1, 1000)
    agent.start(("-c", KILLED_WHILE_IT_SENDS.replace("BYTES", str(sent))))
    assert agent.process is not None and agent.process.wait(120) == -signal.SIGKILL
    assert until(lambda: server.cut == 1 or bool(server.stored))
    assert not server.stored, "nothing of it is stored"
    agent.start()
    assert until(lambda: len(counted(server)) == 1000)
    assert until(agent.is_up)
    assert agent.terminate() == 0
    assert counted(server) == Counter(range(1, 1001))


def rotate(log: Path, generation: int, how: str) -> None:
    """As logrotate does it, with names that do not collide."""
    old = log.with_name(f"{log.name}-{20260000 + generation}")
    if how == "copytruncate":
        old.write_bytes(log.read_bytes())
        os.truncate(log, 0)
        return
    log.rename(old)
    log.touch()
    if how == "gzip":
        packed = old.with_name(old.name + ".gz")
        packed.write_bytes(gzip.compress(old.read_bytes()))
        shutil.copystat(old, packed)
        old.unlink()


def test_the_loss_at_the_disk_cap_is_exactly_the_reported_blind_period(tmp_path: Path, server: IngestServer) -> None:
    """The service is down until the spool has overflowed several times; one agent is killed while it does."""
    agent = Started(tmp_path, server, "spool_mb = 0.5\nspool_wait = 1.0")
    port_open, server.refuse = server.refuse, lambda key, body: (503, {"Retry-After": "1"}, "")
    noise = random.Random(7)
    total = 0

    def fill(lines: int) -> None:
        nonlocal total
        with agent.log.open("a") as stream:
            for _ in range(lines):
                total += 1
                stream.write(f"{total} numbered line of this test {noise.randbytes(60).hex()}\n")

    agent.start()
    for round_ in range(4):
        fill(3000)
        place = agent.log.stat().st_size
        assert until(lambda place=place: read_up_to(agent, place)), "the agent keeps reading while the spool is full"
        if round_ == 2:
            agent.kill()
            agent.start()
    server.refuse = port_open
    assert until(lambda: total in counted(server), 40)
    assert agent.terminate() == 0
    found = counted(server)
    lost = sum(b["lines"] for b in server.blind("files"))
    print(f"{total} lines into a spool of 512 KiB: {len(found)} delivered, {lost} told as lost")
    assert max(found.values()) == 1
    assert lost > 0
    assert len(found) + lost == total
    assert total in found and 1 in found


def read_up_to(agent: Started, place: int) -> bool:
    """Has the agent read the file up to ``place``, by its spool?"""
    best = 0
    for segment in agent.spool.glob("*.seg"):
        try:
            with segment.open("rb") as stream:
                for frame in frames(stream):
                    for key, value in frame.header.get("positions", {}).items():
                        if key.startswith("files:") and value:
                            best = max(best, value["offset"])
        except FileNotFoundError:
            continue
    return best >= place


def test_status_says_what_is_wrong_and_exits_1(tmp_path: Path, server: IngestServer) -> None:
    agent = Started(tmp_path, server)
    command = [sys.executable, "-m", "faultline.entry", "agent", "status", "--config", str(agent.config)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 2 and "is faultline-agent started?" in first.stderr
    write(agent.log, 1, 1)
    agent.start()
    assert until(lambda: bool(counted(server)) and (agent.spool / "status.json").exists())
    running = subprocess.run(command, capture_output=True, text=True, check=False)
    assert running.returncode == 0 and "files" in running.stdout and "running" in running.stdout
    agent.kill()
    dead = subprocess.run(command, capture_output=True, text=True, check=False)
    assert dead.returncode == 1 and "NOT RUNNING" in dead.stdout
