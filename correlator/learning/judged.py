"""Operators' answers, applied to edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from correlator.learning.feedback import standing
from correlator.learning.stated import stated_cause

#: A prior is the judgement of a person who knows such clusters, and is worth this many answers: a handful moves it a
#: little, dozens replace it.
PRIOR_ANSWERS = 20.0
#: No number of answers makes an edge more certain than this, or less possible.
LEAST, MOST = 0.02, 0.98


@dataclass(frozen=True)
class Judged:
    """An answer to a verdict that still stands, with its edges and whether it was right."""

    cluster: str | None
    run_key: str
    incident_id: str
    right: bool
    edges: tuple[str, ...]


def judged(
    rows: Iterable[Mapping[str, Any]], verdicts: Mapping[tuple[str | None, str], Mapping[str, Any]]
) -> tuple[list[Judged], int]:
    """The standing answers whose verdict is unchanged, and the number of those that do not count.

    ``verdicts``: documents by cluster and run.
    """
    found: list[Judged] = []
    uncounted = 0
    for row in standing(rows):
        document = verdicts.get((row["cluster"], row["run_key"]))
        now = None if document is None else stated_cause(document)
        stated = (row["said_category"], row["said_event"], row["said_host"])
        if now is None or (now.category, now.event, now.host) != stated or not now.edges:
            uncounted += 1
            continue
        right = row["answer"] == "confirmed"
        found.append(Judged(row["cluster"], row["run_key"], row["incident_id"], right, now.edges))
    return found, uncounted
