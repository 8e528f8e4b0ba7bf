"""A running service: what it says of a batch set aside and of a package that fails, what an agent delivers to it, the
client address that it believes, and that what it keeps is shut to others."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from running import ROOT, Running
from test_agent_to_service import Agent

from collector.agent.hook_folder import CLAIM
from faultline.cli import run
from tests.faultline.command import faultline

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
#: An address of this machine that the service takes for a proxy's; requests also come from 127.0.0.1, which is none.
PROXY = "127.0.0.2"
CONFIG = f'''proxies = ["{PROXY}", "10.9.0.1"]
[ingest]
tokens = ["{{token}}"]
[access]
users = "{{users}}"
operate = ["ops"]
'''
MODULE = """
from fastapi import APIRouter
from collector.receivers.base import Answer, Batch, Receiver, Route
from web.rooms import Page

def accept(request):
    if not request.body:
        raise KeyError("no body")
    return Batch(request.body, Answer())

def decode(payload, into):
    raise KeyError("node")

HALL = Receiver("harbour.hall", "hall", decode, (Route(("POST",), "/hall", accept),))

router = APIRouter()

@router.get("/queues")
def queues():
    raise IndexError("no queue")

QUEUES = Page("queues", router)
"""
POINTS = """
[faultline.receivers]
gone = harbour:GONE
hall = harbour:HALL

[faultline.pages]
queues = harbour:QUEUES
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for all tests of this file: it costs three seconds of CPU. Its package has a receiver and a page that fail."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "harbour.py").write_text(MODULE, encoding="utf-8")
    info = folder / "harbour_site-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbour-site\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    users = folder / "users.toml"
    token = faultline("access", "token", "ops", "--users", users).stdout.decode().strip()
    running = Running(folder / "data", syslog=(), extra=CONFIG.format(token=token, users=users))
    running.headers = {"Authorization": f"Bearer {token}"}
    old = os.umask(0o022)  # as under systemd and login shells: the service's own umask must not depend on it
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("PYTHONPATH", str(folder))
            running.start()
    finally:
        os.umask(old)
    yield running
    running.stop()


def horoscopes(sources: dict[str, Any]) -> list[dict[str, Any]]:
    return [aside for aside in sources["quarantine"] if "horoscope" in aside["reason"]]


def of_hall(sources: dict[str, Any]) -> list[dict[str, Any]]:
    return [aside for aside in sources["quarantine"] if aside["kind"] == "harbour.hall"]


