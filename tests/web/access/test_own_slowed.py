"""A job that an incident slowed: its owner learns when, how much and why, and nothing of other users or other nodes."""

from __future__ import annotations

import doctest
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from correlator.model import slowdown
from faultline import why_remote, why_text
from web.access.authentication import Authentication
from web.access.own import OwnReader
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_token
from web.app import create_app
from web.reading import Reader

START = datetime(2026, 11, 21, 0, 20)
SECRETS = ("I-slow", "bob", "gpu77", "sw-9", "900", "bobs_job", "cancel them", "Xid")


def step(host: str, run: str | None, **more: Any) -> dict[str, Any]:
    return {"cause_fact": "gpu.thermal", "cause_host": host, "effect_fact": "job.slow", "effect_run": run, **more}


def build(*, pace: bool = True, **more: Any) -> fixture.FakeStore:
    """Heat of gpu03 and gpu77 slowed job 16 of carol, whose only node is gpu03, and job 900 of bob."""
    store = fixture.build()
    store.con.execute("UPDATE model.runs SET \"user\" = 'carol', nodes = ['gpu03', 'gpu01'] WHERE run_key = '16'")
    store.con.execute("UPDATE model.runs SET \"user\" = 'dave' WHERE run_key = '15'")
    document: dict[str, Any] = {
        "title": "GPUs of gpu77 were throttled by heat. Jobs 16 and 900 of bob became slower.", "slowed_jobs": ["16", "900"],
        "chain": [step("gpu03", "16"), step("gpu77", "900", text="bobs_job behind sw-9")],
        "events": [{"id": "e", "time": "2026-11-21T00:30:30Z", "host": "gpu77", "event": "gpu.thermal", "role": "cause", "message": "Xid"}],
        "advice": [{"text": "cancel them", "command": "scontrol update nodename=gpu77 state=drain"}],
    }  # fmt: skip
    row = {"incident_id": "I-slow", "cluster": "mini", "start": START, "end": None, "severity": "degraded", "category": "infra.gpu",
           "root_event": "gpu.thermal", "root_host": "gpu77", "document": json.dumps(document), **more}  # fmt: skip
    fixture.insert(store.con, "model.incidents", row)
    store.con.execute(
        "CREATE TABLE IF NOT EXISTS model.concluded_facts (fact_id VARCHAR, cluster VARCHAR, kind VARCHAR, subject VARCHAR, host VARCHAR, "
        'device VARCHAR, run_key VARCHAR, start TIMESTAMP, "end" TIMESTAMP, sigma DOUBLE, attributes VARCHAR, evidence VARCHAR)'
    )
    if pace:
        for key, ratio in (("16", 2.44), ("900", 9.9)):
            fixture.insert(store.con, "model.concluded_facts", {
                "cluster": "mini", "kind": "job.slow", "run_key": key, "start": START + timedelta(minutes=1), "end": START + timedelta(minutes=9),
                "attributes": json.dumps({"ratio": ratio, "before": 1.0, "after": ratio, "lost": 60.0, "lasting": False}),
            })  # fmt: skip
    return store


OWNERS = ("carol", "bob")


def client_of(store: fixture.FakeStore, user: str | None) -> TestClient:
    """What a user is answered who sees own jobs only; None: who may read everything."""
    name = user or "ops"
    users = Users(Path("users.toml"), {}, {f"{name} laptop": hashed_token("secret")})
    roles = Roles({Role.OPERATE: frozenset({"ops"}), Role.OWN: frozenset(OWNERS)})
    asked = Authentication(users=users, roles=roles, sessions=Sessions(b"k" * 32, 3600))
    app = create_app(store, authentication=asked)
    return TestClient(app, headers={"accept": "text/html", "authorization": "Bearer secret"})


SENTENCE = "Its steps took 2.4 times as long from 2026-11-21 00:21:00 to 2026-11-21 00:29:00 UTC, because a GPU was slowed by heat (gpu03)."


