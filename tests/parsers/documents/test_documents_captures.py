"""Captures of a real cluster, if they are beside the repository: accounting must equal truth.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsers.documents import REGISTRY, read
from parsers.hostlist import expand
from parsers.recognise import recognise
from parsers.record import Origin

CAPTURES = Path(__file__).parents[4] / "shared" / "captures"
NAMES = sorted(path.parent.name for path in CAPTURES.glob("*/truth.json"))
here = pytest.mark.skipif(not NAMES, reason="../shared/captures is not here")


@here
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["sacct.psv", "sacct.short.psv", "sacct.json", "jobcomp.log"])
def test_accounting_says_what_happened(name: str, file: str) -> None:
    path = CAPTURES / name / "slurm" / file
    data = path.read_bytes()
    kind = recognise(path, data[:65536], CAPTURES).kind
    parsed = read(kind, data, Origin(path=str(path)))
    assert not parsed.warnings
    found = sorted(
        (job["job_id"], job["state"], tuple(job["nodes"] or ()), str(job["end"]))
        for job in parsed.rows("jobs").to_dicts()
    )
    truth = json.loads((CAPTURES / name / "truth.json").read_text())
    expected = sorted(
        (job["id"], run["state"].split()[0], expand(run["nodes"]), run["end"].replace("T", " "))
        for job in truth["jobs"]
        for run in job["accounting"]
    )
    assert found == expected


@here
@pytest.mark.parametrize("name", NAMES)
def test_every_document_is_read_without_a_warning(name: str) -> None:
    for path in (CAPTURES / name).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            seen = recognise(path, data[:65536], CAPTURES)
            if seen.kind in REGISTRY:
                parsed = read(seen.kind, data, Origin(path=str(path), host=seen.host))
                assert not parsed.warnings
                assert parsed.tables
