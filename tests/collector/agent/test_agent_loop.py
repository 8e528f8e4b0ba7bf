"""The agent's loop in this process: caps, a disk that refuses, a source that hangs, certificates."""

from __future__ import annotations

import errno
import json
import random
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ingest_server import IngestServer

from collector.agent import wire
from collector.agent.agent import BEHIND_FLUSH, Agent
from collector.agent.config import validate
from collector.agent.failure import AgentError
from collector.agent.runner import STALLED_S, Runner
from collector.agent.sender import Connection
from collector.agent.source import Context, Reading, SourceKind
from collector.agent.sources import BUILT_IN


def made(tmp_path: Path, server: IngestServer, **more: Any) -> tuple[Agent, Path]:
    log = tmp_path / "app.log"
    sources: dict[str, Any] = {name: {"enabled": False} for name in BUILT_IN}
    sources["files"] = {"paths": [str(log)], "rescan_s": 0.1}
    config = {
        "server": server.url,
        "spool": str(tmp_path / "spool"),
        "flush_s": 0.01,
        "sources": sources,
        "last_gasp_s": 2.0,
    }
    return Agent(validate({**config, **more}, "test")), log


def turned(agent: Agent, done: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        agent.turn()
        time.sleep(0.02)
    return done()


def test_a_disk_that_refuses_stops_reading_and_loses_nothing(
    tmp_path: Path, server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, log = made(tmp_path, server)
    agent.start()
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    keep = agent.spool.append

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(agent.spool, "append", refuse)
    assert turned(agent, lambda: agent._disk_trouble is not None)
    with log.open("a") as stream:
        stream.writelines(f"line {n}\n" for n in range(100, 200))
    for _ in range(5):
        assert agent.turn() >= 1.0, "it waits, and reads nothing meanwhile"
    assert "No space left" in str(agent._disk_trouble)
    monkeypatch.setattr(agent.spool, "append", keep)
    assert turned(agent, lambda: len(server.lines(log)) == 200)
    agent.finish()
    assert server.lines(log) == [f"line {n}" for n in range(200)]


def test_a_batch_that_could_not_be_synced_at_first_is_delivered_once(
    tmp_path: Path, server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it was in the spool already, and was put there again at every attempt."""
    agent, log = made(tmp_path, server)
    agent.start()
    sync, refusals = agent.spool.sync, [3]

    def refuse() -> None:
        if refusals[0] and threading.current_thread() is threading.main_thread():
            refusals[0] -= 1
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        sync()

    monkeypatch.setattr(agent.spool, "sync", refuse)
    log.write_text("line 0\n")
    assert turned(agent, lambda: not refusals[0])
    with log.open("a") as stream:
        stream.write("line 1\n")
    assert turned(agent, lambda: "line 1" in server.lines(log))
    agent.finish()
    assert server.lines(log) == ["line 0", "line 1"] and agent._disk_trouble is None


def test_a_spool_that_cannot_be_read_is_stated_and_tried_again(
    tmp_path: Path, server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, log = made(tmp_path, server)
    first = agent.spool.first

    def refuse() -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(agent.spool, "first", refuse)
    agent.start()
    assert agent.sender is not None
    log.write_text("line 0\n")
    assert turned(agent, lambda: "Input/output error" in str(agent.sender and agent.sender.trouble))
    monkeypatch.setattr(agent.spool, "first", first)
    assert turned(agent, lambda: server.lines(log) == ["line 0"])
    agent.finish()


def test_delivery_that_ended_by_an_error_ends_the_agent(
    tmp_path: Path, server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit restarts it; an agent that reads and never delivers would look alive."""
    agent, log = made(tmp_path, server)
    monkeypatch.setattr(agent.spool, "first", lambda: 1 / 0)
    monkeypatch.setattr("threading.excepthook", lambda *_: None)
    agent.start()
    log.write_text("line 0\n")
    with pytest.raises(AgentError, match="delivery ended"):
        turned(agent, lambda: False)
    monkeypatch.undo()
    agent.finish()
    again, _ = made(tmp_path, server)
    again.start()
    assert turned(again, lambda: server.lines(log) == ["line 0"])
    again.finish()


def test_a_loss_of_nobody_knows_how_many_lines_is_reported_too(tmp_path: Path, server: IngestServer) -> None:
    agent, log = made(tmp_path, server)
    agent.start()
    log.write_text("line 0\n")
    assert turned(agent, lambda: server.lines(log) == ["line 0"])
    agent.finish()
    folder = tmp_path / "spool"
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "next": state["next"] + 3}))
    again, _ = made(tmp_path, server)
    again.start()
    assert turned(again, lambda: bool(server.blind("agent")))
    (reported,) = server.blind("agent")
    assert "missing on the node's disk" in reported["reason"] and "lines" not in reported
    again.finish()


