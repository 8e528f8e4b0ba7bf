"""Login, and who may see and do what: every route is requested by every role."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from store.door import Door
from store.tables import FEEDBACK
from tests.correlator.rows import CAPTURES, concluded
from web.access.authentication import OPEN, Authentication
from web.access.own import OwnReader
from web.access.own_documents import OwnDocuments
from web.access.people import Role, Roles
from web.access.rights import ASKED_WITH_BODY, FOR_OWN, needed
from web.access.sessions import COOKIE, Sessions, key_of
from web.access.users import Users, UsersError, hashed_password, hashed_token
from web.app import create_app
from web.login import inside
from web.reading import Reader

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
PAGE = {"accept": "text/html"}
PASSWORD = "correct horse"
#: One hash for all: it costs some tenths of a second on purpose.
HASHED = hashed_password(PASSWORD)
ROLES = Roles({
    Role.OPERATE: frozenset({"ops", "@hpc-admins"}), Role.READ: frozenset({"reader", "@support"}), Role.OWN: frozenset({"alice", "bob", "carol"}),
})  # fmt: skip
NAMES = ("ops", "reader", "alice", "bob", "nobody")


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    with concluded(FLAP) as opened:
        yield opened


@pytest.fixture
def users(tmp_path: Path) -> Users:
    made = Users(
        tmp_path / "users.toml", dict.fromkeys(NAMES, HASHED), {f"{n} laptop": hashed_token(f"t-{n}") for n in NAMES}
    )
    made.save()
    return Users.load(made.path)


@pytest.fixture
def authentication(users: Users) -> Authentication:
    return Authentication(
        users=users, roles=ROLES, sessions=Sessions(b"k" * 32, 3600), proxies=frozenset({"10.0.0.1"}),
        user_header="X-Remote-User", groups_header="X-Remote-Groups",
    )  # fmt: skip


@pytest.fixture
def app(store: Door, authentication: Authentication) -> FastAPI:
    return create_app(store, authentication=authentication)


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer t-{name}"}


def sign_in(client: TestClient, name: str, password: str = PASSWORD, following: str = "/jobs/15") -> int:
    body = urlencode({"name": name, "password": password, "next": following})
    return client.post("/login", content=body, headers=FORM).status_code


# -- who ---------------------------------------------------------------------------------------------------------------


def test_a_stranger_is_sent_to_sign_in_and_back_to_what_was_asked(client: TestClient) -> None:
    asked = client.get("/jobs/15?theme=dark", headers=PAGE)
    assert asked.status_code == 303 and asked.headers["location"] == "/login?next=%2Fjobs%2F15%3Ftheme%3Ddark"
    page = client.get(asked.headers["location"], headers=PAGE)
    assert page.status_code == 200 and 'value="/jobs/15?theme=dark"' in page.text
    assert "gpu02" not in page.text and "alice" not in page.text, "nothing stored is told to strangers"
    body = urlencode({"name": "alice", "password": PASSWORD, "next": "/jobs/15?theme=dark"})
    entered = client.post("/login", content=body, headers=FORM)
    assert entered.status_code == 303 and entered.headers["location"] == "/jobs/15?theme=dark"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie and PASSWORD not in cookie
    text = client.get("/jobs/15", headers=PAGE).text
    assert "Sign out" in text and "alice" in text and "lost its network" in text
    assert "It is right" not in text, "what would be refused is not offered"
    assert client.post("/logout", headers=FORM).headers["location"] == "/login"
    assert client.get("/jobs/15", headers=PAGE).status_code == 303


def test_a_program_is_told_how_to_ask(client: TestClient) -> None:
    answer = client.get("/api/v1/jobs/15")
    assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")
    assert (
        answer.headers["content-type"] == "application/problem+json" and "FAULTLINE_ACCESS_TOKEN" in answer.json()["do"]
    )
    assert client.get("/api/v1/jobs/15", headers=bearer("reader")).json()["run_key"] == "15"
    assert client.get("/api/v1/jobs/15", headers={"authorization": "Bearer t-else"}).status_code == 401
    for path in ("/healthz", "/readyz", "/static/app.js", "/login"):
        assert client.get(path).status_code == 200, path
    assert (
        client.get("/metrics").status_code == 401
        and client.get("/metrics", headers=bearer("reader")).status_code == 200
    )


@pytest.mark.parametrize(
    ("cookie", "why"),
    [("", "none"), ("nonsense", "not ours"), (Sessions(b"x" * 32, 3600).write("ops"), "signed with another key")],
    ids=["none", "nonsense", "another key"],
)
def test_only_a_cookie_of_ours_is_believed(client: TestClient, cookie: str, why: str) -> None:
    client.cookies.set(COOKIE, cookie)
    assert client.get("/api/v1/jobs/15").status_code == 401, why


def test_a_session_ends_with_its_time_its_password_and_its_name(
    authentication: Authentication, client: TestClient, users: Users
) -> None:
    assert sign_in(client, "reader") == 303 and client.get("/api/v1/jobs").status_code == 200
    authentication.sessions.lasting_s = -1
    assert client.get("/api/v1/jobs").status_code == 401
    authentication.sessions.lasting_s = 3600
    assert client.get("/api/v1/jobs").status_code == 200
    users.people["reader"] = hashed_password("another one")
    users.save()
    assert client.get("/api/v1/jobs").status_code == 401, "the file is followed"
    del users.people["reader"]
    users.save()
    assert sign_in(client, "reader", "another one") == 403


def test_a_file_that_cannot_be_read_any_more_lets_nobody_in(client: TestClient, users: Users) -> None:
    assert client.get("/api/v1/jobs", headers=bearer("ops")).status_code == 200
    assert users.path is not None
    right = users.path.read_text()
    users.path.write_text("[people\n")
    assert client.get("/api/v1/jobs", headers=bearer("ops")).status_code == 401
    users.path.write_text(right)
    assert client.get("/api/v1/jobs", headers=bearer("ops")).status_code == 200


def test_another_sites_page_signs_nobody_in(client: TestClient) -> None:
    body = urlencode({"name": "alice", "password": PASSWORD})
    answer = client.post("/login", content=body, headers={**FORM, "sec-fetch-site": "cross-site"})
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("address", "kept"),
    [("/jobs/15?theme=dark#x", "/jobs/15?theme=dark#x"), ("//evil.example", "/"), ("/\\evil.example", "/"), ("https://evil.example", "/"),
     ("javascript:alert(1)", "/"), ("/a\r\nSet-Cookie: x=1", "/"), ("/\t/evil.example", "/"), ("", "/")],
)  # fmt: skip
def test_after_signing_in_nobody_is_led_elsewhere(address: str, kept: str) -> None:
    assert inside(address) == kept


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("10.0.0.1", {"X-Remote-User": "reader"}, 200),
        ("10.0.0.1", {"X-Remote-User": "eve", "X-Remote-Groups": "staff, support"}, 200),
        ("10.0.0.1", {"X-Remote-User": "eve"}, 403),
        (
            "10.0.0.1",
            {"X-Remote-User": "reader", "Authorization": "Basic cmVhZGVyOng="},
            200,
        ),  # between browser and proxy
        ("10.0.0.1", {}, 401),
        ("10.0.0.9", {"X-Remote-User": "ops"}, 401),  # a client that reaches the port past the proxy
    ],
)
def test_only_the_proxy_says_who_asks(
    app: FastAPI, authentication: Authentication, peer: str, headers: dict[str, str], status: int
) -> None:
    asked = TestClient(app, client=(peer, 4000), raise_server_exceptions=False)
    assert asked.get("/api/v1/nodes", headers=headers).status_code == status


# -- what --------------------------------------------------------------------------------------------------------------


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Method and template of every route, those of included routers as well."""
    found: list[tuple[str, str]] = []

    def walk(items: list[object]) -> None:
        for route in items:
            inner = getattr(route, "original_router", None) or getattr(route, "router", None)
            if inner is not None:
                walk(list(inner.routes))
            elif getattr(route, "methods", None):
                found.extend((method, str(getattr(route, "path", ""))) for method in getattr(route, "methods", ()))

    walk(list(app.routes))
    return found


