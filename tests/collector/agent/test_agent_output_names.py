"""The names of a job's output files, as sbatch fills them in."""

from __future__ import annotations

import pytest

from collector.agent.output_names import first_host, output_files, resolve_pattern
from parsers.hostlist import expand

HOOK = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_USER": "ann", "SLURM_JOB_NAME": "ring", "SLURM_JOB_WORK_DIR": "/home/ann",
    "SLURM_JOB_STDOUT": "%x-%5j.out",
}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("%x-%5j.out", "ring-00007.out"), ("%A_%a", "5_3"), ("%u/%%j", "ann/%j"), ("%J.%s.%t", "7.batch.0"),
     ("%N.out", "n1.out"), ("\\%j", "%j"), ("plain", "plain")],
)  # fmt: skip
def test_patterns(pattern: str, expected: str) -> None:
    env = HOOK | {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_NODELIST": "n[1-2]"}
    assert resolve_pattern(pattern, env) == expected


def test_where_a_job_writes() -> None:
    assert output_files(HOOK) == {"stdout": "/home/ann/ring-00007.out", "stderr": "/home/ann/ring-00007.out"}
    nameless = {name: value for name, value in HOOK.items() if name != "SLURM_JOB_NAME"}
    assert output_files(nameless) == {}


@pytest.mark.parametrize(
    "nodes", ["n1", "gpu[07-09,12],login1", "a1,b2", "r[1-2]c[3-4]", "r[1-2]n[05,07]-ib", " n[3] "]
)
def test_the_first_host_is_that_of_the_whole_list(nodes: str) -> None:
    assert first_host(nodes) == expand(nodes)[0]


def test_no_list_has_no_first_host() -> None:
    assert first_host("") is None
