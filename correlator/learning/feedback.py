"""Operators' answers: "confirmed", or "wrong, it was X". Stored, shown, exported, counted; never turned into a verdict.

An answer is kept with the verdict that was shown when it was given. The answers give how often each kind of root cause
was right (shown beside base rates) and the reliability of stated confidences.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from correlator.evidence.calibration import Bin, expected_error, reliability
from correlator.model.categories import CATEGORIES
from parsers.moments import utc
from store import run_names
from store.errors import NoSuchTable
from store.questions import kept

if TYPE_CHECKING:
    from store.door import Asks, Door

ANSWERS = ("confirmed", "wrong")


class FeedbackError(ValueError):
    """The answer cannot be kept; the text says why and what to do."""


@dataclass(frozen=True)
class Answer:
    """An operator's answer about one run.

    ``category`` and the rest name the true cause; they are required if the answer is "wrong".
    """

    answer: str
    category: str | None = None
    event: str | None = None
    host: str | None = None
    device: str | None = None
    note: str = ""
    author: str = ""


def checked(answer: Answer) -> None:
    """Raises ``FeedbackError`` for an answer that no verdict can be given."""
    if answer.answer not in ANSWERS:
        raise FeedbackError(f"answer {answer.answer!r}: use one of {', '.join(ANSWERS)}")
    if answer.category is not None and answer.category not in CATEGORIES:
        raise FeedbackError(f"category {answer.category!r}: use one of {', '.join(CATEGORIES)}")
    if answer.answer == "wrong" and answer.category is None:
        raise FeedbackError("a wrong verdict needs the category that it should have been; 'unknown' is one")


def give(store: Door, run_key: str, answer: Answer, now: datetime | None = None) -> dict[str, Any]:
    """Keeps an answer about a run's verdict and returns it. The same person's later answer on it replaces it.

    ``run_key`` is the run's name in the whole store.
    """
    checked(answer)
    run = run_names.find(store, run_key, "own_key", "cluster", "document")
    if run is None or run["document"] is None:
        raise FeedbackError(f"run {run_key}: it has no verdict to answer; see 'faultline incidents'")
    verdict = json.loads(run["document"])
    root = verdict.get("root_cause") or {}
    moment = utc(now or datetime.now(UTC))
    name = hashlib.blake2s(repr((run_key, answer, moment)).encode(), digest_size=6).hexdigest()
    row = {
        "feedback_id": f"F-{name}", "cluster": run["cluster"], "run_key": run["own_key"], "incident_id": verdict["incident_id"],
        "answer": answer.answer, "category": answer.category or verdict["category"], "event": answer.event, "host": answer.host,
        "device": answer.device, "note": answer.note, "author": answer.author, "given_at": moment, "said_category": verdict["category"],
        "said_event": root.get("event"), "said_host": root.get("host"), "said_confidence": verdict["confidence"],
    }  # fmt: skip
    with store.write() as writer:
        writer.change(kept.keep_answer(row))
    return row


def answers(store: Asks, *, run_key: str | None = None, incident_id: str | None = None) -> list[dict[str, Any]]:
    """All answers, oldest first; of one run (by its name in the whole store) or incident if given."""
    if run_key is not None:
        run = run_names.find(store, run_key, "own_key", "cluster") or {"own_key": run_key, "cluster": None}
        return [row for row in answers(store) if (row["run_key"], row["cluster"]) == (run["own_key"], run["cluster"])]
    try:
        return store.ask(kept.answers(incident_id))
    except NoSuchTable:  # a store of an older version, opened for reading
        return []


def standing(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The answers that count: each person's last one on each run."""
    last: dict[tuple[str | None, str, str], Mapping[str, Any]] = {}
    for row in rows:
        last[(row.get("cluster"), row["run_key"], row["author"] or "")] = row
    return list(last.values())


@dataclass(frozen=True)
class Lesson:
    """The results of the answers: per stated root cause (or category), how many were judged and how many confirmed."""

    causes: dict[str, tuple[int, int]]
    diagram: list[Bin]
    error: float | None


def lessons(rows: Iterable[Mapping[str, Any]]) -> Lesson:
    """Counts for base rates and calibration. Shown to people; verdicts do not read it."""
    counted: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    pairs: list[tuple[float, bool]] = []
    for row in standing(rows):
        right = row["answer"] == "confirmed"
        counted[row["said_event"] or row["said_category"]][0] += 1
        counted[row["said_event"] or row["said_category"]][1] += right
        pairs.append((float(row["said_confidence"]), right))
    return Lesson(
        {k: (n, ok) for k, (n, ok) in sorted(counted.items())},
        reliability(pairs),
        expected_error(pairs) if pairs else None,
    )
