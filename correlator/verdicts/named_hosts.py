"""Programs whose last error is a failed connection to a host outside of their run, which their output names.

Anybody can print any name. So a host that was lost at that moment, by lines that the run's user cannot have written,
takes the blame from the program and gets none itself: the output alone connects the two. A refused connection shows that
the host lived and that no program listened: whether one should have, and what became of it, its line does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import inf

from correlator.facts.host_names import HostNames, host_names
from correlator.facts.jobs.kinds import RUN_FAILED
from correlator.facts.links.kinds import LINK_OUTAGE, SWITCH_OUTAGE
from correlator.facts.nodes.kinds import NODE_DEAD, NODE_DOWN, NODE_OVERHEATED, NODE_PANIC, NODE_REBOOT, is_lockup
from correlator.facts.registry import cause_of
from correlator.facts.unnamed_causes import POWER_OUTAGE
from correlator.facts.world import World
from correlator.model.attributes import HOSTS, LEGS, ROLE, STAND_IN, WORDS
from correlator.model.moments import UNSTAMPED_S
from correlator.model.nouns import Event, Fact
from correlator.model.time_texts import clock
from correlator.site.interfaces import FABRIC
from correlator.verdicts.kernel_words import Limits
from correlator.verdicts.own_explanation import place_in_output
from correlator.verdicts.verdict import Verdict, quoted
from parsers.hostlist import fold

#: What takes a machine, or the way to it, from programs elsewhere, and what that is called.
_LOST = {
    NODE_PANIC.name: "panicked", NODE_DEAD.name: "died", NODE_OVERHEATED.name: "was shut down by its heat", NODE_REBOOT.name: "was rebooted",
    POWER_OUTAGE.name: "lost power", SWITCH_OUTAGE.name: "was cut off", LINK_OUTAGE.name: "was cut off", NODE_DOWN.name: "was given up",
}  # fmt: skip


def _went(lost: Fact) -> str:
    """What became of the machine, in words: a processor that locked up is no panic."""
    return "locked up" if is_lockup(lost) else _LOST[lost.kind]


#: Those of them that leave the machine itself well.
_CUT_OFF = frozenset({SWITCH_OUTAGE.name, LINK_OUTAGE.name})

#: Errors of a connection, in the words of errno, Python and most libraries. A name that is not found names no host.
_FAILED = re.compile(
    r"timed? ?-?out\b|timeout|connection ?(?:error|refused|reset|closed|lost|aborted|failed)|no route to host|unreachable|host is down|broken pipe"
    r"|(?:failed|unable|could not|cannot) (?:to )?(?:connect|reach)|errno (?:32|10[134]|107|11[0-3])\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"refused|errno 111\b", re.IGNORECASE)
_NO_NAME = re.compile(r"name resolution|name or service not known|resolve host|eai_again", re.IGNORECASE)
#: Lines of users may be as long as they like, and name as many hosts.
_MOST_TEXT, _MOST_LINES = 400, 20

#: A connection is given up this long after its host was lost (TCP retries for 15 minutes: tcp_retries2 of tcp(7)); a tick
#: looks 900 s back from the end of a run.
GIVEN_UP_S = 850.0
#: A host that was lost so long before a run began was lost to it from its beginning (seconds).
BEGAN_S = 60.0
#: An error may be printed so long after the host is back (seconds).
BACK_S = 300.0
#: Clocks of hosts differ, and a fact's beginning is sometimes inferred (seconds).
SLACK_S = 5.0
#: A host that was cut off for less than this lost no connection: they wait longer (seconds).
CUT_S = 10.0
NAMED_SURE = 0.5
#: A name that no node of slurm.conf has may be another cluster's, or a dynamic node's.
MISSPELT_SURE = 0.7


def failed_connections(end: Fact) -> list[Event]:
    """The errors of a run's output, in order, if all of them are failed connections; none otherwise."""
    words: Mapping[str, list[Event]] = end.attrs[WORDS]
    if words["gpu"] or words["storage"]:
        return []
    lines = sorted([*words["own"], *words["peers"]], key=place_in_output)
    texts = [event.message[:_MOST_TEXT] for event in lines]
    return lines[:_MOST_LINES] if all(_FAILED.search(text) and not _NO_NAME.search(text) for text in texts) else []


