"""``faultline slurm install`` on a real Slurm: a job's hooks arrive, each way to break them is named, ``remove`` leaves no trace.

The daemons are Debian's 22.05; slurmctld runs as ``slurm``, slurmd as root, jobs as ``alice``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agent.slurm_setup.findings import Finding
from collector.agent.sources import BUILT_IN
from test_live_cluster import REASON, alone, cluster, host, run_job
from test_live_service import BELOW, HERE, INSIDE, SERVER, SERVICE, ask, fetch, inside, kql, until

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

HOSTS = ("ctl", "gpu01")
#: The mini cluster has its own health check, which stays.
HOOKS = "prolog,epilog,prologslurmctld,epilogslurmctld,taskprolog"
SPOOL, SCRIPTS = "/var/spool/faultline/hooks", "/etc/faultline/slurm"
AGENT = f'server = "{SERVER}"\nspool = "/var/spool/agent"\nflush_s = 0.2\n[sources.hooks]\nevery_s = 0.3\n'


def conf() -> Path:
    return host("ctl").parent.parent / "shared/etc/slurm/slurm.conf"


def faultline(name: str, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command of the agent's program, in a host."""
    pairs = [f"{key}={value}" for key, value in {"PYTHONPATH": "/mnt", **environ}.items()]
    command = [
        sys.executable,
        str(HERE / "cluster.py"),
        "run",
        name,
        "env",
        *pairs,
        INSIDE,
        "-m",
        "faultline.entry",
        *argv,
    ]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400)


def sh(name: str, script: str) -> str:
    return cluster("run", name, "sh", "-c", script)


def found(name: str, **environ: str) -> list[Finding]:
    """What ``verify`` finds there."""
    done = faultline(name, "slurm", "verify", "--format", "json", "--hooks", HOOKS, **environ)
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["ok"] else 1)
    return [Finding(f["code"], f["what"], f["cure"], f["hook"]) for f in answer["findings"]]


def tree(name: str) -> list[str]:
    """Folders and files of ours in a host, with mode, owner and checksum; without what service and agents keep there."""
    kept = r"-path */data -prune -o -name service.toml* -prune -o -name .reader -prune -o -name *.out -prune -o -print"
    return sh(name, f"set -f; cd /; for f in $(find etc/faultline var/spool/faultline etc/slurm {kept} 2>/dev/null | sort); do "
              "stat -c '%n %A %U:%G' $f; [ -d $f ] || sha256sum <$f; done").splitlines()  # fmt: skip


@pytest.fixture(scope="module")
def live() -> Iterator[None]:
    """A controller, a node and the service; agents are installed, hooks are not."""
    with alone():
        started: list[subprocess.Popen[bytes]] = []
        try:
            cluster("up", "--nodes", "1")
            ours = "Prolog|Epilog|PrologSlurmctld|EpilogSlurmctld|TaskProlog|TaskEpilog"
            conf().write_text(re.sub(rf"(?m)^(?:{ours})=.*\n", "", conf().read_text()))
            sh("ctl", "scontrol reconfigure")
            for name in HOSTS:  # what programs of the test say is kept there
                (host(name) / BELOW).mkdir(parents=True)
            (host("ctl") / BELOW / "service.toml").write_text(SERVICE.format(below=BELOW))
            started.append(
                inside("ctl", INSIDE, "-m", "faultline.entry", "serve", "--config", f"/{BELOW}/service.toml")
            )
            off = "".join(f"[sources.{name}]\nenabled = false\n" for name in BUILT_IN if name != "hooks")
            for name in HOSTS:
                (host(name) / "etc/faultline/agent.toml").write_text(AGENT + off)
            until(lambda: ask("/api/v1/nodes") is not None, 180)
            yield
        finally:
            cluster("down")
            for process in started:
                process.terminate()
                process.wait(20)


def start_agent(name: str) -> None:
    """Starts an agent in a host and waits until it reads the spool."""
    inside(name, INSIDE, "-m", "faultline.entry", "agent", "--config", "/etc/faultline/agent.toml")
    until(lambda: re.search(r"(?m)^  hooks +ok", faultline(name, "agent", "status").stdout), 30)


