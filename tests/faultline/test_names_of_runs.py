"""A run under each name that people and programs have for it: the commands and the API answer of the same run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from faultline.incident_filter import is_of, touches
from store import open_store
from tests.faultline.command import faultline
from web.app import create_app

HEAD = "JobID|JobIDRaw|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NodeList|NNodes|AllocTRES|Cluster|Restarts"
#: Two tasks of array 120, of which the last has the array's own number as its raw ID, and the only one of array 130.
ROWS = (
    "120_4|124|a|ann|ml|gpu|FAILED|1:0|2026-11-21T00:00:00|2026-11-21T00:00:01|2026-11-21T00:10:00|gpu01|1|cpu=4|alpha|0",
    "120_5|120|a|ann|ml|gpu|FAILED|2:0|2026-11-21T00:00:00|2026-11-21T00:00:01|2026-11-21T00:10:00|gpu02|1|cpu=4|alpha|0",
    "130_1|131|a|ann|ml|gpu|BOOT_FAIL|0:0|2026-11-21T01:00:00|2026-11-21T01:00:01|2026-11-21T02:00:00|gpu03|1|cpu=4|alpha|0",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    accounting = folder / "logs" / "accounting" / "sacct.txt"
    accounting.parent.mkdir(parents=True)
    accounting.write_text("\n".join([HEAD, *ROWS, ""]))
    assert faultline("ingest", folder / "logs", "--data", folder / "data").returncode == 0
    return folder / "data"


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    with open_store(data, read_only=True) as store:
        yield TestClient(create_app(store))


@pytest.mark.parametrize(("called", "name"), [
    ("120_4", "120_4"), ("124", "120_4"), ("124#0", "120_4"), ("120_4#0", "120_4"), ("JobId=124", "120_4"), ("124.batch", "120_4"),
    ("124@alpha", "120_4"), ("131", "130_1"),
])  # fmt: skip
def test_why_answers_of_the_run(called: str, name: str, data: Path) -> None:
    done = faultline("why", called, "--data", data, "--format", "json")
    assert (done.returncode, json.loads(done.stdout or b"{}").get("job_id")) == (0, name), done.stderr


@pytest.mark.parametrize(("called", "name"), [("124", "120_4"), ("124#0", "120_4"), ("120_4#0", "120_4"), ("131", "130_1")])  # fmt: skip
def test_the_api_answers_of_the_run(called: str, name: str, client: TestClient) -> None:
    path = f"/api/v1/jobs/{called.replace('#', '%23')}"
    assert client.get(path).json()["run_key"] == name
    assert client.get(f"{path}/verdict").status_code == 200


@pytest.mark.parametrize("called", ["120", "130", "124#1", "124@beta", "120_4#1", "99"])
def test_a_number_that_may_mean_several_runs_or_none_is_refused(called: str, data: Path, client: TestClient) -> None:
    """120 is an array, and the raw ID of one of its tasks."""
    done = faultline("why", called, "--data", data)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert client.get(f"/api/v1/jobs/{called.replace('#', '%23')}").status_code == 404


@pytest.mark.parametrize("called", ["130", "130_1", "131", "131.0", "130_1#0", "JobId=131"])
def test_incidents_of_a_job_are_found_by_each_name(called: str, data: Path) -> None:
    found = json.loads(faultline("incidents", "--job", called, "--data", data, "--format", "json").stdout)
    assert ([i["root_cause"]["host"] for i in found["incidents"]], [*found["verdicts"]]) == (["gpu03"], ["130_1"])


@pytest.mark.parametrize(("job", "name", "is_one"), [
    ("120", "120_4", True), ("120", "120_4#2", True), ("120", "120+1", True), ("120", "120#1", True), ("120_4", "120_4@alpha#1", True),
    ("120_4", "120_5", False), ("12", "120_4", False), ("4", "120_4", False), ("120_4#1", "120_4", False),
])  # fmt: skip
def test_tasks_and_parts_are_of_the_job_whose_number_they_have(job: str, name: str, is_one: bool) -> None:
    assert is_of(name, job) is is_one


@pytest.mark.parametrize("called", ["130_1", "131", "130_1%230", "130_1@alpha"])
def test_the_api_lists_incidents_of_a_job_by_each_name(called: str, client: TestClient) -> None:
    found = client.get(f"/api/v1/incidents?job={called}").json()["incidents"]
    assert [i["root_cause"]["host"] for i in found] == ["gpu03"]
    assert client.get("/api/v1/incidents?job=124").json()["incidents"] == []


@pytest.mark.parametrize(("job", "is_of_it"), [("140", True), ("141", True), ("141#1", True), ("142", False)])
def test_an_incident_that_slowed_a_job_is_of_that_job(job: str, is_of_it: bool) -> None:
    document = {
        "start": "2026-11-21T00:00:00Z", "end": "2026-11-21T00:10:00Z", "hosts": [], "jobs": [{"job_id": "141#1"}], "slowed_jobs": ["140"],
    }  # fmt: skip
    assert touches(document, None, None, None, job) is is_of_it
