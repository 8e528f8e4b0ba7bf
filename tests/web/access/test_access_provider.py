"""Login with an OpenID Connect provider, over HTTP with a small one of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fixture
import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from joserfc.jwk import RSAKey
from provider import SmallProvider, running

from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.settings import Provider
from web.access.users import Users
from web.app import create_app

PAGE = {"accept": "text/html"}


@pytest.fixture(scope="module")
def small() -> Iterator[SmallProvider]:
    yield from running("faultline", "s3cret")


@pytest.fixture(scope="module")
def app(small: SmallProvider, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    secret = tmp_path_factory.mktemp("provider") / "secret"
    secret.write_text("s3cret\n")
    reported = Provider(issuer=small.address, client_id="faultline", secret_file=secret, name="HPC login")
    roles = Roles({Role.READ: frozenset({"@hpc"}), Role.OPERATE: frozenset({"ops"})})
    authentication = Authentication(Users(), roles, Sessions(b"k" * 32, 3600), provider=reported)
    return create_app(fixture.shared(), authentication=authentication)


@pytest.fixture
def client(app: FastAPI, small: SmallProvider) -> TestClient:
    """A browser without cookies, and a provider as it was begun."""
    small.claims, small.denied, small.audience, small.signing = {}, "", "faultline", small.key
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False)


def enter(client: TestClient, following: str = "/jobs?q=1") -> Any:
    """The path of a browser: to the provider, and back with its answer."""
    there = client.get("/login/provider", params={"next": following}, headers=PAGE)
    assert there.status_code == 302, there.text
    back = httpx2.get(there.headers["location"], follow_redirects=False).headers["location"]
    assert back.startswith("http://testserver/login/provider/back?")
    return client.get(back.removeprefix("http://testserver"), headers=PAGE)


def test_who_the_provider_names_is_let_in_with_the_role_of_the_group(client: TestClient, small: SmallProvider) -> None:
    assert "Sign in with HPC login" in client.get("/login", headers=PAGE).text
    small.claims = {"preferred_username": "eve", "groups": ["staff", "hpc"]}
    answer = enter(client)
    assert answer.status_code == 303 and answer.headers["location"] == "/jobs?q=1"
    assert "Sign out" in client.get("/jobs", headers=PAGE).text and client.get("/api/v1/nodes").status_code == 200
    assert client.post("/api/v1/quarantine/x/replay").status_code == 403


def test_who_has_no_role_is_told_so(client: TestClient, small: SmallProvider) -> None:
    small.claims = {"preferred_username": "eve", "groups": ["staff"]}
    assert enter(client).status_code == 303
    assert client.get("/api/v1/nodes").status_code == 403
    assert "eve is signed in but has no rights here" in client.get("/login", headers=PAGE).text


def test_a_name_from_elsewhere_is_no_group(client: TestClient, small: SmallProvider) -> None:
    small.claims = {"preferred_username": "@hpc"}
    assert enter(client).status_code == 303 and client.get("/api/v1/nodes").status_code == 403


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"denied": "access_denied"}, "access_denied"),
        ({"claims": {}}, "told no preferred_username"),
        ({"claims": {"preferred_username": "ops"}, "audience": "another service"}, "did not let you in"),
        ({"claims": {"preferred_username": "ops", "exp": 1}}, "did not let you in"),
        ({"claims": {"preferred_username": "ops", "nonce": "of another time"}}, "did not let you in"),
        ({"claims": {"preferred_username": "ops", "iss": "https://evil.example"}}, "did not let you in"),
        ({"claims": {"preferred_username": "ops"}, "signing": {"kid": "k1"}}, "did not let you in"),
    ],
    ids=["denied", "no name", "for another", "expired", "replayed", "another issuer", "forged"],
)  # fmt: skip
def test_who_the_provider_does_not_vouch_for_stays_outside(
    client: TestClient, small: SmallProvider, change: dict[str, Any], said: str
) -> None:
    for name, value in change.items():
        # Another key of this name is made here: every process that collects tests would make it.
        setattr(small, name, RSAKey.generate_key(2048, value) if name == "signing" else value)
    answer = enter(client)
    assert (
        answer.status_code == 403
        and said in answer.text
        and "faultline_session" not in answer.headers.get("set-cookie", "")
    )
    assert client.get("/api/v1/nodes").status_code == 401


def test_an_answer_that_nobody_asked_for_is_refused(client: TestClient) -> None:
    answer = client.get("/login/provider/back?code=x&state=y", headers=PAGE)
    assert answer.status_code == 403 and "did not let you in" in answer.text


def test_a_provider_that_is_away_is_stated(client: TestClient) -> None:
    authentication = client.app.state.authentication  # type: ignore[attr-defined]
    away = Provider(issuer="http://127.0.0.1:1", client_id="faultline", name="HPC login")
    asked = TestClient(create_app(fixture.shared(), authentication=Authentication(Users(), authentication.roles, authentication.sessions, provider=away)),
                       raise_server_exceptions=False)  # fmt: skip
    answer = asked.get("/login/provider", headers=PAGE)
    assert answer.status_code == 503 and "HPC login cannot be reached" in answer.text