def test_what_was_set_aside_is_shown_and_read_again_and_others_are_refused_by_token(
    service: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.request("POST", "/api/v1/ingest", b"x", {"Authorization": ""})[0] == 401
    poison = json.dumps({"document": "horoscope", "raw": "x"}).encode()
    assert service.request("POST", "/api/v1/ingest", poison)[0] == 200
    until = time.monotonic() + 120
    # The row and its count appear a moment after each other.
    while time.monotonic() < until:
        body = service.get("/api/v1/sources")[1]
        if body["intake"]["quarantined"] == len(body["quarantine"]) and horoscopes(body):
            break
        time.sleep(0.1)
    (aside,) = horoscopes(body)
    assert body["intake"]["quarantined"] == len(body["quarantine"])
    monkeypatch.setenv("FAULTLINE_ACCESS_TOKEN", service.headers["Authorization"].split()[1])
    command = ["sources", "--server", f"http://127.0.0.1:{service.http}", "--format"]
    assert run([*command, "json"]) == 1 and json.loads(capsys.readouterr().out)["quarantine"] == body["quarantine"]
    assert run([*command, "table"]) == 1 and f"set aside: {aside['id']}" in capsys.readouterr().out
    page = service.request("GET", "/sources")[1].decode()
    assert "Set aside" in page and "horoscope" in page and aside["id"] in page
    status, _, headers = service.request("POST", f"/sources/quarantine/{aside['id']}/replay")
    assert status == 303 and headers["location"] == "/sources"
    status, _, _ = service.request(
        "POST", f"/sources/quarantine/{aside['id']}/replay", headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert status == 403
    assert service.post("/api/v1/quarantine/none-of-that-name/replay", b"")[0] == 404
    until, again = time.monotonic() + 120, aside
    while again["set_aside_at"] == aside["set_aside_at"] and time.monotonic() < until:
        time.sleep(0.1)
        left = service.get("/api/v1/sources")[1]
        (again,) = horoscopes(left)  # still the same poison, and at no time two of them
    assert again["set_aside_at"] > aside["set_aside_at"], "it was not read again"
    assert again["id"] == aside["id"]
    metrics = service.request("GET", "/metrics")[1].decode()
    assert "faultline_intake_ok 1" in metrics
    assert f"faultline_intake_quarantined {len(left['quarantine'])}" in metrics
    assert 'faultline_intake_requests_total{protocol="ingest",status="401"} 1' in metrics


def test_the_service_names_whose_receiver_and_page_failed_once(service: Running) -> None:
    refused = service.request("POST", "/hall")
    taken = service.post("/hall", b"line", idempotency_key="one")
    page = service.request("GET", "/queues", headers={"accept": "application/json"})
    sources = service.get("/api/v1/sources")[1]
    until = time.monotonic() + 300
    while not of_hall(sources) and time.monotonic() < until:
        time.sleep(0.1)
        sources = service.get("/api/v1/sources")[1]
    hall, queues = "receiver hall (harbour:HALL) of harbour-site", "page queues (harbour:QUEUES) of harbour-site"
    problem = json.loads(refused[1])
    assert (refused[0], refused[2]["content-type"]) == (500, "application/problem+json")
    assert problem["detail"] == f"KeyError in {hall}." and problem["do"]
    assert taken[0] == 200
    assert (page[0], json.loads(page[1])["detail"]) == (500, f"IndexError while answering, in {queues}.")
    (aside,) = of_hall(sources)
    assert aside["reason"] == f"{hall} raised KeyError: 'node'"
    gone = "receiver gone (harbour:GONE) of harbour-site: does not load: AttributeError"
    assert [text for text in sources["extensions"] if text.startswith(gone)]
    logged = service.log.read_text()
    assert logged.count(gone) == 1
    assert logged.count(f"{hall} raised KeyError: 'no body' in accept") == 1
    assert logged.count("IndexError: no queue") == 1 and f"page='{queues}'" in logged
    (line,) = (line for line in logged.splitlines() if "batch set aside" in line and "kind=harbour.hall" in line)
    assert f"replay='POST /api/v1/quarantine/{aside['id']}/replay'" in line
    assert (service.data / "quarantine" / f"{aside['id']}.batch").exists()
    assert f"file={service.data / 'quarantine' / aside['id']}.batch" in line


def test_what_an_epilog_saw_on_a_node_stands_on_the_jobs_page(service: Running, tmp_path: Path) -> None:
    """The hook writes its file, the agent delivers it with the output, the service shows both; the spool is empty then."""
    uid, spool, home = os.geteuid() or 20001, tmp_path / "hooks", tmp_path / "home"
    spool.mkdir()
    home.mkdir()
    (home / "15.out").write_text("step 1\nlast words of rank 0\n")
    os.chown(home / "15.out", uid, uid)
    for folder in (home, tmp_path, *(p for p in tmp_path.parents if p.name.startswith(("pytest-", "popen-")))):
        folder.chmod(folder.stat().st_mode | 0o755)
    env = {
        "SLURM_JOB_ID": "15", "SLURM_JOB_UID": str(uid), "SLURM_JOB_GID": str(uid), "SLURM_JOB_USER": "alice",
        "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "gpu01", "SLURM_JOB_EXIT_CODE2": "3:0", "SLURM_CLUSTER_NAME": "mini",
        "SLURM_JOB_STDOUT": str(home / "%j.out"), "SLURM_JOB_WORK_DIR": str(home), "FAULTLINE_HOOK_SPOOL": str(spool),
    }  # fmt: skip
    agent = Agent(
        tmp_path,
        service,
        token=service.headers["Authorization"].split()[1],
        more=f'[sources.hooks]\nfolders = ["{spool}"]\nevery_s = 0.1\n',
    )
    try:
        agent.start()
        subprocess.run(["/bin/sh", str(ROOT / "deploy/slurm/epilog.sh")], env=env, check=True)
        page = ""
        for _ in range(300):
            page = service.request("GET", "/jobs/15", b"", {"Accept": "text/html"})[1].decode()
            if "last words of rank 0" in page and "alice" in page and not list(spool.glob("*.hook")):
                break
            time.sleep(0.1)
        assert "last words of rank 0" in page and "alice" in page
        assert [path.name for path in spool.iterdir()] == [CLAIM]
        # The program's output is evidence, too: lines of its run.
        stated: list[list[Any]] = []
        for _ in range(300):
            stated = service.query(
                'Logs | where JobId == 15 and Source == "job_stdout" | project Message, Host | sort by Message asc'
            )
            if stated:
                break
            time.sleep(0.1)
        assert stated == [["last words of rank 0", "gpu01"], ["step 1", "gpu01"]]
    finally:
        agent.kill()


def asked_from(peer: str, service: Running, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Status and cookie for a request from an address of this machine."""
    with closing(http.client.HTTPConnection("127.0.0.1", service.http, timeout=120, source_address=(peer, 0))) as made:
        made.request("POST", path, body, headers)
        answer = made.getresponse()
        answer.read()
        return answer.status, answer.headers.get("set-cookie", "")


def refused_as(service: Running, name: str, stated: str, peer: str = "127.0.0.1") -> str:
    """Signs in with a wrong password; returns the address in the audit log."""
    body = urlencode({"name": name, "password": "wrong"}).encode()
    assert asked_from(peer, service, "/login", body, {**FORM, "X-Forwarded-For": stated})[0] == 403
    reported = [json.loads(line) for line in (service.data / "audit.ndjson").read_text().splitlines()]
    (line,) = [one for one in reported if one["who"] == name]
    return str(line["address"])


def test_nobody_says_another_address_for_themselves(service: Running) -> None:
    assert refused_as(service, "eve", "203.0.113.9") == "127.0.0.1"


@pytest.mark.parametrize(
    ("said", "address"),
    [("203.0.113.9", "203.0.113.9"), ("198.51.100.1, 203.0.113.9", "203.0.113.9"),
     ("198.51.100.1, 203.0.113.9, 10.9.0.1", "203.0.113.9"), ("2001:db8::7", "2001:db8::7")],
)  # fmt: skip
def test_a_named_proxy_says_it_and_the_rightmost_that_is_no_proxy_counts(
    service: Running, said: str, address: str
) -> None:
    assert refused_as(service, f"eve by {said}", said, PROXY) == address


def test_the_scheme_too_is_believed_of_named_proxies_only(service: Running) -> None:
    """HTTPS at the proxy: cookies are for HTTPS. A client that claims it without a proxy gains nothing."""
    body = urlencode({"name": "x", "password": "wrong"}).encode()
    for peer, secured in (("127.0.0.1", False), (PROXY, True)):
        reported = asked_from(peer, service, "/logout", body, {**FORM, "X-Forwarded-Proto": "https"})[1]
        assert ("Secure" in reported) is secured, reported


def test_all_that_a_service_keeps_is_shut_to_others(service: Running) -> None:
    """Every file and folder, and the process, after lines were stored, a batch set aside and a login refused."""
    line = b'{"raw": "Nov 23 08:00:00 gpu01 kernel: mlx5_core 0000:3b:00.0 ens1: Link down", "host": "gpu01"}\n'
    for body in (line, b'{"document": "almanac", "raw": "x"}'):
        assert service.post("/api/v1/ingest", body)[0] == 200
    until = time.monotonic() + 120
    while not list(service.data.glob("quarantine/*")) and time.monotonic() < until:
        time.sleep(0.1)
    refused_as(service, "mallory", "")
    found = {str(p.relative_to(service.data)): p for p in service.data.rglob("*")}
    assert {
        "faultline.duckdb",
        "audit.ndjson",
        "session.key",
        "service.json",
        "spool",
        "quarantine",
        "first.link",
    } <= set(found), found
    wide = {name: oct(p.stat().st_mode) for name, p in found.items() if p.stat().st_mode & 0o077}
    assert not wide and service.data.stat().st_mode & 0o777 == 0o700
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    assert "\nUmask:\t0077\n" in status
