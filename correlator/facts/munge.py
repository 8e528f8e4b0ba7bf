"""munge: authentication that broke, whose it was, and nodes that no longer answer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict

from correlator.facts.world import World, merge_near
from correlator.model.nouns import Event, Fact

#: slurmd's own complaints about munge are written when its retries are over, up to a minute after its peers gave up.
MUNGE_GAP_S = 120.0

#: A node whose credentials are refused complains whenever it is asked: each ping round, a third of SlurmdTimeout.
REFUSED_GAP_S = 600.0

#: Both ends of a message that is lost on the way give up after MessageTimeout, which sites keep at 10 to 100 s.
BOTH_WAIT_S = 30.0

#: A refusal and the line that names whom it concerns are written in the same moment.
SAME_REFUSAL_S = 0.1

#: Who refuses so many nodes has the wrong key or clock himself.
REFUSES_ALL = 0.6

_PEER = re.compile(r"\[?(?P<host>[A-Za-z][\w.-]*)\]?:\d+")
_REFUSED = re.compile(r"(?P<how>invalid|rewound|expired|replayed) credential", re.IGNORECASE)


def munge_failures(world: World) -> list[Fact]:
    """``munge.failure``: authentication broke on a node, in munge's own words; attrs refused (invalid, rewound, expired)
    and clock ("ahead", "behind") where a credential was refused. ``node.deaf``: peers connect and get no answer, which is
    what dead munge looks like from outside, and a hanging slurmd too; attrs mutual: its slurmd waited in vain as well."""
    words: list[Event] = []
    deaf: list[Fact] = []
    waited: dict[str, list[float]] = defaultdict(list)
    for event in world.kinds("slurm.comm_error", "slurm.node_error", "sys.service_failed"):
        text = event.message.lower()
        if "munge" in text and event.host:
            words.append(event)
        elif event.source == "slurmctld" and "socket timed out" in text:
            for host in event.entities.get("nodes") or []:
                deaf.append(Fact("node.deaf", event.time, None, event.sigma, str(host), events=(event,)))
        elif event.source == "slurmd" and "socket timed out" in text and event.host:
            waited[event.host].append(event.time)
    for fact in deaf:
        fact.attrs["mutual"] = any(abs(t - fact.start) <= BOTH_WAIT_S for t in waited[fact.host or ""])
    told = [*_broken_munge(world, words), *_expired_launches(world)]
    said, deaf = merge_near(told, REFUSED_GAP_S), merge_near(deaf, MUNGE_GAP_S)
    for fact in said:
        for other in [
            d for d in deaf if d.host == fact.host and -MUNGE_GAP_S <= fact.start - (d.end or d.start) <= MUNGE_GAP_S
        ]:
            fact.start = min(fact.start, other.start)
            fact.events = tuple(sorted({*fact.events, *other.events}, key=lambda e: (e.time, e.id)))
            deaf.remove(other)
    return said + deaf


def _expired_launches(world: World) -> list[Fact]:
    """A job's credential holds for two minutes (slurm src/common/slurm_cred.c) and is made when a step is launched: the node
    for which it is over at once has a clock that is ahead. Of several nodes the maker's clock may be the wrong one."""
    facts = []
    for event in world.kinds("slurm.comm_error", "slurm.node_error", "job.launch_error"):
        if "job credential expired" in event.message.lower():
            hosts = [event.host] if event.source == "slurmd" else event.entities.get("nodes") or []
            attrs = {"said": True, "refused": "expired", "clock": "ahead"}
            facts += [Fact("munge.failure", event.time, None, event.sigma, str(h), attrs=dict(attrs), events=(event,)) for h in hosts if h]  # fmt: skip
    return [
        f for f in facts
        if not any(other.host != f.host and abs(other.start - f.start) <= REFUSED_GAP_S for other in facts)
    ]  # fmt: skip


def _broken_munge(world: World, words: list[Event]) -> list[Fact]:
    """Whose munge it is: a credential is refused between two, and the one whom the controller refuses is the odd one out."""
    told = [(event, _peer_of(world, event), _REFUSED.search(event.message)) for event in words]
    odd_ones = _OddOnes(world, [(event.time, event.source, event.host, peer) for event, peer, how in told if how])
    facts = []
    for event, peer, how in told:
        theirs = False
        if how is not None and peer:
            odd = odd_ones.at(event.time)
            theirs = peer in odd and event.host not in odd
        attrs: dict[str, object] = {"said": True}
        if how:
            attrs["refused"] = how["how"].lower()
            if attrs["refused"] in ("rewound", "expired"):
                # "Rewound" is a stamp from the reader's future.
                maker_ahead = attrs["refused"] == "rewound"
                attrs["clock"] = "ahead" if maker_ahead == theirs else "behind"
        host = peer if theirs else event.host
        facts.append(Fact("munge.failure", event.time, None, event.sigma, host, attrs=attrs, events=(event,)))
    return facts


#: (time, daemon that refused, its host, whom it refused), in time order.
_Refusal = tuple[float, str | None, str | None, str | None]


class _OddOnes:
    """Whom the controller refuses around a time; nobody where it refuses most of those that it works with, because then its
    own key or clock is wrong. A refusal of last week says nothing of today's."""

    def __init__(self, world: World, refusals: list[_Refusal]) -> None:
        self.world, self.refusals = world, refusals
        self._racked = {node for nodes in world.site.members.values() for node in nodes}
        self._known: dict[float, set[str]] = {}

    def at(self, time: float) -> set[str]:
        minute = time // 60.0 * 60.0
        if minute not in self._known:
            self._known[minute] = self._between(minute - REFUSED_GAP_S, minute + 60.0 + REFUSED_GAP_S)
        return self._known[minute]

    def _between(self, low: float, high: float) -> set[str]:
        near = self.refusals[bisect_left(self.refusals, (low,)) : bisect_left(self.refusals, (high,))]
        refused = {peer for _, source, _, peer in near if peer and source == "slurmctld"}
        nodes = self._racked | {node for run in self.world.in_time.overlapping(low, high) for node in run.nodes}
        nodes |= {host for _, source, host, _ in near if host and source == "slurmd"}
        return refused if len(refused) < max(2, REFUSES_ALL * len(nodes)) else set()


def _peer_of(world: World, event: Event) -> str | None:
    """Whom the lines that a daemon wrote in the same moment name as the sender."""
    events = world.by_host.get(event.host or "", ())
    place = bisect_left(events, event.time - SAME_REFUSAL_S, key=lambda e: e.time)
    for other in events[place:]:
        if other.time > event.time + SAME_REFUSAL_S:
            return None
        match = _PEER.search(str(other.entities.get("peer") or "")) if other.source == event.source else None
        if match and match["host"] != event.host:
            return match["host"]
    return None


KINDS = ("munge.failure", "node.deaf")
DETECTORS = [munge_failures]
