"""The first administrator: by a link that is shown once, works once, and only while nobody can sign in."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import fixture
import pytest
from fastapi.testclient import TestClient

from faultline.authentication import authentication_of
from faultline.config import Config, validate
from faultline.failure import CommandError
from faultline.first import again, offer
from web.access.audit import Audit
from web.access.authentication import Authentication
from web.access.first import FILE, LASTING_S, FirstLink
from web.access.users import Users, UsersError, hashed_password, hashed_token
from web.app import create_app

FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
PASSWORD = "correct horse"


def config(folder: Path, **more: object) -> Config:
    access = {"users": str(folder / "users.toml"), "operate": ["ada", "@admins"], "own": ["*"], **more}
    return validate({"data": str(folder / "data"), "access": access}, "test")


@pytest.fixture
def site(tmp_path: Path) -> Config:
    return config(tmp_path)


def begun(site: Config) -> tuple[TestClient, Authentication, str]:
    """A service that starts, and the key of its link."""
    authentication = authentication_of(site)
    assert authentication is not None
    reported = offer(site, authentication, "http://localhost:8514")
    app = create_app(fixture.shared(), authentication=authentication, audit=Audit(site.data / "audit.ndjson"))
    client = TestClient(app, follow_redirects=False, raise_server_exceptions=False)
    (key,) = re.findall(r"http://localhost:8514/first\?key=(\S+)$", reported or "")
    return client, authentication, key


def send(client: TestClient, key: str, name: str = "ada", password: str = PASSWORD, twice: str | None = None) -> int:
    body = {"key": key, "name": name, "password": password, "again": password if twice is None else twice}
    return client.post("/first", content=urlencode(body), headers=FORM).status_code


def test_the_link_makes_one_administrator_and_works_no_more(site: Config, tmp_path: Path) -> None:
    client, _gate, key = begun(site)
    page = client.get(f"/first?key={key}")
    assert page.status_code == 200 and 'value="ada" autocomplete="username" readonly' in page.text
    assert "gpu02" not in page.text, "nothing stored is told to strangers"
    assert key not in (site.data / FILE).read_text() and (site.data / FILE).stat().st_mode & 0o077 == 0
    assert send(client, key) == 303 and client.get("/api/v1/nodes").status_code == 200
    kept = Users.load(tmp_path / "users.toml")
    assert list(kept.people) == ["ada"] and kept.has_password("ada", PASSWORD)
    assert (tmp_path / "users.toml").stat().st_mode & 0o007 == 0 and not (site.data / FILE).exists()
    stranger = TestClient(client.app, follow_redirects=False)
    assert stranger.get(f"/first?key={key}").status_code == 403 and send(stranger, key, password="another one") == 403
    reported = [json.loads(line) for line in (site.data / "audit.ndjson").read_text().splitlines()]
    assert ("sign_in", "ada", "first") in [(line["act"], line["who"], line.get("way")) for line in reported]
    assert ("sign_in_refused", "ada", "first") in [(line["act"], line["who"], line.get("way")) for line in reported]
    assert key not in str(reported) and PASSWORD not in str(reported)
    assert offer(site, authentication_of(site), "http://x") is None, "the next start offers none"


@pytest.mark.parametrize(
    ("given", "said"),
    [({"name": "eve"}, "operate names ada"), ({"password": "short"}, "at least 8"), ({"twice": "different"}, "differ"),
     ({"name": "@admins"}, "Give a name"), ({"name": ""}, "Give a name"), ({"password": "x" * 2000}, "at most")],
)  # fmt: skip
def test_what_does_not_fit_is_stated_and_the_link_still_works(site: Config, given: dict[str, str], said: str) -> None:
    client, authentication, key = begun(site)
    fields = {
        "key": key,
        "name": "ada",
        "password": PASSWORD,
        "again": given.get("twice", given.get("password", PASSWORD)),
    }
    answer = client.post("/first", content=urlencode({**fields, **given}), headers=FORM)
    assert answer.status_code == 422 and said in answer.text and not authentication.users.people
    assert send(client, key) == 303


def test_it_works_for_fifteen_minutes_and_only_the_last_one(site: Config) -> None:
    client, authentication, first = begun(site)
    _, _, second = begun(site)
    assert (
        client.get(f"/first?key={first}").status_code == 403 and client.get(f"/first?key={second}").status_code == 200
    )
    made = json.loads((site.data / FILE).read_text())["until"] - LASTING_S
    for late, status in ((LASTING_S - 1, 200), (LASTING_S, 403), (-3600.0, 403)):
        authentication.first.clock = lambda late=late: made + late
        assert client.get(f"/first?key={second}").status_code == status, late
    for wrong in ("", "x", second[:-1], second + "x", "%00"):
        assert client.get(f"/first?key={wrong}").status_code == 403


def test_a_damaged_link_opens_nothing(tmp_path: Path) -> None:
    link = FirstLink(tmp_path)
    key = link.make()
    right = (tmp_path / FILE).read_text()
    assert link.opens(key) and not FirstLink(tmp_path.parent).opens(key) and not FirstLink().opens(key)
    for wrong in ("", "{", "[]", "null", '{"hash": 3}', right.replace('"until": ', '"until": "x')):
        (tmp_path / FILE).write_text(wrong)
        assert not link.opens(key), wrong


def test_two_at_once_make_one(site: Config, tmp_path: Path) -> None:
    site = config(tmp_path, operate=["ada", "eve"])
    client, _gate, key = begun(site)
    with client, ThreadPoolExecutor(2) as both:
        statuses = sorted(both.map(lambda name: send(client, key, name), ["ada", "eve"]))
    assert statuses == [303, 403] and len(Users.load(tmp_path / "users.toml").people) == 1


def test_a_foreign_page_sends_no_form(site: Config) -> None:
    client, authentication, key = begun(site)
    body = urlencode({"key": key, "name": "ada", "password": PASSWORD, "again": PASSWORD})
    answer = client.post("/first", content=body, headers={**FORM, "sec-fetch-site": "cross-site"})
    assert answer.status_code == 403 and not authentication.users.people


def test_where_the_file_cannot_be_written_the_way_by_hand_is_stated(
    site: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client, authentication, key = begun(site)

    def refused(_self: Users) -> None:
        raise UsersError(f"{tmp_path}/users.toml: cannot be written: Read-only file system")

    with monkeypatch.context() as during:
        during.setattr(Users, "save", refused)
        answer = client.post(
            "/first",
            content=urlencode({"key": key, "name": "ada", "password": PASSWORD, "again": PASSWORD}),
            headers=FORM,
        )
    assert answer.status_code == 503 and "faultline access password ada --users" in answer.text
    assert not authentication.users.people and send(client, key) == 303, "the link is as it was"


def test_no_link_where_it_could_help_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_groups = config(tmp_path, operate=["@admins"])
    Users(tmp_path / "users.toml").save()
    assert "from a shell: faultline access password NAME" in (
        offer(only_groups, authentication_of(only_groups), "http://x") or ""
    )
    assert not (only_groups.data / FILE).exists()
    Users(tmp_path / "users.toml", {"bob": hashed_password(PASSWORD)}).save()
    somebody = config(tmp_path)
    assert offer(somebody, authentication_of(somebody), "http://x") is None
    with pytest.raises(CommandError, match="somebody has a password already"):
        again(somebody)
    Users(tmp_path / "users.toml", {}, {"grafana": hashed_token("t")}).save()
    assert "/first?key=" in again(somebody), "a program's token is nobody's way in"
    elsewhere = config(tmp_path, provider={"issuer": "https://login.example.org", "client_id": "x"})
    assert offer(elsewhere, authentication_of(elsewhere), "http://x") is None
    assert offer(validate({}, "test"), None, "http://x") is None
    with pytest.raises(CommandError, match=r"no \[access\]"):
        again(validate({}, "test"))
    (tmp_path / "users.toml").unlink()
    monkeypatch.setattr("faultline.authentication._may_write", lambda _path: False)
    with pytest.raises(CommandError, match=r"cannot be read.*faultline access password ada --users"):
        authentication_of(config(tmp_path))


def test_whoever_comes_may_be_it_where_everyone_operates(tmp_path: Path) -> None:
    client, _gate, key = begun(config(tmp_path, operate=["*"]))
    assert 'maxlength="200" required' in client.get(f"/first?key={key}").text
    assert send(client, key, "grace") == 303 and client.get("/api/v1/nodes").status_code == 200