def stop_agent(name: str) -> None:
    status = json.loads((host(name) / "var/spool/agent/status.json").read_text())
    sh(name, f"kill {status['pid']}")
    until(lambda: "NOT RUNNING" in faultline(name, "agent", "status").stdout, 20)


#: (host, what breaks it, what mends it, the reason that is named, some of its words)
WAYS = {
    "root's spool, as install.sh made it": (
        "ctl", f"chown root:root {SPOOL}", f"chown slurm:slurm {SPOOL}", "spool-denied", "root:root 0700"),
    "closed above": ("ctl", "chmod 700 /var/spool/faultline", "chmod 755 /var/spool/faultline", "spool-denied", "below"),
    "others may write": ("ctl", f"chmod 777 {SPOOL}", f"chmod 700 {SPOOL}", "spool-not-trusted", "0777"),
    "no script": ("gpu01", f"mv {SCRIPTS}/epilog.sh /tmp/", f"mv /tmp/epilog.sh {SCRIPTS}/", "no-file", "epilog.sh is missing"),
    "not executable": ("gpu01", f"chmod 644 {SCRIPTS}/prolog.sh", f"chmod 755 {SCRIPTS}/prolog.sh", "not-executable", "prolog.sh"),
    "not for SlurmUser": ("ctl", f"chmod 700 {SCRIPTS}", f"chmod 755 {SCRIPTS}", "script-denied", "slurm"),
    "noexec": ("gpu01", f"mount --bind {SCRIPTS} {SCRIPTS} && mount -o remount,bind,noexec {SCRIPTS}", f"umount {SCRIPTS}",
               "noexec", f"mount {SCRIPTS} without noexec"),
    "no interpreter": ("gpu01", f"cp {SCRIPTS}/taskprolog.sh /tmp/t && sed -i 1s,/bin/sh,/bin/none, {SCRIPTS}/taskprolog.sh",
                       f"cat /tmp/t >{SCRIPTS}/taskprolog.sh", "no-interpreter", "/bin/none"),
    "full disk": ("ctl", f"mount -t tmpfs -o size=64k,mode=0700,uid=$(id -u slurm) tmpfs {SPOOL} && "
                  f"head -c 65536 /dev/zero >{SPOOL}/fill", f"umount -l {SPOOL}", "disk-full", SPOOL),
    "read-only disk": ("gpu01", f"mount -t tmpfs -o ro tmpfs {SPOOL}", f"umount -l {SPOOL}", "read-only", SPOOL),
    "not in slurm.conf": (
        "ctl", "sed -i s/^EpilogSlurmctld=/#Ep=/ /etc/slurm/slurm.conf", "sed -i s/^#Ep=/EpilogSlurmctld=/ /etc/slurm/slurm.conf",
        "not-called", "does not set it"),
    "not read again": (
        "ctl", "sed -i s/^EpilogSlurmctld=/#Ep=/ /etc/slurm/slurm.conf; scontrol reconfigure; "
        "sed -i s/^#Ep=/EpilogSlurmctld=/ /etc/slurm/slurm.conf", "scontrol reconfigure", "not-reread", "(null)"),
    "no task spool for users": ("gpu01", "chmod 700 /var/spool/faultline/task-hooks", "chmod 1733 /var/spool/faultline/task-hooks",
                                "spool-denied", "nobody"),
}  # fmt: skip


