"""Sessions end on the server; tokens end with their time and are limited to their scope."""

from __future__ import annotations

import json
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import fixture
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from web.access.audit import Audit
from web.access.authentication import Authentication
from web.access.ended import ENDED_FILE, Ended
from web.access.people import Role, Roles
from web.access.scopes import SCOPES
from web.access.sessions import BROWSER_COOKIE, COOKIE, Sessions
from web.access.users import Token, Users, UsersError, fresh_token, hashed_password, hashed_token
from web.app import create_app

FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
PASSWORD = "correct horse"
HASHED = hashed_password(PASSWORD)
ROLES = Roles({Role.OPERATE: frozenset({"ada"}), Role.OWN: frozenset({"alice"})})


def gate_in(folder: Path, tokens: dict[str, Token] | None = None, **more: object) -> Authentication:
    """As after a restart: all state is in the folder."""
    users = Users(folder / "users.toml", {"ada": HASHED}, tokens or {})
    users.save()
    sessions = Sessions(b"k" * 32, 3600, Ended(folder / ENDED_FILE))
    return Authentication(users=Users.load(users.path), roles=ROLES, sessions=sessions, **more)  # type: ignore[arg-type]


def app_of(authentication: Authentication) -> FastAPI:
    return create_app(fixture.shared(), authentication=authentication)


def browser(authentication: Authentication, scheme: str = "http") -> TestClient:
    return TestClient(
        app_of(authentication), base_url=f"{scheme}://faultline", follow_redirects=False, raise_server_exceptions=False
    )


def sign_in(client: TestClient) -> int:
    body = urlencode({"name": "ada", "password": PASSWORD})
    return client.post("/login", content=body, headers=FORM).status_code


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_copied_cookie_opens_nothing_after_sign_out_nor_after_a_restart(tmp_path: Path) -> None:
    client = browser(gate_in(tmp_path))
    assert sign_in(client) == 303
    copied = client.cookies[COOKIE]
    assert client.get("/api/v1/jobs").status_code == 200
    client.post("/logout", headers=FORM)
    for after in (client, browser(gate_in(tmp_path))):
        after.cookies.clear()
        after.cookies.set(COOKIE, copied)
        assert after.get("/api/v1/jobs").status_code == 401
    assert (tmp_path / ENDED_FILE).stat().st_mode & 0o077 == 0
    other = browser(gate_in(tmp_path))
    assert sign_in(other) == 303 and other.get("/api/v1/jobs").status_code == 200, "other sessions go on"


def test_who_signs_in_anew_leaves_no_session_behind_and_takes_none_over(tmp_path: Path) -> None:
    client = browser(gate_in(tmp_path))
    sign_in(client)
    first = client.cookies[COOKIE]
    assert sign_in(client) == 303 and client.cookies[COOKIE] != first
    client.cookies.clear()
    client.cookies.set(COOKIE, first)
    assert client.get("/api/v1/jobs").status_code == 401


def test_over_https_cookies_are_bound_to_the_host(tmp_path: Path) -> None:
    client = browser(gate_in(tmp_path), "https")
    body = urlencode({"name": "ada", "password": PASSWORD})
    reported = client.post("/login", content=body, headers=FORM).headers.get_list("set-cookie")
    assert {one.partition("=")[0] for one in reported} == {f"__Host-{COOKIE}", f"__Host-{BROWSER_COOKIE}"}
    for one in reported:
        assert {"HttpOnly", "Secure", "Path=/", "SameSite=lax"} <= {part.strip() for part in one.split(";")}
        assert "domain" not in one.lower()
    value = client.cookies[f"__Host-{COOKIE}"]
    assert client.get("/api/v1/jobs").status_code == 200
    client.cookies.clear()
    client.cookies.set(COOKIE, value)  # as a neighbouring host could set it
    assert client.get("/api/v1/jobs").status_code == 401
    left = client.post("/logout", headers=FORM).headers["set-cookie"]
    assert left.startswith(f'__Host-{COOKIE}=""') and "Secure" in left, "browsers drop it only so"
    public = browser(gate_in(tmp_path, public_url="https://faultline.example.org"))
    cookie = public.post("/login", content=body, headers=FORM).headers["set-cookie"]
    assert cookie.startswith("__Host-") and "Secure" in cookie, "HTTPS may be the proxy's"


def test_ended_sessions_are_remembered_until_they_would_have_ended(tmp_path: Path) -> None:
    now = [1000.0]
    path = tmp_path / ENDED_FILE
    ended = Ended(path, lambda: now[0])
    ended.add("a", 2000)
    ended.add("b", 3000)
    ended.add("b", 3000)
    assert path.read_text() == "a 2000\nb 3000\n"
    path.write_text(path.read_text() + "c 40")  # cut off by a crash: 40 is over anyway
    now[0] = 2500.0
    again = Ended(path, lambda: now[0])
    assert "b" in again and "a" not in again and path.read_text() == "b 3000\n"
    assert "x" not in Ended(None)


def test_longer_sessions_revive_none(tmp_path: Path) -> None:
    """The end is in the cookie: session_hours may be raised meanwhile, and the ended one was dropped at its time."""
    short, long = Sessions(b"k" * 32, -1), Sessions(b"k" * 32, 10**6)
    assert long.read(short.write("ada")) is None
    assert long.read(long.write("ada")) is not None
    assert short.read(long.write("ada")) is None, "and may shrink"


