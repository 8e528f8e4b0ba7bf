"""munge: failed authentication, the node at fault, and nodes that no longer answer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from typing import NotRequired, TypedDict

from correlator.facts.world import World, merge_near
from correlator.gather.standing import OUTPUT
from correlator.model.attributes import CLOCK, REFUSED
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind, Trace
from correlator.model.nouns import Event, Fact, in_order


class MungeFailure(TypedDict):
    """An authentication failure. ``clock``: the node's is ahead or behind.

    ``refused``: why a credential was refused (invalid, rewound, expired, replayed).
    """

    said: bool
    refused: NotRequired[str]
    clock: NotRequired[str]


class NodeDeaf(TypedDict):
    """``mutual``: its slurmd waited in vain as well."""

    mutual: bool


#: Attributes that are read in this file only.
MUTUAL: Attr[bool] = attr("mutual")


_BROKEN = Cause(
    "node.munge_failure", "infra.node", "munge of {host} failed", "authentication broke on a node",
    (("Restart munge on {host}; check its clock and its key (/etc/munge/munge.key).", "systemctl restart munge"),),
    unharmed="degraded", family="software",
    disproof="Other nodes being refused at the same time: then the controller's own munge, key or clock is at fault.",
)  # fmt: skip
_WRONG_CLOCK = replace(_BROKEN, title="the clock of {host} was {clock} by more than munge allows")
_WRONG_KEY = replace(_BROKEN, title="munge of {host} had another key than the cluster's")


def _broken_by(fact: Fact) -> Cause | None:
    if fact.attrs.get(CLOCK):
        return _WRONG_CLOCK
    return _WRONG_KEY if fact.attrs.get(REFUSED) == "invalid" else None


MUNGE_FAILURE = Kind(
    "munge.failure", "slurmd", "Authentication broke on a node.", MungeFailure,
    witnesses=("slurmd", "slurmctld"),
    brief="munge failed", sets_down=True, cause=_BROKEN, variant=_broken_by,
)  # fmt: skip

_DEAF = Cause(
    "node.unresponsive", "infra.node", "{host} accepted connections and did not answer", "a node stopped answering",
    (("On {host}, see whether slurmd hangs or munged is dead, and whether its network loses packets: all look like this from outside.", None),),
    short="{host} did not answer", family="machine",
    disproof="A munge error, a link loss or a panic of the node that was not collected.",
)  # fmt: skip
_DEAF_BOTH_WAYS = replace(
    _DEAF, title="slurmctld and {host} timed out on each other (packets lost between them, or a starved node)"
)

NODE_DEAF = Kind(
    "node.deaf", "node", "Peers connected to a node and got no answer.", NodeDeaf,
    witnesses=("slurmctld", "slurmd"),
    brief="node accepted connections without answering", sets_down=True, role="effect", awaits=lambda fact: True,
    cause=_DEAF, variant=lambda fact: _DEAF_BOTH_WAYS if fact.attrs.get(MUTUAL) else None,
    trace=Trace("munge or a hanging slurmd", "no authentication error and no socket time-out was logged"),
)  # fmt: skip

#: slurmd logs its own munge errors when its retries are over, up to a minute after its peers gave up.
MUNGE_GAP_S = 120.0

#: A node whose credentials are refused logs errors whenever it is contacted: each ping round, a third of SlurmdTimeout.
REFUSED_GAP_S = 600.0

#: Both ends of a message lost on the way give up after MessageTimeout, which sites keep at 10 to 100 s.
BOTH_WAIT_S = 30.0

#: A refusal and the line that names its subject are written at the same moment.
SAME_REFUSAL_S = 0.1

#: A host that refuses this share of nodes has the wrong key or clock itself.
REFUSES_ALL = 0.6

#: Slurm daemons that control no node: in the log of others, their names prove nothing.
_OF_THEMSELVES = ("slurmdbd", "slurmrestd", "sackd")

_PEER = re.compile(r"\[?(?P<host>[A-Za-z][\w.-]*)\]?:\d+")
_REFUSED = re.compile(r"(?P<how>invalid|rewound|expired|replayed) credential", re.IGNORECASE)


def munge_failures(world: World) -> list[Fact]:
    """``munge.failure``: authentication failed on a node, by munge's own lines.

    attrs refused (invalid, rewound, expired) and clock ("ahead", "behind") if a credential was refused. ``node.deaf``:
    peers connect and get no answer, which is how dead munge looks from outside, and a hanging slurmd too; attrs mutual:
    its slurmd waited in vain as well.
    """
    words: list[Event] = []
    asked: list[tuple[Event, str]] = []
    waited: dict[str, list[float]] = defaultdict(list)
    for event in world.kinds("slurm.comm_error", "slurm.node_error", "sys.service_failed"):
        text = event.message.lower()
        if "munge" in text and event.host and (event.own or event.source not in _OF_THEMSELVES):
            words.append(event)
        elif event.source == "slurmctld" and "socket timed out" in text:
            asked += [(event, str(host)) for host in event.entities.get("nodes") or []]
        elif event.source == "slurmd" and "socket timed out" in text and event.host:
            waited[event.host].append(event.time)
    deaf = merge_near((_deaf(event, host, waited[host]) for event, host in asked), MUNGE_GAP_S)
    found: list[Fact] = []
    for fact in merge_near([*_broken_munge(world, words), *_expired_launches(world)], REFUSED_GAP_S):
        same = [
            d for d in deaf if d.host == fact.host and -MUNGE_GAP_S <= fact.start - (d.end or d.start) <= MUNGE_GAP_S
        ]
        deaf = [d for d in deaf if d not in same]
        start, events = min([fact.start, *(d.start for d in same)]), in_order(fact.events, *(d.events for d in same))
        found.append(replace(fact, start=start, events=events) if same else fact)
    return found + deaf


def _deaf(event: Event, host: str, waited: list[float]) -> Fact:
    attrs: NodeDeaf = {"mutual": any(abs(t - event.time) <= BOTH_WAIT_S for t in waited)}
    return NODE_DEAF.fact(event.time, None, event.sigma, host, attrs=attrs, events=(event,))


def _expired_launches(world: World) -> list[Fact]:
    """Job credentials that had expired at launch.

    A job's credential is valid for two minutes (slurm src/common/slurm_cred.c) and is made when a step is launched. A
    node for which it has expired at once has a clock that is ahead. If that holds for several nodes, the issuer's clock
    may be wrong. What a job's output says of it shows nothing: any user can print it.
    """
    facts = []
    for event in world.kinds("slurm.comm_error", "slurm.node_error", "job.launch_error"):
        if event.source not in OUTPUT and "job credential expired" in event.message.lower():
            hosts = [event.host] if event.source == "slurmd" else event.entities.get("nodes") or []
            attrs: MungeFailure = {"said": True, "refused": "expired", "clock": "ahead"}
            facts += [MUNGE_FAILURE.fact(event.time, None, event.sigma, str(h), attrs=attrs, events=(event,)) for h in hosts if h]  # fmt: skip
    return [
        f for f in facts
        if not any(other.host != f.host and abs(other.start - f.start) <= REFUSED_GAP_S for other in facts)
    ]  # fmt: skip


def _broken_munge(world: World, words: list[Event]) -> list[Fact]:
    """The host at fault: a refusal involves two hosts, and the one that the controller refuses is the odd one out."""
    refusals = [(event, _peer_of(world, event), _REFUSED.search(event.message)) for event in words]
    odd_ones = _OddOnes(world, [(event.time, event.source, event.host, peer) for event, peer, how in refusals if how])
    facts = []
    for event, peer, how in refusals:
        theirs = False
        if how is not None and peer:
            odd = odd_ones.at(event.time)
            theirs = peer in odd and event.host not in odd
        attrs: MungeFailure = {"said": True}
        if how:
            attrs["refused"] = how["how"].lower()
            if attrs["refused"] in ("rewound", "expired"):
                # "Rewound" is a timestamp in the reader's future.
                maker_ahead = attrs["refused"] == "rewound"
                attrs["clock"] = "ahead" if maker_ahead == theirs else "behind"
        host = peer if theirs else event.host
        facts.append(MUNGE_FAILURE.fact(event.time, None, event.sigma, host, attrs=attrs, events=(event,)))
    return facts


#: (time, daemon that refused, its host, host that was refused), in time order.
_Refusal = tuple[float, str | None, str | None, str | None]


class _OddOnes:
    """The hosts that the controller refuses around a given time.

    Empty if it refuses most of those that it works with: then its own key or clock is wrong. A refusal of last week
    says nothing about today's.
    """

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
    """The sender named by the lines that a daemon wrote at the same moment."""
    events = world.by_host.get(event.host or "", ())
    place = bisect_left(events, event.time - SAME_REFUSAL_S, key=lambda e: e.time)
    for other in events[place:]:
        if other.time > event.time + SAME_REFUSAL_S:
            return None
        match = _PEER.search(str(other.entities.get("peer") or "")) if other.source == event.source else None
        if match and match["host"] != event.host:
            return match["host"]
    return None


KINDS = (MUNGE_FAILURE, NODE_DEAF)
DETECTORS = [munge_failures]