def test_from_install_to_remove(live: None) -> None:
    before, text = {name: tree(name) for name in HOSTS}, conf().read_bytes()
    shown = faultline("ctl", "slurm", "install", "--dry-run", "--hooks", HOOKS + ",healthcheck")
    assert shown.returncode == 0 and {name: tree(name) for name in HOSTS} == before
    assert "slurmctld runs (pid" in shown.stdout and "SlurmUser=slurm" in shown.stdout
    assert "HealthCheckProgram=/etc/slurm/site/healthcheck.sh" in shown.stdout and "stays" in shown.stdout

    assert faultline("gpu01", "slurm", "install", "--yes", "--hooks", HOOKS).returncode == 0
    done = faultline("ctl", "slurm", "install", "--yes", "--hooks", HOOKS, "--edit-slurm-conf")
    assert done.returncode == 0, done.stderr
    assert {f.code for f in found("ctl")} == {"not-reread", "agent-not-running"}
    sh("ctl", "scontrol reconfigure")
    for name in HOSTS:
        start_agent(name)
        assert found(name) == [], name
    installed = {name: tree(name) for name in HOSTS}
    for name in HOSTS:
        assert faultline(name, "slurm", "install", "--yes", "--hooks", HOOKS, "--edit-slurm-conf").returncode == 0
    assert {name: tree(name) for name in HOSTS} == installed, "a second run changes nothing"

    job = run_job(["gpu01"])
    # The service's first lines wait for its parsers, which it compiles in here: minutes on a machine that is busy.
    row = until(
        lambda: [r for r in kql(f"Jobs | where JobId == {job} | project ExitCode, NodeList, User") if None not in r],
        1200,
    )
    assert row == [[0, "gpu01", "alice"]], "from hooks alone: no other source runs"

    for name, events in (("gpu01", "epilog, prolog, taskprolog"), ("ctl", "epilogslurmctld, prologslurmctld")):
        tried = faultline(name, "slurm", "verify", "--hooks", HOOKS, "--job", "--job-user", "alice")
        assert tried.returncode == 0 and f"hooks wrote: {events}\n" in tried.stdout, tried

    # Slurm's hooks run as slurm, and the spool is root's: what install.sh --controller once made.
    sh("ctl", WAYS["root's spool, as install.sh made it"][1])
    job = run_job(["gpu01"])
    said = until(
        lambda: (
            (s := faultline("ctl", "agent", "status")).returncode == 1 and "1 epilogslurmctld hook" in s.stdout and s
        ),
        90,
    )
    assert "may not write into /var/spool/faultline/hooks" in said.stdout and "faultline slurm install" in said.stdout
    reasons = until(
        lambda: [b["reason"] for b in ask("/api/v1/sources")["blind"] if "slurmctld hook" in b["reason"]], 30
    )
    assert len(reasons) == 2 and all("wrote nothing" in reason for reason in reasons)
    assert faultline("ctl", "slurm", "install", "--yes", "--hooks", HOOKS).returncode == 0, "the cure that it names"
    assert tree("ctl") == installed["ctl"]
    run_job(["gpu01"])
    until(lambda: faultline("ctl", "agent", "status").returncode == 0, 90)

    for way, (name, break_it, mend_it, code, says) in WAYS.items():
        sh(name, break_it)
        named = found(name)
        assert [f for f in named if f.code == code and says in str(f)], (way, named)
        sh(name, mend_it)
        until(lambda name=name: found(name) == [], 20)

    sh("ctl", "sed 's/^ClusterName=mini/ClusterName=maxi/' /etc/slurm/slurm.conf >/tmp/maxi.conf")
    assert "other-cluster" in {f.code for f in found("ctl", SLURM_CONF="/tmp/maxi.conf")}
    stop_agent("gpu01")
    assert {f.code for f in found("gpu01")} == {"agent-not-running"}
    start_agent("gpu01")
    run_job(["gpu01"])

    assert faultline("ctl", "slurm", "remove", "--yes").returncode == 1, "Slurm still calls the scripts"
    assert tree("ctl") == installed["ctl"]
    until(lambda: not sh("ctl", f"ls {SPOOL}").strip(), 20)
    done = faultline("ctl", "slurm", "remove", "--yes", "--edit-slurm-conf", "--reconfigure")
    assert done.returncode == 0, done.stdout + done.stderr
    done = faultline("gpu01", "slurm", "remove", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert conf().read_bytes() == text and {name: tree(name) for name in HOSTS} == before
    run_job(["gpu01"])
    assert "hooks" in fetch("/sources")
