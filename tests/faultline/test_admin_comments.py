"""The verdict's line in Slurm's AdminComment: what is written, over what never, and what happens when Slurm refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from faultline.admin_comments import MOST_TRIES, RETRY_S, SETTLE_S, AdminComments, Slurm, run_program
from faultline.config import AdminComment, validate
from faultline.service import Service
from faultline.verdict_line import MOST, line_of
from store import open_store
from store.duckdb.store import DuckStore
from web.metrics import exposition

NOON = datetime(2026, 11, 21, 12)
HEADLINE = "Your job died because a network link was lost, not because of your code."
LINE = f"faultline: infra.network 0.97: {HEADLINE} (gpu02)"


class FakeSlurm:
    """``sacct`` and ``sacctmgr`` of a cluster: its jobs by number, and every command that was run."""

    def __init__(self) -> None:
        self.jobs: dict[int, list[str]] = {}
        self.commands: list[list[str]] = []
        self.refusal = ""

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        if self.refusal:
            return subprocess.CompletedProcess(command, 1, "", self.refusal)
        if command[0] == "sacct":
            asked = next(word for word in command if word.startswith("--jobs=")).removeprefix("--jobs=").split(",")
            rows = [[job, *self.jobs[int(job)]] for job in asked if int(job) in self.jobs]
            return subprocess.CompletedProcess(command, 0, "".join("|".join(row) + "\n" for row in rows), "")
        assert command[:5] == ["sacctmgr", "-i", "modify", "job", "where"] and command[6] == "set" and len(command) == 8
        self.jobs[int(command[5].removeprefix("jobid="))][2] = command[7].removeprefix("AdminComment=")
        return subprocess.CompletedProcess(command, 0, " Modified jobs\n", "")

    @property
    def writes(self) -> int:
        return sum(command[0] == "sacctmgr" for command in self.commands)


@pytest.fixture(scope="module")
def whole() -> Iterator[DuckStore]:
    with open_store(None) as store:
        yield store


@pytest.fixture
def store(whole: DuckStore) -> DuckStore:
    with whole.transaction() as connection:
        connection.execute("DELETE FROM model.runs")
    return whole


class Site:
    def __init__(self, store: DuckStore, **settings: Any) -> None:
        self.store, self.slurm, self.time = store, FakeSlurm(), 0.0
        self.comments = AdminComments(
            store, AdminComment(enabled=True, **settings), None, Slurm("sacct", "sacctmgr", self.slurm.run),
            lambda: NOON + timedelta(seconds=self.time), lambda: self.time,
        )  # fmt: skip

    def ended(
        self, job: int, comment: str = "", user: str = "alice", state: str = "FAILED", attempt: int = 0, **verdict: Any
    ) -> None:
        document = {
            "category": "infra.network", "confidence": 0.97, "headline": HEADLINE,
            "root_cause": {"event": "link.down", "host": "gpu02", "device": "eth0"}, **verdict,
        }  # fmt: skip
        with self.store.transaction() as connection:
            connection.execute(
                'INSERT INTO model.runs (run_key, job_id, attempt, "user", state, start, "end", nodes, category, confidence, document) '
                "VALUES (?, ?, ?, ?, ?, ?, ?, ['gpu02'], ?, ?, ?)",
                [f"{job}#{attempt}" if attempt else str(job), job, attempt, user, state, NOON - timedelta(minutes=30 - attempt),
                 NOON - timedelta(minutes=10), document["category"], document["confidence"], json.dumps(document)],
            )  # fmt: skip
        self.slurm.jobs[job] = ["alice", state, comment]

    def round(self, later: float = SETTLE_S) -> None:
        self.comments.round()
        self.time += later
        self.comments.round()


def test_each_finished_job_gets_its_line_once(store: DuckStore) -> None:
    site = Site(store)
    site.ended(15)
    site.ended(16, category="unknown")
    site.round(later=1)
    assert site.slurm.commands == [], "the verdict may still change"
    site.round()
    assert site.slurm.jobs[15][2] == LINE and site.slurm.jobs[16][2] == ""
    site.round()
    assert site.slurm.writes == 1
    again = Site(store)
    again.slurm.jobs = {15: ["alice", "FAILED", LINE.lower()]}  # as sacctmgr of 22.05 stores it
    again.round()
    assert again.slurm.writes == 0, "a restarted service finds its line"
    with store.transaction() as connection:
        document = json.dumps(
            {"category": "infra.gpu", "confidence": 0.5, "headline": "", "root_cause": {"host": "gpu01"}}
        )
        connection.execute("UPDATE model.runs SET category = 'infra.gpu', confidence = 0.5, document = ? WHERE job_id = 15", [document])  # fmt: skip
    site.round()
    assert site.slurm.jobs[15][2] == "faultline: infra.gpu 0.50 (gpu01)"


def test_what_is_somebody_elses_stays_as_it_is(store: DuckStore) -> None:
    site = Site(store)
    site.ended(15, comment="ticket 4711 | faultline: no")
    site.ended(16)
    site.slurm.jobs[16][0] = "bob"  # another cluster's job of that number
    site.ended(17)
    site.slurm.jobs[17][1] = "RUNNING"
    site.ended(18)
    del site.slurm.jobs[18]
    site.ended(19, state="NODE_FAIL")
    with store.transaction() as connection:  # it was requeued, and runs again
        connection.execute(
            "INSERT INTO model.runs (run_key, job_id, attempt, \"user\", state, start) VALUES ('19#1', 19, 1, 'alice', 'RUNNING', ?)",
            [NOON],
        )
    site.round()
    assert site.slurm.writes == 0 and site.slurm.jobs[15][2] == "ticket 4711 | faultline: no"
    assert not any("19" in word for command in site.slurm.commands for word in command)
    assert site.comments.counts == {"kept": 1, "failed": 3} and site.comments.trouble is None
    site.slurm.jobs[18] = ["alice", "FAILED", ""]  # accounting learns of it late
    site.round(RETRY_S)
    assert site.slurm.jobs[18][2] == LINE


def test_a_refusal_is_shown_and_tried_again_and_given_up(store: DuckStore) -> None:
    site = Site(store)
    site.ended(15)
    site.slurm.refusal = "sacctmgr: error: You are not authorized\n to do that"
    site.round()
    assert site.comments.trouble == "sacct: sacctmgr: error: You are not authorized to do that"
    for _ in range(3):
        site.round(1)
    assert len(site.slurm.commands) == 1, "not at once again"
    site.slurm.refusal = ""
    site.round(RETRY_S * 2)
    assert site.slurm.jobs[15][2] == LINE and site.comments.trouble is None
    site.ended(16)
    site.slurm.refusal = "down"
    for _ in range(MOST_TRIES + 4):
        site.round(3700)
        site.comments.now = lambda: NOON
    assert site.comments.counts["failed"] == MOST_TRIES + 1
    assert 'faultline_admin_comments_total{outcome="failed"}' in exposition(site.comments)


def test_few_jobs_a_minute_the_newest_first(store: DuckStore) -> None:
    site = Site(store, per_minute=2)
    for job in range(15, 20):
        site.ended(job)
    site.comments.round()
    for written in (2, 4, 5, 5):
        site.time += SETTLE_S
        site.comments.round()
        assert site.slurm.writes == written


def test_the_line_is_short_and_has_no_text_of_the_job() -> None:
    said = "Your program never started: execve(): /home/alice/secret\x1b[2J: No such file. " + HEADLINE
    assert line_of({"category": "infra.storage", "confidence": 1, "headline": said, "root_cause": None}) == (
        f"faultline: infra.storage 1.00: Your program never started. {HEADLINE}"
    )
    hostile = {
        "category": "app.error",
        "confidence": 0.5,
        "headline": "It said 'rm -rf' to /x. " + "Too long, " * 90 + "\n\u202e|end.",
    }
    line = line_of(hostile)
    assert len(line) <= MOST and line.isascii() and line.isprintable() and not set("'|/") & set(line)
    assert line_of(None) == line_of({}) == line_of({"category": "unknown", "headline": "x"}) == ""


def test_programs_are_run_without_a_shell(tmp_path: Any) -> None:
    done = run_program(["/bin/echo", "$HOME; `id` *"])
    assert done.stdout == "$HOME; `id` *\n"
    slurm = Slurm(str(tmp_path / "sacct"), "sacctmgr")
    with pytest.raises(Exception, match="No such file"):
        slurm.records([15])


def test_the_service_writes_comments_only_if_it_was_told_to(store: DuckStore, tmp_path: Any) -> None:
    for enabled in (False, True):
        running = Service(validate({"data": str(tmp_path), "admin_comment": {"enabled": enabled}}, "test"), store)
        running.start()
        found = [job for job in running.scheduler.get_jobs() if job.func == running.comments.round]
        running.stop()
        assert len(found) == enabled
