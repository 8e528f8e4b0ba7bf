"""The verdict on each run that did not end COMPLETED: which explanation holds, and with what confidence.

What Slurm and people did on purpose (cancel, preempt, time limit) is decided first. Then the evidence graph competes
with the run's own output. An infrastructure cause needs positive evidence. Without any, a failed program is the
program's fault, and if its output reports only "the network" nothing is blamed: unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from correlator.evidence.calibration import SUREST, calibrated, covered
from correlator.evidence.chains import Chain, Evidence
from correlator.evidence.weigh import EDGE_OF_LOGS_S, LEAK, Weigher, before_all_logs
from correlator.facts.environment.kinds import SYMPTOM
from correlator.facts.gpus import code_of, family_of
from correlator.facts.jobs.kinds import RUN_NODE_FAIL, RUN_TIMEOUT
from correlator.facts.jobs.output import io_deadline, may_be_of_gpu
from correlator.facts.launches.detector import questions
from correlator.facts.output_hardware import DISK_IN_OUTPUT, GPU_IN_OUTPUT, STORAGE_IN_OUTPUT
from correlator.facts.registry import cause_of
from correlator.facts.world import World
from correlator.gather.presence import user_of
from correlator.model.attributes import BLAMED_CODE, MEMORY
from correlator.model.attrs import draft_of
from correlator.model.nouns import Event, Fact
from correlator.verdicts import coverage, never_started, stated_ends
from correlator.verdicts.chain_weights import candidates, is_same_cause, unblocked, with_words
from correlator.verdicts.doubts import UNLOGGED_SURE, doubt_root, undecided
from correlator.verdicts.ended_alike import EndedAlike
from correlator.verdicts.het_jobs import taken_along
from correlator.verdicts.intended_ends import deliberate
from correlator.verdicts.kernel_words import Claims, Denials, Limits
from correlator.verdicts.named_hosts import NamedHosts
from correlator.verdicts.own_explanation import Own, own_explanation
from correlator.verdicts.still_runs import StoodStill
from correlator.verdicts.verdict import Verdict, quoted
from parsers.hostlist import fold

#: The factor on the confidence of an explanation, if only the state of the run was collected.
UNSEEN_SURE = 0.6
#: The share of an own explanation that is lost if no node's log could contradict it.
MUTE_DOUBT = 0.3


def judge(world: World, weigher: Weigher, *, raw: bool = False) -> list[Verdict]:
    """The verdict on every run that did not end well; ``raw`` leaves the confidence uncalibrated."""
    ends = sorted((f for f in world.facts if f.kind.startswith("run.")), key=lambda f: (f.run or "", f.start))
    limits, denials, alike = Limits(world), Denials(world), EndedAlike(world)
    named = NamedHosts(world, limits)
    verdicts = [_judge_one(world, weigher, limits, end) for end in ends]
    for verdict in verdicts:
        verdict.denied = denials.before(verdict.run, verdict.end)
        _leave_open(verdict)
        alike.leave_open(verdict)
        named.weigh(verdict)
    if world.het_components:
        taken_along(world, verdicts)
    if not raw:
        for verdict in verdicts:
            verdict.confidence = _sure(verdict)
    return verdicts


#: A fault of a GPU, a disk or a machine and the end of a program by it are at most this far from one another (seconds;
#: E18's window).
ENDS_S = 60.0
_OF_MACHINE = frozenset({"kernel.lockup", "kernel.mce", "kernel.panic"})


def _leave_open(verdict: Verdict) -> None:
    """Blames no program that says nothing of its end, or nothing that such a fault would not give as well, where a line
    shortly before tells of broken hardware or storage, and only the user of the run can have forged it.

    The line blames nobody either. Lines that another user can have written change nothing.
    """
    if verdict.category != "app.error" or verdict.unstarted:
        return
    user = user_of(verdict.run)
    for event in (one.event for one in verdict.denied if one.users == {user}):
        ago = verdict.end.start - event.time
        if _gives(event, verdict.own) if verdict.explained else ago <= ENDS_S and _is_fault(event):
            verdict.category, verdict.confidence = "unknown", min(verdict.confidence, 0.5)
            verdict.reason = f"the program failed by itself, or by what a line in {event.file or 'a log'} tells: {quoted(event).rstrip('.')}"
            return


def _gives(fault: Event, own: list[Event]) -> bool:
    """Would this fault have given the errors that the program calls its own? It is at most DENIED_S before them."""
    if not own or not _is_fault(fault):
        return False
    if fault.layer == "gpu":
        return all(may_be_of_gpu(event.message) for event in own)
    if fault.kind == "kernel.mce":
        return all("bus error" in event.message.lower() for event in own)
    return fault.layer == "storage" and all(io_deadline(event.message) is not None for event in own)


def _is_fault(event: Event) -> bool:
    if event.layer == "gpu":
        return family_of(code_of(event)) == "hardware"
    return event.layer == "storage" or event.kind in _OF_MACHINE


def _sure(verdict: Verdict) -> float:
    """The confidence, calibrated, by what could be asked, and at most what the evidence allows."""
    asked = covered(calibrated(verdict.category, verdict.confidence, unlogged=verdict.unlogged), verdict.unwitnessed)
    return min(verdict.at_most, asked)


def _judge_one(world: World, weigher: Weigher, limits: Limits, end: Fact) -> Verdict:
    """The verdict on one end of a run.

    Lines that any user can write count only against explanations with less confidence than such lines can give.
    Otherwise the verdict is the one without these lines.
    """
    found = weigher.evidence(end)
    weigher.exposed.looks += questions(world, end)
    verdict = _explained(world, weigher, limits, end, found)
    claims = limits.of_end(end, found.chains)
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


def _by_itself(
    world: World, weigher: Weigher, verdict: Verdict, own: Own, causes: Sequence[tuple[Fact, float]]
) -> None:
    """The run's own explanation, beside which no chain weighs enough."""
    run, end = verdict.run, verdict.end
    verdict.category, verdict.reason, verdict.own = own.category, own.reason, own.events
    verdict.explained = own.explains
    verdict.confidence = own.sure * (1.0 - sum(share for _, share in causes))
    if end.kind == RUN_NODE_FAIL.name and not end.events:
        verdict.at_most = UNLOGGED_SURE  # it may have been set DOWN
    if end.start < weigher.rates.first - EDGE_OF_LOGS_S:
        verdict.confidence *= UNSEEN_SURE
        verdict.doubts.append("It ended before the first line that was collected of anything: only its state is known")
    mute = world.mute(run)
    if mute and own.category in ("app.error", "unknown"):
        # A node whose log is missing may hide the cause.
        verdict.confidence *= 1.0 - MUTE_DOUBT * len(mute) / len(run.nodes)
        verdict.unlogged = 2 * len(mute) > len(run.nodes)
        verdict.doubts.append(
            f"No line of the kernel or the system of {fold(mute)} was collected: a cause there would not show"
        )


