"""Two clusters in one store that both ran a job 15: neither hides the other, on the command line and on the pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from collector.ingest import Ingest, Options
from correlator.engine import correlate, result
from faultline.cli import run
from parsers.engine import LineParser
from store import open_store
from web.app import create_app

CAPTURES = Path(__file__).parents[1] / "captures"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """East lost gpu02's link, west is the same cluster without one of its logs: it knows less of why."""
    folder = tmp_path_factory.mktemp("clusters")
    capture, parser = CAPTURES / "mgmt_flap_long", LineParser()
    west = [capture / "slurm" / "sacct.psv", capture / "hosts" / "ctl", capture / "jobs"]
    with open_store(folder) as store:
        Ingest(store, Options(cluster="east"), parser=parser).run([capture])
        Ingest(store, Options(cluster="west"), parser=parser).run(west)
        correlate(store)
    return folder


@pytest.fixture(scope="module")
def pages(data: Path) -> Iterator[TestClient]:
    with open_store(data, read_only=True) as store:
        yield TestClient(create_app(store))


def test_each_run_has_its_verdict(data: Path) -> None:
    with open_store(data, read_only=True) as store:
        found = result(store)
        runs = store.rows("SELECT DISTINCT cluster, run_key FROM model.runs WHERE document IS NOT NULL")
    assert len(found["verdicts"]) == len(runs)
    assert {key: v["cluster"] for key, v in found["verdicts"].items() if "15" in key} == {
        "15": "east",
        "15@west": "west",
    }
    said = {i["cluster"]: [job["job_id"] for job in i["jobs"]] for i in found["incidents"] if i["jobs"]}
    assert said == {"east": ["15"], "west": ["15@west"]}


@pytest.mark.parametrize(("asked", "key", "cluster"), [
    ("15", "15", "east"), ("15@east", "15", "east"), ("15@west", "15@west", "west"),
])  # fmt: skip
def test_why_says_whose_run_it_is(
    data: Path, asked: str, key: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["why", asked, "--data", str(data), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    told: dict[str, Any] = json.loads(out)
    assert (told["job_id"], told["verdict"]["cluster"], told["incident"]["cluster"]) == (key, cluster, cluster)
    other = {"15": "15@west", "15@west": "15"}[key]
    assert err == f"faultline: this is the run of cluster {cluster}; there is also {other}\n"


def test_a_cluster_that_has_no_such_run_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "15@north", "--data", str(data)]) == 2
    assert "15@north" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "cluster"), [("15", "east"), ("15@east", "east"), ("15@west", "west")])
def test_a_page_is_of_one_run(pages: TestClient, key: str, cluster: str) -> None:
    told = pages.get(f"/api/v1/jobs/{key}").json()
    assert {told["cluster"], *(run["cluster"] for run in told["runs"])} == {cluster}
    page = pages.get(f"/jobs/{key}", headers={"accept": "text/html"})
    assert page.status_code == 200 and page.text.count('id="rn"') == 1


def test_lists_lead_to_both(pages: TestClient) -> None:
    listed = {row["run_key"]: row["cluster"] for row in pages.get("/api/v1/jobs?q=15").json()["jobs"]}
    assert listed == {"15": "east", "15@west": "west"}
    for incident in pages.get("/api/v1/incidents").json()["incidents"]:
        for job in incident["jobs"]:
            assert pages.get(f"/api/v1/jobs/{job['job_id']}").json()["cluster"] == incident["cluster"]
            assert f"/jobs/{job['job_id'].replace('@', '%40')}" in pages.get(f"/incidents/{incident['id']}").text
