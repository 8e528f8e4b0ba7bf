"""slurmrestd: over a Unix socket and over TCP with a token, in the forms of its versions, and its errors.

The forms are those of the daemons themselves: 22.05 (v0.0.38: plain numbers, one state and flags separate) and 24.05
(v0.0.41: {"set", "infinite", "number"}, lists of states). tests/collector/test_slurmrestd.py uses a real daemon.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from made_host import NOW, Host, asked, tables

from collector.agent.runner import Runner

T = int(NOW) - 600


class Daemon:
    """A stub for slurmrestd: path -> answer, on a Unix socket or a port. Records the requests."""

    def __init__(self, place: Path | None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, Callable[[dict[str, list[str]]], tuple[int, Any]]] = {}
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                daemon.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                answer = daemon.answers.get(parts.path.rstrip("/"))
                status, body = answer(parse_qs(parts.query)) if answer else (404, "Unable find requested URL.")
                data = body.encode() if isinstance(body, str) else json.dumps(body).replace("/", "\\/").encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if status != 304:
                    self.wfile.write(data)

            def address_string(self) -> str:
                return "test"

            def log_message(self, *_: object) -> None: ...

        if place is None:
            self.server: socketserver.BaseServer = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
            self.url = f"http://127.0.0.1:{self.server.server_address[1]}"  # type: ignore[index]
        else:
            self.server = socketserver.ThreadingUnixStreamServer(str(place), Handler)
            self.url = f"unix:{place}"
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who asks may hang up
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def offers(self, *versions: str, slurmdbd: bool = False) -> None:
        paths = {f"/{api}/{v}/{name}": {} for v in versions for api, name in
                 (("slurm", "jobs"), ("slurm", "nodes"), ("slurm", "job/{job_id}"), *((("slurmdb", "jobs"),) * slurmdbd))}  # fmt: skip
        self.answers["/openapi/v3"] = lambda query: (200, {"openapi": "3.0.2", "paths": paths})

    def gives(self, path: str, body: Any, status: int = 200) -> None:
        self.answers[path] = lambda query: (status, body)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(params=["unix", "tcp"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    started = Daemon(tmp_path / "rest.sock" if request.param == "unix" else None)
    yield started
    started.close()


def job(number: int, state: Any, wrapped: bool, **more: Any) -> dict[str, Any]:
    def value(n: int) -> Any:
        return {"set": True, "infinite": False, "number": n} if wrapped else n

    return {
        "job_id": number, "job_state": [state] if wrapped else state, "cluster": "mini", "name": "ring", "nodes": "gpu[01-02]",
        "user_name": "alice", "user_id": 20001, "partition": "gpu", "submit_time": value(T), "start_time": value(T + 5),
        "end_time": value(T + 300), "time_limit": value(60), "restart_cnt": 0, "tres_alloc_str": "cpu=8,gres/gpu=16",
        "array_job_id": value(0), "priority": value(4294901758), "cpus": value(8), **more,
    }  # fmt: skip


def node(name: str, state: Any, wrapped: bool, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": [state] if wrapped else state, "cpu_load": 114, "free_memory": 20349,
            "boot_time": {"set": True, "infinite": False, "number": T - 86400} if wrapped else T - 86400, **more}  # fmt: skip


def states(found: list[dict[str, Any]]) -> dict[str, str]:
    return {
        r["host"]: r["state"]
        for row in found
        if row["document"] == "rest_nodes"
        for r in tables(row)["node_states"].to_dicts()
    }


def jobs(found: list[dict[str, Any]]) -> list[tuple[int, str, int | None]]:
    return [
        (r["job_id"], r["state"], r["exit_code"])
        for row in found
        if row["document"] != "rest_nodes"
        for r in tables(row)["jobs"].to_dicts()
    ]


@pytest.mark.parametrize(
    ("version", "wrapped", "exit_code", "drained"),
    [
        ("v0.0.37", False, 768, {"state": "idle", "state_flags": ["DRAIN"]}),
        ("v0.0.38", False, 768, {"state": "idle", "state_flags": ["DRAIN"]}),
        ("v0.0.39", True, {"status": "ERROR", "return_code": 3}, {"state": ["IDLE", "DRAIN"]}),
        ("v0.0.41", True, {"status": ["ERROR"], "return_code": {"set": True, "infinite": False, "number": 3}},
         {"state": ["IDLE", "DRAIN"]}),
    ],
)  # fmt: skip
def test_jobs_and_nodes_of_each_version(
    version: str, wrapped: bool, exit_code: Any, drained: dict[str, Any], daemon: Daemon, host: Host
) -> None:
    reason = {"reason": "bad cable", "reason_set_by_user": "root",
              "reason_changed_at": {"set": True, "infinite": False, "number": T + 60} if wrapped else T + 60}  # fmt: skip
    daemon.offers("v0.0.36", version)
    daemon.gives(f"/slurm/{version}/jobs", {"jobs": [job(17, "FAILED", wrapped, exit_code=exit_code)], "errors": []})
    daemon.gives(
        f"/slurm/{version}/nodes",
        {"nodes": [node("gpu01", "IDLE", wrapped), {**node("gpu02", "", wrapped), **drained, **reason}]},
    )
    runner = host.runner("slurmrestd", url=daemon.url)
    found = asked(runner)
    assert jobs(found) == [(17, "FAILED", 3)], "the newest version that is offered was asked"
    assert states(found) == {"gpu01": "idle", "gpu02": "idle+drain"}
    ledger = next(r for row in found if row["document"] == "rest_nodes" for r in tables(row)["node_states"].to_dicts()
                  if r["host"] == "gpu02")  # fmt: skip
    assert (ledger["reason"], ledger["actor"]) == ("bad cable", "root")
    assert ledger["time"] == datetime(2026, 11, 21, 16, 21)
    (row,) = [row for row in found if row["document"] == "rest_jobs"]
    assert "priority" not in row["raw"], "what nobody reads is not sent"


def test_what_did_not_change_is_not_sent_again(daemon: Daemon, host: Host) -> None:
    daemon.offers("v0.0.41")
    shown = [job(17, "RUNNING", True), job(18, "RUNNING", True)]
    updated = {"set": True, "infinite": False, "number": T}
    since: list[str] = []

    def answer(query: dict[str, list[str]]) -> tuple[int, Any]:
        since.extend(query.get("update_time", ["none"]))
        return 200, {"jobs": shown, "last_update": updated}

    daemon.answers["/slurm/v0.0.41/jobs"] = answer
    daemon.gives("/slurm/v0.0.41/nodes", {"nodes": [node("gpu01", "IDLE", True, cpu_load=1)]})
    runner = host.runner("slurmrestd", url=daemon.url)
    assert len(asked(runner)) == 2
    daemon.gives("/slurm/v0.0.41/nodes", {"nodes": [node("gpu01", "IDLE", True, cpu_load=900)]})
    host.wait(61)
    assert asked(runner) == [], "a load is no news"
    shown[0] = job(17, "NODE_FAIL", True)
    host.wait(61)
    assert jobs(asked(runner)) == [(17, "NODE_FAIL", None)]
    assert since == ["none", str(T), str(T)], "the daemon is asked by its own clock"
    daemon.gives("/slurm/v0.0.41/jobs", "", 304)
    host.wait(61)
    assert asked(runner) == []
    daemon.answers["/slurm/v0.0.41/jobs"] = answer
    host.wait(86_400)
    assert len(jobs(asked(runner))) == 2, "all of it once a day, for readers who came late"


RECORD = {
    "job_id": 17, "name": "ring", "user": "alice", "cluster": "mini", "nodes": "gpu01", "partition": "gpu",
    "state": {"current": "FAILED", "reason": "None"}, "array": {"job_id": 0, "task_id": None},
    "time": {"submission": T, "start": T + 5, "end": T + 9, "limit": 10, "elapsed": 4}, "steps": [],
    "exit_code": {"status": "SIGNALED", "return_code": None, "signal": {"signal_id": 9, "name": "Killed"}},
}  # fmt: skip


def test_slurmdbds_records_reach_back_over_the_last_look_and_over_a_restart(daemon: Daemon, host: Host) -> None:
    daemon.offers("v0.0.38", slurmdbd=True)
    daemon.gives("/slurm/v0.0.38/jobs", {"jobs": []})
    daemon.gives("/slurm/v0.0.38/nodes", {"nodes": []})
    begun: list[str] = []

    def answer(query: dict[str, list[str]]) -> tuple[int, Any]:
        begun.extend(query["start_time"])
        return 200, {"jobs": [RECORD] if len(begun) < 3 else [], "errors": [] if len(begun) < 3 else [
            {"error_number": 9003, "error": "Nothing found with query", "description": "Nothing found"}]}  # fmt: skip

    daemon.answers["/slurmdb/v0.0.38/jobs"] = answer
    runner = host.runner("slurmrestd", url=daemon.url)
    (row,) = asked(runner)
    (run,) = tables(row)["jobs"].to_dicts()
    assert (run["job_id"], run["state"], run["exit_signal"], run["source"]) == (17, "FAILED", 9, "sacct_json")
    host.wait(61)
    assert asked(runner) == [], "the same record again is no news"
    kept = json.loads(json.dumps(runner.positions))
    host.wait(7200)
    assert asked(host.runner("slurmrestd", kept, url=daemon.url)) == [], "22.05 calls an empty answer an error"
    assert begun == [f"uts{int(NOW) - 48 * 3600}", f"uts{int(NOW) - 900}", f"uts{int(NOW) + 61 - 900}"]


def test_a_token_goes_with_every_request_and_may_change(host: Host, tmp_path: Path) -> None:
    daemon = Daemon(None)
    try:
        daemon.offers("v0.0.41")
        daemon.gives("/slurm/v0.0.41/jobs", {"jobs": []})
        daemon.gives("/slurm/v0.0.41/nodes", {"nodes": []})
        file = tmp_path / "token"
        file.write_text("SLURM_JWT=first\n")
        runner = host.runner("slurmrestd", url=daemon.url, token_file=str(file), user="faultline")
        asked(runner)
        file.write_text("second")
        host.wait(61)
        asked(runner)
        tokens = [(h["x-slurm-user-name"], h["x-slurm-user-token"]) for _, h in daemon.asked]
        assert tokens == [("faultline", "first")] * 3 + [("faultline", "second")] * 2
    finally:
        daemon.close()


def status(runner: Runner) -> tuple[str, str]:
    assert list(runner.poll()) == []
    return runner.status.state, runner.status.detail


@pytest.mark.parametrize(
    ("code", "body", "state", "says"),
    [
        (401, "Authentication failure", "denied", "HTTP 401: Authentication failure; check token_file and user"),
        (500, {"errors": [{"error_number": -1, "description": "Failed while looking for jobs"}], "jobs": []}, "error",
         "HTTP 500: Failed while looking for jobs"),
        (200, {"errors": [{"error_number": 2002, "error": "Unable to contact slurm controller"}]}, "error",
         "Unable to contact slurm controller"),
        (200, "[]", "error", "not an object"),
        (200, "x" * 2_000_000, "error", "more than 1 MB"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_a_status(
    code: int, body: Any, state: str, says: str, daemon: Daemon, host: Host
) -> None:  # fmt: skip
    daemon.offers("v0.0.38")
    daemon.gives("/slurm/v0.0.38/jobs", body, code)
    found = status(host.runner("slurmrestd", url=daemon.url, most_mb=1.0))
    assert found[0] == state and says in found[1] and daemon.url in found[1]


def test_nobody_there_no_url_and_a_version_that_is_not_offered(daemon: Daemon, host: Host) -> None:
    assert status(host.runner("slurmrestd"))[0] == "absent"
    assert status(host.runner("slurmrestd", url=f"unix:{host.root}/none.sock"))[0] == "absent"
    daemon.offers("v0.0.37", "v0.0.38")
    state, detail = status(host.runner("slurmrestd", url=daemon.url, version="v0.0.41"))
    assert state == "error" and "v0.0.41" in detail and "it has v0.0.37, v0.0.38" in detail


def test_a_code_that_older_versions_hide_is_not_known(daemon: Daemon, host: Host) -> None:
    """Up to v0.0.39 exit code 3 is {"status": "SUCCESS", "return_code": 0}; 0 would contradict the state."""
    hidden, told = (
        {"status": "SUCCESS", "return_code": 0},
        {"status": ["SUCCESS"], "return_code": {"set": True, "number": 0}},
    )
    for version, code, expected in (("v0.0.38", hidden, None), ("v0.0.39", hidden, None), ("v0.0.41", told, 0)):
        daemon.offers(version, slurmdbd=True)
        daemon.gives(f"/slurm/{version}/jobs", {"jobs": []})
        daemon.gives(f"/slurm/{version}/nodes", {"nodes": []})
        meta = {"plugin": {"type": f"openapi/db{version}"}}
        daemon.gives(f"/slurmdb/{version}/jobs", {"meta": meta, "jobs": [{**RECORD, "exit_code": code}]})
        (row,) = asked(host.runner("slurmrestd", url=daemon.url))
        (run,) = tables(row)["jobs"].to_dicts()
        assert (run["state"], run["exit_code"]) == ("FAILED", expected)
