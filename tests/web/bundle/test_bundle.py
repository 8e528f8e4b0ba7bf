"""A bundle: one file with the page, its data and their digests, which asks for nothing and says no more than it must."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import fixture
import polars as pl
import pytest
from bundled import Bundle
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from serving import serve
from triaged import FLAP, four_more, hit

from correlator.engine import write
from parsers.visible import visible
from store import open_store
from store.duckdb.store import DuckStore
from tests.correlator.rows import concluded, conclusions_of, rows_of
from tests.faultline.command import Done, faultline
from web.access.audit import Audit
from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_token
from web.app import create_app
from web.bundle import page
from web.bundle.redaction import Redactor
from web.bundle.scripts import one_script


@pytest.fixture(scope="module")
def store() -> Iterator[DuckStore]:
    with concluded(FLAP) as opened:
        four_more(opened)
        yield opened


@pytest.fixture(scope="module")
def client(store: DuckStore) -> TestClient:
    return TestClient(create_app(store))


def bundle(client: TestClient, name: str, more: str = "") -> Bundle:
    answer = client.get(f"/api/v1/incidents/{name}/bundle{more}")
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}.html"'
    return Bundle(answer.content)


# -- what is in it --------------------------------------------------------------------------------------------------------


def test_the_data_of_a_bundle_is_that_of_the_api_and_has_the_digests_of_its_manifest(
    store: DuckStore, client: TestClient
) -> None:
    name = hit(store)
    client.post(
        f"/api/v1/incidents/{name}/state", json={"state": "resolved", "author": "ada", "comment": "optic swapped"}
    )
    found = bundle(client, name, "?redact=no")
    manifest = found.block("manifest")
    assert (manifest["format"], manifest["incident"], manifest["redacted"], manifest["cut"]) == (
        "faultline-bundle/1", name, False, [],
    )  # fmt: skip
    assert {part["name"] for part in manifest["parts"]} == found.parts.keys() == {
        "incident.json", "events.parquet", "lines.parquet",
    }  # fmt: skip
    for part in manifest["parts"]:
        body = found.parts[part["name"]]
        assert (len(body), hashlib.sha256(body).hexdigest()) == (part["bytes"], part["sha256"])
        assert part["sha256"] in found.shown, "the page shows it"
    told = client.get(f"/api/v1/incidents/{name}").json()
    held = json.loads(found.parts["incident.json"])["incident"]
    assert {**held, "triage": {**held["triage"], "age_s": 0}} == {**told, "triage": {**told["triage"], "age_s": 0}}
    assert found.block("axis-data") == client.get(f"/api/v1/axis/{name}").json()
    lines, events = (pl.read_parquet(io.BytesIO(found.parts[f"{what}.parquet"])) for what in ("lines", "events"))
    assert events["id"].to_list() == [event["id"] for event in told["events"]]
    assert lines.height > 20 and set(told["hosts"]) & set(lines["host"].to_list())
    text = " ".join(" ".join(found.shown).split())
    assert told["title"] in text and "optic swapped" in text and "Resolved by ada" in text
    assert all(line in text for line in (told["events"][0]["message"], told["chain"][0]["text"]))


def test_a_bundle_refers_to_nothing_and_its_policy_allows_its_own_script_and_style_only(
    store: DuckStore, client: TestClient
) -> None:
    found = bundle(client, hit(store))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    (style,) = found.styles
    (script,) = [text for attrs, text in found.scripts if attrs.get("type") != "application/json"]
    assert found.policy == {
        "default-src": "'none'", "script-src": digest(script), "style-src": digest(style), "img-src": "data:",
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    assert not re.search(
        r"@import|url\(|fetch\(|XMLHttpRequest|import\(|WebSocket|EventSource|sendBeacon", style + script
    )
    for tag, attrs in found.elements:
        assert tag not in ("iframe", "object", "embed", "form", "base"), tag
        for name, value in attrs.items():
            assert not name.startswith("on") and name != "style", (tag, name)
            if name in ("src", "href", "srcset", "action", "poster", "data"):
                assert str(value).startswith(("data:", "#")), (tag, name, value)


def test_what_does_not_fit_is_left_out_and_named(store: DuckStore, monkeypatch: pytest.MonkeyPatch) -> None:
    name = hit(store)
    client = TestClient(create_app(store))
    monkeypatch.setattr(page, "MOST_PART", 9_000)
    whole = bundle(client, name)
    monkeypatch.setattr(page, "MOST_BYTES", len(whole.text) - 1000)
    monkeypatch.setattr(page, "LIMITS", (page.Limits(), page.Limits(lines=5, marks=9)))
    found = bundle(client, name)
    assert len(found.text) < len(whole.text) - 1000
    cut = " ".join(found.block("manifest")["cut"])
    assert "Raw lines: those after the first 5" in cut and "The time axis" in cut and "incident.json: the events" in cut
    assert len(found.block("axis-data")["marks"]) == 9
    arrows = found.block("axis-data")["arrows"]
    assert {arrow["from"] for arrow in arrows} <= {mark["id"] for mark in found.block("axis-data")["marks"]}
    assert all(text in " ".join(found.shown) for text in found.block("manifest")["cut"])


def test_rows_of_any_shape_are_stored() -> None:
    body, count = page._table([{"a": 1, "b": [1]}, {"a": "x", "c": None}, {"a": 2.5, "c": {"d": 1}}], ())
    assert count == 3 and pl.read_parquet(io.BytesIO(body)).rows() == [
        ("1", "[1]", None), ("x", None, None), ("2.5", None, '{"d": 1}'),
    ]  # fmt: skip
    assert page._table([], ())[1] == 0


def test_texts_that_attack_stay_texts() -> None:
    """The incident of the hand-made store whose every text is markup, and one of control characters."""
    made = fixture.build()
    hidden = "\x1b]0;owned\x07\u202egnp.exe\u202c\u2028 </script><!-- <script>alert(3)</script> ' onload=alert(4) \""
    (text,) = made.con.execute("SELECT document FROM model.incidents WHERE incident_id = 'I0'").fetchone()
    document = json.loads(text) | {
        "grounds": [hidden],
        "rivals": [{"cause": hidden, "host": hidden, "rejected": hidden}],
    }
    document["events"][0]["device"] = hidden
    made.con.execute("UPDATE model.incidents SET document = ? WHERE incident_id = 'I0'", [json.dumps(document)])
    found = bundle(TestClient(create_app(made)), "I0")
    assert [attrs.get("type") for attrs, _ in found.scripts] == ["application/json", "application/json", None]
    assert visible(found.text) == found.text
    assert not {tag for tag, _ in found.elements} & {"img", "b<script"}
    assert sum("<script>alert(1)</script>" in text for text in found.shown) > 3, "shown as text"
    assert "alert" not in found.scripts[-1][1]


# -- what it does not say -------------------------------------------------------------------------------------------------


def test_secrets_users_and_addresses_are_replaced() -> None:
    redactor = Redactor({"carol", "dave.x", "erin"}, {"alice"})
    told = {
        "id": "carol", "texts": [
            "Accepted publickey for mallory from 10.1.2.3 port 51122", "mallory and Carol on fe80::1ff:fe23:4567:890a",
            "UserId=alice(1001) by user dave.x., /home/erin/run of erin-run1", "mail carol@site.example.org from 10.1.2.3",
            "export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "lladdr 0c:42:a1:00:00:01 uid=1234, CANCELLED by 1234",
            "at 00:30:17 PCI 0000:53:00.0, std::vector, 127.0.0.1, root@gpu01, version 570.86.15",
        ],
    }  # fmt: skip
    shown = redactor.tree(told)
    assert shown["id"] == "carol", "names of rows stay"
    assert shown["texts"] == [
        "Accepted publickey for user-1 from address-1 port 51122", "user-1 and user-2 on address-2",
        "UserId=alice(1001) by user user-3., /home/user-4/run of user-4-run1", "mail user-5@... from address-1",
        "export HF_TOKEN=[redacted]", "lladdr address-3 uid=user-6, CANCELLED by user-6",
        "at 00:30:17 PCI 0000:53:00.0, std::vector, 127.0.0.1, root@gpu01, version 570.86.15",
    ]  # fmt: skip
    assert redactor.counts["secrets"] == 1


def test_a_key_over_several_lines_is_one_secret() -> None:
    body = [
        "-----BEGIN RSA PRIVATE KEY-----",
        "MIIEowIBAAKCAQEAy8Dbv8prpJ",
        "q2Gs8hk1HT+zEjx=",
        "-----END RSA PRIVATE KEY-----",
    ]
    assert Redactor((), ()).texts(["before", *body, "two\nlines"]) == ["before", *["[redacted]"] * 4, "two\nlines"]


NAMES = st.sampled_from(["carol", "dave", "erin"])


NAMED = st.builds("{}{}{}".format, st.text(), NAMES, st.sampled_from([" ", "\n", ":", "/"]))


@given(st.lists(st.one_of(st.text(), NAMED), max_size=6))
@example(["A\u00b9CAROL"])
def test_redacting_keeps_the_shape_and_leaves_no_known_name(texts: list[str]) -> None:
    redactor = Redactor({"carol", "dave", "erin"}, ())
    shown = redactor.tree({"a": texts, "b": [{"event": "x", "n": 1}, *texts]})
    assert len(shown["a"]) == len(texts) and shown["b"][0] == {"event": "x", "n": 1}
    for before, after in zip(texts, shown["a"], strict=True):
        assert before.count("\n") == after.count("\n")
        assert not re.search(r"(?<![^\W_])(carol|dave|erin)(?![^\W_])", after, re.I | re.A)


def test_a_bundle_names_the_users_of_its_jobs_and_no_other(store: DuckStore) -> None:
    client, name = TestClient(create_app(store)), hit(store)
    own = store.rows("SELECT \"user\" FROM model.runs WHERE run_key = '15'")[0]["user"]
    with store.transaction() as connection:
        connection.execute("UPDATE model.runs SET \"user\" = 'mallory' WHERE run_key = '16'")
        connection.execute(
            "UPDATE raw.logs SET message = 'login of mallory from 10.9.8.7, DB_PASS=correcthorse9' WHERE rowid ="
            " (SELECT min(rowid) FROM raw.logs WHERE event = 'nic.link_down')"
        )
    client.post(
        f"/api/v1/incidents/{name}/state", json={"comment": "ask mallory", "author": "opal", "assignee": "opal"}
    )
    told, redacted = (bundle(client, name, more).everything() for more in ("?redact=no", ""))
    for word in ("mallory", "opal", "10.9.8.7", "correcthorse9"):
        assert word in told and word not in redacted, word
    assert own in redacted
    replaced = bundle(client, name).block("manifest")["replaced"]
    assert replaced["secrets"] > 0 and replaced["users"] > 0 and replaced["addresses"] > 0


def test_roles_and_the_audit_log(store: DuckStore, tmp_path: Path) -> None:
    users = Users(tmp_path / "users.toml", {}, {f"{n} laptop": hashed_token(f"t-{n}") for n in ("ops", "reader", "me")})
    users.save()
    roles = Roles({Role.OPERATE: frozenset({"ops"}), Role.READ: frozenset({"reader"}), Role.OWN: frozenset({"me"})})
    authentication = Authentication(users=Users.load(users.path), roles=roles, sessions=Sessions(b"k" * 32, 3600))
    client = TestClient(create_app(store, authentication=authentication, audit=Audit(tmp_path / "audit.ndjson")))

    def status(who: str, more: str = "") -> int:
        path = f"/api/v1/incidents/{hit(store)}/bundle{more}"
        return client.get(path, headers={"authorization": f"Bearer t-{who}"}).status_code

    assert [status(who) for who in ("ops", "reader", "me")] == [200, 200, 403]
    assert [status(who, "?redact=no") for who in ("ops", "reader", "me")] == [200, 403, 403]
    assert status("ops", "?redact=perhaps") == 422
    lines = [json.loads(line) for line in (tmp_path / "audit.ndjson").read_text().splitlines()]
    assert [(line["who"], line["redacted"]) for line in lines if line["act"] == "bundle"] == [
        ("ops", True), ("reader", True), ("ops", False),
    ]  # fmt: skip


def test_an_unknown_incident_and_a_former_name(store: DuckStore, client: TestClient) -> None:
    assert client.get("/api/v1/incidents/I-0/bundle").status_code == 404
    with store.transaction() as connection:
        connection.execute("INSERT INTO kept.aliases VALUES (NULL, 'I-old', ?, now())", [hit(store)])
    answer = client.get("/api/v1/incidents/I-old/bundle")
    assert answer.headers["content-disposition"] == f'attachment; filename="{hit(store)}.html"'


# -- how it is made -------------------------------------------------------------------------------------------------------


def test_modules_become_one_script_or_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("import { b as c } from './lib/b.js';\nexport const a = c();\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "b.js").write_text("export function b() {\n  return 1;\n}\n")
    script = one_script(tmp_path, "a.js")
    assert script.index("modules['lib/b.js'] =") < script.index("modules['a.js'] =")
    assert "const { b: c } = modules['lib/b.js'];" in script and "return { a };" in script
    for form in ("import * as b from './lib/b.js';\n", "export default 1;\n", "export { a };\n"):
        (tmp_path / "a.js").write_text(form)
        with pytest.raises(ValueError, match="form of import or export"):
            one_script(tmp_path, "a.js")


def test_the_command_writes_the_file_for_its_owner_only(tmp_path: Path) -> None:
    with open_store(tmp_path / "data") as store:
        store.add(rows_of(FLAP))
        write(store, conclusions_of(FLAP))
        name = hit(store)

    def saved(*words: str) -> Done:
        return faultline("incidents", "--data", "data", "--bundle", *words, cwd=tmp_path)

    done, path = saved(name), tmp_path / f"{name}.html"
    assert done.returncode == 0 and hashlib.sha256(path.read_bytes()).hexdigest() in done.stderr.decode()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Bundle(path.read_bytes()).block("manifest")["redacted"] is True
    assert saved(name, "--no-redact", "--out", "full.html").returncode == 0
    assert Bundle((tmp_path / "full.html").read_bytes()).block("manifest")["redacted"] is False
    unknown, nowhere = saved("I-0"), saved(name, "--out", "no/such/folder.html")
    assert (unknown.returncode, nowhere.returncode) == (2, 2)
    assert "There is no incident I-0" in unknown.stderr.decode() and "cannot be written" in nowhere.stderr.decode()
    assert not list(tmp_path.glob(".*draft"))


def test_the_command_asks_a_service(store: DuckStore, tmp_path: Path) -> None:
    served = serve(store)
    done = faultline("incidents", "--server", next(served), "--bundle", hit(store), cwd=tmp_path)
    served.close()
    assert done.returncode == 0
    assert Bundle((tmp_path / f"{hit(store)}.html").read_bytes()).block("manifest")["incident"] == hit(store)


def test_the_page_offers_it(store: DuckStore, client: TestClient) -> None:
    assert f'href="/api/v1/incidents/{hit(store)}/bundle" download' in client.get(f"/incidents/{hit(store)}").text
