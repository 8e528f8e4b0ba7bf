"""Triage: what operators do about an incident is kept, shown, follows the incident, and says when it is outdated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from triaged import FLAP, four_more, hit

from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from parsers.visible import visible
from store import open_store
from store.duckdb.store import DuckStore
from tests.correlator.rows import concluded, rows_of
from web import triage
from web.access.audit import Audit
from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_token
from web.app import create_app

PAGE = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
MOMENT = datetime(2026, 11, 21, 12, 0, 0)


@pytest.fixture
def store() -> Iterator[DuckStore]:
    with concluded(FLAP) as opened:
        yield opened


def names(store: DuckStore) -> list[str]:
    return [str(row["incident_id"]) for row in store.rows("SELECT incident_id FROM model.incidents ORDER BY start")]


def set_state(client: TestClient, name: str, **asked: Any) -> Any:
    return client.post(f"/api/v1/incidents/{name}/state", json=asked)


def of(client: TestClient, name: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/v1/incidents/{name}").json()["triage"]
    return found


def text_of(client: TestClient, path: str) -> str:
    return re.sub(r"\s+", " ", client.get(path, headers={"accept": "text/html"}).text)


def test_a_change_is_kept_with_who_and_when_and_answers_what_stood(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    untouched = of(client, name)
    assert untouched["state"] == "new" and untouched["history"] == [] and untouched["age_s"] > 0
    first = set_state(client, name, state="acknowledged", assignee="ben", comment="<b>cable?</b>", author="ada").json()
    assert (first["before"]["state"], first["state"], first["by"], first["assignee"]) == (
        "new",
        "acknowledged",
        "ada",
        "ben",
    )
    set_state(client, name, comment="swapped", author="ben")
    last = set_state(client, name, state="resolved", assignee="", author="ben", last=2).json()
    assert (last["before"]["state"], last["before"]["assignee"], last["assignee"]) == ("acknowledged", "ben", None)
    kept = of(client, name)
    assert [(c["state"], c["assignee"], c["comment"], c["by"], c["signed"]) for c in kept["history"]] == [
        ("acknowledged", "ben", "<b>cable?</b>", "ada", False), (None, None, "swapped", "ben", False),
        ("resolved", "", None, "ben", False),
    ]  # fmt: skip
    assert [c["at"] for c in kept["history"]] == sorted(c["at"] for c in kept["history"])
    assert (kept["comments"], kept["comment"], kept["changes"], kept["new_evidence"]) == (2, "swapped", 3, False)
    listed = {i["id"]: i["triage"] for i in client.get("/api/v1/incidents").json()["incidents"]}
    assert listed[name]["state"] == "resolved" and "history" not in listed[name]
    text = text_of(client, f"/incidents/{name}")
    assert "Resolved by ben just now" in re.sub(r"<[^>]+>", "", text) or 'title="resolved by ben just now"' in text
    assert "&lt;b&gt;cable?" in text and "<b>cable?" not in text


def test_who_did_not_see_the_last_change_is_told_what_stands(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    set_state(client, name, state="acknowledged", author="ada", last=0)
    late = set_state(client, name, state="resolved", author="ben", last=0)
    assert late.status_code == 409 and late.headers["content-type"] == "application/problem+json"
    assert late.json()["triage"]["state"] == "acknowledged" and "ada changed" in late.json()["detail"]
    assert of(client, name)["changes"] == 1


#: What is asked, and a word of the refusal.
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "Nothing to change"),
    ({"comment": "  "}, "Nothing to change"),
    ({"state": "done"}, "acknowledged"),
    ({"state": "new", "comment": "c" * 4001}, "comment"),
    ({"state": "wrong", "category": "gremlins"}, "infra.gpu"),
    ({"state": "new", "color": "red"}, "color"),
)


def test_what_is_refused_says_why_and_keeps_nothing(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    for asked, words in REFUSED:
        refused = set_state(client, name, **asked)
        assert refused.status_code == 422 and words in refused.text, asked
    assert set_state(client, "I-0", state="new").status_code == 404
    foreign = {"origin": "https://evil.example"}
    assert client.post(f"/api/v1/incidents/{name}/state", json={"state": "new"}, headers=foreign).status_code == 403
    assert of(client, name)["changes"] == 0


def test_the_form_works_without_scripts(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)

    def post(**fields: str) -> Any:
        path = f"/incidents/{name}/state?theme=dark"
        return client.post(path, content=urlencode(fields), headers=PAGE, follow_redirects=False)

    done = post(state="acknowledged", assignee="Ben", author="Ada Ö", last="0", comment="on it")
    assert done.status_code == 303 and done.headers["location"] == f"/incidents/{name}?theme=dark#triage"
    assert 'value="Ada Ö"' in client.get(f"/incidents/{name}").text, "the browser remembers who answered"
    post(state="comment", assignee="Ben", comment="still on it", category="infra.gpu")
    post(state="resolved", assignee="")  # the field was emptied
    assert [(c["state"], c["assignee"], c["comment"]) for c in of(client, name)["history"]] == [
        ("acknowledged", "Ben", "on it"), (None, None, "still on it"), ("resolved", "", None),
    ]  # fmt: skip
    assert post(state="acknowledged", last="1").status_code == 409
    assert post(state="comment").status_code == 422 and post(state="open").status_code == 422
    text = text_of(client, f"/incidents/{name}")
    assert "Acknowledged</b> and assigned to Ben" in text and "still on it" in text


def test_wrong_marks_the_headline_and_answers_the_verdicts(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    before = result(store)
    client.post("/api/v1/jobs/15/feedback", json={"answer": "wrong", "category": "infra.gpu", "author": "ada"})
    answered = set_state(client, name, state="wrong", comment="a test", author="ada").json()
    assert answered["feedback"] == [], "ada said already what it was"
    answered = set_state(client, name, state="wrong", comment="a test", author="ben", category="infra.node").json()
    assert answered["feedback"] == ["15"]
    given = client.get("/api/v1/jobs/15/feedback").json()["feedback"]
    assert [(g["author"], g["answer"], g["category"], g["note"]) for g in given] == [
        ("ada", "wrong", "infra.gpu", ""), ("ben", "wrong", "infra.node", "a test"),
    ]  # fmt: skip
    assert '<h1 class="disowned">' in text_of(client, f"/incidents/{name}")
    assert "Marked wrong by ben" in text_of(client, f"/incidents/{name}")
    assert '<h2 class="disowned">' in text_of(client, "/incidents")
    assert result(store) == before, "no verdict changes"


def test_lists_filter_by_state_and_count_what_nobody_handled(store: DuckStore) -> None:
    four_more(store)
    client, name = TestClient(create_app(store)), hit(store)
    set_state(client, "I-1", state="acknowledged", assignee="ada")
    set_state(client, "I-2", state="resolved", comment="optic swapped")
    set_state(client, "I-3", state="wrong")
    rest = len(names(store)) - 5

    def listed(**asked: str) -> set[str]:
        return {i["id"] for i in client.get("/api/v1/incidents", params=asked).json()["incidents"]}

    assert listed(state="acknowledged") == {"I-1"} == listed(assignee="ada")
    assert listed(state="resolved") == {"I-2"} and listed(state="wrong") == {"I-3"}
    assert listed(state="new") == listed(state="unhandled") >= {name, "I-4"}
    assert client.get("/api/v1/incidents?state=done").status_code == 400
    text = text_of(client, "/incidents")
    for words in (f"Unhandled {2 + rest}", f"New {2 + rest}", "Acknowledged 1", "Resolved 1", "Wrong 1"):
        assert re.search(rf">\s*{words}\s*<", text), words
    assert "I-1" not in text_of(client, "/incidents?state=unhandled").partition("<main")[2]

    by_root = text_of(client, "/incidents?group=root")
    assert by_root.count('class="root"') == len({
        tuple(row.values()) for row in store.rows("SELECT root_host, root_device FROM model.incidents")
    })  # fmt: skip
    assert "2 incidents" in by_root and "root=gpu09" in by_root
    only = text_of(client, "/incidents?root=gpu09")
    assert "I-3" in only and "I-4" in only and f">{name}<" not in only

    similar = text_of(client, f"/incidents/{name}").partition('id="sim"')[2].partition("</section>")[0]
    assert re.findall(r"On this device|On this node|This cause elsewhere|I-\d\b(?=<)", similar) == [
        "On this device", "I-1", "On this node", "I-2", "This cause elsewhere", "I-3",
    ]  # fmt: skip
    assert "optic swapped" in similar


def ticked_late(store: DuckStore) -> tuple[Ticker, Any]:
    """A service that knows the incident without the kernel's own record of it, and the lines that it will get."""
    rows = rows_of(FLAP)
    fine = rows["logs"]["file"].str.contains("kmsg")
    ticker = Ticker(store)
    store.add({**rows, "logs": rows["logs"].filter(~fine)})
    ticker.tick(MOMENT)
    return ticker, rows["logs"].filter(fine)


