"""Base rates from operators' answers: the share of a kind of fact that caused nothing.

A base rate is how often such a fact occurs near an effect by chance. Facts that caused what followed do not belong to
it; without answers it is unknown which did, and all count. Of the facts that verdicts blame, the answers show how many
were blamed rightly; those that no verdict blames caused nothing. So the share is

    1 - blamed / seen * confirmed / (PRIOR_ANSWERS + confirmed + wrong)

It changes a verdict only from an edge file that is loaded explicitly (``[[base_rate]]``). It is always computed from
all facts and all answers, whatever share is in force, so using it and computing it again counts no answer twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from correlator.evidence.weigh import rate_of
from correlator.learning.judged import LEAST, PRIOR_ANSWERS, Judged, judged

if TYPE_CHECKING:
    from correlator.conclusions import Basis, Pass
    from correlator.model.nouns import Fact
    from correlator.verdicts.verdict import Verdict

#: Rates are shown per host and this many seconds.
MONTH_S = 30 * 86400.0


@dataclass(frozen=True)
class Innocence:
    """Counts about one kind: facts ``seen``, how many of them verdicts ``blamed``, incidents ``confirmed`` and
    ``wrong``.

    ``exposure`` is in host-seconds; ``before`` is the share in force.
    """

    kind: str
    seen: int
    blamed: int
    confirmed: int
    wrong: int
    exposure: float
    before: float = 1.0

    @property
    def innocent(self) -> float:
        """The mean of a Beta distribution for the blamed facts; "none is a cause" weighs ``PRIOR_ANSWERS``."""
        causes = self.confirmed / (PRIOR_ANSWERS + self.confirmed + self.wrong)
        return round(max(LEAST, 1.0 - self.blamed / max(1, self.seen) * causes), 3)

    def rate(self, innocent: float) -> float:
        """The base rate per host and 30 days with this share."""
        return rate_of(innocent * self.seen, self.exposure) * MONTH_S


def innocence(found: Sequence[Pass], rows: Iterable[Mapping[str, Any]], in_force: Mapping[str, float]) -> list[Innocence]:  # fmt: skip
    """The counts of the standing answers ``rows``, by kind. ``found``: a full pass over every cluster."""
    chains = {
        (c.result.cluster, v.run.key): v
        for c in found
        for story in c.basis.stories
        for v in story.verdicts
        if v.chain is not None
    }
    verdicts = {(c.result.cluster, key): document for c in found for key, document in c.result.verdicts.items()}
    answers, _ = judged(rows, verdicts)
    answers_by_kind = _by_kind(answers, chains)
    blamed: defaultdict[str, set[int]] = defaultdict(set)
    for verdict in chains.values():
        for fact in _causes(verdict):
            blamed[fact.kind].add(id(fact))
    return [
        Innocence(
            kind, sum(f.kind == kind for c in found for f in c.result.facts), len(blamed[kind]), sum(right.values()),
            sum(not r for r in right.values()), sum(_exposure(c.basis, kind) for c in found), in_force.get(kind, 1.0),
        )
        for kind, right in sorted(answers_by_kind.items())
    ]  # fmt: skip


def _by_kind(
    answers: Iterable[Judged], chains: Mapping[tuple[str | None, str], Verdict]
) -> dict[str, dict[tuple[str | None, str], bool]]:
    """Kind -> incident -> whether such a fact was rightly blamed.

    "Confirmed" confirms all causes of a chain. "Wrong" is about its root: what followed from it may well be true, and
    is no chance. "Wrong" takes precedence over "confirmed", as for priors.
    """
    answers_by_kind: defaultdict[str, dict[tuple[str | None, str], bool]] = defaultdict(dict)
    for one in answers:
        verdict = chains.get((one.cluster, one.run_key))
        if verdict is None or verdict.root is None:
            continue
        incident = (one.cluster, one.incident_id)
        for kind in {f.kind for f in _causes(verdict)} if one.right else {verdict.root.kind}:
            answers_by_kind[kind][incident] = one.right and answers_by_kind[kind].get(incident, True)
    return dict(answers_by_kind)


def _causes(verdict: Verdict) -> list[Fact]:
    return [hop.cause for hop in verdict.chain.hops] if verdict.chain else []


def _exposure(basis: Basis, kind: str) -> float:
    return basis.rates.counted(kind, basis.last)[1] if basis.rates else 0.0


def lines(found: Iterable[Innocence]) -> list[str]:
    """The shares for a person: one line for each kind."""
    return [
        f"{one.kind}: base rate {one.rate(one.before):.3g} -> {one.rate(one.innocent):.3g} per host and 30 days, innocent {one.before:.2f} ->"
        f" {one.innocent:.2f}  {one.blamed} of {one.seen} blamed; {one.confirmed} incidents confirmed, {one.wrong} wrong"
        for one in found
    ]
