"""A user who may see only their own data sees nobody else's: every route for every user, every field checked."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from planted import CLUSTER, INCIDENTS, NODES, REUSED, SHARED, SITE, USERS, Planted, Played, planted

from faultline.config import validate
from faultline.service import Service, build_app
from store.duckdb import visible
from store.duckdb.store import DuckStore
from tests.measured import Measured
from tests.web.access.test_access import bearer, routes
from web.access.authentication import Authentication
from web.access.own import OwnReader
from web.access.people import Role, Roles
from web.access.rights import needed
from web.access.sessions import Sessions
from web.access.users import Users, hashed_token
from web.reading import Reader

ROLES = Roles({Role.OPERATE: frozenset({"ops"}), Role.READ: frozenset({"reader"}), Role.OWN: frozenset(USERS)})
OPEN, OWN, READ, OPERATE = None, Role.OWN, Role.READ, Role.OPERATE
#: The role that each route requires. A missing one fails: the author of a route must add it.
CLASSED: dict[tuple[str, str], Role | None] = {
    **dict.fromkeys([("GET", p) for p in ("/healthz", "/readyz", "/login", "/login/provider", "/login/provider/back", "/first")], OPEN),
    **dict.fromkeys([("POST", p) for p in ("/login", "/logout", "/first")], OPEN),
    **dict.fromkeys([("GET", p) for p in (
        "/", "/incidents", "/incidents/{incident_id}", "/jobs", "/jobs/{key}", "/api/v1/incidents/{incident_id}", "/api/v1/axis/{incident_id}",
        "/api/v1/incidents/{incident_id}/replay", "/api/v1/incidents/{incident_id}/what-if", "/api/v1/jobs", "/api/v1/jobs/{key}",
        "/api/v1/jobs/{key}/pace", "/api/v1/jobs/{key}/verdict", "/api/v1/result")], OWN),
    **dict.fromkeys([("GET", p) for p in (
        "/metrics", "/nodes", "/nodes/{name}", "/reports", "/explore", "/search", "/sources", "/repairs", "/fleet", "/dashboards", "/dashboards/{name}", "/api/v1/openapi.json", "/api/v1/incidents",
        "/api/v1/nodes", "/api/v1/nodes/{name}", "/api/v1/nodes/{name}/risk", "/api/v1/nodes/{name}/fitness", "/api/v1/lines", "/api/v1/reports", "/api/v1/reports/{name}",
        "/api/v1/jobs/{key}/feedback", "/api/v1/incidents/{incident_id}/feedback", "/api/v1/feedback", "/api/v1/sources", "/api/v1/tail", "/api/v1/schema",
        "/api/v1/repairs", "/api/v1/fleet", "/api/v1/shared", "/api/v1/incidents/{incident_id}/shared")], READ),
    ("GET", "/api/v1/incidents/{incident_id}/bundle"): READ,
    ("GET", "/tail"): READ,
    ("POST", "/api/v1/query"): READ,
    ("POST", "/api/v1/query/overview"): READ,
    **dict.fromkeys([("POST", p) for p in (
        "/jobs/{key}/feedback", "/incidents/{incident_id}/feedback", "/incidents/{incident_id}/state",
        "/api/v1/incidents/{incident_id}/state", "/api/v1/jobs/{key}/feedback", "/api/v1/ingest", "/api/v1/backup",
        "/api/v1/quarantine/{identity}/replay", "/sources/quarantine/{identity}/replay")], OPERATE),
}  # fmt: skip
#: Streams until its client disconnects; without permission it is refused like others.
STREAMS = "/api/v1/tail"


@pytest.fixture(scope="module")
def plant() -> Iterator[Planted]:
    with planted() as made:
        yield made


@pytest.fixture(scope="module")
def app(plant: Planted, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder = tmp_path_factory.mktemp("rights")
    names = ("ops", "reader", *USERS, "nobody")
    users = Users(folder / "users.toml", {}, {f"{name} laptop": hashed_token(f"t-{name}") for name in names})
    users.save()
    authentication = Authentication(users=Users.load(users.path), roles=ROLES, sessions=Sessions(b"k" * 32, 3600))
    app: FastAPI = build_app(
        Service(validate({"data": str(folder)}, "test"), plant.store, authentication=authentication)
    )
    app.state.replays = Played(app.state.reader)
    return app


@pytest.fixture(scope="module")
def client(app: FastAPI) -> TestClient:
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False)


def asked(app: FastAPI) -> list[tuple[str, str]]:
    """Every route: of the OpenAPI document, and those that it leaves out."""
    reported = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    found = {(method, path) for method, path in routes(app) if method != "HEAD"}
    assert reported <= found | {("GET", "/api/v1/openapi.json")}, reported - found
    return sorted(found)


def values_of(plant: Planted) -> dict[str, list[str]]:
    """Values for an address: everything known about anybody, and something that does not exist."""
    keys = [key for owned in plant.keys.values() for key in owned]
    numbers = sorted({key.split("#")[0].split("_")[0].split("@")[0] for key in keys})
    return {
        "key": [*keys, *numbers, f"{REUSED}@{CLUSTER}", f"{REUSED}@-", f"{REUSED}#1", "9", "999999"],
        "incident_id": [*INCIDENTS, *(f"{name}-former" for name in INCIDENTS), "I-", "I-none"],
        "name": [SHARED, *NODES.values(), "ctl", "usage", "failure-patterns", "network", "none"],
        "identity": ["1"],
    }


def asks_of(plant: Planted) -> dict[str, list[str]]:
    """Values for query parameters, by the parameter's name, one after the other."""
    return {
        "user": [*USERS, ""], "q": ["zq", "1", "gpu", str(REUSED), *USERS], "state": ["failed", "NODE_FAIL"], "host": [SHARED, "gpu01,gpu02"],
        "severity": ["impact"], "job": ["100", str(REUSED)], "from": ["2026-11-20T07:00:00Z"], "to": ["2026-11-20T23:00:00Z", "now"],
        "limit": ["1", "500"], "cursor": ["WyIyMDk5LTAxLTAxVDAwOjAwOjAwIiwgInoiXQ"], "zone": ["Europe/Berlin"], "theme": ["dark"],
    }  # fmt: skip


