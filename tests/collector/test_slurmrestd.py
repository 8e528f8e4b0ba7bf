"""A real slurmrestd (22.05, API v0.0.38 and v0.0.37) polled by the agent's source.

By socket, and over TCP with a token.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from running import free_port
from test_real_clients import daemon
from tiny_slurm import PATH, Slurm, tiny_slurm

from collector.agent import wire
from collector.agent.runner import Runner
from collector.agent.source import Context
from collector.agent.sources import kinds
from parsers import documents
from parsers.record import Origin

RESTD = shutil.which("slurmrestd", path=PATH)
#: Without these it also loads slurmdbd's plugin, and exits if there is no slurmdbd.
PLUGINS = ("-s", "openapi/v0.0.37,openapi/v0.0.38")

pytestmark = [
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.skipif(RESTD is None, reason="slurmrestd is not installed"),
]


def source(**options: Any) -> Runner:
    kind = kinds(only=["slurmrestd"])["slurmrestd"]
    return Runner(kind, {**kind.options, **options}, Context(), {})


def asked(runner: Runner) -> dict[str, list[dict[str, Any]]]:
    """Tables of one poll."""
    runner._due = float("-inf")
    found: dict[str, list[dict[str, Any]]] = {}
    now = datetime.now(UTC).replace(tzinfo=None)
    for reading in runner.poll():
        for row in wire.records(reading.body):
            made = documents.read(row["document"], row["raw"].encode(), Origin(received=now, reference=now))
            assert made.warnings == []
            for name, table in made.tables.items():
                found.setdefault(name, []).extend(table.to_dicts())
    return found


def until(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + 120
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def test_jobs_and_drains_by_socket_and_by_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RESTD is not None
    folder = tmp_path / "slurm"
    folder.mkdir()
    with tiny_slurm(folder) as slurm:
        for name, value in slurm.environment.items():
            monkeypatch.setenv(name, value)
        # slurmrestd refuses to run as root, or as the user of slurm.conf.
        run = folder / "run"
        run.mkdir()
        os.chown(run, 65534, 65534)
        monkeypatch.setenv("SLURMRESTD_SECURITY", "disable_user_check")
        with daemon(RESTD, "-u", "nobody", *PLUGINS, f"unix:{run}/rest.sock", log=folder / "restd.out"):
            by_socket = source(url=f"unix:{run}/rest.sock")
            assert until(lambda: asked(by_socket) and by_socket.status.state == "ok"), by_socket.status
            _drain_and_fail(slurm, by_socket)
        port = free_port()
        monkeypatch.setenv("SLURM_JWT", "daemon")
        with daemon(
            RESTD, "-u", "nobody", "-a", "rest_auth/jwt", *PLUGINS, f"127.0.0.1:{port}", log=folder / "tcp.out"
        ):
            token = folder / "token"
            token.write_text(slurm.call("scontrol", "token", "username=root", "lifespan=300"))
            by_token = source(
                url=f"http://127.0.0.1:{port}", token_file=str(token), user="root", version="v0.0.37", every_s=0.0
            )
            found = until(lambda: asked(by_token))
            assert {row["state"] for row in found["jobs"]} == {"FAILED"}
            nobody = source(url=f"http://127.0.0.1:{port}")
            assert asked(nobody) == {} and nobody.status.state == "denied", nobody.status
            assert "HTTP 401" in nobody.status.detail


def _drain_and_fail(slurm: Slurm, runner: Runner) -> None:
    job = slurm.submit("fails", "exit 3")

    def ended() -> dict[str, Any] | None:
        rows = asked(runner).get("jobs", [])
        return next((row for row in rows if row["state"] == "FAILED"), None)

    run = until(ended)
    assert (run["job_id"], run["exit_code"], run["cluster"], run["nodes"]) == (job, 3, "tiny", ["n1"])
    assert asked(runner) == {}, "nothing changed"
    slurm.call("scontrol", "update", "nodename=n1", "state=drain", "reason=bad cable")
    (state,) = until(lambda: asked(runner).get("node_states"))
    assert (state["host"], state["state"], state["reason"], state["actor"]) == ("n1", "idle+drain", "bad cable", "root")
    slurm.call("scontrol", "update", "nodename=n1", "state=resume")
    (state,) = until(lambda: asked(runner).get("node_states"))
    assert "drain" not in state["state"] and state["reason"] is None
