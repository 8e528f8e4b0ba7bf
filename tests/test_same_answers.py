"""benchmarks/same_answers.py: each answer that differs from another checkout's needs a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import same_answers
from benchmarks.same_answers import REASONS, Reason, differences, explain_folders, reasons_in


def answers(**sections: Any) -> dict[str, Any]:
    return {name: sections.get(name, {}) for name in same_answers.SECTIONS}


def verdict(category: str, summary: str) -> dict[str, Any]:
    return {"category": category, "summary": summary}


@pytest.fixture
def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """``explained(before, after, *reasons)``: the exit code and the output."""

    def run(before: dict[str, Any], after: dict[str, Any], *reasons: Reason) -> tuple[int, str]:
        for name, some in (("old", before), ("new", after)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "capture.json").write_text(json.dumps(some))
        code = explain_folders(tmp_path / "old", tmp_path / "new", list(reasons), most=None)
        return code, capsys.readouterr().out

    return run


BETTER = Reason("it is told better", ("verdicts.*.category",), ('"infra.node" -> "unknown"',))
FOLLOWS = Reason("follows", ("verdicts.*.summary",), beside=("verdicts.*.category",))


def test_a_difference_without_a_reason_fails_and_is_named(explained: Any) -> None:
    before = answers(verdicts={"7": verdict("infra.node", "a")})
    code, output = explained(before, answers(verdicts={"7": verdict("infra.gpu", "a")}), BETTER)
    assert code == 1
    assert 'no reason: capture: verdicts.7.category: "infra.node" -> "infra.gpu"' in output
    code, output = explained(before, answers(verdicts={"7": verdict("unknown", "a")}), BETTER)
    assert code == 0
    assert "1 in   1 captures  it is told better" in output


def test_what_follows_from_a_change_must_be_of_the_same_verdict(explained: Any) -> None:
    before = answers(verdicts={"7": verdict("infra.node", "a"), "8": verdict("app.error", "a")})
    after = answers(verdicts={"7": verdict("unknown", "b"), "8": verdict("app.error", "a")})
    assert explained(before, after, BETTER, FOLLOWS)[0] == 0
    after["verdicts"]["8"]["summary"] = "b"
    code, output = explained(before, after, BETTER, FOLLOWS)
    assert code == 1
    assert "no reason: capture: verdicts.8.summary" in output


def test_places_in_lists_and_names_of_runs_are_no_part_of_a_kind() -> None:
    (one,) = differences({"9#1": {"rows": [1, 2]}}, {"9#1": {"rows": [1, 3]}}, ("verdicts",))
    assert (one.kind, one.subject) == ("verdicts.*.rows.[]", ("verdicts", "9#1"))
    (whole,) = differences({"9#1": {}}, {}, ("verdicts",))
    assert (whole.kind, whole.subject) == ("verdicts.*", ())


def test_each_reason_names_the_issue_that_wanted_it_or_what_it_follows_from() -> None:
    for reason in reasons_in(REASONS):
        assert reason.why.endswith(")") or reason.beside, reason.why
