"""The verdict on each run that did not end COMPLETED: which explanation holds, and with what confidence.

What Slurm and people did on purpose (cancel, preempt, time limit) is decided first. Then the evidence graph competes
with the run's own output. An infrastructure cause needs positive evidence. Without any, a failed program is the
program's fault, and if its output reports only "the network" nothing is blamed: unknown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass, replace

from correlator.evidence.calibration import SUREST, calibrated
from correlator.evidence.chains import Chain, Evidence, Rejection
from correlator.evidence.noisy_or import shares
from correlator.evidence.weigh import EDGE_OF_LOGS_S, LEAK, Weigher, before_all_logs, weight_of
from correlator.facts.jobs.kinds import COMM_ERROR, RUN_CANCELLED, RUN_FAILED, RUN_NODE_FAIL, RUN_REQUEUED, RUN_TIMEOUT
from correlator.facts.launches.detector import questions
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.memory_guards import GUARD_KILL
from correlator.facts.nodes.kinds import ADMIN_DOWN, MEMORY_ERROR, NODE_DOWN, NODE_REBOOT, is_unreported
from correlator.facts.output_hardware import STORAGE_IN_OUTPUT
from correlator.facts.registry import cause_of, roots
from correlator.facts.silent_nodes import SWITCH_SILENT
from correlator.facts.storage import STORAGE_OUTAGE
from correlator.facts.world import World
from correlator.model.attributes import (
    ALONE,
    BLAMED_CODE,
    CODE,
    FAR_END_ONLY,
    HOSTS,
    LAUNCH,
    MEMORY,
    NAMELESS,
    POLLED,
    ROLE,
    SURE,
    TREE_ONLY,
    UNRESUMED,
    UNSAID,
    WORDS,
)
from correlator.model.attrs import draft_of
from correlator.model.nouns import Event, Fact, Run
from correlator.site.interfaces import UNKNOWN
from correlator.verdicts import never_started, stated_ends
from correlator.verdicts.het_jobs import taken_along
from correlator.verdicts.intended_ends import deliberate
from correlator.verdicts.kernel_words import Claims, Limits, denied
from correlator.verdicts.own_ends import own_end
from correlator.verdicts.requeues import requeued
from correlator.verdicts.verdict import Verdict, quoted
from correlator.verdicts.waits import doubt_wait
from parsers.hostlist import fold

#: Leaks of the noisy-OR, by how a run ended and what its output shows: the weight of causes outside its chains, whose
#: own weight is at most evidence.MAX_RATIO. LEAK is in all of them. First estimates of docs/correlation.md.
OWN_WORDS = 0.9  # the program logged its own error
OWN_EXIT = 0.6  # it only returned an exit code
NETWORK_WORDS = 0.15  # it logged only that peers or network failed: seldom its own fault, rarely proof of ours
TIME_LIMIT = 0.8  # it ran until its time limit
CANCELLED = 0.5  # it was ended, and no line shows by whom
#: The same for runs that were not started, by the category of their explanation.
_WEIGHTS = {"app.error": OWN_WORDS, "unknown": NETWORK_WORDS}


def judge(world: World, weigher: Weigher, *, raw: bool = False) -> list[Verdict]:
    """The verdict on every run that did not end well; ``raw`` leaves the confidence uncalibrated."""
    ends = sorted((f for f in world.facts if f.kind.startswith("run.")), key=lambda f: (f.run or "", f.start))
    limits = Limits(world, weigher.exposed.looks)
    verdicts = [_judge_one(world, weigher, limits, end) for end in ends]
    for verdict in verdicts:
        verdict.denied = denied(world, verdict.run, verdict.end)
    if world.het_components:
        taken_along(world, verdicts)
    if not raw:
        for verdict in verdicts:
            verdict.confidence = _sure(verdict)
    return verdicts


def _sure(verdict: Verdict) -> float:
    return min(verdict.at_most, calibrated(verdict.category, verdict.confidence))


def _judge_one(world: World, weigher: Weigher, limits: Limits, end: Fact) -> Verdict:
    """The verdict on one end of a run.

    Lines that any user can write count only against explanations with less confidence than such lines can give.
    Otherwise the verdict is the one without these lines.
    """
    found = weigher.evidence(end)
    weigher.exposed.looks += questions(world, end)
    verdict = _explained(world, weigher, limits, end, found)
    claims = limits.of_end(end, verdict.run, found.chains)
    _doubt_own(verdict, claims)
    for at_most in sorted({claim.at_most for claim in claims.of.values()}):
        without = {name for name, claim in claims.of.items() if claim.at_most <= at_most}
        plain = _without(end, without)
        rest = _explained(world, weigher, limits, plain, weigher.evidence(end, without))
        _doubt_own(rest, claims)
        if _stands(rest, verdict, claims, without, at_most):
            lesser = (claim for claim in claims.of.values() if claim.at_most <= at_most)
            rest.end = end
            rest.doubts += sorted({claim.outweighed for claim in lesser})
            # Shown to people among the rivals.
            rest.others += [chain for chain in found.chains if id(chain.root) in without]
            verdict = rest
    never_started.tell(world, verdict)
    stated_ends.tell(verdict)
    return verdict


def _without(end: Fact, left_out: Collection[int]) -> Fact:
    """The end of a run without the facts and events whose id() is in ``left_out``."""
    attrs = draft_of(end.attrs)
    attrs[MEMORY] = [what for what in attrs[MEMORY] if id(what) not in left_out]
    attrs[BLAMED_CODE] = [fault for fault in attrs[BLAMED_CODE] if id(fault) not in left_out]
    return replace(end, attrs=attrs)


def _doubt_own(verdict: Verdict, claims: Claims) -> None:
    """Limits a verdict that rests only on unproven lines and has no chain (memory, Xids blamed on the program)."""
    if verdict.chain is None and _rests_on(verdict, claims.events):
        own = (claims.events[event.id] for event in verdict.own)
        wanting = max(own, key=lambda claim: (claim.at_most, claim.place, claim.host or ""))
        verdict.at_most = min(verdict.at_most, wanting.at_most)
        verdict.doubts.append(wanting.doubt)


def _rests_on(verdict: Verdict, events: Collection[str]) -> bool:
    return bool(verdict.own) and all(event.id in events for event in verdict.own)


def _stands(rest: Verdict, verdict: Verdict, claims: Claims, left_out: Collection[int], at_most: float) -> bool:
    """Whether ``rest``, the verdict without the claims that are limited to ``at_most``, replaces ``verdict``, the one
    with them.

    How a run ended is no explanation: if ``verdict`` rests on the claims and ``rest`` explains nothing, ``verdict``
    stays.
    """
    if (rest.category, rest.root, _sure(rest)) == (verdict.category, verdict.root, _sure(verdict)):
        return False
    if _sure(rest) < at_most:
        return False
    if not (verdict.root is not None and id(verdict.root) in left_out) and not _rests_on(verdict, claims.events):
        return True
    return rest.explained or (verdict.chain is None and rest.category == verdict.category)


def _explained(world: World, weigher: Weigher, limits: Limits, end: Fact, found: Evidence) -> Verdict:
    """The verdict on one end by the evidence ``found``, regardless of who could have written its lines."""
    run = world.run[end.run or ""]
    verdict = Verdict(run, end, "unknown", 0.0, rejections=found.rejections)
    asked = deliberate(world, run, end, found.chains)
    if asked is not None:
        verdict.category, verdict.confidence, verdict.reason, verdict.own = asked
        verdict.explained = end.kind != RUN_TIMEOUT.name
        return verdict
    own = _own_explanation(world, run, end)
    chains_in_logs = [c for c in found.chains if not before_all_logs(weigher, c.root)]
    chains = _with_words(end, _unblocked(weigher, end, chains_in_logs, verdict.rejections))
    causes = candidates(chains, own.leak)
    best = chains[0] if chains else None
    if best is None or best.weight < max(own.weight, LEAK):
        verdict.category, verdict.reason, verdict.own, verdict.others = own.category, own.reason, own.events, chains
        verdict.explained = own.explains
        verdict.confidence = own.sure * (1.0 - sum(share for _, share in causes))
        if end.kind == RUN_NODE_FAIL.name and not end.events:
            verdict.at_most = UNLOGGED_SURE  # it may have been set DOWN
        if end.start < weigher.rates.first - EDGE_OF_LOGS_S:
            verdict.confidence *= UNSEEN_SURE
            verdict.doubts.append(
                "It ended before the first line that was collected of anything: only its state is known"
            )
        mute = world.mute(run)
        if mute and own.category in ("app.error", "unknown"):
            # A node whose log is missing may hide the cause.
            verdict.confidence *= 1.0 - MUTE_DOUBT * len(mute) / len(run.nodes)
            verdict.doubts.append(
                f"No kernel or system log of {fold(mute)} was collected: a cause there would not show"
            )
        return verdict
    same_root = sum(share for root, share in causes if _same_cause(root, best.root))
    same_category = sum(share for root, share in causes if cause_of(root).category == cause_of(best.root).category)
    if same_category < 0.5:
        against = max((len(h.others.survivors) for h in best.hops if h.others), default=0)
        verdict.reason = f"the best explanation carries only {same_root:.2f}" + (
            f", for {against} other job{'s' if against > 1 else ''} that it reached ran on" if against else ""
        )
        verdict.confidence, verdict.others = 0.5, chains
        return verdict
    if reported := cause_of(best.root).reported:
        # Any user can print such lines: they clear nobody, and accuse no machine.
        verdict.reason = f"the program reports that {reported}; no line of a node confirms it"
        verdict.confidence, verdict.own, verdict.others = 0.5, list(best.root.events), chains
        return verdict
    verdict.chain, verdict.others = best, [c for c in chains if not _same_cause(c.root, best.root)]
    verdict.category, verdict.explained = cause_of(best.root).category, True
    verdict.confidence = min(SUREST, same_root)
    if wanting := limits.of_cause(best.root, best.hops, (run,), end.start):
        verdict.at_most = wanting.at_most
        verdict.doubts.append(wanting.doubt)
    _doubt_root(world, verdict, best.root)
    return verdict


def _doubt_root(world: World, verdict: Verdict, root: Fact) -> None:
    """Adds the doubts about a cause, and limits the confidence accordingly."""
    cause = cause_of(root)
    verdict.confidence = min(verdict.confidence, cause.surest)
    verdict.at_most = min(verdict.at_most, root.attrs.get(SURE, 1.0))
    if root.kind in (STORAGE_IN_OUTPUT.name, GUARD_KILL.name):  # users may have written all of its lines
        verdict.at_most = min(verdict.at_most, cause.surest)
    if (
        verdict.chain
        and verdict.chain.hops[-1].cause.kind == STORAGE_OUTAGE.name
        and verdict.end.kind == RUN_TIMEOUT.name
    ):
        doubt_wait(world, verdict, verdict.chain.hops[-1].cause)
    if root.kind in (NODE_DOWN.name, SWITCH_SILENT.name) and not root.attrs.get(UNRESUMED):
        _doubt_silence(world, verdict, root)
    if root.kind == NODE_REBOOT.name and verdict.chain and verdict.chain.hops[0].effect.kind == COMM_ERROR.name:
        verdict.at_most = min(verdict.at_most, BOOTED_AFTER_SURE)
        verdict.doubts.append(
            f"No line tells when {root.host} went down: it may have been booted because the run had failed"
        )
    if root.kind == ADMIN_DOWN.name and root.attrs.get(POLLED) is not None:
        verdict.at_most = min(verdict.at_most, POLLED_SURE)
        verdict.doubts.append(
            f"The reason was seen {root.attrs[POLLED]:.0f} s after the end: somebody may have given it to a node that was lost already"
        )
    if root.attrs.get(ROLE) == UNKNOWN and verdict.chain and "fabric link" in verdict.chain.hops[0].edge.requires:
        verdict.at_most = min(verdict.at_most, ROLELESS_SURE)
        verdict.doubts.append(
            f"Nothing tells whether {root.device} carries the jobs' data: [interfaces] in the configuration can"
        )
    if root.attrs.get(ALONE):
        verdict.at_most = min(verdict.at_most, ALONE_SURE)
    if root.attrs.get(NAMELESS):
        verdict.at_most = min(verdict.at_most, NAMELESS_SURE)
        verdict.doubts.append(cause.nameless)
    if root.attrs.get(TREE_ONLY):
        verdict.at_most = min(verdict.at_most, NAMELESS_SURE)
        verdict.doubts.append(
            f"Only topology.conf names {root.host}: the tree that Slurm places jobs by need not be the network that was lost"
        )
    if not root.attrs.get(FAR_END_ONLY):
        return
    if world.unlogged(root.host):
        verdict.confidence = min(verdict.confidence, FAR_END_SURE)
        verdict.doubts.append(f"No log of {root.host} was collected: the machine may have died, and its link with it")
    elif others := _lost_with(world, root):
        verdict.confidence = min(verdict.confidence, FAR_END_SURE)
        verdict.doubts.append(
            f"{root.host} lost {fold(others)} in the same moment, and logged none of it: it may have lost power, and its links with it"
        )


def _doubt_silence(world: World, verdict: Verdict, root: Fact) -> None:
    """Adds what is unknown about nodes that fell silent."""
    if root.attrs.get(UNSAID):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        verdict.doubts.append(
            "No line of slurmctld tells how these nodes were lost: they may have fallen silent, or somebody set them DOWN"
        )
    if is_unreported(root):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        verdict.doubts.append(
            f"No line of slurmctld tells how {root.host} was lost: it may have fallen silent, or somebody set it DOWN"
        )
    silent = [root.host] if root.host else list(root.attrs.get(HOSTS, ()))
    if silent and all(world.unlogged(host) for host in silent):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        of = "its link, its machine or its daemons" if root.host else "their links, machines or daemons"
        verdict.doubts.append(f"No kernel or system log of {fold(silent)} was collected: {of} may have failed")
    if root.kind == NODE_DOWN.name and _lived(world, root):
        verdict.at_most = min(verdict.at_most, UNLOGGED_SURE)
        verdict.doubts.append(
            f"{root.host} wrote after it was given up, and tells of no boot: it lived, and its way to slurmctld or its slurmd may have failed"
        )


#: A boot this long before slurmctld gave a node up, or after that, belongs to its silence. A node that logs this long
#: after it is up, if its clock is correct; later lines are no longer awaited (a tick looks 900 s back).
BOOT_BEFORE_S, SPOKE_AFTER_S, SPOKE_WITHIN_S = 1000.0, 10.0, 800.0


def _lived(world: World, down: Fact) -> bool:
    """Did a node log on, or again, after it was given up, without a line about a boot?"""
    if down.host not in world.reporting_hosts:
        return False
    since, until = down.start + down.sigma + SPOKE_AFTER_S, down.start + SPOKE_WITHIN_S
    if any(
        f.host == down.host and down.start - BOOT_BEFORE_S <= (f.end or f.start) <= until
        for f in world.facts_of(NODE_REBOOT.name)
    ):
        return False
    spoke = world.spoke_at(down.host)
    return bisect_left(spoke, since) < bisect_right(spoke, until)


#: Links of a machine that are lost within this were lost together (seconds): a switch sees a port go within two polls
#: of its PHY.
ALL_AT_ONCE_S = 3.0


def _lost_with(world: World, root: Fact) -> list[str]:
    """Other links of the same machine, seen only by their far ends, that were lost at the same moment as this one."""
    return sorted(
        f.device or "another link" for f in world.facts_of(LINK_OUTAGE.name)
        if f.host == root.host and f.device != root.device and f.attrs.get(FAR_END_ONLY)
        and abs(f.start - root.start) <= ALL_AT_ONCE_S + f.sigma + root.sigma
    )  # fmt: skip


def candidates(chains: list[Chain], leak: float) -> list[tuple[Fact, float]]:
    """Each cause once, with the probability that it ended the run.

    Paths from one cause, and one fault reported twice, are not independent witnesses: their weights add up to one
    candidate's.
    """
    weights: list[float] = []
    roots: list[Fact] = []
    for chain in chains:
        place = next((n for n, root in enumerate(roots) if _same_cause(root, chain.root)), len(roots))
        if place == len(roots):
            roots.append(chain.root)
            weights.append(0.0)
        weights[place] += chain.weight
    return list(zip(roots, shares(weights, leak), strict=True))


def _unblocked(weigher: Weigher, end: Fact, chains: list[Chain], rejections: list[Rejection]) -> list[Chain]:
    """Chains whose root may take the blame; if a blocking edge takes it from the root, the chain begins after it."""
    kept: dict[int, Chain] = {}
    for whole in (c for c in chains if c.root.kind in roots()):
        chain: Chain | None = whole
        while chain is not None and (
            chain.root.kind not in roots() or (blocking := weigher.blocked(chain.root)) is not None
        ):
            if chain.root.kind in roots() and blocking is not None:
                rejections.append(Rejection(blocking.edge, chain.root, end, blocking.edge.text))
            rest = chain.hops[1:]
            chain = Chain(rest[0].cause, rest, weight_of(rest)) if rest else None
        if chain is not None and (id(chain.root) not in kept or chain.weight > kept[id(chain.root)].weight):
            kept[id(chain.root)] = chain
    # What another chain explains is no root: blocking a cause in one chain left it unexplained, the other chain
    # explains it.
    explained = {id(hop.effect) for chain in kept.values() for hop in chain.hops}
    left = [chain for chain in kept.values() if chain.doubted or id(chain.root) not in explained]
    return sorted(left, key=lambda c: (-c.weight, c.root.key))


def _with_words(end: Fact, chains: list[Chain]) -> list[Chain]:
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
                if words["own"] and min(map(_place, words["own"])) < min(map(_place, chain.root.events))
                else 1.0
            )
        elif (
            speaks_for
            and words[speaks_for]
            and not (speaks_for == "peers" and words["own"] and not _peers_first(words))
        ):
            factor = 1.0
        elif chain.root.kind == MEMORY_ERROR.name and all(
            e.kind == "job.bus_error" or "bus error" in e.message.lower() for e in words["own"]
        ):
            factor = 1.0  # to a program, lost memory looks like a bus error
        elif words["own"]:
            factor = OWN_WORDS_AGAINST
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
#: The same for output about another kind of hardware.
OTHER_WORDS_AGAINST = 0.2
#: A silent node has no stated reason: if the loss of another node of the run has a cause, that cause takes precedence.
UNEXPLAINED = 0.5
#: It is certain that a node fell silent, but not why (``surest`` of its cause); if its own log is missing as well, a
#: link or a daemon is as probable as the machine.
UNLOGGED_SURE = 0.5
#: A reason that a poll shows soon after a run's end was nearly always given with the DOWN that ended it.
POLLED_SURE = 0.85
#: A link reported only by its far end, on a host whose log is missing, may as well be a dead machine's.
FAR_END_SURE = 0.7
#: A machine that boots within minutes after a run lost its peers had mostly gone before; occasionally it is booted to
#: repair it.
BOOTED_AFTER_SURE = 0.8
#: Peers that are lost while a link is down were mostly behind it, even if it is unknown what the link carries.
ROLELESS_SURE = 0.85
#: It is certain that many nodes were hit by one cause; which of the things that they share it was is unknown.
NAMELESS_SURE = 0.9
#: What only one user's runs show may be that user's own doing.
ALONE_SURE = 0.6
#: The factor on the confidence of an explanation, if only the state of the run was collected.
UNSEEN_SURE = 0.6
#: The share of an own explanation that is lost if no node's log could contradict it.
MUTE_DOUBT = 0.3


def _same_cause(one: Fact, other: Fact) -> bool:
    """One fault of one device reported twice (two bursts of one failing disk) does not compete with itself."""
    return one is other or (one.kind, one.host, one.device) == (other.kind, other.host, other.device)


@dataclass(frozen=True)
class Own:
    """The run's own explanation.

    ``weight``, and as ``leak`` together with unknown causes, competes with chains. ``sure`` is how often such output
    alone is right. ``explains``: the output shows why the run ended, not only how.
    """

    category: str
    weight: float
    reason: str
    events: list[Event]
    sure: float
    explains: bool = False

    @property
    def leak(self) -> float:
        return self.weight + LEAK


def _own_explanation(world: World, run: Run, end: Fact) -> Own:
    """The run's own explanation, against any infrastructure cause."""
    if unstarted := never_started.explained(world, run, end):
        weight = _WEIGHTS.get(unstarted.category, LEAK)
        return Own(unstarted.category, weight, unstarted.reason, unstarted.events, unstarted.sure, explains=True)
    if end.kind == RUN_NODE_FAIL.name:
        return Own("infra.node", LEAK, stated_ends.lost_node(run), [], 0.6)
    if end.kind == RUN_REQUEUED.name:
        again = requeued(world, run, end)
        weight = LEAK if again.category == "unknown" else OWN_EXIT
        return Own(again.category, weight, again.reason, again.events, again.sure, explains=again.category != "unknown")
    if end.kind == RUN_CANCELLED.name:
        return Own("user.cancel", CANCELLED, "it was cancelled", [], 0.9)
    if end.kind == RUN_TIMEOUT.name:
        return Own("app.timeout", TIME_LIMIT, "it reached its time limit", [], 0.95)
    words: dict[str, list[Event]] = end.attrs[WORDS]
    if words["own"] and not _peers_first(words):
        reason = f"its own output says: {quoted(words['own'][0])}"
        return Own("app.error", OWN_WORDS, reason, words["own"][:5], 0.97, explains=True)
    launch: list[Event] = end.attrs[LAUNCH]
    if launch:
        reason = f"Slurm could not start its tasks, and nothing tells why: {quoted(launch[0])}"
        return Own("unknown", NETWORK_WORDS, reason, launch[:5], 0.6)
    faults = end.attrs[BLAMED_CODE]
    if faults:
        code = faults[0].attrs.get(CODE)
        reason = f"its GPU reported Xid {code}, which NVIDIA's catalogue lays on the application"
        return Own("app.error", OWN_WORDS, reason, [e for f in faults for e in f.events][:5], 0.95, explains=True)
    for kind, what in (("gpu", "a GPU broke"), ("storage", "its storage failed")):
        if words[kind] and not _peers_before(words, kind):
            reason = f"its output says that {what}, and no log of the nodes tells of it: {quoted(words[kind][0])}"
            return Own("unknown", NETWORK_WORDS, reason, words[kind][:5], 0.6)
    if words["peers"]:
        reason = "its output says only that its peers or the network were lost"
        return Own("unknown", NETWORK_WORDS, reason, words["peers"][:5], 0.9)
    category, reason, lines, sure = own_end(world, run, end)
    return Own(category, OWN_EXIT, reason, lines, sure)


def _peers_first(words: dict[str, list[Event]]) -> bool:
    """Did the run lose its peers before its own error? Then the error follows from their loss."""
    return _peers_before(words, "own")


def _peers_before(words: dict[str, list[Event]], kind: str) -> bool:
    first = min(_place(e) for e in words[kind])
    first_peers = min((_place(e) for e in words["peers"]), default=None)
    return first_peers is not None and first_peers[0] + 1.0 < first[0]


def _place(event: Event) -> tuple[float, int]:
    return (event.time, event.line or 0)
