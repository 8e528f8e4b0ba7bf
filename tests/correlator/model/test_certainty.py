"""The number of a verdict without a cause is no confidence in one: nobody is shown it, on no page, in no text."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from correlator.model import certainty
from correlator.model.categories import CATEGORIES
from faultline import why_text
from faultline.notify.message import Message
from faultline.verdict_line import line_of
from web.replay_picture import picture
from web.user_messages import messages

#: What `unknown` with a raw 0.5 is calibrated to.
NUMBER = 0.107
CAUSES = sorted(set(CATEGORIES) - {"unknown"})


class _Text:
    """The story of a job as one text."""

    columns = None

    def __init__(self) -> None:
        self.text = ""

    def line(self, *parts: tuple[str, str]) -> None:
        self.text += "".join(part for part, _ in parts) + "\n"


def why(category: str, confidence: float) -> str:
    out, needed = _Text(), "A log of the run's nodes."
    verdict: dict[str, Any] = {
        "headline": "It ended.", "summary": "So it was.", "category": category, "confidence": confidence, "final": True, "advice": [], "chain": [],
        "evidence": [], "grounds": [], "rivals": [], "doubts": [], "change_my_mind": needed,
    }  # fmt: skip
    why_text.why(out, "15", verdict, None)
    return out.text


def mail(category: str, confidence: float) -> str:
    run = {
        "run_key": "15", "name": "train", "user": "ada", "state": "FAILED", "end": None, "category": category, "confidence": confidence,
        "headline": "It ended.", "summary": "", "final": "true",
    }  # fmt: skip
    return str(messages([run], set(), "")[0]["text"])


def notified(category: str, confidence: float) -> str:
    return Message(
        "I1", "opened", "impact", "A title", "link", document={"category": category, "confidence": confidence}
    ).text


def replayed(category: str, confidence: float) -> str:
    stated = {"verdict": "final", "category": category, "confidence": confidence, "root_cause": None}
    moments = [{"time": "2026-01-01T00:00:00Z", "verdicts": {"15": stated}, "incident": None, "arrived": []}]
    return str(picture({"moments": moments})["strips"][0]["words"])


def comment(category: str, confidence: float) -> str:
    return line_of({"category": category, "confidence": confidence, "headline": "It ended."})


TEXTS = (why, mail, notified, replayed, comment)


@pytest.mark.parametrize("text", TEXTS)
def test_an_unknown_cause_has_no_number_and_no_word_of_doubt(text: Any) -> None:
    for confidence in (NUMBER, 0.5, 0.97):
        shown = text("unknown", confidence)
        assert f"{confidence:.2f}" not in shown and f"{confidence:.0%}" not in shown
        assert not any(word in shown for _, word in certainty._STEPS)
        assert "not known" in shown.lower() or not shown, "a comment of Slurm stays empty"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("category", CAUSES)
def test_a_cause_keeps_its_number_or_word(text: Any, category: str) -> None:
    shown = text(category, 0.97)
    assert "0.97" in shown or "Almost certain" in shown
    assert "not known" not in shown.lower()


def test_what_would_make_it_known_is_named() -> None:
    assert "What would make it known: A log of the run's nodes." in why("unknown", NUMBER)
    assert "What would change this verdict: A log of the run's nodes." in why("app.oom", 0.9)


def test_words_for_confidence_go_down_to_doubtful() -> None:
    words = [certainty.in_words(value, "infra.gpu") for value in (0.97, 0.85, 0.7, 0.5, 0.1, 0.0, None)]
    assert words == ["Almost certain", "Very likely", "Likely", "Possible", "Doubtful", "Doubtful", "Not rated"]
    assert doctest.testmod(certainty).failed == 0
