"""One run as slurmrestd's versions v0.0.38 (22.05) to v0.0.43 (25.05) give it: each is read as the same rows.

The files are written from each version's documentation (OpenAPI, slurm src/plugins/data_parser/*/parsers.c). A document of
``slurmdb`` is also what ``sacct --json`` prints. Up to v0.0.39 the exit code of a process that ended by itself is lost.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from parsers.documents import read
from parsers.recognition.documents import DOCUMENTS
from parsers.record import Origin

FILES = sorted((Path(__file__).parents[1] / "slurm_json").glob("v*.json"))
BEGAN = datetime(2026, 12, 23, 4, 26, 40)
#: What these versions cannot tell of a process that ended by itself.
HIDE_CODES = ("v0.0.38", "v0.0.39")
ALIKE = {
    "cluster": "c9", "job_id": 4711, "array_job_id": 4700, "array_task_id": 3, "name": "train", "user": "ann", "account": "ml",
    "partition": "gpu", "qos": "normal", "state": "FAILED", "submit": BEGAN, "start": BEGAN + timedelta(minutes=1),
    "end": BEGAN + timedelta(minutes=11), "time_limit_s": 1800, "node_list": "n[1-2]", "nodes": ["n1", "n2"], "gpus": 8, "work_dir": "/home/ann",
}  # fmt: skip


def rows(file: Path, api: str) -> dict[str, list[dict[str, Any]]]:
    text = json.dumps(json.loads(file.read_text())[api])
    kind = next(kind for kind, _, fits in DOCUMENTS if fits(text))
    assert kind == {"slurm": "rest_jobs", "slurmdb": "sacct_json"}[api]
    parsed = read(kind, text.encode(), Origin(received=BEGAN, reference=BEGAN))
    assert parsed.warnings == []
    return {name: table.to_dicts() for name, table in parsed.tables.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("api", ["slurm", "slurmdb"])
def test_a_run_reads_the_same_in_every_version(file: Path, api: str) -> None:
    (run,) = rows(file, api)["jobs"]
    assert {name: run[name] for name in ALIKE} == ALIKE
    hidden = file.stem in HIDE_CODES and not (file.stem == "v0.0.38" and api == "slurm")
    assert (run["exit_code"], run["exit_signal"], run["derived_exit_code"]) == (
        (None, None, None) if hidden else (2, 0, "3:0")
    )
    if api == "slurm":
        assert (run["failed_node"], run["uid"], run["restarts"], run["reservation"]) == ("n2", 1001, 1, "night")
        assert (run["tres"], run["reason"]) == ("cpu=16,gres/gpu=8,mem=4G,node=2", "NonZeroExitCode")
    else:
        assert run["tres"] == "cpu=16,gres/gpu=8,mem=4096M,node=2"
        assert run["reservation"] == (None if file.stem == "v0.0.38" else "night")
        assert run["submit_line"] == (None if file.stem == "v0.0.38" else "sbatch train.sh")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_steps_as_well(file: Path) -> None:
    batch, train = rows(file, "slurmdb")["steps"]
    assert (batch["job_id"], batch["step_id"], batch["state"], batch["nodes"]) == (4711, "batch", "FAILED", ["n1"])
    assert batch["exit_code"] == (None if file.stem in HIDE_CODES else 2)
    assert (train["step_id"], train["state"], train["exit_code"], train["exit_signal"]) == ("0", "CANCELLED", 0, 9)
    assert train["nodes"] == ["n1", "n2"] and train["start"] == BEGAN + timedelta(seconds=70)


def test_all_versions_are_there() -> None:
    assert [file.stem for file in FILES] == [f"v0.0.{number}" for number in range(38, 44)]
