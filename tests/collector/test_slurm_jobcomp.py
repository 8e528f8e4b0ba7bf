"""Slurm's own ``jobcomp/elasticsearch`` against the real service.

A job that ends is a run with a state, a moment later.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running
from tiny_slurm import tiny_slurm

PLUGIN = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/jobcomp_elasticsearch.so")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data", syslog=()).start()
    yield running
    running.stop()


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.skipif(not PLUGIN.exists(), reason="slurm-wlm-elasticsearch-plugin is not installed")
def test_a_failed_job_arrives_as_it_ends(service: Running, tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    more = f"JobCompType=jobcomp/elasticsearch\nJobCompLoc=http://127.0.0.1:{service.http}/slurm/_doc\n"
    with tiny_slurm(folder, more) as slurm:
        job = slurm.submit("fails", "exit 3")
        rows = service.until(f"Jobs | where JobId == {job} | project Name, State, ExitCode, NodeList", 1)
        assert rows == [["fails", "FAILED", 3, "n1"]], slurm.log()