def test_a_disk_that_refuses_a_sign_out_still_ends_the_session(
    tmp_path: Path,
) -> None:
    ended = Ended(tmp_path / "not there" / ENDED_FILE)
    with capture_logs() as logged:
        ended.add("a", time.time() + 60)
    assert "a" in ended and any("after a restart" in entry["event"] for entry in logged)


# -- tokens ------------------------------------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_token_ends_with_its_time_and_its_holder_is_told(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    tokens = {
        "ada old": hashed_token("t-old"), "ada laptop": hashed_token("t-now", expires=now + timedelta(days=1)),
        "ada gone": hashed_token("t-gone", expires=now - timedelta(seconds=1)),
    }  # fmt: skip
    authentication = gate_in(tmp_path, tokens)
    client = TestClient(
        create_app(fixture.shared(), authentication=authentication, audit=Audit(tmp_path / "audit.ndjson"))
    )
    assert client.get("/api/v1/jobs", headers=bearer("t-old")).status_code == 200, "those of before go on"
    assert client.get("/api/v1/jobs", headers=bearer("t-now")).status_code == 200
    refused = client.get("/api/v1/jobs", headers=bearer("t-gone"))
    assert refused.status_code == 401 and "'ada gone' ended at 2" in refused.json()["detail"]
    assert "faultline access token" in refused.json()["do"]
    assert client.get("/healthz", headers=bearer("t-gone")).status_code == 200
    (line,) = [json.loads(one) for one in (tmp_path / "audit.ndjson").read_text().splitlines()]
    assert (line["act"], line["who"]) == ("token_refused", "ada gone")


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("all", {"jobs", "query", "metrics", "change", "nodes"}),
        ("read", {"jobs", "query", "metrics", "nodes"}),
        ("query", {"query"}),
        ("jobs", {"jobs"}),
        ("metrics", {"metrics"}),
        ("backup", set()),
    ],
)
def test_a_token_is_for_what_its_scope_says(tmp_path: Path, scope: str, allowed: set[str]) -> None:
    client = browser(
        gate_in(tmp_path, {"ada t": hashed_token("t", scope=scope), "alice t": hashed_token("a", scope=scope)})
    )
    asked = {
        "jobs": ("GET", "/api/v1/jobs"), "query": ("POST", "/api/v1/query"), "metrics": ("GET", "/metrics"),
        "nodes": ("GET", "/api/v1/nodes"), "change": ("POST", "/api/v1/jobs/15/feedback"),
    }  # fmt: skip
    body = {"query": "Jobs | count", "answer": "confirmed"}
    for name, (method, path) in asked.items():
        sent = {"json": body} if method == "POST" else {}
        answer = client.request(method, path, headers=bearer("t"), **sent)  # type: ignore[arg-type]
        assert (answer.status_code != 403) == (name in allowed), (scope, name, answer.text)
        if answer.status_code == 403 and scope != "read":
            assert f"scope {scope}" in answer.json()["detail"]
        lesser = client.request(method, path, headers=bearer("a"), **sent).status_code  # type: ignore[arg-type]
        assert lesser == (200 if name == "jobs" and name in allowed else 403), "a scope widens no role"


def test_no_scope_but_all_is_led_around_by_a_path(tmp_path: Path) -> None:
    client = browser(gate_in(tmp_path, {"ada t": hashed_token("t", scope="jobs")}))
    for path in ("/api/v1/jobs/../nodes", "/api/v1/jobs/%2e%2e/nodes", "/api/v1/jobs/..%2fnodes", "//api/v1/nodes",
                 "/static/../api/v1/nodes", "/static/%2e%2e/api/v1/nodes", "/metrics", "/"):  # fmt: skip
        answer = client.get(path, headers=bearer("t"))
        assert answer.status_code in (403, 404) and "gpu" not in answer.text, (path, answer.text)
    assert set(SCOPES) == {"all", "read", "query", "jobs", "metrics", "backup"}


def test_the_file_keeps_ends_scopes_and_four_characters_and_older_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    expires = datetime(2027, 11, 24, 8, 0, tzinfo=UTC)
    token, kept = fresh_token(expires, "query")
    Users(path, {}, {"grafana": kept, "old one": hashed_token("t-old")}).save()
    content = tomllib.loads(path.read_text())["tokens"]
    assert content["old one"].startswith("sha256:") and token not in path.read_text()
    assert content["grafana"] == {"hash": kept.digest, "ends": token[-4:], "expires": expires, "scope": "query"}
    again = Users.load(path)
    assert again.tokens == {"grafana": kept, "old one": hashed_token("t-old")}
    assert again.token(token) == ("grafana", kept) and again.token("x") is None
    right = path.read_text()
    for wrong, stated in (
        ('scope = "query"', 'scope = "everything"'), ("+00:00", ""), ("ends =", "network ="), ("sha256:", "md5:"),
    ):  # fmt: skip
        path.write_text(right.replace(wrong, stated))
        with pytest.raises(UsersError, match="tokens"):
            Users.load(path)


def test_two_that_change_the_file_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    Users(path, {"ada": HASHED}).save()
    one, two = Users.load(path), Users.load(path)
    with one.changing():
        one.tokens["a"] = hashed_token("a")
        one.save()
    with two.changing():
        two.tokens["b"] = hashed_token("b")
        two.save()
    assert set(Users.load(path).tokens) == {"a", "b"} and path.stat().st_mode & 0o007 == 0