def filled(template: str) -> str:
    return (
        template.replace("{key}", "15")
        .replace("{incident_id}", "I-6fca6f7277")
        .replace("{name}", "gpu02")
        .replace("{identity}", "x")
    )


@pytest.mark.long  # test_rights_by_construction.py asks each route as each role, on another store
def test_every_route_refuses_strangers_and_those_without_the_right(app: FastAPI, client: TestClient) -> None:
    known = [(m, p) for m, p in routes(app) if p not in OPEN and m != "HEAD"]
    assert len(known) > 30 and ("POST", "/api/v1/query") in known and ("GET", "/jobs/{key}") in known
    rank = {"ops": Role.OPERATE, "reader": Role.READ, "alice": Role.OWN, "nobody": None}
    for method, template in known:
        address = filled(template)
        if template == "/api/v1/tail":
            continue  # it streams until its client disconnects; its right is the default
        assert client.request(method, address).status_code == 401, (method, template)
        if template == "/api/v1/openapi.json":
            continue
        for name, role in rank.items():
            status = client.request(method, address, headers=bearer(name)).status_code
            may = role is not None and role >= needed(method, template)
            assert (status not in (401, 403)) == may, (name, method, template, status)


def test_a_route_refuses_strangers_also_where_nothing_stands_in_front(
    store: Door, authentication: Authentication
) -> None:
    app = create_app(store)
    app.state.authentication = authentication
    assert TestClient(app).get("/api/v1/jobs").status_code == 401