class Texts(HTMLParser):
    """Everything of a page that holds a value: texts, attributes and comments."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for _, value in attrs if value]

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.found.append(data)

    handle_comment = handle_data


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield str(value)


def fields(answer: Any) -> list[str]:
    """Every field of an answer: of its JSON or its page, and its headers."""
    found = [f"{name}: {value}" for name, value in answer.headers.items()]
    kind = answer.headers.get("content-type", "")
    if "json" in kind and "ndjson" not in kind:
        return found + list(leaves(answer.json()))
    if "html" in kind:
        page = Texts()
        page.feed(answer.text)
        return [*found, *page.found, html.unescape(answer.text)]
    return [*found, answer.text]


SECRET = re.compile(r"zq[a-z]+\d+qz")


def some_of(plant: Planted) -> dict[str, list[str]]:
    """Like ``values_of``, one of each kind."""
    reused = [key for user in USERS for key in plant.keys[user] if key.startswith(str(REUSED))]
    keys = [*(plant.keys[user][0] for user in USERS), *reused, *plant.keys[SITE], "301#1", "9"]
    return {
        "key": keys,
        "incident_id": [*INCIDENTS, "I-both-former", "I-none"],
        "name": [SHARED, "none"],
        "identity": ["1"],
    }


def requests_of(app: FastAPI, plant: Planted, role: Role, *, everything: bool) -> Iterator[tuple[str, str, str]]:
    """Method, template and address of the requests: all values in path and query.

    For a route that ``role`` may not request, only one. ``everything``: also query parameters that a route ignores, all of
    them at once with their first values, then with their second ones, and so on.
    """
    values, behind = (values_of if everything else some_of)(plant), asks_of(plant)
    paths = app.openapi()["paths"]
    for method, template in asked(app):
        names = re.findall(r"\{(\w+)\}", template)
        assert set(names) <= values.keys(), f"{template}: say what can stand for {names}"
        assert len(names) < 2, f"{template}: give all combinations"
        addresses = (
            [template.replace(f"{{{names[0]}}}", quoted(value)) for value in values[names[0]]] if names else [template]
        )
        need = CLASSED.get((method, template), Role.OWN)
        if need is not None and role < need:
            addresses = addresses[:1]
        for address in addresses:
            yield method, template, address
        if method == "GET" and need is not None and role is Role.OWN >= need and (everything or not names):
            # Pages read their parameters without declaring them.
            declared = (
                {one["name"] for one in paths[template]["get"].get("parameters", ())}
                if template in paths
                else behind.keys()
            )
            read = {name: tries for name, tries in behind.items() if name in declared}
            queries = [
                [(name, value)] for name, tries in read.items() for value in (tries if everything else tries[1:2])
            ]
            ignored = {name: tries for name, tries in behind.items() if name not in declared}
            for n in range(max(map(len, ignored.values()), default=0) if everything else 0):
                queries.append([(name, tries[n]) for name, tries in ignored.items() if n < len(tries)])
            for some in queries:
                yield method, template, f"{addresses[0]}?{'&'.join(f'{name}={quoted(value)}' for name, value in some)}"


def quoted(text: str) -> str:
    return text.replace("#", "%23").replace("@", "%40")


@pytest.mark.parametrize(
    "everything", [False, pytest.param(True, marks=pytest.mark.long)], ids=["asked for", "everything"]
)
def test_no_answer_to_one_user_holds_a_secret_of_another(
    app: FastAPI, client: TestClient, plant: Planted, measured: Measured, everything: bool
) -> None:
    leaked: Counter[str] = Counter()
    seen: dict[str, set[str]] = {user: set() for user in (*USERS, "reader")}
    looked, asked_for, broken = 0, 0, set()
    alone: dict[tuple[str, str], int] = {}  # the status of each address without parameters, for each user
    read_after_all = set()
    askers = USERS if everything else USERS[:1]  # the others' secrets are planted, and searched for, in both
    for user, role in (*((user, Role.OWN) for user in askers), ("reader", Role.READ)):
        for method, template, address in requests_of(app, plant, role, everything=everything):
            if role is Role.READ and (method != "GET" or template == STREAMS):
                continue
            if role is Role.READ and not everything and {plant.secrets[s][0] for s in seen[user]} >= {*USERS, SITE}:
                break  # what the requests find where they are allowed was found
            # Below /api/, no answer depends on the kind that is asked for (``web.problems``).
            usual = "application/json" if template.startswith("/api/") else "text/html"
            both = everything and usual == "text/html" and "?" not in address
            for kind in ("text/html", "application/json") if both else (usual,):
                answer = client.request(method, address, headers={**bearer(user), "accept": kind})
                asked_for += 1
                if answer.status_code >= 500:
                    broken.add((user, address, answer.status_code))
                path, _, query = address.partition("?")
                if (
                    alone.setdefault((user, f"{method} {path}"), answer.status_code) != answer.status_code
                    and "&" in query
                ):
                    read_after_all.add((address, answer.status_code))  # then one of them may hide the others
                for field in fields(answer):
                    looked += 1
                    for secret in SECRET.findall(field):
                        owner, place = plant.secrets[secret]
                        seen[user].add(secret)
                        if role is Role.OWN and owner != user:
                            leaked[f"{user} saw {owner}'s {place} in {method} {template}"] += 1
    planted_of = Counter(owner for owner, _ in plant.secrets.values())
    measured(
        f"{len(set(asked(app)))} routes, {asked_for} requests, {looked} fields looked at; secrets planted {dict(planted_of)}, "
        f"of their own seen { ({user: len(seen[user]) for user in USERS}) }, of others {sum(leaked.values())}"
    )
    assert not leaked, "\n".join(sorted(leaked))
    assert not broken and not read_after_all
    # The requests do find secrets where they are allowed: the user's own of each kind, and all for a role that reads
    # everything.
    for user in askers:
        own = {plant.secrets[secret][1] for secret in seen[user]}
        assert own >= {
            "model.runs.name", "model.runs.work_dir", "model.runs.submit_line", "raw.artifacts.content", "raw.settings.value", "message of output",
            "message of ctld", "output file",
        }  # fmt: skip
    assert {plant.secrets[secret][0] for secret in seen["reader"]} >= {*USERS, SITE}


def test_a_name_that_somebody_else_uses_is_no_oracle(client: TestClient, plant: Planted) -> None:
    """Another user's job, incident or word is answered like one that does not exist."""
    for secret, (owner, _) in [item for item in plant.secrets.items() if item[1][0] != "alice"][::40]:
        answer = client.get(f"/api/v1/jobs?q={secret}", headers=bearer("alice"))
        assert answer.json()["jobs"] == [], owner
    for name, form in (
        ("101", "jobs/{}"),
        ("800", "jobs/{}"),
        ("I-bob", "incidents/{}"),
        ("I-carol-former", "incidents/{}"),
    ):
        theirs = client.get(f"/api/v1/{form.format(name)}", headers=bearer("alice"))
        nowhere = client.get(f"/api/v1/{form.format('x' * 12)}", headers=bearer("alice"))
        assert theirs.status_code == nowhere.status_code == 404
        assert theirs.json()["detail"].replace(name, "") == nowhere.json()["detail"].replace("x" * 12, "")


