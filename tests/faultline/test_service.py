"""The service's own work: scheduled reports are written whole, under a dated name."""

from __future__ import annotations

import gc
import threading
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from collector.ingest import Ingest
from correlator.engine import correlate
from correlator.live.ticker import Ticker, TickReport
from faultline import service
from faultline.cli import run
from faultline.config import validate
from faultline.failure import CommandError
from faultline.receiving import Front, Receiving
from faultline.service import Service, build_app
from faultline.serving import _Parts
from parsers.record import frame
from store import open_store
from store.duckdb import commit_mark as mark
from store.duckdb.open_store import DATABASE
from tests.line_parser import line_parser
from web.metrics import exposition

FLAP = Path(__file__).parent.parent / "captures" / "mgmt_flap_long"


def test_a_scheduled_report_is_written_with_its_date(tmp_path: Path) -> None:
    entry = {
        "name": "failure-patterns",
        "cron": "0 6 * * mon",
        "folder": str(tmp_path / "out"),
        "format": "md",
        "days": 7,
    }
    config = validate({"data": str(tmp_path / "data"), "reports": [entry]}, "test")
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([FLAP])
        correlate(store)
        running = Service(config, store)
        running.start()
        jobs = [str(job.trigger) for job in running.scheduler.get_jobs()]
        path = running.write_report(config.reports[0], now=datetime(2026, 11, 23, 6, 0))
        running.stop()
    assert any("day_of_week='mon'" in job and "hour='6'" in job for job in jobs)
    assert path == tmp_path / "out" / "failure-patterns-2026-11-23T0600.md"
    assert "gpu02" in path.read_text() and [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("waiting", "busy", "told"),
    [
        (0, False, {"behind": False, "busy": False}),
        (0, True, {"behind": False, "busy": True}),
        (service.BEHIND_BYTES + 1, False, {"behind": True, "busy": True}),
    ],
)
def test_the_pause_between_rounds_follows_what_waits_and_what_arrives(
    waiting: int, busy: bool, told: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = SimpleNamespace(is_busy=busy, unsettled=False, counts=SimpleNamespace(lines=7))
    receiving = SimpleNamespace(spool=SimpleNamespace(waiting_unpacked=waiting), pipeline=pipeline, keep=None)
    received: list[dict[str, object]] = []
    with open_store(None) as store:
        made = Service(validate({"data": str(tmp_path)}, "test"), store, cast(Any, receiving))
        for part, name, does in (
            (made.ticker, "tick", lambda: TickReport(worked=True, full=True, lines=3)),
            (made, "_seal", lambda: None),
            (made, "_deliver_output", lambda: None),
            (made.patterns, "refresh", lambda: False),
            (made._pacing, "is_time", lambda **stated: received.append(stated) or True),
            (made._pacing, "done", lambda took, lines, **stated: received.append({"lines": lines, **stated})),
        ):
            monkeypatch.setattr(part, name, does)
        made.tick()
    assert received == [{"stored": 7, **told}, {"lines": 3, "full": True, "stored": 7, **told}]


@pytest.mark.parametrize("cron", ["every monday", "0 6 * *", "61 6 * * mon"])
def test_a_wrong_schedule_is_refused_by_name(cron: str, tmp_path: Path) -> None:
    entry = {"name": "failure-patterns", "cron": cron, "folder": str(tmp_path)}
    with pytest.raises(CommandError, match="cron"):
        validate({"reports": [entry]}, "test")


def test_a_report_is_served_with_its_style_and_without_scripts_and_refuses_in_words(tmp_path: Path) -> None:
    with open_store(None) as store:
        client = TestClient(build_app(Service(validate({"data": str(tmp_path)}, "test"), store)))
        answer = client.get("/api/v1/reports/usage")
        policy = answer.headers["content-security-policy"]
        assert "<style" in answer.text and "style-src 'unsafe-inline'" in policy and "script-src" not in policy
        assert policy.startswith("default-src 'none'")
        reversed_ = client.get("/api/v1/reports/usage?since=2026-11-30T00:00:00&until=2026-11-01T00:00:00")
        assert reversed_.status_code == 400 and "is not before" in reversed_.json()["detail"]
        assert client.get("/api/v1/reports/usge").status_code == 404
        wrong = client.get("/api/v1/reports/usage?since=lately")
        assert wrong.status_code == 400 and wrong.json()["parameter"] == "since"
        assert wrong.json()["detail"] == "since='lately' is not a time; write 2026-11-21T00:30:00Z, now or now-6h"
        for since in ("now-7d", "2026-11-21", "2026-11-21T00:30:00+01:00", "2026-11-21T00:30:00 01:00", ""):
            assert client.get("/api/v1/reports/usage", params={"since": since, "format": "json"}).status_code == 200


def test_the_service_describes_all_its_routes(tmp_path: Path) -> None:
    """The whole service, not only the web package: a route of ours whose types cannot be named breaks everybody's page."""
    with open_store(None) as store:
        client = TestClient(build_app(Service(validate({"data": str(tmp_path)}, "test"), store)))
        paths = client.get("/api/v1/openapi.json").json()["paths"]
    promised = ("ingest", "query", "incidents", "incidents/{incident_id}", "jobs/{key}", "jobs/{key}/verdict", "nodes",
                "nodes/{name}", "nodes/{name}/risk", "reports", "reports/{name}", "sources", "tail", "result")  # fmt: skip
    assert [name for name in promised if f"/api/v1/{name}" not in paths] == []


def test_lines_are_taken_in_and_stored_while_all_that_is_stored_is_first_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart on a big store: minutes of concluding, during which no sender waits, and the pages report it."""
    go_on = threading.Event()
    monkeypatch.setattr(Ticker, "tick", lambda self: go_on.wait(240) and TickReport())
    monkeypatch.setattr(service, "LOOK_S", 0.0)
    config = validate({"data": str(tmp_path / "data"), "listen": "127.0.0.1:0", "syslog": []}, "test")
    receiving = Receiving(config, listeners=False)
    front = Front(receiving, "the store is not open yet")
    parts = _Parts(config, receiving, front, tmp_path / "note", "http://here", None)
    parts.begin(open_store(config.data))
    try:
        asked = TestClient(front, base_url="http://localhost")
        line = b'{"host": "gx01", "message": "eth0: Link is Down"}\n'
        assert (
            asked.post("/api/v1/ingest", content=line, headers={"content-type": "application/x-ndjson"}).status_code
            == 200
        )
        assert receiving.pipeline is not None and receiving.pipeline.drain(120)
        reported = asked.get("/api/v1/sources").json()
        assert reported["looking_since"] and reported["intake"]["stored_lines"] == 1
        for path in ("/", "/sources", "/explore"):
            page = asked.get(path, headers={"accept": "text/html"}).text
            assert "still looking through all that is stored" in page and "data-poll" in page, path
        assert "faultline_first_look_pending 1" in asked.get("/metrics").text
        assert asked.get("/readyz").status_code == 200
        go_on.set()
        assert parts.service is not None
        while parts.service.looking_since():
            time.sleep(0.01)
        assert "still looking" not in asked.get("/", headers={"accept": "text/html"}).text
        assert asked.get("/api/v1/sources").json()["looking_since"] is None
    finally:
        go_on.set()
        parts.end()
        gc.unfreeze()


def test_a_job_that_fails_is_reported_until_it_goes_through_again(tmp_path: Path) -> None:
    """Notifications, reports, closing days, the audit: none of them ends silently, and none ends another."""
    broken, rounds = threading.Event(), threading.Semaphore(0)
    broken.set()

    def job() -> None:
        rounds.release()
        if broken.is_set():
            raise MemoryError("nothing left")

    with open_store(tmp_path / "data") as store, capture_logs() as stated:
        running = Service(validate({"data": str(tmp_path / "data")}, "test"), store)
        running.start()
        try:
            running.scheduler.add_job(job, "interval", seconds=0.05, id="the test's")
            for _ in range(4):
                assert rounds.acquire(timeout=240)
            end = time.monotonic() + 120
            while not running.troubles() and time.monotonic() < end:
                time.sleep(0.01)
            assert running.troubles() == ['the job "the test\'s" failed: MemoryError: nothing left']
            assert "\nfaultline_jobs_failing 1.0\n" in exposition(running)
            broken.clear()
            while running.troubles() and time.monotonic() < end:
                time.sleep(0.01)
            assert running.troubles() == [] and "\nfaultline_jobs_failing 0.0\n" in exposition(running)
        finally:
            running.stop()
    reported = [line["event"] for line in stated if line.get("job") == "the test's"]
    assert reported == ["a job failed; it is run again when it is due", "a job goes through again"]


def test_what_a_damaged_log_cost_is_among_the_troubles(tmp_path: Path) -> None:
    with open_store(tmp_path / "data") as store:
        mark.note_of(tmp_path / "data" / DATABASE).write_text("lines may be missing\n")
        running = Service(validate({"data": str(tmp_path / "data")}, "test"), store)
        assert running.troubles() == ["lines may be missing"]
        assert "\nfaultline_lines_may_be_missing 1.0\n" in exposition(running)
        with TestClient(build_app(running)) as client:
            assert client.get("/readyz").json()["troubles"] == ["lines may be missing"]
    checked = run(["check", "--data", str(tmp_path / "data")])
    assert checked == 1


def test_a_quiet_service_writes_the_log_into_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log takes twice the space until then."""
    monkeypatch.setattr(service, "QUIET_LOG_BYTES", 1)
    with open_store(tmp_path / "data") as store:
        made = Service(validate({"data": str(tmp_path / "data")}, "test"), store)
        store.set_fact("some", "fact")
        wal = tmp_path / "data" / f"{DATABASE}.wal"
        made._seal()
        assert wal.stat().st_size
        monkeypatch.setattr(service, "QUIET_STORE_S", 0.0)
        made._seal()
        assert not wal.exists() or not wal.stat().st_size
        assert store.fact("some") == "fact"


def test_a_quiet_service_puts_lines_that_fill_no_segment_into_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text search reads what is in no segment; a few lines are not worth one."""
    monkeypatch.setattr(service, "QUIET_LINES", 20)
    with open_store(tmp_path / "data") as store:
        made = Service(validate({"data": str(tmp_path / "data")}, "test"), store)
        store.add({"logs": frame("logs", [{"raw": "a line"}] * 30)})
        made._seal()
        assert store.info()["unfiltered"] == 30
        monkeypatch.setattr(service, "QUIET_LINES_S", 0.0)
        made._seal()
        assert store.info()["unfiltered"] == 0
        store.add({"logs": frame("logs", [{"raw": "a line"}] * 19)})
        made._seal()
        assert store.info()["unfiltered"] == 19
