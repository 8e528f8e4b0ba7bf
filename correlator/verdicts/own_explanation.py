"""A run's own explanation of its end, which competes with the causes that the evidence names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from correlator.evidence.weigh import LEAK
from correlator.facts.environment.symptoms import NO_SPACE, signature_of, symptom_of
from correlator.facts.jobs.kinds import RUN_CANCELLED, RUN_FAILED, RUN_NODE_FAIL, RUN_REQUEUED, RUN_TIMEOUT
from correlator.facts.jobs.output import is_out_of_step, is_wait
from correlator.facts.output_hardware import SHARED_PATH, path_in
from correlator.facts.storage import DISK_FULL, deadline_by_any
from correlator.facts.world import World
from correlator.model.attributes import BLAMED_CODE, CODE, LAUNCH, WORDS
from correlator.model.nouns import Event, Fact, Run
from correlator.verdicts import never_started, stated_ends
from correlator.verdicts.named_interfaces import wrongly_named
from correlator.verdicts.outside_ends import ended_from_outside
from correlator.verdicts.own_ends import own_end
from correlator.verdicts.refused_forks import refused_fork
from correlator.verdicts.requeues import requeued
from correlator.verdicts.verdict import quoted

#: Leaks of the noisy-OR, by how a run ended and what its output shows: the weight of causes outside its chains, whose
#: own weight is at most evidence.MAX_RATIO. LEAK is in all of them. First estimates of docs/correlation.md.
OWN_WORDS = 0.9  # the program logged its own error
OWN_EXIT = 0.6  # it only returned an exit code
NETWORK_WORDS = 0.15  # it logged only that peers or network failed: seldom its own fault, rarely proof of ours
TIME_LIMIT = 0.8  # it ran until its time limit
CANCELLED = 0.5  # it was ended, and no line shows by whom
#: How often a program's own error is its own mistake: in general, and where it lacked what others use up as well (an estimate).
OWN_SURE, SHARED_SURE = 0.97, 0.6
#: Of longer lines the beginning counts: users write them.
_MOST_TEXT = 500
#: The same for runs that were not started, by the category of their explanation.
_WEIGHTS = {"app.error": OWN_WORDS, "unknown": NETWORK_WORDS}


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


def own_explanation(world: World, run: Run, end: Fact) -> Own:
    """The run's own explanation, against any infrastructure cause."""
    if unstarted := never_started.explained(world, run, end):
        weight = _WEIGHTS.get(unstarted.category, LEAK)
        return Own(unstarted.category, weight, unstarted.reason, unstarted.events, unstarted.sure, explains=True)
    if end.kind == RUN_NODE_FAIL.name:
        # Slurm calls the loss of a slurmstepd, a restart of slurmctld and a change of slurm.conf NODE_FAIL as well.
        category = "infra.node" if run.state == stated_ends.BOOT_FAIL else "unknown"
        return Own(category, LEAK, stated_ends.lost_node(run), [], 0.6)
    if end.kind == RUN_REQUEUED.name:
        again = requeued(world, run, end)
        weight = LEAK if again.category == "unknown" else OWN_EXIT
        return Own(again.category, weight, again.reason, again.events, again.sure, explains=again.category != "unknown")
    if end.kind == RUN_CANCELLED.name:
        return Own("user.cancel", CANCELLED, "it was cancelled", [], 0.9)
    if end.kind == RUN_TIMEOUT.name:
        return Own("app.timeout", TIME_LIMIT, "it reached its time limit", [], 0.95)
    words: dict[str, list[Event]] = end.attrs[WORDS]
    if end.kind == RUN_FAILED.name and (outside := ended_from_outside(world, run, end)) is not None:
        return Own("unknown", OWN_EXIT, outside[0], outside[1], 0.6, explains=True)
    if (refused := refused_fork(world, run, end)) is not None:
        reason, lines = refused
        return Own("unknown", NETWORK_WORDS, reason, lines, 0.6, explains=True)
    if words["own"] and not peers_first(words):
        reason, sure = f"its own output says: {quoted(words['own'][0])}", OWN_SURE
        if (lacked := _lacked(words["own"], end)) is not None:
            line, shared = lacked
            also = "" if line is words["own"][0] else f", and later: {quoted(line)}"
            reason += f"{also}; whether it had used up {shared} itself or others had, nothing that was collected tells"
            sure = SHARED_SURE
        if (full := _full_disk(world, run, end, words["own"])) is not None:
            lines = [words["own"][0], *full.events[:3]]
            reason = f"its own output says: {quoted(words['own'][0])}, and a daemon of {full.host} had met a full disk as well; who had filled it, nothing tells"
            return Own("unknown", OWN_WORDS, reason, lines, SHARED_SURE, explains=True)
        weight = NETWORK_WORDS if deadline_by_any(world, run, end) else OWN_WORDS
        return Own("app.error", weight, reason, words["own"][:5], sure, explains=True)
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
    if words["peers"] and (named := wrongly_named(world, run, end)) is not None:
        return Own("app.error", OWN_EXIT, named.reason, named.events, named.sure, explains=True)
    if words["peers"]:
        reason = "its output says only that its peers or the network were lost"
        return Own("unknown", NETWORK_WORDS, reason, words["peers"][:5], 0.9)
    category, reason, lines, sure = own_end(world, run, end)
    return Own(category, OWN_EXIT, reason, lines, sure)


def _lacked(own: list[Event], end: Fact) -> tuple[Event, str] | None:
    """The line of a program's first or last error by which it lacked what others use up as well, and what that is."""
    signature = signature_of(end)
    for line in (own[0], None if signature is None else signature.event):
        if line is not None and (found := symptom_of(line.message)) is not None and found[0].shared_out:
            return line, found[0].shared_out
    return None


#: A disk stays full until somebody frees it; daemons of the node write now and then (seconds before the run's end, and after).
FULL_BEFORE_S, FULL_AFTER_S = 600.0, 5.0
_NO_SPACE = re.compile(rf"{NO_SPACE}|disk (?:is )?full", re.IGNORECASE)


def _full_disk(world: World, run: Run, end: Fact, own: list[Event]) -> Fact | None:
    """The full disk of a node, of which a daemon tells, beside a run whose own error is that it found no space."""
    texts = [event.message[:_MOST_TEXT] for event in own]
    if not own or not all(map(_NO_SPACE.search, texts)) or any(SHARED_PATH.match(path_in(text)) for text in texts):
        return None  # a shared file system is another one than the node's own
    found = [
        f for f in world.facts_on(DISK_FULL.name, run.nodes) if -FULL_AFTER_S <= end.start - f.start <= FULL_BEFORE_S
    ]
    return max(found, key=lambda f: f.key[1:], default=None)


def peers_first(words: dict[str, list[Event]]) -> bool:
    """Did the run lose its peers before its own error? Then the error follows from their loss. Ranks that called different collectives
    wait first, and torch reports that later. But a rank that lost its peers leaves the others' order, too."""
    if any(is_out_of_step(event.message) for event in words["own"]):
        words = {**words, "peers": [event for event in words["peers"] if not is_wait(event)]}
    return _peers_before(words, "own")


def _peers_before(words: dict[str, list[Event]], kind: str) -> bool:
    peers = words["peers"]
    if not peers:
        return False
    first, first_peers = min(map(place_in_output, words[kind])), min(map(place_in_output, peers))
    return first_peers[0] + 1.0 < first[0]


def place_in_output(event: Event) -> tuple[float, int]:
    return (event.time, event.line or 0)
