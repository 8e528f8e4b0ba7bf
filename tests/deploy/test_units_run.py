"""The units as systemd runs them: sandbox, rights, restart and stop of the real service and the real agent.

systemd runs as process 1 of its own namespaces, so this needs root and a kernel that permits it. If it does not (a
container without rights), the tests skip and report it; test_units.py, in which systemd checks the files offline,
remains. Not tested even here: limits by cgroup (``MemoryMax=``, ``CPUWeight=``: the controllers belong to the machine),
the journal, GPUs. The units are unchanged except for where their output goes and the path of the program.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from booted import ROOT, Booted, booted, python
from test_units import UNITS

pytestmark = pytest.mark.long
FAULTLINE, ALICE = 890, 20001
#: CAP_NET_BIND_SERVICE is number 10.
BIND_ONLY = f"{1 << 10:016x}"
STARTS_S = 240.0
OFF = ("journald", "links", "ethtool", "infiniband", "nvml", "scrape", "units", "platform", "software")


def free_port(low: int, high: int) -> int:
    for port in range(low, high):
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


class Site:
    def __init__(self, system: Booted, port: int, syslog: int) -> None:
        self.system, self.port, self.syslog = system, port, syslog

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data[:1] in b"{[" else data
        finally:
            connection.close()

    def query(self, kql: str) -> list[list[Any]]:
        status, answer = self.ask(
            "POST", "/api/v1/query", json.dumps({"query": kql}).encode(), Content_Type="application/json"
        )
        assert status == 200, answer
        rows: list[list[Any]] = answer["rows"]
        return rows

    def until(self, is_so: Callable[[], Any], seconds: float = STARTS_S) -> Any:
        end, found = time.monotonic() + seconds, None
        while not found and time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, KeyError):
                found = is_so()
            time.sleep(0.1)
        assert found, self.output()
        return found

    def output(self) -> str:
        texts = [self.system.file(f"/var/log/{name}.out") for name in ("faultline", "faultline-agent")]
        return "\n".join(text.read_text()[-3000:] for text in texts if text.exists())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Both units, installed as their documents describe, with a job's user beside them."""
    folder = tmp_path_factory.mktemp("systemd")
    port, syslog = free_port(21_000, 22_000), free_port(600, 1024)
    mounts, python_command = python("/opt/modules")
    units = {f"{name}.service": (UNITS / f"{name}.service").read_text() for name in ("faultline", "faultline-agent")}
    for name in ("faultline", "faultline-agent"):
        units[f"{name}.service.d/output.conf"] = (
            f"[Service]\nStandardOutput=append:/var/log/{name}.out\nStandardError=inherit\n"
        )
    program = f'#!/bin/sh\nexec {python_command} -m faultline.entry "$@"\n'
    (folder / "faultline").write_text(program)
    (folder / "faultline.toml").write_text(
        f'listen = "127.0.0.1:{port}"\ndata = "/var/lib/faultline"\n[[syslog]]\nlisten = "127.0.0.1:{syslog}"\n'
    )
    others = "".join(f"[sources.{name}]\nenabled = false\n" for name in OFF)
    (folder / "agent.toml").write_text(
        f'server = "http://127.0.0.1:{port}"\nhost = "gpu01"\nflush_s = 0.1\n{others}'
        '[sources.files]\npaths = ["/var/log/app.log"]\nrescan_s = 0.2\n[sources.hooks]\nevery_s = 0.2\n'
    )
    prepare = f"""
echo 'faultline:x:{FAULTLINE}:{FAULTLINE}::/var/lib/faultline:/usr/sbin/nologin' >> /etc/passwd
echo 'faultline:x:{FAULTLINE}:' >> /etc/group
echo 'alice:x:{ALICE}:{ALICE}::/srv/alice:/bin/sh' >> /etc/passwd
mkdir -p /etc/faultline /opt/faultline/bin /opt/faultline-agent/bin /srv/alice
cp {folder}/faultline.toml {folder}/agent.toml /etc/faultline; chmod 644 /etc/faultline/*
for at in faultline faultline-agent; do install -m 755 {folder}/faultline /opt/$at/bin/faultline; done
install -d -m 0700 /var/spool/faultline/hooks; install -d -m 1733 /var/spool/faultline/task-hooks; chmod 755 /var/spool/faultline
echo 'what the job wrote' > /srv/alice/out; chown -R {ALICE}:{ALICE} /srv/alice; chmod 700 /srv/alice; chmod 600 /srv/alice/out
: > /var/log/app.log
{mounts}
"""
    with booted(folder, units, prepare) as system:
        made = Site(system, port, syslog)
        system.systemctl("start", "faultline.service", "faultline-agent.service")
        made.until(lambda: made.ask("GET", "/readyz")[0] == 200)
        yield made


