"""Slurm's own ``jobcomp/elasticsearch`` against the real service: a job that ends is a run with a state, a moment later."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from running import Running, free_port
from test_real_clients import daemon

PLUGIN = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/jobcomp_elasticsearch.so")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "sinfo")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

CONF = """ClusterName=tiny
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
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
JobCompType=jobcomp/elasticsearch
JobCompLoc=http://127.0.0.1:{http}/slurm/_doc
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES MaxTime=10 State=UP
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data", syslog=()).start()
    yield running
    running.stop()


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run slurmd")
@pytest.mark.skipif(not PLUGIN.exists(), reason="slurm-wlm-elasticsearch-plugin is not installed")
def test_a_failed_job_arrives_as_it_ends(service: Running, tmp_path: Path) -> None:
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    (tmp_path / "state").mkdir()
    (tmp_path / "spool").mkdir()
    key = tmp_path / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    tmp_path.chmod(0o755)
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        CONF.format(host=socket.gethostname(), folder=tmp_path, http=service.http, ctld=free_port(), slurmd=free_port())
    )
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{PATH}:{os.environ['PATH']}"}

    def call(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60)

    with ExitStack() as running:
        munge = ("--foreground", "--force", "--key-file", str(key), "--socket", f"{tmp_path}/munge.sock", "--pid-file", f"{tmp_path}/m.pid",
                 "--log-file", f"{tmp_path}/m.log", "--seed-file", f"{tmp_path}/m.seed")  # fmt: skip
        sbin = "/usr/sbin/"
        running.enter_context(daemon(f"{sbin}munged", *munge, log=tmp_path / "munged.out"))
        until = time.monotonic() + 10
        while not (tmp_path / "munge.sock").exists() and time.monotonic() < until:
            time.sleep(0.05)
        running.enter_context(daemon(f"{sbin}slurmctld", "-D", "-i", "-f", str(conf), log=tmp_path / "ctld.out"))
        running.enter_context(daemon(f"{sbin}slurmd", "-D", "-N", "n1", "-f", str(conf), log=tmp_path / "slurmd.out"))
        until = time.monotonic() + 60
        while "idle" not in call("sinfo", "-h", "-o", "%T").stdout:
            if time.monotonic() > until:
                pytest.skip(
                    "no Slurm here: "
                    + (tmp_path / "ctld.out").read_text()[-300:]
                    + (tmp_path / "slurmd.out").read_text()[-300:]
                )
            time.sleep(0.2)
        submitted = call("sbatch", "--parsable", "-J", "fails", "-o", str(tmp_path / "out"), "--wrap", "exit 3")
        assert submitted.returncode == 0, submitted.stderr
        job = int(submitted.stdout)
        rows = service.until(f"Jobs | where JobId == {job} | project Name, State, ExitCode, NodeList", 1, timeout_s=90)
    assert rows == [["fails", "FAILED", 3, "n1"]], (tmp_path / "slurmctld.log").read_text()[-2000:]