@pytest.mark.parametrize(
    "everybody", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at the limit", "everybody"]
)
def test_every_route_answers_every_role_as_its_class_says(
    app: FastAPI, client: TestClient, plant: Planted, everybody: bool
) -> None:
    """At the limit: of each route, the lowest role that may ask it, and the highest that may not."""
    found = asked(app)
    assert [route for route in found if route not in CLASSED] == [], "say who may ask it"
    assert {route for route in CLASSED if route not in found} <= {
        ("GET", "/login/provider"), ("GET", "/login/provider/back"), ("POST", "/api/v1/ingest"), ("GET", "/api/v1/openapi.json"),
    }  # fmt: skip
    ranks = {"ops": Role.OPERATE, "reader": Role.READ, "alice": Role.OWN, "nobody": None}
    values = values_of(plant)
    for method, template in found:
        need = CLASSED[method, template]
        address = template
        for name in re.findall(r"\{(\w+)\}", template):
            address = address.replace(f"{{{name}}}", quoted(values[name][0]))
        stranger = client.request(method, address).status_code
        if need is OPEN:
            # The page of the first link requires the key in the link itself.
            assert stranger not in (401, 403) or template == "/first", (method, template, stranger)
            continue
        assert stranger == 401, (method, template)
        assert need == needed(method, template) or template == "/api/v1/openapi.json", (method, template)
        allowed = [role is not None and role >= need for role in ranks.values()]
        assert allowed == sorted(allowed, reverse=True) and not allowed[-1]
        limit = allowed.index(False)
        for n, (name, may) in enumerate(zip(ranks, allowed, strict=True)):
            if not everybody and n not in (limit - 1, limit):
                continue
            if may and template in (STREAMS, "/api/v1/openapi.json"):
                continue
            status = client.request(method, address, headers=bearer(name)).status_code
            if template == "/api/v1/openapi.json":
                continue  # not a route of ours: FastAPI answers it, for every known user
            assert (status not in (401, 403)) == may, (name, method, template, status)
            assert status < 500 or not may, (name, method, template, status)


