"""The service and an agent in every host of a real Slurm cluster: a link fails, the incident appears, late lines change nothing.

The service runs on ``ctl``, in the log host's place; agents reach it over the management network that is cut.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from test_live_cluster import REASON, alone, cluster, host

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
PYTHON = sys.executable
#: Inside a host the checkout is under /mnt; so is an interpreter in its .venv.
INSIDE = PYTHON.replace(f"{REPO}/", "/mnt/") if PYTHON.startswith(f"{REPO}/") else PYTHON
NODES = ("gpu01", "gpu02", "gpu03")
SERVER = "http://10.77.0.1:8514"
BELOW = "var/spool/faultline"  # below a directory that each host has of its own

AGENT = """
server = "{server}"
spool = "/{below}/spool"
controller = {controller}
flush_s = 0.5
[sources.files]
paths = [{paths}]
"""

SERVICE = """
data = "/{below}/data"
listen = "10.77.0.1:8514"
insecure = true  # the mini cluster is a world of its own
"""


def inside(name: str, *argv: str) -> subprocess.Popen[bytes]:
    """A process that stays in a host of the cluster."""
    command = [PYTHON, str(HERE / "cluster.py"), "run", name, "env", "PYTHONPATH=/mnt", *argv]
    log = (host(name) / BELOW / f"{argv[-1].rsplit('/', 1)[-1]}.out").open("wb")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def fetch(path: str, body: dict[str, Any] | None = None) -> str:
    """A page or an answer of the API, requested from where the service is."""
    code = (
        "import sys,urllib.request as u;"
        f"r=u.Request('{SERVER}'+sys.argv[1],data=sys.argv[2].encode() or None,headers={{'Content-Type':'application/json'}});"
        "print(u.urlopen(r,timeout=20).read().decode())"
    )
    return cluster("run", "ctl", INSIDE, "-c", code, path, json.dumps(body) if body else "")


def ask(path: str, body: dict[str, Any] | None = None) -> Any:
    return json.loads(fetch(path, body))


def kql(text: str) -> list[list[Any]]:
    return list(ask("/api/v1/query", {"query": text})["rows"])


def until(what: Callable[[], Any], limit: float) -> Any:
    """Waits until a condition holds; fails with the last answer."""
    end, found = time.monotonic() + limit, None
    while time.monotonic() < end:
        try:
            found = what()
        except (AssertionError, ValueError) as error:
            found, last = None, error
            if time.monotonic() > end - 1:
                raise last from None
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"not within {limit:g} s; the last answer was {found!r}")


@pytest.fixture(scope="module")
def live() -> Iterator[None]:
    """The cluster, the service on its controller, and agents that have sent data once."""
    with alone():
        yield from _live()


def _live() -> Iterator[None]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        cluster("up", "--nodes", str(len(NODES)), "--slurmd-timeout", "15")
        (host("ctl") / BELOW).mkdir(parents=True, exist_ok=True)
        (host("ctl") / BELOW / "service.toml").write_text(SERVICE.format(below=BELOW))
        started.append(inside("ctl", INSIDE, "-m", "faultline.entry", "serve", "--config", f"/{BELOW}/service.toml"))
        until(lambda: ask("/api/v1/nodes") is not None, 180)
        for name in ("ctl", "leaf01", *NODES):
            (host(name) / BELOW).mkdir(parents=True, exist_ok=True)
            logs = (
                ("/var/log/slurm/slurmctld.log",) if name == "ctl" else ("/var/log/syslog", "/var/log/slurm/slurmd.log")
            )
            paths = ", ".join(f'"{p}"' for p in logs)
            text = AGENT.format(
                server=SERVER, below=BELOW, paths=paths, controller="true" if name == "ctl" else "false"
            )
            (host(name) / BELOW / "agent.toml").write_text(text)
            started.append(inside(name, INSIDE, "-m", "faultline.entry", "agent", "--config", f"/{BELOW}/agent.toml"))
        until(lambda: len(kql("Logs | where Host startswith 'gpu' | distinct Host")) == len(NODES), 180)
        yield
    finally:
        for process in started:
            process.terminate()
        cluster("down")
        for process in started:
            process.wait(20)


def impact() -> list[dict[str, Any]]:
    return [i for i in ask("/api/v1/incidents")["incidents"] if i["severity"] == "impact"]


def test_a_management_link_that_stays_away_is_reported_while_it_is_away(live: None) -> None:
    job = cluster("submit", "sleep 300", "--nodes", "2").strip()
    until(lambda: "R" in cluster("run", "ctl", "squeue", "-h", "-j", job, "-o", "%t"), 40)
    victim = cluster("run", "ctl", "squeue", "-h", "-j", job, "-o", "%N").strip()
    name = NODES[1] if "02" in victim or "-" in victim else NODES[0]
    flap = subprocess.Popen(
        [PYTHON, str(HERE / "cluster.py"), "flap", name, "--net", "mgmt", "--down-for", "45"], stdin=subprocess.DEVNULL
    )
    down = until(
        lambda: kql(
            f"Logs | where Source == 'slurmctld' and Event == 'slurm.node_down' and Message has '{name}' | project Time"
        ),
        60,
    )
    stored = time.monotonic()
    (found,) = until(impact, 60)
    waited = time.monotonic() - stored
    line, stated = (datetime.fromisoformat(text) for text in (down[0][0], found["detected_at"]))
    assert f"/incidents/{found['id']}" in fetch("/incidents"), "on the page, too"
    after = (stated - line).total_seconds()
    print(
        f"\nslurmctld's DOWN line {line:%H:%M:%S}: incident first said {after:+.1f} s, its impact {waited:.1f} s after"
    )
    flap.wait(80)
    assert job in json.dumps(found["jobs"])

    # The node's own lines of the outage arrive when its link is back.
    late = f"Logs | where Host == '{name}' and ReceivedTime - Time > 5s | count"
    until(lambda: kql(late)[0][0] > 0, 60)
    reported = until(lambda: [i for i in impact() if (i["root_cause"]["event"], i["root_cause"]["host"]) in
                          {("nic.link_down", name), ("nic.link_flap", name)}], 60)  # fmt: skip
    assert len(reported) == 1 and reported[0]["category"] == "infra.network"
    assert reported[0]["detected_at"] == found["detected_at"] and job in json.dumps(reported[0]["jobs"]), (
        "what was right stays"
    )
    verdict = ask(f"/api/v1/jobs/{job}/verdict")
    assert (verdict["category"], verdict["root_cause"]["host"]) == ("infra.network", name)


def test_a_flap_of_three_seconds_that_no_log_shows_is_an_event(live: None) -> None:
    name = NODES[2]
    logged = f"Logs | where Host == '{name}' and Event == 'nic.link_down' and Message has 'hsn0' | count"
    before = kql(logged)[0][0]
    cluster("flap", name, "--net", "hsn", "--down-for", "3", "--no-nic-lines")
    rows = until(
        lambda: kql(
            f"Events | where Host == '{name}' and Event == 'nic.link_down' and Device == 'hsn0' | project Time, Message"
        ),
        60,
    )
    assert before == 0 and rows
    syslog = (host(name) / "var/log/syslog").read_text()
    assert "hsn0: Link down" not in syslog and "hsn0: NIC Link is Down" not in syslog
