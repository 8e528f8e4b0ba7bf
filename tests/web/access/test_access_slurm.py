"""Users whom Slurm's own identities show: a munge credential or a Slurm token. They see their own jobs, and no more."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import OctKey
from planted import Planted, planted

from faultline import slurm_credentials
from faultline.authentication import authentication_of
from faultline.config import validate
from faultline.failure import CommandError
from faultline.service import Service, build_app
from tests.web.access.test_access import routes
from web.access import slurm
from web.access.authentication import Authentication, IdentityError
from web.access.people import Role, Roles
from web.access.rights import FOR_OWN
from web.access.scopes import SCOPES
from web.access.sessions import Sessions
from web.access.settings import SlurmIdentity
from web.access.slurm import SlurmUsers
from web.access.users import Users

KEY = b"k" * 32
CREDENTIAL = "MUNGE:AwQFAAAjH7CM==:"
NOW = 1_800_000_000
#: What ``unmunge`` of munge 0.5.15 prints.
DECODED = """STATUS:          Success (0)
ENCODE_HOST:     login7 (10.0.0.9)
ENCODE_TIME:     2027-01-15 08:00:00 +0000 ({made})
DECODE_TIME:     2027-01-15 08:00:00 +0000 ({now})
TTL:             60
CIPHER:          aes128 (4)
MAC:             sha256 (5)
ZIP:             none (0)
UID:             someone4 ({uid})
GID:             users2 (100)
LENGTH:          25

{payload}"""
MEANT_FOR = "faultline-why/1\nmgmt01"


def signed(claims: dict[str, Any], key: bytes = KEY, algorithm: str = "HS256") -> str:
    return jwt.encode({"alg": algorithm}, claims, OctKey.import_key(key), algorithms=[algorithm])


def fake_unmunge(folder: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0, uid: object = 20001, age: int = 1,
                 payload: str = MEANT_FOR, says: str = "") -> None:  # fmt: skip
    """A program ``unmunge`` that answers like munge's, whatever the credential."""
    output = DECODED.format(made=NOW - age, now=NOW, uid=uid, payload=payload)
    (folder / "printed").write_text(output)
    program = folder / "unmunge"
    program.write_text(f"#!/bin/sh\ncat {folder}/printed\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def users(tmp_path: Path | None = None, **settings: Any) -> SlurmUsers:
    key = {}
    if tmp_path is not None:
        (tmp_path / "jwt_hs256.key").write_bytes(KEY)
        key = {"jwt_key": tmp_path / "jwt_hs256.key"}
    made = SlurmIdentity.model_validate({"users": {"20001": "alice"}, **key, **settings})
    return SlurmUsers(made, ("mgmt01", "faultline.example.org"), clock=lambda: NOW)


def of(known: SlurmUsers, scheme: str, given: str, peer: str | None = "10.0.0.9", at: str | None = "10.0.0.1") -> Any:
    return asyncio.run(known.person(scheme, given, peer=peer, at=at))


# -- munge ---------------------------------------------------------------------------------------------------------------


def test_a_munge_credential_shows_whose_jobs_may_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_unmunge(tmp_path, monkeypatch)
    person = of(users(munge=True), "munge", CREDENTIAL)
    assert (person.name, person.role, person.scope) == ("alice", Role.OWN, "jobs")


def test_names_come_from_the_services_own_user_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_unmunge(tmp_path, monkeypatch, uid=0)
    assert of(users(munge=True), "Munge", CREDENTIAL).name == "root"
    fake_unmunge(tmp_path, monkeypatch, uid=4_000_000_000)
    with pytest.raises(IdentityError, match="uid 4000000000 has no name"):
        of(users(munge=True), "Munge", CREDENTIAL)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"code": 6}, "munged of this service cannot be asked"),
        ({"code": 14}, "not of this service's munge realm"),
        ({"code": 15}, "too old"),
        ({"code": 16}, "from the future"),
        ({"code": 17}, "used before"),
        ({"code": 18}, "meant for another user"),
        ({"code": 99, "says": "something new"}, "something new"),
        ({"age": 301}, "301 seconds old, and 300 are the limit"),
        ({"uid": "someone"}, "does not tell 'UID'"),
        ({"payload": ""}, "made for something else"),
        ({"payload": "faultline-why/1"}, "no name of this one"),
        ({"payload": "faultline-why/1\nevil.example.org"}, "no name of this one"),
        ({"payload": "faultline-why/1\nlocalhost"}, "no name of this one"),
    ],
)
def test_what_munge_or_the_service_refuses_is_explained(
    answer: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_unmunge(tmp_path, monkeypatch, **answer)
    with pytest.raises(IdentityError, match=says):
        of(users(munge=True), "Munge", CREDENTIAL)


@pytest.mark.parametrize(
    ("host", "peer"),
    [("MGMT01", "10.0.0.9"), ("faultline.example.org", "10.0.0.9"), ("10.0.0.1", "10.0.0.9"), ("localhost", "127.0.0.1"),
     ("127.0.0.1", "::1")],
)  # fmt: skip
def test_a_credential_names_the_host_that_was_asked(
    host: str, peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_unmunge(tmp_path, monkeypatch, payload=f"faultline-why/1\n{host}")
    assert of(users(munge=True), "Munge", CREDENTIAL, peer).name == "alice"


@pytest.mark.parametrize("given", ["", "x", "MUNGE:", "MUNGE:é:", "MUNGE:AA==:\nx", "--help", f"MUNGE:{'A' * 5000}:"])
def test_what_is_no_credential_starts_no_program(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = users(munge=True)
    monkeypatch.setattr(known, "_decode", lambda _: pytest.fail("decoded"))
    with pytest.raises(IdentityError, match="no munge credential"):
        of(known, "Munge", given)


def test_credentials_are_decoded_a_few_at_a_time_and_not_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    known = users(munge=True)
    most, running, over = slurm.AT_ONCE + slurm.MOST_WAITING, 0, []

    def of_credential(*_: object) -> str:
        nonlocal running
        running += 1
        over.append(running)
        time.sleep(0.001)
        running -= 1
        return "alice"

    monkeypatch.setattr(known, "_of_credential", of_credential)

    async def flood() -> list[Any]:
        asked = [known.person("Munge", CREDENTIAL, peer=None, at=None) for _ in range(most + 20)]
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(flood())
    busy = [error for error in answers if isinstance(error, IdentityError)]
    assert max(over) <= slurm.AT_ONCE and 20 <= len(busy) < most and {error.status for error in busy} == {503}


# -- tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", ["sun", "username"])
def test_a_slurm_token_shows_whose_jobs_may_be_seen(claim: str, tmp_path: Path) -> None:
    person = of(users(tmp_path), "slurm-jwt", signed({"exp": NOW + 60, "iat": NOW, claim: "alice"}))
    assert (person.name, person.role, person.scope) == ("alice", Role.OWN, "jobs")


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: str = "") -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims))
    return ".".join([*parts, signature])