# -- the store -----------------------------------------------------------------------------------------------------------


def tables(store: DuckStore) -> set[str]:
    rows = store.rows(
        "SELECT schema_name || '.' || table_name AS name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal"
        " UNION SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE database_name = current_database() AND NOT internal"
    )
    return {str(row["name"]) for row in rows}


def test_every_table_of_the_store_has_a_rule(plant: Planted) -> None:
    found = tables(plant.store)
    assert found == visible.RULES.keys(), (found ^ visible.RULES.keys(), "declare it in store/duckdb/visible.py")


def test_what_has_no_rule_is_not_there(plant: Planted) -> None:
    for name, rule in visible.RULES.items():
        cursor = visible.cursor(plant.store, "alice")
        try:
            if rule.select is None:
                with pytest.raises(duckdb.CatalogException):
                    cursor.execute(f"SELECT * FROM {name}")
            else:
                rows = cursor.execute(f"SELECT * FROM {name}").fetchall()
                secrets = {plant.secrets[found] for row in rows for found in SECRET.findall(str(row))}
                assert rows and {owner for owner, _ in secrets} <= {"alice"}, (name, secrets)
        finally:
            cursor.close()


def test_who_has_no_name_sees_no_row(plant: Planted) -> None:
    for user in ("", "nobody", "alice'", "%"):
        cursor = visible.cursor(plant.store, user)
        for name, rule in visible.RULES.items():
            if rule.select is not None:
                assert cursor.execute(f"SELECT * FROM {name}").fetchall() == [], (user, name)


