"""A run of which no hook brought anything: its page says why where the store knows, and never "install" where hooks are."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from web import hook_losses
from web.app import create_app

START = datetime.fromisoformat("2026-11-21T00:20:00")
END = START + timedelta(minutes=5)


@pytest.fixture
def store() -> fixture.FakeStore:
    store = fixture.build()
    store.con.execute("DELETE FROM raw.jobs")
    run = {"run_key": "99", "cluster": "mini", "job_id": 99, "attempt": 0, "state": "FAILED", "user": "alice", "nodes": ["gpu03"],
           "start": START, "end": END}  # fmt: skip
    fixture.insert(store.con, "model.runs", run)
    return store


def panel(store: fixture.FakeStore) -> str:
    """The words of "Script and environment"."""
    page = TestClient(create_app(store)).get("/jobs/99").text
    (found,) = re.findall(r'(?s)aria-labelledby="scr">(.*?)</section>', page)
    return " ".join(re.sub(r"<[^>]*>", " ", found).split())


def received(store: fixture.FakeStore) -> None:
    """The tables of a store that received something."""
    store.con.execute("CREATE SCHEMA IF NOT EXISTS intake")
    store.con.execute('CREATE TABLE IF NOT EXISTS intake.blind (host VARCHAR, source VARCHAR, stream VARCHAR, start TIMESTAMP, '
                      '"end" TIMESTAMP, reason VARCHAR, lines BIGINT)')  # fmt: skip
    store.con.execute(
        "CREATE TABLE IF NOT EXISTS intake.nodes (host VARCHAR, cluster VARCHAR, status VARCHAR, status_at TIMESTAMP)"
    )


def blind(store: fixture.FakeStore, host: str, reason: str, at: datetime, source: str = "hook_spool") -> None:
    received(store)
    fixture.insert(
        store.con,
        "intake.blind",
        {"host": host, "source": source, "stream": "hooks", "start": at, "end": at, "reason": reason},
    )


def line(store: fixture.FakeStore, number: int, message: str, at: datetime = START, **about: Any) -> None:
    row = {"time": at, "time_quality": "line", "received_time": at, "cluster": "mini", "host": "ctl", "source": "slurmctld",
           "format": "slurm", "message": message, "raw": message, "event": "other", "tags": [],
           "file": "/var/log/slurm/slurmctld.log", "line": number}  # fmt: skip
    fixture.insert(store.con, "raw.logs", row | about)


def test_without_any_hook_the_page_says_how_to_get_them(store: fixture.FakeStore) -> None:
    assert "No hook of this cluster ever reported: faultline slurm install" in panel(store)


def test_where_hooks_work_for_others_nobody_is_told_to_install_them(store: fixture.FakeStore) -> None:
    fixture.insert(store.con, "raw.jobs", {"cluster": "mini", "job_id": 5, "source": "hook", "observed_at": START})
    told = panel(store)
    assert "install puts" not in told and "hooks are installed" in told and "faultline slurm verify" in told


def test_what_hooks_reported_is_the_reason(store: fixture.FakeStore) -> None:
    blind(store, "gpu03", "1 epilog hook, run as root, wrote nothing: the disk took nothing; make room there", END)
    blind(store, "ctl", "2 epilogslurmctld hooks, run as slurm, wrote nothing: its user may not write", END)
    blind(store, "gpu04", "1 prolog hook of another node wrote nothing", END)
    blind(store, "gpu03", "hooks of last week wrote nothing", END - timedelta(days=7))
    blind(store, "gpu03", "the journal lost lines", END, source="journald")
    told = panel(store)
    assert "its hooks brought nothing" in told and "gpu03: 1 epilog hook, run as root" in told
    assert "ctl: 2 epilogslurmctld hooks" in told and "nstall" not in told
    assert "gpu04" not in told and "last week" not in told and "journal" not in told


@pytest.mark.parametrize(
    "message",
    [
        "slurmscriptd: error: run_command: EpilogSlurmctld can not be executed (/opt/site/e.sh) No such file or directory",
        "error: Invalid PrologSlurmctld(/opt/site/p.sh): Permission denied",
    ],
)
def test_what_slurmctld_could_not_run_is_the_reason(message: str, store: fixture.FakeStore) -> None:
    line(store, 1, message)
    line(store, 2, "error: Invalid PrologSlurmctld, long ago", START - timedelta(days=1))
    told = panel(store)
    assert f"slurmctld of ctl: {message}" in told and "long ago" not in told and "nstall" not in told


def test_a_line_that_any_user_could_write_is_no_reason(store: fixture.FakeStore) -> None:
    line(store, 1, "error: Invalid PrologSlurmctld(/x): forged", format="rfc3164", file="/var/log/syslog")
    line(store, 2, "error: Invalid PrologSlurmctld(/x): forged", source="job_stdout", job_id=99)
    assert "forged" not in panel(store)


def test_what_its_nodes_agent_said_at_that_time_is_the_reason(store: fixture.FakeStore) -> None:
    received(store)
    for host, state in (("gpu03", "error"), ("gpu04", "error"), ("gpu05", "ok")):
        status = {
            "sources": [
                {
                    "name": "hooks",
                    "state": state,
                    "detail": f"slurm may not write on {host}",
                    "since": "2026-11-21T00:00:00Z",
                }
            ]
        }
        fixture.insert(
            store.con, "intake.nodes", {"host": host, "cluster": "mini", "status": json.dumps(status), "status_at": END}
        )
    told = panel(store)
    assert "gpu03: slurm may not write on gpu03" in told and "gpu04" not in told
    store.con.execute("UPDATE intake.nodes SET status = replace(status, '2026-11-21T00:00', '2026-11-27T00:00')")
    assert "may not write" not in panel(store), "trouble of a week later is no reason"


def test_who_sees_only_own_jobs_gets_no_reasons() -> None:
    read: Any = SimpleNamespace(own=True)
    assert hook_losses.reasons(read, {}) == [] and hook_losses.others_brought(read, {}) is None


def test_a_damaged_status_is_passed_over() -> None:
    rows = [{"host": "a", "cluster": None, "status": text, "status_at": None} for text in ("{", "[]", '{"sources": 3}')]
    read: Any = SimpleNamespace(ask=lambda _: rows)
    assert list(hook_losses.in_trouble(read, START)) == []
