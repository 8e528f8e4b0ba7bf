"""A run for which two trusted sources name different users: without an owner, and reported to operators everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from faultline.checking import check_all
from faultline.config import validate
from faultline.service import Service, build_app
from parsers import documents
from parsers.record import Origin
from store import open_store
from store.door import Door
from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_token

SACCT = "JobID|JobIDRaw|JobName|User|UID|State|ExitCode|Submit|Start|End|NodeList|Restarts\n" + "".join(
    f"{job}|{job}|train|alice|20001|RUNNING|0:0|2026-11-21T10:00:00|2026-11-21T10:00:00|Unknown|gpu01|0\n"
    for job in (15, 16)
)
REST = json.dumps({"jobs": [
    {"job_id": 15, "user_name": "mallory", "user_id": 20002, "job_state": "RUNNING", "submit_time": 1795255200, "start_time": 1795255200,
     "nodes": "gpu01", "cluster": "mini", "name": "train", "partition": "p"}]})  # fmt: skip
NAMES = ("ops", "reader", "alice", "mallory")


def told(store: Door) -> None:
    for kind, text in (("sacct", SACCT), ("rest_jobs", REST)):
        store.append(documents.read(kind, text.encode(), Origin(cluster="mini", path=kind)).tables)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    users = Users(tmp_path / "users.toml", {}, {f"{name} laptop": hashed_token(f"t-{name}") for name in NAMES})
    users.save()
    roles = {"operate": {"ops"}, "read": {"reader"}, "own": {"alice", "mallory"}}
    authentication = Authentication(users=Users.load(users.path), sessions=Sessions(b"k" * 32, 3600),
                roles=Roles({Role[name.upper()]: frozenset(who) for name, who in roles.items()}))  # fmt: skip
    with open_store(tmp_path / "data") as store:
        told(store)
        yield Service(validate({"data": str(tmp_path / "data")}, "test"), store, authentication=authentication)


def test_it_is_nobodys_and_operators_are_told_once_in_the_log(service: Service) -> None:
    client = TestClient(build_app(service))

    def ask(name: str, path: str, accept: str = "application/json") -> Any:
        return client.get(path, headers={"Authorization": f"Bearer t-{name}", "Accept": accept})

    with capture_logs() as log:
        service.tick()
        service.disputes.look(now=1e9)
        service.disputes.look(now=2e9)
    stated = [entry["event"] for entry in log if "disputed" in entry["event"]]
    assert len(stated) == 1 and stated[0].startswith("job 15 of cluster mini: ")
    assert "sacct: alice (20001)" in stated[0] and "slurmrestd: mallory (20002)" in stated[0]
    assert {name: ask(name, "/api/v1/jobs/15").status_code for name in NAMES} == {
        "ops": 200,
        "reader": 200,
        "alice": 404,
        "mallory": 404,
    }
    assert ask("alice", "/api/v1/jobs/16").json()["user"] == "alice"  # undisputed runs keep their owner
    assert ask("ops", "/api/v1/sources").json()["disputed"] == stated
    page = ask("ops", "/sources", "text/html").text
    assert "Runs whose user is disputed" in page and "job 15 of cluster mini" in page
    for name in ("alice", "mallory"):
        assert ask(name, "/api/v1/sources").status_code == 403
        assert "disputed" not in ask(name, "/api/v1/result").text
    # The text names users, and everybody who reaches the address may request it.
    assert "mallory" not in client.get("/readyz").text
    assert "faultline_disputed_runs 1" in ask("ops", "/metrics").text


def test_check_names_it(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service.tick()
    service.store.close()
    assert check_all(None, tmp_path / "data") == 1
    assert "WRONG  job 15 of cluster mini: its user is disputed (sacct: alice (20001)" in capsys.readouterr().out