class NamedHosts:
    """Finds them in one world."""

    def __init__(self, world: World, limits: Limits) -> None:
        self._world, self._limits = world, limits

    def weigh(self, verdict: Verdict) -> None:
        """Changes a verdict that rests on nothing but a failed connection to a host outside of the run."""
        if verdict.category not in ("app.error", "unknown") or verdict.chain is not None or verdict.unstarted:
            return
        if verdict.end.kind != RUN_FAILED.name or verdict.left_open or not verdict.own:
            return
        if verdict.category == "app.error" and _NO_NAME.search(verdict.own[0].message):
            if name := self._names.misspelt_in(verdict.own[0].message, verdict.run.nodes):
                verdict.at_most = min(verdict.at_most, MISSPELT_SURE)
                verdict.reason += f"; {name}, which it names, is no node of slurm.conf"
            return
        lines = failed_connections(verdict.end)
        named = [
            (event, host)
            for event in lines
            for host in self._names.hosts_in(event.message)
            if host not in verdict.run.nodes
        ]
        for event, host in named:
            if (lost := self._lost(verdict, event, host)) is not None:
                self._leave_open(verdict, event, host, lost)
                return
        refused = bool(named) and all(_REFUSED.search(event.message) for event in lines)
        if refused and verdict.category == "unknown" and not verdict.others:
            hosts = fold(sorted({host for _, host in named}))
            verdict.reason += (
                f"; no program of {hosts}, which it names, listened at that port: nothing tells whether one should have"
            )

    def _leave_open(self, verdict: Verdict, event: Event, host: str, lost: Fact) -> None:
        verdict.category, verdict.confidence, verdict.explained = "unknown", NAMED_SURE, False
        verdict.own = [event, *(one for one in verdict.own if one is not event)][:5]
        verdict.reason = (
            f"its output says: {quoted(event).rstrip('.')}; {host}, which it names, {_went(lost)} at {clock(lost.start)}. "
            "That explains it if the program needed that host, which nothing but its own output tells"
        )

    def _lost(self, verdict: Verdict, event: Event, host: str) -> Fact | None:
        """The first loss of a host within the time that explains an error, shown by others than users of the host."""
        run, end = verdict.run, verdict.end
        at = min(event.time, end.start) if event.sigma < UNSTAMPED_S else end.start
        for fact in self._losses.get(host, ()):
            if not end.start - GIVEN_UP_S <= fact.start <= at + SLACK_S + 3 * fact.sigma:
                continue
            if run.start is None or fact.start < run.start - BEGAN_S:
                continue
            if self._back(host, fact) + BACK_S < at or (fact.kind in _CUT_OFF and not self._cut_off(fact, at)):
                continue
            if self._limits.of_cause(fact, ()) is None:
                return fact
        return None

    def _cut_off(self, fact: Fact, at: float) -> bool:
        """Did an outage of a network last until an error, for long enough, on a port that carries something?"""
        end = at if fact.end is None else fact.end
        if end + SLACK_S < at or end - fact.start < CUT_S:
            return False
        if fact.kind != LINK_OUTAGE.name:
            return True
        trivial = cause_of(fact).trivial
        if fact.attrs.get(LEGS) or fact.attrs.get(STAND_IN) or (trivial and trivial(self._world, fact)):
            return False
        # Hosts have ports without any use, whose drivers log their loss as well.
        return fact.attrs.get(ROLE) == FABRIC or (fact.host, fact.device) in self._world.site.cables

    def _back(self, host: str, lost: Fact) -> float:
        """When a host was there again after a loss, as far as is known; infinity if it is not."""
        boots = (f.start if f.end is None else f.end for f in self._world.facts_on(NODE_REBOOT.name, [host]))
        ends = [inf if lost.end is None else lost.end, *(boot for boot in boots if boot >= lost.start)]
        return min(ends)

    @cached_property
    def _names(self) -> HostNames:
        return host_names(self._world)

    @cached_property
    def _losses(self) -> dict[str, list[Fact]]:
        return _by_host(self._world.facts_of(*_LOST))


def _by_host(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = {}
    for fact in sorted(facts, key=lambda f: (f.start, f.key)):
        for host in {fact.host, *fact.attrs.get(HOSTS, ())} - {None}:
            found.setdefault(str(host), []).append(fact)
    return found