GOOD = {"exp": NOW + 60, "iat": NOW, "sun": "alice"}


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (signed(GOOD, b"x" * 32), "not signed with this site's key"),
        (unsigned({"alg": "none"}, GOOD), "not signed"),
        (unsigned({"alg": "None", "typ": "JWT"}, GOOD, "AA"), "not signed"),
        (unsigned({"alg": "HS256"}, GOOD), "not signed"),
        (signed(GOOD, KEY, "HS512"), "not signed"),
        ("", "not signed"),
        ("a.b.c", "not signed"),
        (signed(GOOD)[:-2], "not signed"),
        (signed({**GOOD, "exp": NOW - 90}), "it ended 90 seconds ago"),
        (signed({"iat": NOW, "sun": "alice"}), "it has no end"),
        (signed({**GOOD, "exp": "tomorrow"}), "it has no end"),
        (signed({**GOOD, "iat": NOW + 300}), "300 seconds from the future"),
        (signed({**GOOD, "nbf": NOW + 300}), "300 seconds from the future"),
        (signed({"exp": NOW + 60}), "it names no user"),
        (signed({**GOOD, "sun": ["alice"]}), "it names no user"),
        (signed({**GOOD, "sun": "alice' OR 1"}), "it names no user"),
    ],
)
def test_a_token_that_is_not_slurms_or_over_is_refused(token: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=says):
        of(users(tmp_path), "Slurm-JWT", token)


def test_what_the_site_did_not_opt_into_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="not accepted"):
        of(users(tmp_path), "Munge", CREDENTIAL)
    with pytest.raises(IdentityError, match="not accepted"):
        of(users(munge=True), "Slurm-JWT", signed(GOOD))


# -- the service ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plant() -> Iterator[Planted]:
    with planted() as made:
        yield made


@pytest.fixture(scope="module")
def client(plant: Planted, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "key").write_bytes(KEY)
    # ops may operate when they sign in, and not by Slurm's identity
    authentication = Authentication(users=Users(), roles=Roles({Role.OPERATE: frozenset({"ops"})}), sessions=Sessions(b"k" * 32, 3600),
                slurm=SlurmUsers(SlurmIdentity(jwt_key=folder / "key", munge=True), clock=lambda: NOW))  # fmt: skip
    app = build_app(Service(validate({"data": str(folder)}, "test"), plant.store, authentication=authentication))
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False)