def test_only_known_routes_are_open_to_lesser_roles(app: FastAPI) -> None:
    templates = {template for _method, template in routes(app)} | {"/api/v1/result"}
    assert templates >= FOR_OWN and templates >= ASKED_WITH_BODY and templates >= OPEN
    assert needed("POST", "/jobs/{key}") is Role.OPERATE and needed("DELETE", "/anything/new") is Role.OPERATE
    assert needed("GET", "/anything/new") is Role.READ


def test_own_jobs_are_ones_own(client: TestClient) -> None:
    alice, bob = bearer("alice"), bearer("bob")
    listed = client.get("/api/v1/jobs?user=bob&limit=500", headers=alice).json()["jobs"]
    assert listed and {job["user"] for job in listed} == {"alice"}, "whoever is asked for"
    assert client.get("/jobs/15", headers=alice).status_code == 200
    for path in (
        "/jobs/15",
        "/api/v1/jobs/15",
        "/api/v1/jobs/15/verdict",
        "/incidents/I-6fca6f7277",
        "/api/v1/axis/I-6fca6f7277",
    ):
        answer = client.get(path, headers=bob)
        assert answer.status_code == 404 and "gpu02" not in answer.text and "hit" not in answer.text, path
    assert client.get("/incidents/I-6fca6f7277", headers=alice).status_code == 200
    assert client.get("/", headers={**alice, **PAGE}).headers["location"] == "/jobs"
    text = client.get("/jobs?q=1", headers={**alice, **PAGE}).text
    assert "bob" not in text and not re.search(r'href="/(nodes|explore|sources|reports|repairs)', text)


def offered(text: str) -> set[str]:
    """Every address of ours that a page links to or that its scripts request."""
    found = re.findall(r'(?:href|src|data-src|action)="(/[^"]*)"', text)
    return {html.unescape(address).partition("#")[0] for address in found}


OF_HERS = {"/jobs/15", "/incidents/I-6fca6f7277", "/api/v1/axis/I-6fca6f7277"}


@pytest.mark.long
@pytest.mark.parametrize(
    "everything", [False, pytest.param(True, marks=pytest.mark.long)], ids=["one of each form", "everything"]
)
def test_pages_of_ones_own_jobs_offer_nothing_that_is_refused(client: TestClient, everything: bool) -> None:
    headers = {**bearer("alice"), **PAGE}
    todo, seen, forms = ["/jobs"], set[str](), set[str]()
    while todo:
        page = client.get(todo.pop(), headers=headers)
        assert page.status_code == 200, page.url
        assert "data-file=" not in page.text, "the lines of a file are not one's own"
        for address in offered(page.text) - seen - {"/logout"}:
            seen.add(address)
            form = re.sub(r"I-\w+|\d+|=[^&]*", "", address)
            if not everything and form in forms and address not in OF_HERS:
                continue
            forms.add(form)
            status = client.get(address, headers=headers).status_code
            assert status in (200, 202, 303, 304), (page.url.path, address, status)
            if re.match(r"/(jobs|incidents)/[^/]+$", address):
                todo.append(address)
    assert seen >= OF_HERS
    assert (
        "/nodes/gpu02" not in seen and "data-file=" in client.get("/jobs/15", headers={**bearer("reader"), **PAGE}).text
    )