def test_files_wait_where_they_are_while_the_spool_is_nearly_full(tmp_path: Path, server: IngestServer) -> None:
    """The service is down and more is logged than the spool could hold: nothing is lost, rotations included."""
    agent, log = made(tmp_path, server, spool_mb=1)
    server.refuse = lambda key, body: (503, {"Retry-After": "0"}, "")
    agent.start()
    noise = random.Random(1)
    for generation in range(6):
        with log.open("a") as stream:
            stream.writelines(f"{generation} {n} {noise.randbytes(100).hex()}\n" for n in range(2000))
        for _ in range(12):
            agent.turn()
            time.sleep(0.02)
        log.rename(tmp_path / f"app.log.{9 - generation}")
        log.touch()
    files = agent.fast[0].status
    assert (files.state, files.detail) == ("ok", "waits where it is: the spool is above 75%")
    server.refuse = lambda key, body: None
    assert turned(agent, lambda: len(server.lines(log)) == 12_000, 30)
    agent.finish()
    assert len(set(server.lines(log))) == 12_000
    assert server.blind() == [] and agent.spool.dropped_lines == 0


def test_above_the_memory_cap_it_starts_anew_but_not_all_the_time(tmp_path: Path, server: IngestServer) -> None:
    agent, _ = made(tmp_path, server, memory_mb=1)
    agent.start()
    agent._mind_memory()
    assert not agent.stopping.is_set()
    agent.started -= 100
    agent._mind_memory()
    assert agent.stopping.is_set() and agent._restart
    agent.finish()


