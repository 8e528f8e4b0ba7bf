"""Reads of a job's script, environment and output are in the audit log, and cannot fill the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from store.door import Door
from tests.correlator.rows import concluded
from tests.web.access.test_access import FLAP, PAGE, bearer
from tests.web.access.test_access import authentication as authentication  # fixtures
from tests.web.access.test_access import users as users
from web.access.audit import QUIET_S, Audit
from web.access.authentication import Authentication
from web.access.read_audit import MOST_READS, ReadAudit
from web.app import create_app


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    with concluded(FLAP) as opened:
        yield opened


def told(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_reads_of_what_jobs_brought_are_written_down(
    store: Door, authentication: Authentication, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.ndjson"
    client = TestClient(
        create_app(store, authentication=authentication, audit=Audit(audit)), raise_server_exceptions=False
    )
    for _ in range(3):
        assert client.get("/jobs/15", headers={**bearer("reader"), **PAGE}).status_code == 200
    assert client.get("/api/v1/lines?source=job_stdout&job=16", headers=bearer("reader")).json()["lines"]
    assert client.post("/api/v1/query", json={"query": "Logs | take 1"}, headers=bearer("reader")).status_code == 200
    assert client.get("/jobs/16", headers={**bearer("alice"), **PAGE}).status_code == 404
    found = [(row["act"], row["who"], row.get("run"), row.get("owner"), row.get("query")) for row in told(audit)]
    assert found == [
        ("read_output", "reader", "15", "alice", None), ("read_output", "reader", "16", None, None),
        ("query", "reader", None, None, "Logs | take 1"),
    ]  # fmt: skip
    assert all(row["address"] and row["times"] == 1 for row in told(audit))


def test_reads_are_reported_once_in_a_while_and_never_without_end(tmp_path: Path) -> None:
    now = 0.0
    reads, path = ReadAudit(lambda: now), tmp_path / "audit.ndjson"
    audit = Audit(path)
    for _ in range(5):
        reads.record(audit, "read_output", "eve", "10.0.0.1", run="15", owner="alice")
    for number in range(MOST_READS + 99):
        reads.record(audit, "read_script", "eve", "10.0.0.1", run=str(number), owner="alice")
    reads.record(audit, "read_script", "ada", "10.0.0.2", run="1", owner="bob")
    assert len(told(path)) == MOST_READS + 1 and told(path)[-1]["who"] == "ada", "one's reads hide nobody else's"
    now = QUIET_S + 1
    reads.record(audit, "read_output", "eve", "10.0.0.1", run="15", owner="alice")
    assert [(row["act"], row["times"]) for row in told(path)[-2:]] == [("reads_left_out", 100), ("read_output", 5)]