def by_token(name: str) -> dict[str, str]:
    return {"authorization": f"Slurm-JWT {signed({**GOOD, 'sun': name})}"}


def test_every_route_but_those_of_ones_own_jobs_is_closed(client: TestClient) -> None:
    """Also for somebody who may do more when they sign in."""
    open_to_jobs = set()
    for method, route in sorted(routes(client.app)):  # type: ignore[arg-type]
        path = (
            route.replace("{key}", "101")
            .replace("{incident_id}", "I-none")
            .replace("{name}", "n")
            .replace("{identity}", "1")
        )
        if path in ("/healthz", "/readyz", "/logout", "/first") or path.startswith("/login"):
            continue
        status = client.request(method, path, headers=by_token("ops")).status_code
        assert status in (200, 304, 403, 404), (method, route, status)
        if status != 403:
            open_to_jobs.add(route)
    assert open_to_jobs <= FOR_OWN and "/api/v1/jobs/{key}" in open_to_jobs


def test_another_users_job_is_answered_like_one_that_does_not_exist(client: TestClient, plant: Planted) -> None:
    mine, theirs = plant.keys["alice"][0], plant.keys["bob"][0]
    found = client.get(f"/api/v1/jobs/{mine}", headers=by_token("alice"))
    assert found.status_code == 200 and found.json()["user"] == "alice"
    refused = client.get(f"/api/v1/jobs/{theirs}", headers=by_token("alice"))
    nowhere = client.get("/api/v1/jobs/999999", headers=by_token("alice"))
    assert refused.status_code == nowhere.status_code == 404
    assert refused.json()["detail"].replace(theirs, "") == nowhere.json()["detail"].replace("999999", "")
    assert not [secret for secret, (owner, _) in plant.secrets.items() if owner != "alice" and secret in found.text]


def test_a_stranger_is_told_what_is_accepted(client: TestClient) -> None:
    answer = client.get("/api/v1/jobs/101")
    assert answer.status_code == 401
    assert slurm_credentials.accepted(answer.headers["www-authenticate"]) == ("Munge", "Slurm-JWT")
    for header in ("Slurm-JWT a.b.c", "Munge nothing", "Munge"):
        refused = client.get("/api/v1/jobs/101", headers={"authorization": header})
        assert (
            refused.status_code == 401 and refused.json()["do"] and "Munge realm" in refused.headers["www-authenticate"]
        )
    assert client.get("/readyz", headers={"authorization": "Munge nothing"}).status_code == 200


def test_command_line_and_service_agree_on_the_form() -> None:
    ours = (slurm_credentials.MUNGE, slurm_credentials.TOKEN, slurm_credentials.PAYLOAD)
    assert ours == (slurm.MUNGE, slurm.TOKEN, slurm.PAYLOAD) and slurm.SCOPE in SCOPES
    assert slurm_credentials.MUNGE_TTL_S <= slurm.OLDEST_S


@pytest.mark.parametrize(
    ("challenge", "schemes"),
    [
        ("", ()),
        ('Bearer realm="faultline"', ()),
        ('Bearer realm="faultline", Munge realm="faultline"', ("Munge",)),
        ('Bearer realm="Munge", error="invalid, Slurm-JWT"', ()),
        ("Slurm-JWT, Bearer", ("Slurm-JWT",)),
    ],
)
def test_what_a_service_accepts_is_read_from_its_challenge(challenge: str, schemes: tuple[str, ...]) -> None:
    assert slurm_credentials.accepted(challenge) == schemes


def test_settings_that_cannot_work_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(**settings: object) -> Authentication | None:
        return authentication_of(validate({"data": str(tmp_path / "data"), "access": {"slurm": settings}}, "test"))

    (tmp_path / "data").mkdir()
    (tmp_path / "short").write_bytes(b"x")
    for wrong, says in (
        ({}, "accepts nothing"),
        ({"munge": True, "users": {"alice": "20001"}}, "must be a uid"),
        ({"jwt_key": str(tmp_path / "none")}, "jwt_key .*none: cannot be read"),
        ({"jwt_key": str(tmp_path / "short")}, "1 bytes are no key"),
    ):
        with pytest.raises(CommandError, match=says):
            started(**wrong)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="no program unmunge"):
        started(munge=True)
    (tmp_path / "key").write_bytes(KEY)
    authentication = started(jwt_key=str(tmp_path / "key"))
    assert (
        authentication is not None
        and authentication.slurm is not None
        and authentication.slurm.schemes == ("Slurm-JWT",)
    )
