"""Owners of jobs are told what they can do themselves: no command of an administrator, and not to inform themselves."""

from __future__ import annotations

from typing import Any

import pytest

from web.access.own_documents import OwnDocuments

OPERATORS = {"text": "Drain gpu02.", "command": "scontrol update nodename=gpu02 state=drain reason='link eth0 down'"}
RUN: dict[str, Any] = {
    "run_key": "15", "own_key": "15", "cluster": "mini", "job_id": 15, "attempt": 0, "state": "NODE_FAIL", "user": "alice", "name": "train",
    "node_list": "gpu02", "nodes": ["gpu02"], "gpus": 8, "start": None, "end": None, "work_dir": None,
}  # fmt: skip
AGAIN = {**RUN, "run_key": "15#1", "own_key": "15#1", "attempt": 1}
SECOND = {**RUN, "run_key": "16", "own_key": "16", "job_id": 16}
ELSEWHERE = {**AGAIN, "cluster": "other"}
ONCE = "You need not submit anything: Slurm queued it again by itself."
SUBMIT = "Submit again, without gpu02 until it is mended (--exclude=gpu02): the code was not at fault."


class Rows:
    """The runs of alice, and those of them that the incident ended."""

    user = "alice"

    def __init__(self, runs: list[dict[str, Any]], ended: list[dict[str, Any]]) -> None:
        self._runs, self._ended = runs, ended

    def ask(self, question: Any) -> list[Any]:
        raise AssertionError("no line is in the document")

    def named_runs(self) -> list[dict[str, Any]]:
        return self._runs

    def runs_of(self, incident: Any) -> list[dict[str, Any]]:
        return self._ended

    def others(self) -> frozenset[str]:
        return frozenset({"bob", "carol"})


def told(*users: str) -> list[dict[str, Any]]:
    """The advice of an incident after which these users have to submit again."""
    text = f"Tell {', '.join(users)} to submit again, without gpu02 until it is mended (--exclude=gpu02): the code was not at fault."
    return [OPERATORS, *([{"text": text, "command": None, "users": list(users)}] if users else [])]


@pytest.mark.parametrize(
    ("advice", "runs", "ended", "expected"),
    [
        (told("alice"), [RUN], [RUN], [SUBMIT]),
        (told("alice", "bob"), [RUN], [RUN], [SUBMIT]),
        (told("bob", "carol"), [RUN, AGAIN], [RUN], [ONCE]),
        (told(), [{**RUN, "state": "REQUEUED"}], [{**RUN, "state": "REQUEUED"}], [ONCE]),
        (told("alice"), [RUN, AGAIN, SECOND], [RUN, SECOND], [SUBMIT]),
        (told("alice"), [RUN, ELSEWHERE], [RUN], [SUBMIT]),
        (told("alice"), [AGAIN, RUN], [AGAIN], [SUBMIT]),
        (told(), [RUN], [RUN], []),  # nobody says that Slurm queued it again
        (told("bob"), [SECOND], [], []),  # her job only ran meanwhile
    ],
    ids=["one", "one of two", "requeued", "requeued, not yet started", "one of two jobs requeued", "another cluster's number",
         "an earlier run is no later one", "not known", "not hurt"],
)  # fmt: skip
def test_an_incident_tells_an_owner_what_is_left_to_do(
    advice: list[Any], runs: list[Any], ended: list[Any], expected: list[str]
) -> None:
    row = {"incident_id": "I1", "cluster": "mini", "root_host": "gpu02", "root_event": "nic.link_down", "root_device": None, "category": "infra.network"}  # fmt: skip
    document = {"jobs": [{"job_id": run["own_key"]} for run in (RUN, SECOND, AGAIN)], "advice": advice}
    shown = OwnDocuments(Rows(runs, ended)).incident(row, document)
    assert shown["advice"] == [{"text": text, "command": None} for text in expected]


@pytest.mark.parametrize(
    ("run", "runs", "expected"), [(RUN, [RUN], [SUBMIT]), (RUN, [RUN, AGAIN], [ONCE]), (AGAIN, [RUN, AGAIN], [SUBMIT])]
)
def test_a_verdict_tells_it_of_its_own_run(run: dict[str, Any], runs: list[Any], expected: list[str]) -> None:
    document = {"incident_id": "I1", "advice": told("alice", "carol")}
    shown = OwnDocuments(Rows(runs, [])).verdict(run, document)
    assert [item["text"] for item in shown["advice"]] == expected


def test_advice_about_ones_own_program_stays() -> None:
    document = {"category": "app.error", "advice": [{"text": "Read the traceback.", "command": None}]}
    assert OwnDocuments(Rows([RUN], [])).verdict(RUN, document)["advice"] == document["advice"]
