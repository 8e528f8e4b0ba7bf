"""What operators' answers say of the priors of edges: a proposal, which a person back-tests and puts among the site's edges.

Nothing here changes a verdict. The answers to one incident count once for each edge of its chain, however many runs it
ended: they are one observation of one fault.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from correlator.feedback import answers, standing
from correlator.model import Edge
from correlator.replay import said

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: So many answers weigh as much as a prior, which is a judgement of somebody who knows such clusters: a handful of answers
#: moves it a little, dozens replace it.
PRIOR_ANSWERS = 20.0
#: No number of answers makes an edge more certain than this, or less possible.
LEAST, MOST = 0.02, 0.98


@dataclass(frozen=True)
class Learned:
    """An edge, in how many incidents its blame was confirmed and found wrong, and the prior that follows."""

    edge: Edge
    confirmed: int
    wrong: int

    @property
    def prior(self) -> float:
        """Mean of the Beta distribution of which the edge's prior is worth ``PRIOR_ANSWERS``."""
        mean = (PRIOR_ANSWERS * self.edge.prior + self.confirmed) / (PRIOR_ANSWERS + self.confirmed + self.wrong)
        return round(min(max(mean, min(LEAST, self.edge.prior)), max(MOST, self.edge.prior)), 3)


@dataclass(frozen=True)
class Lessons:
    """``uncounted``: answers to verdicts that are others now, or that no edge led to."""

    edges: list[Learned]
    uncounted: int


def learned(store: DuckStore, edges: Sequence[Edge]) -> Lessons:
    """Counts the standing answers whose verdict still says what was answered."""
    verdicts = {
        (row["cluster"], row["run_key"]): said(json.loads(row["document"]))
        for row in store.rows("SELECT cluster, run_key, document FROM model.runs WHERE document IS NOT NULL")
    }
    #: By edge: incident -> whether it was confirmed. Who answers "wrong" has seen more than who agrees.
    judged: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    uncounted = 0
    for row in standing(answers(store)):
        now = verdicts.get((row["cluster"], row["run_key"]))
        same = now is not None and (now.category, now.event, now.host) == (
            row["said_category"], row["said_event"], row["said_host"],
        )  # fmt: skip
        if now is None or not same or not now.edges:
            uncounted += 1
            continue
        for name in now.edges:
            right = row["answer"] == "confirmed"
            judged[name][row["incident_id"]] = right and judged[name].get(row["incident_id"], True)
    found = [
        Learned(edge, sum(told.values()), sum(not right for right in told.values()))
        for edge in edges if (told := judged.get(edge.id))
    ]  # fmt: skip
    return Lessons(found, uncounted)


def lines(lessons: Lessons) -> list[str]:
    """For a person: one line for each edge, and what was not counted."""
    told = [
        f"{one.edge.id:6} prior {one.edge.prior:.2f} -> {one.prior:.2f}  {one.confirmed} incidents confirmed, {one.wrong} wrong: {one.edge.text}"
        for one in lessons.edges
    ]
    if lessons.uncounted:
        told.append(f"not counted: {lessons.uncounted} answers to verdicts that are others now, or that no edge led to")
    return told or ["no answers yet: give them on the page of a job or an incident"]


def as_file(found: Iterable[Learned]) -> str:
    """Edges with their new priors as a site's edge file."""
    tables = [
        "# Priors as operators' answers have them. Made by 'faultline check --answers'; back-test it before you use it."
    ]
    for one in found:
        edge = one.edge
        told: dict[str, object] = {
            "id": edge.id, "cause": list(edge.cause), "effect": list(edge.effect), "scope": edge.scope, "window": edge.window,
            "prior": one.prior, "requires": list(edge.requires), "text": edge.text,
            "reference": f"{edge.reference}; {one.confirmed} incidents confirmed, {one.wrong} wrong".removeprefix("; "),
            "anchor": edge.anchor, "density": edge.density, "blocks": edge.blocks, "shared": edge.shared, "prior_runs": edge.prior_runs,
        }  # fmt: skip
        # Text, lists of text, numbers and booleans are written alike in JSON and TOML.
        body = "\n".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in told.items())
        tables.append(f"[[edge]]\n{body}")
    return "\n\n".join(tables) + "\n"
