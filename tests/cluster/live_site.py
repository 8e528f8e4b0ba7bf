"""A whole site on the mini cluster: the service on the controller, an agent in every host, hooks by ``faultline slurm install``.

Users are known by munge, the gate may refuse jobs, the drain advisor acts, and each notification is one line of a file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cluster as mini
from spaces import SHARED
from test_live_cluster import alone, cluster, host
from test_live_service import BELOW, HERE, INSIDE, SERVER, inside
from test_live_slurm_setup import faultline

NODES = ("gpu01", "gpu02", "gpu03")
HOOKS = "prolog,epilog,prologslurmctld,epilogslurmctld,taskprolog"
#: What the service keeps, below a folder that the controller has of its own.
FILES = f"/{BELOW}"
SERVICE = f"""
data = "{FILES}/data"
listen = "10.77.0.1:8514"
insecure = true  # the mini cluster is a world of its own
cluster = "mini"
users_can_write_syslog = false  # /dev/log is the faults' own here
[ingest]
senders = "{FILES}/senders.toml"
[access]
users = "{FILES}/users.toml"
read = ["reader"]
[access.slurm]
munge = true
[gate]
nodes_per_hour = 1
share_per_hour = 1.0
[drain_advisor]
acting = true
nodes_per_hour = 1
share_per_hour = 1.0
floor = 0.5
[[notify]]
kind = "command"
options = {{ command = ["/bin/sh", "-c", "cat >>{FILES}/mails; echo >>{FILES}/mails"] }}
"""
AGENT = """
server = "{server}"
spool = "/var/spool/agent"
token_file = "/etc/faultline/agent.token"
cluster = "mini"
flush_s = 0.5
controller = {controller}
gate = "{gate}"
[sources.files]
paths = [{paths}]
[sources.kmsg]
enabled = false  # the ring is the machine's, and shared
[sources.journald]
enabled = false
"""
LOGS = {"ctl": ("/var/log/slurm/slurmctld.log",), "leaf01": ("/var/log/syslog",)}
OF_NODES = ("/var/log/syslog", "/var/log/slurm/slurmd.log")


def within(seconds: float, what: Callable[[], Any], name: str) -> Any:
    """Waits until something holds. Raises ``AssertionError`` with its name."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.5)
    raise AssertionError(f"{name}: not within {seconds:g} s")


def said(name: str, *argv: str) -> str:
    """What a command of ours prints in a host, which must succeed."""
    done = faultline(name, *argv)
    assert done.returncode == 0, (name, argv, done.stdout, done.stderr)
    return done.stdout.strip()


def ready() -> bool:
    ask = "import sys,urllib.request as u; u.urlopen(sys.argv[1], timeout=5)"
    done = subprocess.run(
        [sys.executable, str(HERE / "cluster.py"), "run", "ctl", INSIDE, "-c", ask, f"{SERVER}/readyz"],
        capture_output=True,
    )
    return done.returncode == 0


def start_agent(name: str) -> None:
    """Starts a host's agent, as its unit does at boot."""
    inside(name, INSIDE, "-m", "faultline.entry", "agent", "--config", "/etc/faultline/agent.toml")


def _agent_of(name: str) -> None:
    """Writes configuration and token of a host's agent: the token sends as this host only."""
    hosts = ("--host", name) if name in NODES else ()
    token = said("ctl", "access", "sender", name, *hosts, "--users", f"{FILES}/senders.toml").split()[-1]
    folder = host(name) / "etc/faultline"
    (folder / "agent.token").write_text(token + "\n")
    (folder / "agent.token").chmod(0o600)
    (folder / "agent.toml").write_text(
        AGENT.format(
            server=SERVER, controller="true" if name == "ctl" else "false", gate="drain" if name in NODES else "off",
            paths=", ".join(f'"{path}"' for path in LOGS.get(name, OF_NODES)),
        )
    )  # fmt: skip
    (host(name) / BELOW).mkdir(parents=True, exist_ok=True)


def _install_hooks() -> None:
    """As docs/hooks.md says: scripts on every host, then slurm.conf; the site's own prolog stays, and calls the gate."""
    conf, prolog = Path(SHARED) / "etc/slurm/slurm.conf", Path(SHARED) / "etc/slurm/site/prolog.sh"
    ours = ("Epilog=", "PrologSlurmctld=", "EpilogSlurmctld=", "TaskProlog=", "TaskEpilog=")
    kept = [line for line in conf.read_text().splitlines(keepends=True) if not line.startswith(ours)]
    conf.write_text("".join(kept))
    for name in NODES:
        said(name, "slurm", "install", "--yes", "--hooks", HOOKS)
    said("ctl", "slurm", "install", "--yes", "--hooks", HOOKS, "--edit-slurm-conf")
    first, rest = prolog.read_text().split("\n", 1)
    prolog.write_text(
        f"{first}\nFAULTLINE_GATE=/var/spool/agent/gate /etc/faultline/slurm/prolog-gate.sh || exit 1\n{rest}"
    )
    cluster("run", "ctl", "scontrol", "reconfigure")


@contextmanager
def whole_site() -> Iterator[Path]:
    """Yields the service's folder, with a token to read in ``reader.token``."""
    started: list[subprocess.Popen[bytes]] = []
    with alone():
        try:
            cluster("up", "--nodes", str(len(NODES)), "--slurmd-timeout", "15")
            folder = host("ctl") / BELOW
            folder.mkdir(parents=True)
            (folder / "service.toml").write_text(SERVICE)
            token = said("ctl", "access", "token", "reader", "--users", f"{FILES}/users.toml").split()[-1]
            (folder / "reader.token").write_text(token)
            for name in ("ctl", "leaf01", *NODES):
                _agent_of(name)
            (folder / "jobs").write_text("")
            started.append(inside("ctl", INSIDE, "-m", "faultline.entry", "serve", "--config", f"{FILES}/service.toml"))
            within(180, ready, "the service")
            _install_hooks()
            for name in ("ctl", "leaf01", *NODES):
                start_agent(name)
            for name in ("ctl", *NODES):
                within(
                    120,
                    lambda name=name: faultline(name, "slurm", "verify", "--hooks", HOOKS).returncode == 0,
                    f"hooks of {name}",
                )
            watch = ("/mnt/tests/cluster/watching.py", SERVER, f"{FILES}/reader.token", FILES)
            started.append(inside("ctl", INSIDE, *watch))
            yield folder
        finally:
            cluster("down")
            for process in started:
                process.terminate()
                process.wait(20)


def lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; one that is being written is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def query(folder: Path, text: str) -> list[list[Any]]:
    """Rows of a KQL query, asked with the reader's token."""
    code = (
        "import json,sys,urllib.request as u;"
        "h={'Content-Type':'application/json','Authorization':'Bearer '+sys.argv[3]};"
        "r=u.Request(sys.argv[1]+'/api/v1/query',data=json.dumps({'query':sys.argv[2]}).encode(),headers=h);"
        "print(u.urlopen(r,timeout=60).read().decode())"
    )
    token = (folder / "reader.token").read_text()
    return list(json.loads(cluster("run", "ctl", INSIDE, "-c", code, SERVER, text, token))["rows"])


def runs(job: int, *states: str, limit: float = 60.0) -> None:
    """Waits for a state of a job, as Slurm names it."""
    within(limit, lambda: mini.job_state(job) in states, f"job {job} {'/'.join(states)}, is {mini.job_state(job)}")
