"""A Slurm of one node on this machine, for tests of what Slurm itself sends or answers: munged, slurmctld, slurmd."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from running import free_port
from test_real_clients import daemon

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "sinfo")
SBIN = "/usr/sbin"
PATH = f"{SBIN}:/usr/bin:/sbin:/bin"

CONF = """ClusterName=tiny
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES MaxTime=10 State=UP
"""


class Slurm:
    """The running daemons; ``call`` runs a command as their administrator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{PATH}:{os.environ['PATH']}",
        }

    def call(self, *command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, cwd=self.folder, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def submit(self, name: str, script: str) -> int:
        """Submits a batch job; returns its id."""
        return int(self.call("sbatch", "--parsable", "-J", name, "-o", str(self.folder / "out"), "--wrap", script))

    def log(self) -> str:
        return (self.folder / "slurmctld.log").read_text()[-2000:]


@contextmanager
def tiny_slurm(folder: Path, more: str = "") -> Iterator[Slurm]:
    """Skips if Slurm cannot run here. ``more``: further lines of slurm.conf; {folder} is replaced by the folder."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if os.geteuid() != 0:
        pytest.skip("only root may run slurmd")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    for name, size in (("munge.key", 128), ("jwt.key", 32)):
        (folder / name).write_bytes(os.urandom(size))
        (folder / name).chmod(0o400)
    for parent in (folder, *folder.parents):
        if parent.stat().st_mode & 0o055 != 0o055:  # munged and slurmrestd walk through as nobody
            parent.chmod(0o755)
    conf = folder / "slurm.conf"
    names = {"host": socket.gethostname(), "folder": folder, "ctld": free_port(), "slurmd": free_port()}
    conf.write_text(CONF.format(**names) + more.format(**names))
    slurm = Slurm(folder)
    munge = ("--foreground", "--force", "--key-file", f"{folder}/munge.key", "--socket", f"{folder}/munge.sock", "--pid-file", f"{folder}/m.pid",
             "--log-file", f"{folder}/m.log", "--seed-file", f"{folder}/m.seed")  # fmt: skip
    with ExitStack() as running:
        running.enter_context(daemon(f"{SBIN}/munged", *munge, log=folder / "munged.out"))
        until = time.monotonic() + 120
        while not (folder / "munge.sock").exists() and time.monotonic() < until:
            time.sleep(0.05)
        running.enter_context(daemon(f"{SBIN}/slurmctld", "-D", "-i", "-f", str(conf), log=folder / "ctld.out"))
        running.enter_context(daemon(f"{SBIN}/slurmd", "-D", "-N", "n1", "-f", str(conf), log=folder / "slurmd.out"))
        until = time.monotonic() + 120
        while "idle" not in _states(slurm):
            if time.monotonic() > until:
                ends = [(folder / name).read_text()[-300:] for name in ("ctld.out", "slurmd.out")]
                pytest.skip(f"no Slurm here: {' '.join(ends)}")
            time.sleep(0.2)
        yield slurm


def _states(slurm: Slurm) -> str:
    try:
        return slurm.call("sinfo", "-h", "-o", "%T")
    except AssertionError:
        return ""
