"""The sources page and its JSON over a store that received something, and over one that never did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import fixture
import polars as pl
import pytest
from fastapi.testclient import TestClient

from collector.inventory import Inventory, utc_now
from collector.ledger import RATES, SOURCES, Ledger, Source, Step
from collector.segment_file import Position
from faultline.sources import list_sources
from store import open_store
from web.app import create_app
from web.sources import shared_folder

NOW = utc_now()


def receiving(ledger: Ledger) -> Any:
    """The running receiver, as far as the page uses it."""
    state = {
        "trouble": None, "waiting_bytes": 0, "free_bytes": 10**9, "stored_lines": 7, "stored_batches": 1, "duplicates": 0,
        "quarantined": 0, "blind_periods": 1, "listening": ["syslog udp 127.0.0.1:514"],
    }  # fmt: skip
    return SimpleNamespace(
        inventory=Inventory(ledger.store, ledger),
        pipeline=SimpleNamespace(ledger=ledger),
        state=lambda: state,
        replay=lambda _: False,
    )


@pytest.fixture
def client() -> Iterator[TestClient]:
    with open_store(None) as store:
        ledger = Ledger(store, "spool")
        step, reported = Step(Position(1, 20)), []
        for number in range(130):
            host = f"gpu{number:03d}"
            seen = Source(
                host, "syslog", f"{host}:/var/log/<b>syslog", "agent", NOW - timedelta(days=1), NOW - timedelta(hours=4), lines=1000 + number,
                late=number == 5, gap_s=1.0, ahead=12 * (number == 9),
            )  # fmt: skip
            reported.append({**vars(seen), "rated": 0.0, "rate": 0.0})
            ledger.met(step, host, None, utc_now() if number == 7 else NOW - timedelta(hours=4))
        step.sources = pl.DataFrame(reported, schema=SOURCES | RATES)
        step.blind.append({
            "host": "gpu003", "source": "syslog", "stream": "s", "start": NOW, "end": NOW, "reason": "spool <full>", "lines": 12,
            "bytes": None, "told_by": "gpu003", "received": NOW,
        })  # fmt: skip
        trouble = [{"name": "hooks", "state": "error", "detail": "slurm may not write into <it>; run faultline slurm install", "since": "x"},
                   {"name": "kmsg", "state": "ok", "detail": "", "since": "x"}]  # fmt: skip
        ledger.met(step, "gpu009", None, NOW - timedelta(hours=4), status=json.dumps({"sources": trouble}))
        with store.write() as writer:
            ledger.write(writer, step)
        ledger.apply(step)
        app = create_app(store)
        app.state.receiving = receiving(ledger)
        yield TestClient(app, raise_server_exceptions=False)


def test_the_list_pages_and_the_counts_are_of_all_of_it(client: TestClient) -> None:
    seen, cursor = [], None
    while True:
        body = client.get("/api/v1/sources", params={"limit": 50, **({"cursor": cursor} if cursor else {})}).json()
        assert (body["total"], body["nodes"], body["late"]) == (130, 130, 1)
        seen += [row["host"] for row in body["sources"]]
        cursor = body["next"]
        if cursor is None:
            break
    assert seen == [f"gpu{n:03d}" for n in range(130)]
    assert client.get("/api/v1/sources", params={"q": "GPU12"}).json()["total"] == 10
    assert client.get("/api/v1/sources", params={"cursor": "zzz"}).status_code == 400


def test_alerts_and_blind_periods_are_reported(client: TestClient) -> None:
    body = client.get("/api/v1/sources").json()
    assert [alert["host"] for alert in body["alerts"]] == ["gpu007"] and body["silent"] == 1
    assert [(b["host"], b["reason"], b["lines"]) for b in body["blind"]] == [("gpu003", "spool <full>", 12)]
    assert body["intake"]["listening"] == ["syslog udp 127.0.0.1:514"]


def test_a_store_from_before_gaps_were_kept_is_shown() -> None:
    with open_store(None) as store:
        Ledger(store, "spool")
        with store.transaction() as connection:
            connection.execute("ALTER TABLE intake.sources DROP COLUMN longest_s")
        assert TestClient(create_app(store)).get("/api/v1/sources").status_code == 200


def test_lines_that_every_text_search_reads_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(None) as store:
        store.append({"logs": pl.DataFrame({"raw": ["a", "b"], "message": ["a", "b"], "file": "f"})})
        app = create_app(store)
        app.state.receiving = receiving(Ledger(store, "spool"))
        client = TestClient(app)
        body = client.get("/api/v1/sources").json()
        page = client.get("/sources", headers={"accept": "text/html"}).text
    assert body["unfiltered"] == 2
    assert "2 lines; every text search reads them" in " ".join(page.split())
    list_sources({**body, "alerts": []}, "table", None)
    assert "text filters: 2 lines have none yet; every text search reads them" in capsys.readouterr().out


def test_the_page_says_it_in_words_and_escapes_what_senders_wrote(client: TestClient) -> None:
    page = client.get("/sources", headers={"accept": "text/html"}).text
    assert (
        "All 130" in page
        and "streams of 130 hosts" in page
        and "Silent while the node is up" in page
        and "Blind periods" in page
    )
    assert "spool &lt;full&gt;" in page and "/var/log/<b>" not in page
    assert client.get("/sources?q=nothing-like-it").text.count("No source matches") == 1


def test_a_store_that_never_received_shows_its_files(client: TestClient) -> None:
    plain = TestClient(create_app(fixture.shared()), raise_server_exceptions=False)
    body = plain.get("/api/v1/sources").json()
    assert body["total"] > 0 and body["intake"] is None and all(row["transport"] == "file" for row in body["sources"])
    assert plain.get("/sources").status_code == 200
    assert plain.post("/api/v1/quarantine/x/replay").status_code == 404
    assert plain.post("/api/v1/ingest", content=b"x").status_code == 404
    assert "429" in plain.get("/api/v1/openapi.json").json()["paths"]["/api/v1/ingest"]["post"]["responses"]
    assert client.post("/api/v1/quarantine/x/replay").status_code == 404


def test_who_asks_for_trouble_sees_only_that(client: TestClient) -> None:
    for only, hosts in {"late": ["gpu005"], "silent": ["gpu007"], "unparsed": [], "ahead": ["gpu009"]}.items():
        page = client.get("/sources", params={"only": only}).text
        listed = page.split('aria-label="Sources"')[1]
        assert [host for host in (f"gpu{n:03d}" for n in range(130)) if f">{host}<" in listed] == hosts, only
        assert "All 130" in page, "the counts are still of all"


def test_the_output_of_jobs_is_one_row_a_host_until_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    store = fixture.build()
    for n in range(9):
        row = {"time": NOW.replace(microsecond=n), "file": f"jobs/{n}.out", "line": 1, "source": "job_stderr", "message": "x",
               "host": "gpu01" if n > 5 else None, "time_quality": "line", "event": "other", "tags": []}  # fmt: skip
        fixture.insert(store.con, "raw.logs", row)
    plain = TestClient(create_app(store))
    page = plain.get("/sources").text
    assert ">6 files</a>" in page and ">3 files</a>" in page and "jobs/3.out" not in page
    assert page.index(">6 files</a>") > page.index(">gpu04<"), "what belongs to no host comes last"
    assert "jobs/3.out" in plain.get("/sources", params={"q": "job_stderr", "outputs": "true"}).text
    folded, each = (plain.get("/api/v1/sources", params={"outputs": o}).json() for o in ("false", "true"))
    assert [(r["host"], r["files"], r["lines"]) for r in folded["sources"] if r["source"] == "job_stderr"] == [
        ("gpu01", 3, 3), (None, 6, 6)
    ]  # fmt: skip
    assert len([r for r in each["sources"] if r["source"] == "job_stderr"]) == 9
    assert each["job_outputs"] == folded["job_outputs"] == 11, "two of the fixture"
    assert each["total"] - folded["total"] == sum(r["files"] - 1 for r in folded["sources"] if r.get("files"))
    list_sources({**folded, "alerts": []}, "table", None)
    assert "job output: 11 files, one row for those of a host" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "folder"),
    [
        (
            ["/srv/captures/2026/november/a/x.log", "/srv/captures/2026/november/b/x.log"],
            "/srv/captures/2026/november/",
        ),
        (["/srv/captures/2026/november/a", "/srv/captures/2026/november/a/x.log"], ""),  # one of them is the folder
        (["/srv/captures/2026/november-1.log", "/srv/captures/2026/november-2.log"], ""),  # /srv/captures/2026: short
        (["/srv/captures/2026/november/a/x.log", "journal", None], ""),  # one path is its own folder
        (["/var/log/messages", "/var/log/syslog"], ""),
        ([], ""),
    ],
)
def test_a_long_folder_of_all_files_is_stated_once(files: list[str | None], folder: str) -> None:
    assert shared_folder(files) == folder


def test_the_page_says_the_folder_of_loaded_files_once_and_their_whole_paths_in_titles() -> None:
    store = fixture.build()
    store.con.execute("UPDATE raw.logs SET file = '/srv/captures/2026/november/' || file")
    text = TestClient(create_app(store)).get("/sources").text
    listed = text.split('aria-label="Sources"')[1].replace("<wbr>", "")
    assert "paths below" in listed and ">hosts/" in listed
    assert 'title="/srv/captures/2026/november/hosts/' in listed and ">/srv/captures/2026/november/hosts" not in listed


def test_what_an_agent_cannot_do_is_on_the_page_with_its_cure(client: TestClient) -> None:
    (found,) = client.get("/api/v1/sources").json()["agents"]
    assert (found["host"], found["source"], found["state"]) == ("gpu009", "hooks", "error")
    page = client.get("/sources").text
    assert "Agents in trouble" in page and "slurm may not write into &lt;it&gt;; run faultline slurm install" in page
