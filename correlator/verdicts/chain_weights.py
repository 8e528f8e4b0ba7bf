"""Which chains of evidence compete, and how the run's own output changes their weights."""

from __future__ import annotations

from correlator.evidence.chains import Chain, Rejection
from correlator.evidence.noisy_or import shares
from correlator.evidence.weigh import Weigher, weight_of
from correlator.facts.gpu_drains import is_unusable
from correlator.facts.gpus import XID
from correlator.facts.jobs.kinds import COMM_ERROR, RUN_FAILED
from correlator.facts.jobs.output import may_be_of_gpu
from correlator.facts.nodes.kinds import MEMORY_ERROR, NODE_DOWN
from correlator.facts.registry import cause_of, roots
from correlator.facts.storage import STORAGE_OUTAGE, deadline_by
from correlator.model.attributes import BLAMED_CODE, UNRESUMED, WORDS
from correlator.model.nouns import Edge, Event, Fact
from correlator.verdicts import coverage
from correlator.verdicts.own_explanation import peers_first, place_in_output


def candidates(chains: list[Chain], leak: float) -> list[tuple[Fact, float]]:
    """Each cause once, with the probability that it ended the run.

    Paths from one cause, and one fault reported twice, are not independent witnesses: their weights add up to one
    candidate's.
    """
    weights: list[float] = []
    roots: list[Fact] = []
    for chain in chains:
        place = next((n for n, root in enumerate(roots) if is_same_cause(root, chain.root)), len(roots))
        if place == len(roots):
            roots.append(chain.root)
            weights.append(0.0)
        weights[place] += chain.weight
    return list(zip(roots, shares(weights, leak), strict=True))


def unblocked(weigher: Weigher, end: Fact, chains: list[Chain], rejections: list[Rejection]) -> list[Chain]:
    """Chains whose root may take the blame; if a blocking edge takes it from the root, the chain begins after it."""
    kept: dict[int, Chain] = {}
    for whole in (c for c in chains if c.root.kind in roots()):
        chain: Chain | None = whole
        while chain is not None and (
            chain.root.kind not in roots() or (against := _against(weigher, chain)) is not None
        ):
            if chain.root.kind in roots() and against is not None:
                rejections.append(Rejection(against[0], chain.root, end, against[1]))
            rest = chain.hops[1:]
            chain = Chain(rest[0].cause, rest, weight_of(rest)) if rest else None
        if chain is not None and (id(chain.root) not in kept or chain.weight > kept[id(chain.root)].weight):
            kept[id(chain.root)] = chain
    # What another chain explains is no root: blocking a cause in one chain left it unexplained, the other chain
    # explains it.
    explained = {id(hop.effect) for chain in kept.values() for hop in chain.hops}
    left = [chain for chain in kept.values() if chain.doubted or id(chain.root) not in explained]
    return sorted(left, key=lambda c: (-c.weight, c.root.key))


def _against(weigher: Weigher, chain: Chain) -> tuple[Edge, str] | None:
    """What takes the blame from the root of a chain: a blocking edge, or a witness that denies it. With the edge, and why."""
    if (blocking := weigher.blocked(chain.root)) is not None:
        return blocking.edge, blocking.edge.text
    why = coverage.unbelieved(weigher.world, chain.root)
    return (chain.hops[0].edge, why) if why else None


def with_words(end: Fact, chains: list[Chain]) -> list[Chain]:
    """The chains, weighted by the run's own output.

    The program's own error makes every other cause less probable. Output about a broken GPU or disk makes that cause
    more probable than the rest.
    """
    words = end.attrs[WORDS]
    changed = []
    given_up = _given_up_at(end, chains)
    for chain in chains:
        factor = 1.0
        cause = cause_of(chain.root)
        speaks_for = cause.words
        if speaks_for == "any":
            pass  # its detector compared the run's last error with those of others
        elif cause.reported:
            factor = (
                OWN_WORDS_AGAINST
                if words["own"]
                and min(map(place_in_output, words["own"])) < min(map(place_in_output, chain.root.events))
                else 1.0
            )
        elif (
            speaks_for and words[speaks_for] and not (speaks_for == "peers" and words["own"] and not peers_first(words))
        ):
            factor = 1.0
        elif chain.root.kind == MEMORY_ERROR.name and all(
            e.kind == "job.bus_error" or "bus error" in e.message.lower() for e in words["own"]
        ):
            factor = 1.0  # to a program, lost memory looks like a bus error
        elif chain.root.kind == STORAGE_OUTAGE.name and deadline_by(chain.root, end):
            factor = 1.0
        elif chain.root.kind == XID.name and is_unusable(chain.root) and _is_of_gpu(end, chain.root):
            factor = 1.0  # the same error of CUDA follows from a GPU that only a reset brings back
        elif words["own"]:
            factor = ASSERTED_AGAINST if any(map(_asserted, words["own"])) else OWN_WORDS_AGAINST
        elif any(words[w] for w in ("gpu", "storage")):
            factor = OTHER_WORDS_AGAINST
        if chain.root.kind == NODE_DOWN.name and not chain.root.attrs.get(UNRESUMED):
            factor *= UNEXPLAINED
        if given_up is not None and _onset_of(chain.root) > given_up:
            factor *= LATE_AGAINST
        changed.append(Chain(chain.root, chain.hops, chain.weight * factor))
    changed.sort(key=lambda c: (-c.weight, c.root.start, c.root.key))
    return changed


#: A GPU or disk that fails after a run's ranks had given each other up, for a known cause, found the run dying already.
#: Output timestamps, and a driver that checks its device only on access, put this much between them (seconds).
LATE_AGAINST, GAVE_UP_S = 0.2, 10.0


def _is_of_gpu(end: Fact, fault: Fact) -> bool:
    """May all errors that a program calls its own be those of this GPU, which failed under it? Not where the kernel reports a
    mistake of the program's on another GPU."""
    own = end.attrs[WORDS]["own"]
    if any(mistake.device != fault.device for mistake in end.attrs.get(BLAMED_CODE) or ()):
        return False
    return bool(own) and all(may_be_of_gpu(event.message, lately=True) for event in own)


def _given_up_at(end: Fact, chains: list[Chain]) -> float | None:
    """The moment after which no new fact contributed to a run's end: its ranks had lost their peers for a known cause."""
    if end.kind != RUN_FAILED.name:
        return None
    lost = [
        h.effect for c in chains for h in c.hops if h.effect.kind == COMM_ERROR.name and h.cause.kind != COMM_ERROR.name
    ]
    return min((f.start + 3 * f.sigma + GAVE_UP_S for f in lost), default=None)


def _onset_of(fact: Fact) -> float:
    return fact.start - 3 * fact.sigma


#: Likelihood ratio of a program's own error message (a shape that does not fit, a missing key) under an infrastructure
#: cause.
OWN_WORDS_AGAINST = 0.03
#: The same for an assertion of the program's own code on the GPU: a GPU that breaks reports another error.
ASSERTED_AGAINST = 0.003
#: The same for output about another kind of hardware.
OTHER_WORDS_AGAINST = 0.2
#: A silent node has no stated reason: if the loss of another node of the run has a cause, that cause takes precedence.
UNEXPLAINED = 0.5


def _asserted(event: Event) -> bool:
    """PyTorch's advice beside any error of CUDA speaks of device-side assertions as well."""
    return "device-side assert triggered" in event.message.lower()


def is_same_cause(one: Fact, other: Fact) -> bool:
    """One fault of one device reported twice (two bursts of one failing disk) does not compete with itself."""
    return one is other or (one.kind, one.host, one.device) == (other.kind, other.host, other.device)