#: Headline and advice, if it is open why Slurm took a node from a run: it was not for what the program did (NODE_FAIL).
_LOST_ITS_NODE = (
    "Slurm took a node away from your job, and what was collected does not tell why.",
    "Slurm ended it with its node, not for anything that the program did. Submit it again, if Slurm has not requeued it, and show this page to the operators.",
)


#: The part of a machine that a run's words are about, of those that logs report as well (a ``Words`` of model/kinds.py).
_SPOKEN_OF = {GPU_IN_OUTPUT.name: "gpu", DISK_IN_OUTPUT.name: "storage", STORAGE_IN_OUTPUT.name: "storage"}
_SYMPTOMS_OF = {"gpu": "gpu", "io": "storage", "read-only": "storage", "stale": "storage", "mount": "storage"}


def _part_of(words: Fact) -> str:
    """What a run's words are about; empty if no log reports such a thing."""
    return _SPOKEN_OF.get(words.kind, _SYMPTOMS_OF.get(str(words.attrs.get(SYMPTOM)), ""))


def _confirms(log: Fact, words: Fact) -> bool:
    """Do logs report a fault of the part that a run's words are about, and did it not begin after them?"""
    spoken = min((e.time + 3.0 * e.sigma for e in words.events), default=words.start)
    return cause_of(log).words == _part_of(words) != "" and log.start - 3.0 * log.sigma <= spoken


def _beside_words(chains: list[Chain], own: Own) -> list[Chain]:
    """The chains without those that rest on the run's own words, if the first one does and logs that confirm it explain the
    end as well: its words about a disk hide no disk that the kernel reports. They do not make it surer either.

    A fault of another part explains no such words, and replaces none.
    """
    if not chains or not cause_of(chains[0].root).reported:
        return []
    first = chains[0].root
    found = [c for c in chains if not (cause_of(c.root).reported and _part_of(c.root) == _part_of(first))]
    if not found or cause_of(found[0].root).reported or not _confirms(found[0].root, first):
        return []
    return found if found[0].weight >= max(own.weight, LEAK) else []


def _explained(world: World, weigher: Weigher, limits: Limits, end: Fact, found: Evidence) -> Verdict:
    """The verdict on one end by the evidence ``found``, regardless of who could have written its lines."""
    run = world.run[end.run or ""]
    verdict = Verdict(run, end, "unknown", 0.0, rejections=found.rejections)
    asked = deliberate(world, run, end, found.chains)
    if asked is not None:
        verdict.category, verdict.confidence, verdict.reason, verdict.own = asked
        if isinstance(asked, StoodStill):
            verdict.headline, verdict.advice = asked.words
            verdict.at_most = asked.at_most
        verdict.explained = end.kind != RUN_TIMEOUT.name
        return verdict
    own = own_explanation(world, run, end)
    chains: list[Chain] = []
    causes: list[tuple[Fact, float]] = []
    if found.chains:
        chains_in_logs = [c for c in found.chains if not before_all_logs(weigher, c.root)]
        chains = with_words(end, unblocked(weigher, end, chains_in_logs, verdict.rejections))
        causes = candidates(chains, own.leak)
    if of_logs := _beside_words(chains, own):
        causes, chains = candidates(of_logs, own.leak), [*of_logs, *(c for c in chains if c not in of_logs)]
    best = chains[0] if chains else None
    if best is None or best.weight < max(own.weight, LEAK):
        verdict.others = chains
        _by_itself(world, weigher, verdict, own, causes)
        return verdict
    same_root = sum(share for root, share in causes if is_same_cause(root, best.root))
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
    if open_question := undecided(world, end, best, verdict.rejections):
        verdict.reason, verdict.confidence, verdict.others, verdict.left_open = open_question, 0.5, chains, True
        if end.kind == RUN_NODE_FAIL.name:
            verdict.headline, verdict.advice = _LOST_ITS_NODE
        return verdict
    verdict.chain, verdict.others = best, [c for c in chains if not is_same_cause(c.root, best.root)]
    verdict.category, verdict.explained = cause_of(best.root).category, True
    verdict.confidence = min(SUREST, same_root)
    if wanting := limits.of_cause(best.root, best.hops):
        verdict.at_most = wanting.at_most
        verdict.doubts.append(wanting.doubt)
    doubt_root(world, verdict, best.root)
    verdict.missing = coverage.missing(world, best.hops)
    if places := frozenset(name for one in verdict.missing for name in one.places):
        weigher.exposed.looks.append(coverage.Uncollected(end.start, places))
    verdict.against = coverage.denied(world, best.root)
    return verdict
