"""What sources of accounting recorded of a run: on its page, in its JSON and in `faultline check`, for its user as well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from faultline.checking import contradicted
from faultline.config import validate
from faultline.service import Service, build_app
from parsers import documents
from parsers.record import Origin
from store import open_store
from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_token

TIMES = "2026-11-21T10:00:00|2026-11-21T10:00:00|2026-11-21T10:10:00"
SACCT = f"""\
JobID|JobIDRaw|JobName|User|UID|State|ExitCode|DerivedExitCode|Submit|Start|End|NodeList|AllocTRES|Partition
31|31|train|alice|20001|COMPLETED|0:0|3:0|{TIMES}|gpu01|node=1,gres/gpu=4,cpu=8|gpu
31.batch|31.batch|batch|||COMPLETED|0:0||{TIMES}|gpu01||
31.0|31.0|prep|||FAILED|3:0||{TIMES}|gpu01||
32|32|train|alice|20001|FAILED|1:0|0:0|{TIMES}|gpu01|node=1,cpu=8|gpu
33|33|train|bob|20002|COMPLETED|0:0|0:0|{TIMES}|gpu01|node=1,cpu=8|gpu
"""
REST = json.dumps({"jobs": [
    {"job_id": 32, "user_name": "alice", "user_id": 20001, "job_state": "TIMEOUT", "submit_time": 1795255200, "start_time": 1795255200,
     "end_time": 1795255800, "nodes": "gpu01", "cluster": "mini", "name": "train", "partition": "gpu", "failed_node": "gpu01"}]})  # fmt: skip
SAID = "state: sacct: FAILED; slurmrestd: TIMEOUT"


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("accounting")
    names = ("ops", "alice", "bob")
    users = Users(folder / "users.toml", {}, {f"{name} laptop": hashed_token(f"t-{name}") for name in names})
    users.save()
    roles = Roles({Role.OPERATE: frozenset({"ops"}), Role.OWN: frozenset({"alice", "bob"})})
    authentication = Authentication(users=Users.load(users.path), sessions=Sessions(b"k" * 32, 3600), roles=roles)
    with open_store(folder / "data") as store:
        for kind, text in (("sacct", SACCT), ("rest_jobs", REST)):
            store.add(documents.read(kind, text.encode(), Origin(cluster="mini", path=kind)).tables)
        service = Service(validate({"data": str(folder / "data")}, "test"), store, authentication=authentication)
        service.tick()
        client = TestClient(build_app(service))

        def asked(name: str, path: str, accept: str = "application/json") -> Any:
            return client.get(path, headers={"Authorization": f"Bearer t-{name}", "Accept": accept})

        yield asked


def test_a_job_whose_step_failed_says_so_though_it_is_completed(ask: Any) -> None:
    for name in ("ops", "alice"):
        found = ask(name, "/api/v1/jobs/31").json()["accounting"]
        assert (found["derived_exit_code"], found["tres"], found["contradictions"]) == (
            "3:0",
            "cpu=8,gres/gpu=4,node=1",
            [],
        )
        assert [(step["step"], step["state"], step["exit_code"]) for step in found["steps"]] == [
            ("0", "FAILED", "3:0"), ("batch", "COMPLETED", "0:0"),
        ]  # fmt: skip
        assert found["note"].endswith("although steps of it did not end well: 0 (prep) FAILED 3:0.")
        assert "0 (prep) FAILED 3:0" in ask(name, "/api/v1/jobs/31/verdict").json()["detail"]
        page = ask(name, "/jobs/31", "text/html").text
        assert (
            "3:0, the highest of its steps" in page
            and "0 (prep) FAILED 3:0" in page
            and "cpu=8,gres/gpu=4,node=1" in page
        )
    page = ask("alice", "/jobs/31", "text/html").text
    assert (
        "3:0, the highest of its steps" in page and "0 (prep) FAILED 3:0" in page and "cpu=8,gres/gpu=4,node=1" in page
    )
    assert ask("ops", "/api/v1/jobs/33").json()["accounting"]["note"] is None


def test_sources_that_contradict_each_other_are_told(ask: Any) -> None:
    for name in ("ops", "alice"):
        found = ask(name, "/api/v1/jobs/32").json()
        assert found["accounting"]["contradictions"] == [SAID]
        assert [(one["source"], one["state"], one["exit_code"]) for one in found["accounting"]["sources"]] == [
            ("sacct", "FAILED", "1:0"), ("slurmrestd", "TIMEOUT", None),
        ]  # fmt: skip
        assert found["accounting"]["failed_node"] == "gpu01", "what one source leaves open, the other tells"
        assert f"The records of this run contradict each other: {SAID}" in found["verdict"]["doubts"]
    assert "Sources contradict each other" in ask("ops", "/jobs/32", "text/html").text


def test_nobody_elses_records_are_shown(ask: Any) -> None:
    assert ask("bob", "/api/v1/jobs/31").status_code == 404
    assert [one["source"] for one in ask("bob", "/api/v1/jobs/33").json()["accounting"]["sources"]] == ["sacct"]


def test_check_names_them() -> None:
    with open_store(None) as store:
        for kind, text in (("sacct", SACCT), ("rest_jobs", REST)):
            store.add(documents.read(kind, text.encode(), Origin(cluster="mini", path=kind)).tables)
        assert contradicted(store) == [
            f"accounting: sacct and slurmrestd tell the state of 1 run differently, such as job 32 ({SAID})"
        ]