def test_the_service_runs_shut_in_and_stores_what_comes_by_a_privileged_port(site: Site) -> None:
    about = site.system.process("faultline")
    assert (about["Uid"].split(), about["Gid"].split()) == ([str(FAULTLINE)] * 4, [str(FAULTLINE)] * 4)
    assert about["CapEff"] == about["CapBnd"] == about["CapAmb"] == BIND_ONLY
    assert (about["NoNewPrivs"], about["Seccomp"], about["Umask"]) == ("1", "2", "0077")
    with socket.create_connection(("127.0.0.1", site.syslog), 120) as sender:
        sender.sendall(b"<13>Nov 21 16:00:00 gpu01 app: by a port below 1024\n")
    site.until(lambda: site.query("Logs | where Message has 'by a port below 1024' | count")[0][0] == 1)
    files = [site.system.file("/var/lib/faultline"), *site.system.file("/var/lib/faultline").rglob("*")]
    assert len(files) > 3
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # a draft that is gone
            about_file = path.lstat()
            assert (about_file.st_uid, about_file.st_mode & 0o077) == (FAULTLINE, 0), path
    assert any(site.system.file("/var/cache/faultline").iterdir()), "the machine code of the parsers is kept"


def test_the_agent_reads_what_it_is_for_inside_its_sandbox(site: Site) -> None:
    """A log, the kernel's lines, root's hook, and a job's output that only the job's user may open."""
    about = site.system.process("faultline-agent")
    assert about["Uid"].split()[0] == "0" and int(about["CapEff"], 16).bit_count() == 9
    assert (about["NoNewPrivs"], about["Seccomp"], about["Umask"]) == ("1", "2", "0077")
    with site.system.file("/var/log/app.log").open("a") as log:
        log.write("a line for the agent\n")
    now = int(time.time())
    job = {
        "SLURM_JOB_ID": "41", "SLURM_JOB_UID": str(ALICE), "SLURM_JOB_GID": str(ALICE), "SLURM_JOB_USER": "alice", "SLURM_JOB_NAME": "train",
        "SLURM_JOB_NODELIST": "gpu01", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "gpu01", "SLURM_CLUSTER_NAME": "mini",
        "SLURM_JOB_STDOUT": "/srv/alice/out", "SLURM_JOB_WORK_DIR": "/srv/alice", "SLURM_JOB_START_TIME": str(now - 60),
        "SLURM_JOB_END_TIME": str(now), "SLURM_JOB_EXIT_CODE2": "1:0",
    }  # fmt: skip
    pairs = [f"{name}={value}" for name, value in job.items()]
    for hook in ("prolog", "epilog"):
        done = site.system.run(
            "env", "-i", "PATH=/usr/bin:/bin", *pairs, "/bin/sh", str(ROOT / f"deploy/slurm/{hook}.sh")
        )
        assert done.returncode == 0, done.stderr
    site.until(lambda: site.query("Logs | where Message == 'a line for the agent' | count")[0][0] == 1)
    site.until(lambda: site.ask("GET", "/api/v1/jobs/41")[1]["user"] == "alice")
    site.until(lambda: site.query("Logs | where Message has 'what the job wrote' | count")[0][0] == 1)
    site.until(lambda: [row for row in site.ask("GET", "/api/v1/sources?q=kmsg")[1]["sources"] if row["lines"]])
    spool = site.system.file("/var/lib/faultline-agent")
    assert spool.stat().st_mode & 0o077 == 0
    assert not list(site.system.file("/var/spool/faultline/hooks").glob("*.hook")), "delivered and removed"


@pytest.mark.parametrize("unit", ["faultline", "faultline-agent"])
def test_a_unit_that_is_killed_comes_back_with_what_it_had(site: Site, unit: str) -> None:
    line = f"before {unit} was killed"
    assert site.ask("POST", "/api/v1/ingest", line.encode(), Content_Type="text/plain")[0] == 200
    before = site.system.show(unit, "MainPID")
    site.system.systemctl("kill", "-s", "KILL", unit)
    site.until(lambda: site.system.show(unit, "MainPID") not in (before, "0"))
    assert site.system.show(unit, "NRestarts") == "1"
    site.until(lambda: site.query(f"Logs | where Message == '{line}' | count")[0][0] == 1)
    with site.system.file("/var/log/app.log").open("a") as log:
        log.write(f"after {unit} was killed\n")
    site.until(lambda: site.query(f"Logs | where Message == 'after {unit} was killed' | count")[0][0] == 1)


def test_both_stop_when_they_are_asked_to(site: Site) -> None:
    for unit in ("faultline-agent", "faultline"):
        site.system.systemctl("stop", unit)
        assert site.system.show(unit, "ActiveState") == "inactive" and site.system.show(unit, "Result") == "success", (
            site.output()
        )