def test_the_owner_reads_the_plain_fact_and_nothing_of_others() -> None:
    asks = client_of(build(), "carol")
    (found,) = asks.get("/api/v1/jobs/16").json()["slowed"]
    assert found == {
        "start": "2026-11-21T00:21:00Z", "end": "2026-11-21T00:29:00Z", "ratio": 2.44, "lasting": False,
        "category": "infra.gpu", "cause": "a GPU was slowed by heat", "nodes": ["gpu03"], "incident_id": None,
    }  # fmt: skip
    page = asks.get("/jobs/16").text
    assert SENTENCE in re.sub(r"\s+", " ", page)
    assert (
        "a GPU was slowed by heat at 00:21:00" in re.sub(r"\s+", " ", page)
        and "No evidence against 1 other node:" in page
    )
    whole = page + asks.get("/api/v1/jobs/16").text
    assert not [secret for secret in SECRETS if secret in whole]
    assert asks.get("/incidents/I-slow").status_code == 404, "it ended no job of hers"


def test_operators_read_the_same_sentence_and_the_incident() -> None:
    asks = client_of(build(), None)
    text = re.sub(r"\s+", " ", asks.get("/jobs/16").text)
    assert SENTENCE in text and 'href="/incidents/I-slow"' in text
    found = asks.get("/api/v1/jobs/16").json()
    assert found["slowed"][0]["incident_id"] == "I-slow" and found["slowed_by"] == ["I-slow"]
    assert asks.get("/api/v1/jobs/15").json()["slowed"] == []


def test_nobody_reads_of_others_jobs() -> None:
    store = build()
    whole = Reader(store)
    assert OwnReader(whole, "bob").slowdowns(whole.run("16")) == []
    assert client_of(store, "bob").get("/api/v1/jobs/16").status_code == 404


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"pace": False}, "It was made slower, because a GPU was slowed by heat (gpu03)."),
        ({"root_event": "site.magic"}, SENTENCE.replace("a GPU was slowed by heat", "of a fault of the cluster (GPU)")),
    ],
)
def test_what_is_not_known_is_left_out(more: dict[str, Any], expected: str) -> None:
    text = re.sub(r"\s+", " ", client_of(build(**more), "carol").get("/jobs/16").text)
    assert expected in text and " at ." not in text


def test_an_incident_that_operators_marked_wrong_is_nobodys_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    store = build()
    whole = Reader(store)
    slowing = Reader.slowing
    monkeypatch.setattr(
        Reader, "slowing", lambda read, run: [row | {"triage": {"state": "wrong"}} for row in slowing(read, run)]
    )
    assert OwnReader(whole, "carol").slowdowns(whole.run("16")) == []


class _Service:
    """A service that answers one user."""

    server = "http://x"

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def ask(self, path: str) -> str:
        return self._client.get(path, headers={"accept": "application/json"}).text


class _Out:
    columns = None

    def __init__(self) -> None:
        self.text = ""

    def line(self, *parts: tuple[str, str]) -> None:
        self.text += "".join(text for text, _ in parts) + "\n"


def test_why_says_so_of_a_job_that_ended_well_too(capsys: pytest.CaptureFixture[str]) -> None:
    service: Any = _Service(client_of(build(), "carol"))
    assert why_remote.explain(service, "16", "text", _Out()) == 1
    shown = capsys.readouterr().out
    assert "needs no explanation" in shown and SENTENCE in shown
    assert why_remote.explain(service, "16", "json", _Out()) == 1
    assert json.loads(capsys.readouterr().out)["slowed"][0]["nodes"] == ["gpu03"]


def test_why_says_so_beside_a_verdict() -> None:
    (one,) = Reader(store := build()).slowdowns(Reader(store).run("16"))
    out, verdict = (
        _Out(),
        json.loads(store.con.execute("SELECT document FROM model.runs WHERE run_key = '15'").fetchall()[0][0]),
    )
    verdict = {
        "grounds": [],
        "doubts": [],
        "rivals": [],
        "advice": [],
        "chain": [],
        "evidence": [],
        "change_my_mind": "",
    } | verdict
    why_text.why(out, "15", verdict | {"chain": [], "evidence": []}, None, None, [one | {"lasting": True}])
    assert "from 2026-11-21 00:21:00 until its end, because a GPU was slowed by heat (gpu03)." in out.text
    assert doctest.testmod(slowdown).failed == 0