def test_a_cursor_of_one_user_changes_no_other_cursor(plant: Planted) -> None:
    mine, whole, theirs = visible.cursor(plant.store, "alice"), plant.store.cursor(), visible.cursor(plant.store, "bob")
    count = "SELECT count(*) FROM model.runs"
    seen = [cursor.execute(count).fetchone() for cursor in (mine, theirs, whole)]
    assert seen[0] == seen[1] == (len(plant.keys["alice"]),)
    assert seen[2] == (sum(map(len, plant.keys.values())),)


def test_kql_of_who_sees_their_own_finds_no_table(plant: Planted) -> None:
    """If the route were ever open to them."""
    from queries import kql

    read = OwnReader(Reader(plant.store), "alice")
    for table in ("Logs", "Jobs", "Events", "Incidents"):
        with pytest.raises(kql.KqlError):
            read.store.run_kql(kql.Query(f"{table} | take 1"))


def test_a_number_used_again_gives_each_run_its_own_files(client: TestClient, plant: Planted) -> None:
    for user in USERS:
        key = next(key for key in plant.keys[user] if key.startswith(str(REUSED)))
        text = client.get(f"/jobs/{quoted(key)}", headers={**bearer(user), "accept": "text/html"}).text
        found = {plant.secrets[secret] for secret in SECRET.findall(text)}
        assert {owner for owner, _ in found} == {user}
        assert {"raw.artifacts.content", "message of output"} <= {place for _, place in found}, (user, found)
    # A role that reads everything sees for each run its own data, beside what may belong to any of them.
    for user in USERS:
        key = next(key for key in plant.keys[user] if key.startswith(str(REUSED)))
        text = client.get(f"/jobs/{quoted(key)}", headers={**bearer("reader"), "accept": "text/html"}).text
        output = {plant.secrets[s][0] for s in SECRET.findall(text) if plant.secrets[s][1] == "message of output"}
        assert output == {user}


def test_our_sql_names_no_catalog(plant: Planted) -> None:
    """A name with a catalog prefix would bypass the views. Compaction writes the whole store into a copy that it attaches itself."""
    for path in {*Path("web").rglob("*.py"), *Path("store").rglob("*.py")} - {Path("store/duckdb/compacting.py")}:
        text = re.sub(r"(?m)^\s*from [\w.]+ import ", "", path.read_text())
        assert not re.search(r"(?i)\b(?:from|join)\s+\w+\.(?:raw|model|kept|intake)\.", text), path
