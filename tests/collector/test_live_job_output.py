"""A prolog's record, a job that writes, an agent and a service as processes: how soon a failure is an event."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running

from tests.collector.test_agent_to_service import Agent
from tests.measured import Measured

USER = 20001


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data", syslog=()).start()
    yield running
    running.stop()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the job's user is another one")
def test_a_failure_of_a_running_job_is_an_event_within_seconds(
    service: Running, tmp_path: Path, measured: Measured
) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-", "test_")):
            folder.chmod(0o755)
    spool, output = tmp_path / "hooks", tmp_path / "train-15.out"
    spool.mkdir(mode=0o700)
    output.write_text("step 1\n")
    os.chown(output, USER, USER)
    agent = Agent(tmp_path, service, f'[sources.hooks]\nfolders = ["{spool}"]\n')
    env = {
        "FAULTLINE_EVENT": "prolog", "FAULTLINE_HOST": "gpu01", "FAULTLINE_TIME": str(time.time()), "SLURM_JOB_ID": "15",
        "SLURM_JOB_UID": str(USER), "SLURM_JOB_GID": str(USER), "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "gpu01",
        "SLURM_JOB_STDOUT": str(output), "SLURM_JOB_WORK_DIR": str(tmp_path), "SLURM_NODELIST": "gpu01",
    }  # fmt: skip
    body = "faultline-hook/1\n" + "\0".join(f"{name}={value}" for name, value in env.items())
    (spool / f"15.prolog.gpu01.7.{time.time_ns()}.hook").write_text(body)
    question = 'Logs | where Event == "job.cuda_error" | project JobId'
    try:
        agent.start()
        until = time.monotonic() + 120
        while list(spool.glob("*.hook")) and time.monotonic() < until:
            time.sleep(0.1)
        took = []
        for number in (1, 2):  # the first one also starts a parser
            with output.open("a") as file:
                file.write(f"RuntimeError: CUDA error: an illegal memory access was encountered ({number})\n")
            begun = time.monotonic()
            while len(found := service.query(question)) < number and time.monotonic() < begun + 120:
                time.sleep(0.1)
            took.append(f"{time.monotonic() - begun:.1f} s")
        measured(f"a failure in a running job's output was an event {', then '.join(took)} after it was written")
        assert found == [[15], [15]]
    finally:
        agent.kill()
