"""``faultline slurm verify --job``: a job that runs, and what the agent has of its hooks. A real Slurm: tests/cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.agent.slurm.programs import BY_EVENT, Call
from collector.agent.slurm_setup import trial
from collector.agent.slurm_setup.commands import main
from collector.agent.slurm_setup.findings import Finding
from collector.agent.source import Context

#: What a node's slurm.conf may call; a health check has no job, and the site left the epilog out.
CALLS = [
    Call(BY_EVENT["prolog"], "direct", "/etc/faultline/slurm/prolog.sh"),
    Call(BY_EVENT["taskprolog"], "chained", "/etc/slurm/task.sh"),
    Call(BY_EVENT["healthcheck"], "direct", "/etc/faultline/slurm/healthcheck.sh"),
    Call(BY_EVENT["epilog"], "other", "/etc/slurm/epilog.sh"),
]


@pytest.fixture
def tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], tuple[list[Finding], list[str], str]]:
    """Findings, lines and the arguments of a ``srun`` whose script is given; the agent's status becomes what is given with it."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(trial, "ARRIVES_WITHIN_S", 0.2)
    monkeypatch.setattr(trial, "LOOK_EVERY_S", 0.01)

    def run(script: str, status: str) -> tuple[list[Finding], list[str], str]:
        (tmp_path / "srun").write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\n{script}\n')
        (tmp_path / "srun").chmod(0o755)
        (tmp_path / "status.json").write_text(status)
        lines: list[str] = []
        found = list(trial.run(Context(), CALLS, tmp_path / "status.json", "gpu01", "", lines.append))
        return found, lines, (tmp_path / "asked").read_text()

    return run


Tried = Callable[[str, str], tuple[list[Finding], list[str], str]]


def has(**jobs: list[str]) -> str:
    return json.dumps({"hooks": {name.removeprefix("job"): events for name, events in jobs.items()}})


def test_what_arrived_is_said(tried: Tried) -> None:
    found, (line,), asked = tried("echo job=42", has(job42=["prolog", "taskprolog", "epilog"], job41=[]))
    assert found == [] and line == "job      42 ran; the agent has what these hooks wrote: prolog, taskprolog"
    assert "--nodelist=gpu01" in asked and "--time=1" in asked


@pytest.mark.parametrize("status", [has(job41=["taskprolog"], job42=["prolog"]), '{"hooks": {"42": ["prolog"]}}'])
def test_a_hook_whose_record_does_not_arrive_is_a_finding(tried: Tried, status: str) -> None:
    (found,), _, _ = tried("echo job=42", status)
    assert (found.code, found.hook) == ("not-arrived", "TaskProlog") and "test job 42" in found.what


@pytest.mark.parametrize("status", ["", "{}", '{"hooks": 5}', '{"hooks": {"42": 7}}', "[1]"])
def test_an_agent_that_says_nothing_has_nothing(tried: Tried, status: str) -> None:
    found, _, _ = tried("echo job=42", status)
    assert [one.hook for one in found] == ["Prolog", "TaskProlog"]


@pytest.mark.parametrize(
    ("script", "says"),
    [("echo 'srun: error: Unable to allocate resources: Invalid account' >&2; exit 1", "Invalid account"), ("echo nothing", "has no number: 'nothing'")],
)  # fmt: skip
def test_a_job_that_does_not_run_is_a_finding(tried: Tried, script: str, says: str) -> None:
    (found,), _, _ = tried(script, has(job42=["prolog", "taskprolog"]))
    assert found.code == "trial-job" and says in found.what and found.cure


def test_a_job_of_another_user_and_of_any_node() -> None:
    assert trial.command("", "alice")[:5] == ["runuser", "-u", "alice", "--", "srun"]
    assert not any(word.startswith("--nodelist") for word in trial.command("", ""))


@pytest.mark.parametrize("more", [("--dry-run",), ("--root", "/srv")])
def test_no_job_where_nothing_may_run(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--job", *more]) == 2
    assert "--job runs a job" in capsys.readouterr().err