def test_an_incident_names_nobody_else_whom_it_hurt(store: Door) -> None:
    whole = Reader(store).incident("I-6fca6f7277")["document"]
    reported = {
        **whole,
        "jobs": [*whole["jobs"], {**whole["jobs"][0], "job_id": "17", "user": "bob", "name": "secret"}],
    }
    reported["advice"] = [*reported["advice"], {"text": "Tell alice, bob to submit again.", "command": None, "users": ["alice", "bob"]},
                      {"text": "Ask bob.", "command": None}, {"text": "Look at job 16.", "command": None},
                      {"text": "Drain it.", "command": "scontrol update nodename=gpu02 state=drain"}, {"text": "See.", "command": "squeue --me"}]  # fmt: skip
    reported["of tomorrow"] = "bob"
    asked = OwnReader(Reader(store), "alice")
    row = asked.incident("I-6fca6f7277")
    kept = OwnDocuments(asked).incident(row, reported)
    assert [(job["job_id"], job["user"], job["name"]) for job in kept["jobs"]] == [("15", "alice", "hit")]
    assert kept["other_jobs_count"] == 1 and len(whole["advice"]) > 0
    hers = ["Submit again: the code was not at fault.", "Submit again."]
    assert [(item["text"], item["command"]) for item in kept["advice"]] == [(text, None) for text in hers]
    assert not {"bob", "secret", "of tomorrow", "16"} & set(re.findall(r"[\w ]+", json.dumps(kept)))
    assert (
        kept["title"]
        == "eth0 of gpu02 lost its link for 60.0 s. Slurm set gpu02 DOWN after 35.0 s, which ended job 15 as NODE_FAIL."
    )
    assert [event["message"] for event in kept["events"]] == [event["message"] for event in whole["events"]]
    assert [step["edge"] for step in kept["chain"]] == [step["edge"] for step in whole["chain"]], "hers whole"


def test_beside_ones_own_jobs_others_are_not_there(client: TestClient) -> None:
    axis = client.get("/api/v1/axis/I-6fca6f7277", headers=bearer("alice")).json()
    assert "bob" not in json.dumps(axis) and "bystander" not in json.dumps(axis)
    assert [lane["label"] for lane in axis["lanes"] if lane["layer"] == "job"] == ["15  hit"]
    whole = client.get("/api/v1/axis/I-6fca6f7277", headers=bearer("reader")).json()
    drawn = [[{k: v for k, v in arrow.items() if k != "because"} for arrow in one["arrows"]] for one in (axis, whole)]
    assert drawn[0] == drawn[1] and axis["t0"] == whole["t0"], (
        "one's own is drawn as before, but for what settings were assumed"
    )


def test_an_answer_is_signed_by_who_signed_in(client: TestClient, store: Door) -> None:
    headers = {**bearer("ops"), **FORM}
    body = urlencode({"answer": "confirmed", "author": "somebody else"})
    assert client.post("/jobs/15/feedback", content=body, headers=headers).status_code == 303
    assert store.ask(sa.select(FEEDBACK.c.author).distinct()) == [{"author": "ops"}]


def test_without_access_everybody_may_everything(store: Door) -> None:
    client = TestClient(create_app(store), follow_redirects=False)
    assert client.get("/api/v1/jobs/15").status_code == 200 and client.get("/").status_code == 200
    assert client.get("/login").status_code == 404 and "Sign out" not in client.get("/jobs").text


# -- the file of people ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [("[people", "not TOML"), ("[persons]\n", "persons"), ('[people]\nada = "plain"\n', "people.ada"), ("people = 3\n", "no table"),
     ('[tokens]\n" " = "sha256:0"\n', "tokens")],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(UsersError, match=said) as error:
        Users.load(path)
    assert str(path) in str(error.value)


def test_the_files_of_secrets_are_not_for_others(tmp_path: Path, users: Users) -> None:
    assert users.path is not None and users.path.stat().st_mode & 0o007 == 0
    assert PASSWORD not in users.path.read_text() and "t-ops" not in users.path.read_text()
    key = key_of(tmp_path / "data")
    assert key_of(tmp_path / "data") == key and len(key) == 32, "a restart ends no session"
    assert (tmp_path / "data" / "session.key").stat().st_mode & 0o077 == 0


def test_the_highest_role_of_a_name_and_its_groups_counts() -> None:
    everyone = Roles({Role.OWN: frozenset({"*"}), Role.READ: frozenset({"@support"}), Role.OPERATE: frozenset({"ops"})})
    assert everyone.of("eve") is Role.OWN and everyone.of("eve", ["support"]) is Role.READ
    assert everyone.of("ops", ["support"]) is Role.OPERATE and everyone.of("@support") is Role.OWN
    assert ROLES.of("eve") is None
