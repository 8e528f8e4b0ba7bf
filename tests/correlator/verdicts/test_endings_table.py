"""Every way in which Slurm ends a job (correlator/verdicts/endings): complete, and what the verdicts say."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from correlator.engine import correlate
from correlator.live.ticker import Ticker
from correlator.verdicts import ending_table
from correlator.verdicts.ending_table import Ending
from parsers.job_reasons import JOB_REASONS, Meaning, meaning_of
from parsers.job_states import JOB_STATES, OPEN, SUCCEEDED, Phase, phase_of
from store import open_store
from tests.correlator.engine.test_captures import ROOT, concluded
from tests.correlator.field import Situation, ended, heard
from tests.correlator.field import concluded as made_of
from tests.correlator.rows import answer, rows_of

ENDINGS = ending_table.load()
CAPTURES = ROOT / "tests" / "captures"
#: One capture for ``make test``; ``make test-long`` compares all.
QUICK = "dependency_never_satisfied"
MADE = [ending for ending in ENDINGS if ending.made]
REFERENCES = [
    pytest.param(ending, ref, id=f"{ending.id}-{ref}", marks=() if ref.split("/")[0] == QUICK else pytest.mark.long)
    for ending in ENDINGS
    for ref in ending.captures
]


def folder_of(name: str) -> Any:
    own = CAPTURES / "endings" / name
    return own if own.exists() else CAPTURES / name


def wrong(ending: Ending, verdict: dict[str, Any] | None) -> list[str]:
    """What a verdict does not say as the table states; empty if it says all of that."""
    if verdict is None or not ending.categories:
        return [] if verdict is None and not ending.categories else [f"verdict: {verdict and verdict['summary']}"]
    event = (verdict["root_cause"] or {}).get("event")
    advice = [row["text"] for row in verdict["advice"]]
    return [
        *([] if verdict["category"] in ending.categories else [f"{verdict['category']}: {verdict['summary']}"]),
        *(
            []
            if event in (ending.root.split("|") if ending.root else [None])
            else [f"root {event}: {verdict['summary']}"]
        ),
        *(f"not in {verdict['summary']!r}: {part!r}" for part in ending.says if part not in verdict["summary"]),
        *([] if ending.headline in verdict["headline"] else [f"headline: {verdict['headline']!r}"]),
        *([] if any(ending.advice in text for text in advice) or not ending.advice else [f"advice: {advice}"]),
        *(
            []
            if any(ending.doubt in text for text in verdict["doubts"]) or not ending.doubt
            else [f"doubts: {verdict['doubts']}"]
        ),
        *(f"advises {part!r}: {advice}" for part in ending.never for text in advice if part in text),
    ]


# -- complete ----------------------------------------------------------------------------------------------------------
def test_every_state_is_in_the_table() -> None:
    assert {state for ending in ENDINGS for state in ending.states} == JOB_STATES.keys()


def test_every_reason_is_in_the_table() -> None:
    assert {reason for ending in ENDINGS for reason in ending.reasons} == JOB_REASONS.keys()


def test_states_and_reasons_that_end_nothing_are_nobodys_verdict() -> None:
    for ending in ENDINGS:
        if ending.file == "states.toml":
            assert ending.verdict == ending_table.NO_VERDICT and set(ending.states) <= OPEN | SUCCEEDED, ending.id
        if ending.file == "reasons.toml":
            assert ending.verdict == ending_table.NO_VERDICT, ending.id
            assert not any(meaning_of(reason) is Meaning.ENDED for reason in ending.reasons), ending.id
    ends = {reason for reason, meaning in JOB_REASONS.items() if meaning is Meaning.ENDED}
    assert ends <= {reason for ending in ENDINGS if ending.file != "reasons.toml" for reason in ending.reasons}


def test_every_capture_of_the_table_exists_and_every_capture_is_in_the_table() -> None:
    """Forged lines end nothing: tests/correlator/learning/test_innocence.py and others judge those captures."""
    named = {ref.split("/")[0] for ending in ENDINGS for ref in ending.captures}
    assert [name for name in named if not (folder_of(name) / "truth.json").exists()] == []
    made = {path.name for path in (CAPTURES / "endings").iterdir() if "forged" not in path.name}
    assert made - named == set()


# -- true --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("ending", "ref"), REFERENCES)
def test_the_verdict_on_a_capture_is_what_the_table_says(ending: Ending, ref: str) -> None:
    name, key = ref.split("/")
    assert wrong(ending, concluded(folder_of(name))["verdicts"].get(key)) == []


def situation_of(ending: Ending) -> Situation:
    jobs = tuple(ended(**job) for job in ending.made["jobs"])
    return heard(ending.id, ending.made.get("lines", ()), jobs, (None,) * len(jobs))


@cache
def made() -> dict[str, tuple[Any, list[Any]]]:
    return made_of([situation_of(ending) for ending in MADE])


@pytest.mark.parametrize("ending", MADE, ids=lambda e: e.id)
def test_the_verdict_on_a_made_situation_is_what_the_table_says(ending: Ending) -> None:
    _, verdicts = made()[ending.id]
    assert wrong(ending, verdicts[0]) == []


AGAIN = re.compile(r"(?<!not )submit (?:it )?again", re.IGNORECASE)


def test_nobody_is_told_to_submit_again_what_slurm_runs_again() -> None:
    found = [(ending, made()[ending.id][1][0]) for ending in MADE if ending.categories]
    again = [
        (ending.id, row["text"])
        for ending, verdict in found
        if phase_of(verdict["state"]) is Phase.REQUEUED or "has been requeued" in str(ending.made)
        for row in verdict["advice"]
    ]
    assert len(again) >= 5 and not [told for told in again if AGAIN.search(told[1])]


def test_a_verdict_without_an_incident_advises_no_command_of_administrators() -> None:
    verdicts = [made()[ending.id][1][0] for ending in MADE if ending.categories]
    alone = [row for verdict in verdicts if verdict["incident_id"] is None for row in verdict["advice"]]
    assert len(alone) > 10 and not [row for row in alone if row["command"] or "scontrol" in row["text"]]


def test_a_wrong_word_in_the_table_is_noticed() -> None:
    (ending,) = [e for e in MADE if e.id == "deadline-running"]
    _, verdicts = made()[ending.id]
    for changed in (
        {"verdict": "app.error"},
        {"says": ("its time limit",)},
        {"root": "node.reboot"},
        {"headline": "?"},
        {"verdict": "none"},
    ):
        assert wrong(Ending(**{**vars(ending), **changed}), verdicts[0])


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["deadline_while_pending", "budget_used_up", "dependency_never_satisfied", "kill_on_bad_exit", "step_time_limit",
     "job_asks_for_reboot", "job_asks_for_reboot_in_vain", "preempted_and_requeued", "requeued_and_held", "x11_not_offered",
     "batch_stepd_killed", "shared_software_broken", "stranger_may_not_cancel", "launched_in_vain_everywhere", "processes_nearly_used_up_1"],
)  # fmt: skip
def test_ticks_say_what_a_full_pass_says(name: str) -> None:
    rows = rows_of(CAPTURES / "endings" / name)
    logs, rest = rows["logs"], {table: found for table, found in rows.items() if table not in ("logs", "jobs")}
    lines = [{"logs": logs[n : n + 50]} for n in range(0, logs.height, 50)]
    with open_store(None) as store:
        store.add(rest)
        ticker = Ticker(store)
        ticker.tick()
        for part in [*lines, {"jobs": rows["jobs"]}]:
            store.add(part)
            ticker.tick()
        ticked = answer(store)
        correlate(store)
        assert ticked == answer(store)
