"""What steps of a real Slurm have open while they run: srun's own file, and those of single tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from collector.agent.step_files import StepFiles
from test_live_cluster import REASON, alone, cluster

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

STEPS = (
    "srun -n1 --overlap -o /tmp/whole.%j.%s.out sleep 25 & "
    "srun -n2 --overlap -o /tmp/task.%t.out -e /tmp/task.%t.err sleep 25 & wait"
)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with alone():
        try:
            cluster("up", "--nodes", "1")
            yield "gpu01"
        finally:
            cluster("down")


def test_files_of_steps_are_known_while_they_run(node: str) -> None:
    command = f"cd /tmp; sbatch -N1 -n2 -o /tmp/batch.out --wrap '{STEPS}'"
    job = cluster("run", "--user", "alice", "ctl", "sh", "-c", command).split()[-1]
    uid = int(cluster("run", "--user", "alice", "ctl", "id", "-u"))
    found, until = StepFiles(), time.monotonic() + 40
    wanted = {"/tmp/batch.out", "/tmp/task.0.out", "/tmp/task.1.out", "/tmp/task.0.err", "/tmp/task.1.err"}
    while time.monotonic() < until:
        found.look({job: uid})
        paths = {file.path for file in found.of(job)}
        if wanted <= paths and any("whole" in path for path in paths):
            break
        time.sleep(0.5)
    assert wanted <= paths and any(path.startswith(f"/tmp/whole.{job}.") for path in paths), paths
    assert found.of("99") == [] and not any("log" in path for path in paths)
