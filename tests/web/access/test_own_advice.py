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
#: The second run ends as the first one did; in the others it waits, runs or has completed.
AGAIN = {**RUN, "run_key": "15#1", "own_key": "15#1", "attempt": 1}
GOING_ON = [{**AGAIN, "state": state} for state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETED", "REQUEUED")]
ENDED_BADLY = [{**AGAIN, "state": state} for state in ("NODE_FAIL", "FAILED", "CANCELLED", "TIMEOUT", "")]
HELD = [{**AGAIN, "state": state} for state in ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "LAUNCH_FAILED")]
PENDING, RUNNING = GOING_ON[0], GOING_ON[2]
#: Another job that had the number before, in the same cluster.
EARLIER = {**RUN, "run_key": "15@2026-11-21T00:22:04", "own_key": "15@2026-11-21T00:22:04"}
SECOND = {**RUN, "run_key": "16", "own_key": "16", "job_id": 16}
ELSEWHERE = {**RUNNING, "cluster": "other"}
ONCE = "You need not submit anything: Slurm queued it again by itself."
SUBMIT = "Submit again, without gpu02 until it is mended (--exclude=gpu02): the code was not at fault."


class Rows:
    """The runs of alice, those of them that the incident ended, and the reasons for which her job waits."""

    user = "alice"

    def __init__(self, runs: list[dict[str, Any]], ended: list[dict[str, Any]], reasons: tuple[str, ...] = ()) -> None:
        self._runs, self._ended, self._reasons = runs, ended, reasons

    def ask(self, question: Any) -> list[Any]:
        assert [column.name for column in question.selected_columns] == ["reason"], "no line is in the document"
        return [{"reason": one} for one in self._reasons]

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
        (told("bob", "carol"), [RUN, RUNNING], [RUN], [ONCE]),
        (told(), [{**RUN, "state": "REQUEUED"}], [{**RUN, "state": "REQUEUED"}], [ONCE]),
        (told("alice"), [RUN, RUNNING, SECOND], [RUN, SECOND], [SUBMIT]),
        (told("alice"), [RUN, ELSEWHERE], [RUN], [SUBMIT]),
        (told("alice"), [AGAIN, RUN], [AGAIN], [SUBMIT]),
        (told("alice"), [EARLIER, RUNNING], [EARLIER], [SUBMIT]),
        (told(), [RUN], [RUN], []),  # nobody says that Slurm queued it again
        (told("bob"), [SECOND], [], []),  # her job only ran meanwhile
    ],
    ids=["one", "one of two", "requeued", "requeued, not yet started", "one of two jobs requeued", "another cluster's number",
         "an earlier run is no later one", "another job of the same number", "not known", "not hurt"],
)  # fmt: skip
def test_an_incident_tells_an_owner_what_is_left_to_do(
    advice: list[Any], runs: list[Any], ended: list[Any], expected: list[str]
) -> None:
    row = {"incident_id": "I1", "cluster": "mini", "root_host": "gpu02", "root_event": "nic.link_down", "root_device": None, "category": "infra.network"}  # fmt: skip
    document = {"jobs": [{"job_id": run["own_key"]} for run in (RUN, SECOND, AGAIN)], "advice": advice}
    shown = OwnDocuments(Rows(runs, ended)).incident(row, document)
    assert shown["advice"] == [{"text": text, "command": None} for text in expected]


@pytest.mark.parametrize("newest", GOING_ON + ENDED_BADLY + HELD, ids=lambda run: run["state"] or "no state")
def test_only_a_job_whose_newest_run_goes_on_by_itself_need_not_be_submitted(newest: dict[str, Any]) -> None:
    document = {"incident_id": "I1", "advice": told("alice")}
    shown = OwnDocuments(Rows([newest, RUN], [])).verdict(RUN, document)
    assert [item["text"] for item in shown["advice"]] == ([ONCE] if newest in GOING_ON else [SUBMIT])


def test_what_a_third_run_is_counts_not_the_second() -> None:
    third = {**AGAIN, "run_key": "15#2", "own_key": "15#2", "attempt": 2, "state": "FAILED"}
    document = {"incident_id": "I1", "advice": told("alice")}
    for first, runs in ((RUN, [RUN, RUNNING, third]), ({**RUN, "state": "REQUEUED"}, [RUN, third])):
        shown = OwnDocuments(Rows(runs, [])).verdict(first, document)
        assert [item["text"] for item in shown["advice"]] == [SUBMIT]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("Priority", ONCE), ("BeginTime", ONCE), ("JobHeldAdmin", SUBMIT), ("JobHoldMaxRequeue", SUBMIT), ("launch_failed_requeued_held", SUBMIT),
     ("launch failed requeued held", SUBMIT)],
)  # fmt: skip
def test_a_job_that_is_held_in_the_queue_does_not_start_by_itself(reason: str, expected: str) -> None:
    document = {"incident_id": "I1", "advice": told("alice")}
    shown = OwnDocuments(Rows([RUN, PENDING], [], ("Resources", reason))).verdict(RUN, document)
    assert [item["text"] for item in shown["advice"]] == [expected]


@pytest.mark.parametrize(
    ("run", "runs", "expected"),
    [(RUN, [RUN], [SUBMIT]), (RUN, [RUN, RUNNING], [ONCE]), (AGAIN, [RUN, AGAIN], [SUBMIT])],
)
def test_a_verdict_tells_it_of_its_own_run(run: dict[str, Any], runs: list[Any], expected: list[str]) -> None:
    document = {"incident_id": "I1", "advice": told("alice", "carol")}
    shown = OwnDocuments(Rows(runs, [])).verdict(run, document)
    assert [item["text"] for item in shown["advice"]] == expected


def test_advice_about_ones_own_program_stays() -> None:
    document = {"category": "app.error", "advice": [{"text": "Read the traceback.", "command": None}]}
    assert OwnDocuments(Rows([RUN], [])).verdict(RUN, document)["advice"] == document["advice"]


def test_what_would_make_a_cause_known_names_no_setting_of_the_site() -> None:
    text = "A log of the run's nodes. If no user can write to these files, users_can_write_syslog = false in the configuration makes them count; for a log host, users_can_send_syslog = false."
    shown = OwnDocuments(Rows([RUN], [])).verdict(RUN, {"category": "unknown", "change_my_mind": text})
    assert shown["change_my_mind"] == "A log of the run's nodes."


def test_an_owner_reads_which_control_group_of_the_system_had_reached_its_limit() -> None:
    text = "it could start no more processes on gpu02, and the control group /system.slice/slurmd.service had reached its limit"
    shown = OwnDocuments(Rows([RUN], [])).verdict(RUN, {"category": "unknown", "summary": text})
    assert shown["summary"] == text
