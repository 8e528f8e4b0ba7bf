"""The audit log: logins, refusals and changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import fixture
import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from web.access.audit import MOST_LINES, MOST_OF_ADDRESS, QUIET_S, Audit
from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_password, hashed_token
from web.app import create_app

FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
PASSWORD = "correct horse"
DOCS = Path(__file__).parents[3] / "docs" / "security.md"


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "audit.ndjson"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def users(tmp_path: Path) -> Users:
    made = Users(tmp_path / "users.toml", {"ada": hashed_password(PASSWORD)}, {"alice laptop": hashed_token("t-alice")})
    made.save()
    return Users.load(made.path)


@pytest.fixture
def client(tmp_path: Path, users: Users) -> TestClient:
    roles = Roles({Role.OPERATE: frozenset({"ada"}), Role.OWN: frozenset({"alice"})})
    authentication = Authentication(users=users, roles=roles, sessions=Sessions(b"k" * 32, 3600))
    app = create_app(fixture.shared(), authentication=authentication, audit=Audit(tmp_path / "audit.ndjson"))
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False, client=("10.0.0.5", 4000))


def sign_in(client: TestClient, name: str, password: str) -> int:
    return client.post("/login", content=urlencode({"name": name, "password": password}), headers=FORM).status_code


def test_signing_in_and_out_is_written_with_who_and_from_where(client: TestClient, tmp_path: Path) -> None:
    assert (sign_in(client, "ada\n{}", "wrong"), sign_in(client, "ada", PASSWORD)) == (403, 303)
    client.post("/logout", headers=FORM)
    reported = lines(tmp_path)
    assert [(t["act"], t["who"], t["address"]) for t in reported] == [
        ("sign_in_refused", "ada\n{}", "10.0.0.5"), ("sign_in", "ada", "10.0.0.5"), ("sign_out", "ada", "10.0.0.5"),
    ]  # fmt: skip
    assert (reported[1]["way"], reported[1]["role"]) == ("password", "operate")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", t["time"]) for t in reported)
    text = (tmp_path / "audit.ndjson").read_text()
    assert PASSWORD not in text and "wrong" not in text and (tmp_path / "audit.ndjson").stat().st_mode & 0o077 == 0


def test_what_is_refused_is_written_once_a_minute(client: TestClient, tmp_path: Path) -> None:
    for _ in range(3):
        assert client.get("/api/v1/nodes", headers={"authorization": "Bearer t-else"}).status_code == 401
        assert client.get("/api/v1/nodes", headers={"authorization": "Bearer t-alice"}).status_code == 403
    assert [(t["act"], t["who"], t["times"]) for t in lines(tmp_path)] == [
        ("token_refused", None, 1),
        ("denied", "alice", 1),
    ]
    assert (lines(tmp_path)[1]["method"], lines(tmp_path)[1]["path"]) == ("GET", "/api/v1/nodes")
    assert "t-else" not in (tmp_path / "audit.ndjson").read_text()


def test_the_line_after_a_quiet_minute_says_how_often(tmp_path: Path) -> None:
    now = [0.0]
    audit = Audit(tmp_path / "audit.ndjson", clock=lambda: now[0])
    for moment in (0.0, 1.0, 2.0, QUIET_S, QUIET_S + 1):
        now[0] = moment
        audit.refused("denied", "alice", "10.0.0.5")
    audit.refused("denied", "bob", "10.0.0.5")
    assert [(t["who"], t["times"]) for t in lines(tmp_path)] == [("alice", 1), ("alice", 3), ("bob", 1)]


def test_a_flood_of_names_and_addresses_does_not_fill_the_disk(client: TestClient, tmp_path: Path) -> None:
    now = [0.0]
    audit = Audit(tmp_path / "audit.ndjson", clock=lambda: now[0])
    for number in range(300):
        audit.attempt("sign_in_refused", f"name{number}", "10.0.0.5", way="password")
    for number in range(300):
        audit.refused("sign_in_waits", f"name{number}", f"10.0.1.{number}")
    reported = lines(tmp_path)
    assert [t["who"] for t in reported[:MOST_OF_ADDRESS]] == [f"name{n}" for n in range(MOST_OF_ADDRESS)], (
        "the first are whole"
    )
    assert len(reported) == MOST_LINES
    now[0] = QUIET_S - 1
    audit.settle()
    assert len(lines(tmp_path)) == MOST_LINES
    audit.record("sign_in", "ada", "10.0.0.9")  # a login is recorded whatever is refused meanwhile
    now[0] = QUIET_S
    audit.settle()
    last, summed = lines(tmp_path)[-2:]
    acts = {"sign_in_refused": 300 - MOST_OF_ADDRESS, "sign_in_waits": 300 - (MOST_LINES - MOST_OF_ADDRESS)}
    assert last["act"] == "sign_in" and (summed["act"], summed["acts"]) == ("refusals_left_out", acts)
    assert summed["times"] == sum(acts.values())
    audit.attempt("sign_in_refused", "ada", "10.0.0.5", way="password")
    assert lines(tmp_path)[-1]["who"] == "ada", "the next minute is told again"


def test_every_wrong_password_is_written_while_they_are_few(client: TestClient, tmp_path: Path) -> None:
    for _ in range(3):
        sign_in(client, "ada", "wrong")
    assert [t["act"] for t in lines(tmp_path)] == ["sign_in_refused"] * 3


def test_a_changed_file_of_people_is_written_by_name(client: TestClient, users: Users, tmp_path: Path) -> None:
    client.get("/healthz")
    changed = Users(users.path, {"ada": hashed_password("another horse")}, {"grafana": hashed_token("t-grafana")})
    changed.save()
    client.get("/healthz")
    assert [(t["act"], t["who"]) for t in lines(tmp_path)] == [
        ("password_changed", "ada"), ("token_removed", "alice laptop"), ("token_added", "grafana"),
    ]  # fmt: skip


def test_a_disk_that_refuses_stops_nobody(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "audit.ndjson").mkdir()
    with capture_logs() as logged:
        assert sign_in(client, "ada", PASSWORD) == 303
    assert "an audit line could not be written" in [entry["event"] for entry in logged]


def test_every_act_is_in_the_docs() -> None:
    named = set(re.findall(r"`([a-z_]+)`", DOCS.read_text())) | {"token_added", "token_changed", "token_removed"}
    acts: set[str] = set()
    for file in (DOCS.parents[1] / "web").rglob("*.py"):
        acts |= set(
            re.findall(r"(?:audit|audit_of\(request\))\.(?:record|refused|attempt)\(\s*\"(\w+)\"", file.read_text())
        )
    assert acts >= {"sign_in", "sign_in_refused", "denied", "feedback", "replay", "token_refused"} and acts <= named