def test_triage_follows_an_incident_whose_id_changes_and_says_that_evidence_came(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ticker, late = ticked_late(store)
        client, before = TestClient(create_app(store)), hit(store)
        set_state(client, before, state="resolved", author="ada", comment="cable reseated")
        ticker.tick(MOMENT + timedelta(seconds=10))
        assert not of(client, before)["new_evidence"], "nothing new arrived"
        store.add({"logs": late})
        ticker.tick(MOMENT + timedelta(seconds=20))
        after = hit(store)
        assert after != before
        found = of(client, after)
        assert (found["state"], found["by"], found["comment"], found["new_evidence"]) == (
            "resolved", "ada", "cable reseated", True,
        )  # fmt: skip
        assert of(client, before)["history"] == found["history"] and found["history"][0]["incident_id"] == before
        assert "new evidence since" in text_of(client, f"/incidents/{after}")
        assert [i["id"] for i in client.get("/api/v1/incidents?state=unhandled").json()["incidents"]].count(after) == 1
        correlate(store)  # a full pass
        kept = of(client, after)["history"]
    with open_store(tmp_path) as store:  # a restart
        Ticker(store).tick(MOMENT + timedelta(hours=1))
        client = TestClient(create_app(store))
        assert of(client, after)["history"] == kept and of(client, after)["new_evidence"]
        set_state(client, after, state="resolved", author="ben")
        assert not of(client, after)["new_evidence"], "ben saw it"


def test_of_two_incidents_that_became_one_the_later_change_counts(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    with store.transaction() as connection:
        connection.execute("INSERT INTO model.incidents SELECT 'I-other', * EXCLUDE (incident_id) FROM model.incidents WHERE incident_id = ?", [name])  # fmt: skip
    set_state(client, name, state="acknowledged", author="ada", assignee="ada")
    set_state(client, "I-other", state="resolved", author="ben")
    with store.transaction() as connection:
        connection.execute("DELETE FROM model.incidents WHERE incident_id = 'I-other'")
        connection.execute("INSERT INTO kept.aliases VALUES (NULL, 'I-other', ?, now())", [name])
    both = of(client, name)
    assert (both["state"], both["by"], both["assignee"]) == ("resolved", "ben", "ada")
    assert [c["incident_id"] for c in both["history"]] == [name, "I-other"]


def test_a_new_job_among_the_hurt_is_new_evidence(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    set_state(client, name, state="resolved")
    document = json.loads(
        store.rows("SELECT document FROM model.incidents WHERE incident_id = ?", [name])[0]["document"]
    )
    document["jobs"].append({"job_id": "99", "confidence": 0.9})
    with store.transaction() as connection:
        connection.execute(
            "UPDATE model.incidents SET document = ? WHERE incident_id = ?", [json.dumps(document), name]
        )
    assert of(client, name)["new_evidence"]


def test_roles_and_the_audit_log(store: DuckStore, tmp_path: Path) -> None:
    owner = store.rows("SELECT \"user\" FROM model.runs WHERE run_key = '15'")[0]["user"]
    users = Users(
        tmp_path / "users.toml", {}, {f"{n} laptop": hashed_token(f"t-{n}") for n in ("ops", "reader", owner)}
    )
    users.save()
    roles = Roles({Role.OPERATE: frozenset({"ops"}), Role.READ: frozenset({"reader"}), Role.OWN: frozenset({owner})})
    authentication = Authentication(users=Users.load(users.path), roles=roles, sessions=Sessions(b"k" * 32, 3600))
    client = TestClient(create_app(store, authentication=authentication, audit=Audit(tmp_path / "audit.ndjson")))
    name, asked = hit(store), {"state": "acknowledged", "comment": "secret plan", "assignee": "ben", "author": "eve"}

    def as_(who: str) -> dict[str, str]:
        return {"authorization": f"Bearer t-{who}"}

    path = f"/api/v1/incidents/{name}/state"
    assert [client.post(path, json=asked, headers=as_(who)).status_code for who in ("reader", owner, "ops")] == [
        403,
        403,
        200,
    ]
    seen = client.get(f"/api/v1/incidents/{name}", headers=as_("reader")).json()["triage"]
    assert (seen["by"], seen["history"][0]["signed"]) == ("ops", True), "who signed in is the author, whoever they name"
    own = client.get(f"/api/v1/incidents/{name}", headers=as_(owner))
    assert own.json()["triage"]["state"] == "acknowledged"
    page = client.get(f"/incidents/{name}", headers={**as_(owner), "accept": "text/html"}).text
    for text in (own.text, page):
        assert not re.search("secret plan|ops|assigned to ben|for ben", text.replace("drops", ""))
    assert 'value="resolved"' not in page
    lines = [json.loads(line) for line in (tmp_path / "audit.ndjson").read_text().splitlines()]
    (line,) = [line for line in lines if line["act"] == "triage"]
    assert (line["who"], line["incident"], line["state"], line["was"], line["assignee"], line["signed"]) == (
        "ops", name, "acknowledged", "new", "ben", True,
    )  # fmt: skip
    assert "secret plan" not in json.dumps(line), "comments are in the store"


def test_a_store_of_an_older_version_that_is_only_read_has_no_states(store: DuckStore) -> None:
    with store.transaction() as connection:
        connection.execute("DROP TABLE kept.triage")
    client, name = TestClient(create_app(store)), hit(store)
    assert of(client, name)["state"] == "new"
    assert client.get("/api/v1/incidents?state=unhandled").json()["incidents"]
    assert client.get("/api/v1/incidents?state=resolved").json()["incidents"] == []
    for path in ("/incidents", "/incidents?group=root", f"/incidents/{name}"):
        assert client.get(path, headers={"accept": "text/html"}).status_code == 200, path


def test_every_state_can_be_filtered() -> None:
    assert set(triage.STATES) < set(triage.FILTERS)


def test_what_operators_write_may_be_anything(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    evil = '\x1b]0;x\x07\u202egnp.exe\u202c\u2028\x00 <script>alert(1)</script> " onfocus=alert(2) {{ 7 * 7 }}'
    done = client.post(
        f"/api/v1/incidents/{name}/state", headers={"content-type": "application/json"},
        content=json.dumps({"state": "wrong", "comment": evil, "assignee": evil, "author": evil}),
    )  # fmt: skip
    assert done.status_code == 200, done.text
    half = client.post(
        f"/api/v1/incidents/{name}/state",
        content=b'{"comment": "\\ud800"}',
        headers={"content-type": "application/json"},
    )
    assert half.status_code == 422, "half a character"
    for path in ("/incidents", "/incidents?group=root", f"/incidents/{name}", f"/api/v1/incidents/{name}/bundle"):
        text = client.get(path, headers={"accept": "text/html"}).text
        assert "alert(1)" in text and "<script>alert(1)" not in text and '" onfocus' not in text, path
        assert visible(text) == text and "{{ 7 * 7 }}" in text, path


def test_a_store_of_an_older_version_gets_the_table(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, store.transaction() as connection:
        connection.execute("DROP TABLE kept.triage")
    with open_store(tmp_path) as store:
        assert store.rows("SELECT count(*) AS n FROM kept.triage") == [{"n": 0}]