def test_a_batch_ends_at_a_number_of_lines_too(
    tmp_path: Path, server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that runs ``yes``: a worker of the service would need memory for each line."""
    monkeypatch.setattr("collector.agent.agent.BATCH_LINES", 100)
    agent, log = made(tmp_path, server, flush_s=600)
    agent.start()
    about = wire.head(stream=str(log))
    for _ in range(7):
        agent._take("files", Reading(wire.lines_record(about, b"y\n" * 39 + b"y"), 40))
    agent.finish()
    assert [sum(wire.count([r]) for r in batch.records if "lines" in r) for batch in server.stored.values()] == [
        120,
        120,
        40,
    ]


def test_a_first_line_goes_at_once_and_the_next_ones_together(tmp_path: Path, server: IngestServer) -> None:
    agent, log = made(tmp_path, server, flush_s=0.6)
    agent.start()
    log.write_text("first\n")
    assert turned(agent, lambda: server.lines(log) == ["first"])
    before = len(server.stored)
    with log.open("a") as stream:
        for n in range(10):
            stream.write(f"{n}\n")
            stream.flush()
            agent.turn()
            time.sleep(0.01)
    assert turned(agent, lambda: len(server.lines(log)) == 11)
    assert len(server.stored) - before <= 3
    agent.finish()


def test_while_an_answer_is_awaited_lines_are_gathered(tmp_path: Path, server: IngestServer) -> None:
    """A slow answer means that the service has many to serve: it gets few batches, not many."""
    asked, answer = threading.Event(), threading.Event()

    def slow(key: str, body: bytes) -> None:
        asked.set()
        answer.wait(120)

    agent, log = made(tmp_path, server, flush_s=0.4)
    agent.start()
    log.write_text("0\n")
    assert turned(agent, lambda: server.lines(log) == ["0"] and agent.spool.waiting == 0)
    server.refuse = slow
    with log.open("a") as stream:
        stream.write("1\n")
    assert turned(agent, asked.is_set)
    with log.open("a") as stream:
        for n in range(2, 8):  # each would be a batch of its own
            stream.write(f"{n}\n")
            stream.flush()
            agent._flushed_at -= 0.4
            agent.turn()
            assert agent.spool.waiting == 1
            agent._flushed_at += 0.4
    agent._flushed_at -= BEHIND_FLUSH * 0.4  # but not for ever: a power cut would lose what is in memory only
    agent.turn()
    assert agent.spool.waiting == 2
    answer.set()
    assert turned(agent, lambda: server.lines(log) == [str(n) for n in range(8)])
    agent.finish()


def test_the_local_status_says_within_seconds_which_hooks_of_a_job_arrived(
    tmp_path: Path, server: IngestServer
) -> None:
    """``faultline slurm verify --job`` reads it."""
    spool = tmp_path / "hooks"
    spool.mkdir(mode=0o700)
    off = {name: {"enabled": False} for name in BUILT_IN} | {"hooks": {"folders": [str(spool)], "every_s": 0.1}}
    agent = Agent(
        validate({"server": server.url, "spool": str(tmp_path / "spool"), "flush_s": 0.01, "sources": off}, "test")
    )
    agent.start()
    (spool / "15.prologslurmctld.ctl.7.1.hook").write_bytes(
        b"faultline-hook/1\nFAULTLINE_EVENT=prologslurmctld\0FAULTLINE_HOST=ctl\0FAULTLINE_TIME=1795278590.5\0SLURM_JOB_ID=15"
    )

    def shown() -> Any:
        try:
            return json.loads((tmp_path / "spool/status.json").read_text())["hooks"]
        except OSError:
            return None

    assert turned(agent, lambda: shown() == {"15": ["prologslurmctld"]}), shown()
    agent.finish()


def test_every_batch_says_whose_it_is(tmp_path: Path, server: IngestServer) -> None:
    agent, log = made(tmp_path, server, host="gpu07", cluster="ml1", timezone="Europe/Berlin")
    agent.start()
    log.write_text("x\n")
    assert turned(agent, lambda: bool(server.lines(log)))
    agent.finish()
    for key, batch in server.stored.items():
        assert key.startswith("gpu07/logs/")
        stated = batch.records[0]["defaults"]
        assert (stated["host"], stated["cluster"], stated["timezone"]) == ("gpu07", "ml1", "Europe/Berlin")
        assert stated["boot_time"].endswith("Z")
    statuses = [row["status"] for row in server.records() if "status" in row]
    assert {"name": "files", "state": "ok"}.items() <= statuses[-1]["sources"][0].items()


class Hanging:
    """A GPU driver that no longer answers."""

    interval = 1.0

    def __init__(self) -> None:
        self.released = threading.Event()

    def open(self, positions: object) -> None: ...

    def poll(self) -> Iterator[Reading]:
        self.released.wait(120)
        yield Reading(wire.record(raw="x"), 1)

    def close(self) -> None: ...


def test_a_source_that_hangs_is_an_error_with_its_age() -> None:
    source, clock = Hanging(), [1000.0]
    kind = SourceKind("gpu", lambda context, options: source, {}, "r", "c", "b")
    runner = Runner(kind, {}, Context(monotonic=lambda: clock[0]), {})
    thread = threading.Thread(target=lambda: list(runner.poll()))
    thread.start()
    while runner._busy_since is None:
        time.sleep(0.01)
    assert runner.seen().state == "off"
    clock[0] += STALLED_S + 60
    assert runner.seen().state == "error" and "has not answered for 3 min" in runner.seen().detail
    source.released.set()
    thread.join()
    assert runner.seen().state == "ok"


class Failing:
    interval = 0.0

    def __init__(self) -> None:
        self.closed = 0

    def open(self, positions: object) -> None: ...

    def poll(self) -> Iterator[Reading]:
        yield Reading(wire.record(raw="before"), 1, {"at": 1})
        raise ZeroDivisionError("a mistake in a site's own source")

    def close(self) -> None:
        self.closed += 1


def test_whatever_a_source_raises_is_a_status_and_what_it_gave_counts() -> None:
    source, clock = Failing(), [1000.0]
    kind = SourceKind("site", lambda context, options: source, {}, "r", "c", "b")
    runner = Runner(kind, {}, Context(monotonic=lambda: clock[0]), {})
    assert len(list(runner.poll())) == 1
    assert (runner.status.state, runner.positions, source.closed) == ("error", {"at": 1}, 1)
    assert "ZeroDivisionError: a mistake" in runner.status.detail
    assert list(runner.poll()) == [], "not at once again"
    clock[0] += 11
    assert len(list(runner.poll())) == 1


# ------------------------------------------------------------------------------------------------------- certificates


def certificates(folder: Path) -> None:
    """A certificate authority, a server's certificate for 127.0.0.1 and a client's."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority", "-days", "2")
    for name in ("server", "client"):
        openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", f"{name}.pem", "-extfile", "ext",
        )  # fmt: skip


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make certificates")
def test_https_with_a_client_certificate(tmp_path: Path, server: IngestServer) -> None:
    certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    assert server._server is not None
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    url = server.url.replace("http:", "https:")

    def asked(**files: str) -> int:
        connection = Connection(url, lambda: "t", timeout=5.0, **{k: str(tmp_path / v) for k, v in files.items()})
        try:
            return connection.request("POST", "/api/v1/ingest", b"{}\n", {}).code
        finally:
            connection.close()

    assert asked(ca="ca.pem", cert="client.pem", key="client.key") == 200
    assert asked(ca="ca.pem") == 0, "the service wants a certificate"
    assert asked(cert="client.pem", key="client.key") == 0, "the service's certificate is signed by nobody we trust"
    with pytest.raises(AgentError, match=r"no-such\.pem"):
        asked(ca="no-such.pem")
