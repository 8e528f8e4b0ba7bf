"""Priors of edges from operators' answers: a proposal, which a person back-tests and adds to the site's edges.

base_rates.py does the same for base rates. Nothing here changes a verdict. The answers to one incident count once for
each edge of its chain, however many runs it ended: they are one observation of one fault.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tomli_w

from correlator.learning.feedback import answers
from correlator.learning.judged import LEAST, MOST, PRIOR_ANSWERS, judged
from correlator.model.nouns import Edge
from store.questions import conclusions

if TYPE_CHECKING:
    from correlator.learning.base_rates import Innocence
    from store.door import Asks


@dataclass(frozen=True)
class Learned:
    """An edge, the numbers of incidents that confirmed its blame and found it wrong, and the prior that follows.

    ``judged``: the prior from human judgement, if the edge's own is made of answers already: each answer counts once.
    """

    edge: Edge
    confirmed: int
    wrong: int
    judged: float | None = None

    @property
    def begun(self) -> float:
        """The prior before all answers."""
        return self.edge.prior if self.judged is None else self.judged

    @property
    def prior(self) -> float:
        """Mean of the Beta distribution in which the prior before all answers is worth ``PRIOR_ANSWERS``."""
        mean = (PRIOR_ANSWERS * self.begun + self.confirmed) / (PRIOR_ANSWERS + self.confirmed + self.wrong)
        return round(min(max(mean, min(LEAST, self.begun)), max(MOST, self.begun)), 3)


@dataclass(frozen=True)
class Lessons:
    """``uncounted``: answers to verdicts that have changed, or that no edge led to."""

    edges: list[Learned]
    uncounted: int


def learned(store: Asks, edges: Sequence[Edge], begun: Mapping[str, float] | None = None) -> Lessons:
    """Counts the standing answers whose verdict is unchanged.

    ``begun``: edge -> its prior before all answers, where that differs from its own.
    """
    rows = store.ask(conclusions.verdict_documents())
    verdicts = {(row["cluster"], row["run_key"]): json.loads(row["document"]) for row in rows}
    counted, uncounted = judged(answers(store), verdicts)
    #: By edge: incident -> whether it was confirmed. "Wrong" takes precedence: it is based on more knowledge than
    #: agreement.
    answers_by_edge: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for one in counted:
        for name in one.edges:
            answers_by_edge[name][one.incident_id] = one.right and answers_by_edge[name].get(one.incident_id, True)
    found = [
        Learned(edge, sum(right.values()), sum(not r for r in right.values()), (begun or {}).get(edge.id))
        for edge in edges if (right := answers_by_edge.get(edge.id))
    ]  # fmt: skip
    return Lessons(found, uncounted)


def lines(lessons: Lessons) -> list[str]:
    """The result for a person: one line for each edge, and what was not counted."""
    texts = [
        f"{one.edge.id:6} prior {one.edge.prior:.2f} -> {one.prior:.2f}  {one.confirmed} incidents confirmed, {one.wrong} wrong: {one.edge.text}"
        for one in lessons.edges
    ]
    if lessons.uncounted:
        texts.append(
            f"not counted: {lessons.uncounted} answers to verdicts that are others now, or that no edge led to"
        )
    return texts or ["no answers yet: give them on the page of a job or an incident"]


def as_file(
    found: Iterable[Learned], tests: Mapping[str, Sequence[object]] | None = None, rates: Iterable[Innocence] = ()
) -> str:
    """Edges with their new priors, and base rates, as a site's edge file. ``tests``: those that the edges carry, by id."""
    edges = []
    for one in found:
        edge = one.edge
        entry: dict[str, object] = {
            "id": edge.id, "cause": list(edge.cause), "effect": list(edge.effect), "scope": edge.scope, "window": edge.window,
            "prior": one.prior, "judged": one.begun, "requires": list(edge.requires), "text": edge.text,
            "reference": f"{_COUNTED.sub('', edge.reference)}; {_counts(one)}".removeprefix("; "),
            "anchor": edge.anchor, "density": edge.density, "blocks": edge.blocks, "shared": edge.shared, "prior_runs": edge.prior_runs,
        }  # fmt: skip
        carried = (tests or {}).get(edge.id)
        edges.append({**entry, "tests": list(carried)} if carried else entry)
    base_rates = [
        {
            "kind": rate.kind,
            "innocent": rate.innocent,
            "reference": f"{rate.blamed} of {rate.seen} facts blamed; {_counts(rate)}",
        }
        for rate in rates
    ]
    tables = {name: entries for name, entries in (("edge", edges), ("base_rate", base_rates)) if entries}
    return f"{_MADE}\n\n{tomli_w.dumps(tables)}"


#: The first line of such a file.
_MADE = (
    "# Priors and base rates as operators' answers have them. Made by 'faultline check --answers'; "
    "back-test it before you use it."
)
#: The note that an earlier such file appends to an edge's reference.
_COUNTED = re.compile(r"(?:; |^)\d+ incidents confirmed, \d+ wrong$")


def _counts(one: Learned | Innocence) -> str:
    return f"{one.confirmed} incidents confirmed, {one.wrong} wrong"
