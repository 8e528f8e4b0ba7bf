"""Which lines that a user can have written are confirmed by what no user can write.

* *Telemetry* saw an Xid appear on the same GPU.
* *slurmctld* gave the node up within ``FOLLOWS_S``, or no longer got an answer from it.
* *slurmctld* had given it up and got an answer again within ``ANSWERS_S``: for lines that tell that a link is back.
* *The switch* at the other end saw the link go, or *slurmd's own file* tells of a lost connection: for lines about links.

These show that something happened to the node, the GPU or the link at that time. They do not show the words of the line:
where users of several jobs could have written it, that is not enough (uncounted.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import inf

from correlator.model.measurements import XidSeen
from correlator.model.nouns import Event
from parsers.writers import USERS

#: Telemetry's samples and the lines about one fault are at most this far from one another (seconds).
SEEN_S = 60.0
#: slurmctld gives a node up after SlurmdTimeout, 300 s by default; a tick looks 900 s back.
FOLLOWS_S = 850.0
#: The two ends of a link lose it within this (seconds); clocks differ.
BOTH_ENDS_S = 10.0
#: slurmctld pings nodes three times in SlurmdTimeout, 300 s by default (slurm.conf(5)): the next ping reaches a node whose
#: link is back.
ANSWERS_S = 120.0
_GIVEN_UP = ("slurm.node_not_responding", "slurm.node_down")
_LOST_CONTACT = "slurm.comm_error"
_ANSWERS = "slurm.node_up"
#: Its words for a node that was lost and answers; a person's RESUME is no answer (slurm src/slurmctld/ping_nodes.c, node_mgr.c).
_BY_ITSELF = "now responding"
_LINK_BACK = "nic.link_up"
_OF_INTEREST = frozenset({*_GIVEN_UP, _LOST_CONTACT, _ANSWERS})
_LINK = "link"


def is_of_interest(kind: str, layer: str) -> bool:
    """Can an event confirm others? Few of very many can."""
    return layer == _LINK or kind in _OF_INTEREST


class Confirmed:
    """Says which lines others confirm. ``events`` need to have only those of interest. ``far_end`` returns the host and device at the other end of a switch's port."""

    def __init__(
        self,
        events: Iterable[Event],
        xids: Sequence[XidSeen],
        bus_of: Callable[[str], str],
        hosts_of: Callable[[Event], Sequence[str]],
        far_end: Callable[[str, str, float], tuple[str, str] | None],
    ) -> None:
        self._given_up: dict[str, list[float]] = defaultdict(list)
        self._lost_contact: dict[str, list[float]] = defaultdict(list)
        self._answered: dict[str, list[float]] = defaultdict(list)
        self._ports: dict[tuple[str, str], list[float]] = defaultdict(list)
        for event in events:
            if event.kind in _GIVEN_UP and event.source == "slurmctld":
                for host in hosts_of(event):
                    self._given_up[host].append(event.time)
            elif event.kind == _ANSWERS:
                if event.source == "slurmctld" and _BY_ITSELF in event.message:
                    for host in hosts_of(event):
                        self._answered[host].append(event.time)
            elif event.authority in USERS or event.host is None:
                continue
            elif event.kind == _LOST_CONTACT and event.source == "slurmd":
                self._lost_contact[event.host].append(event.time)
            elif event.layer == _LINK and event.device and (place := far_end(event.host, event.device, event.time)):
                self._ports[place].append(event.time)
        self._xids: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for seen in xids:
            self._xids[seen.host, bus_of(seen.gpu)].append((seen.before - SEEN_S, seen.seen + SEEN_S))
        for times in (
            *self._given_up.values(),
            *self._answered.values(),
            *self._lost_contact.values(),
            *self._ports.values(),
        ):
            times.sort()
        of_devices = {host for host, _ in (*self._ports, *self._xids)}
        #: Nothing is confirmed of other hosts.
        self.hosts = of_devices.union(self._given_up, self._lost_contact, self._answered)

    def _is_back(self, host: str, time: float) -> bool:
        """Did slurmctld get its first answer since it gave the host up, right after this time?"""
        answers = self._answered.get(host, [])
        place = bisect_left(answers, time)
        if place == len(answers) or answers[place] > time + ANSWERS_S:
            return False
        return _any_between(self._given_up.get(host), answers[place - 1] if place else -inf, answers[place])

    def measured(self, event: Event) -> bool:
        """Did telemetry see an Xid appear on the GPU of an event at about that time?"""
        spans = self._xids.get((event.host or "", event.device or ""), ()) if event.layer == "gpu" else ()
        return any(low <= event.time <= high for low, high in spans)

    def followed(self, event: Event) -> bool:
        """Did slurmctld, slurmd or the switch see what follows from an event?"""
        host = event.host or ""
        if _any_between(self._given_up.get(host), event.time, event.time + FOLLOWS_S):
            return True
        if event.layer != _LINK:
            return False
        if event.kind == _LINK_BACK and self._is_back(host, event.time):
            return True
        at_port = self._ports.get((host, event.device or ""))
        return _any_between(at_port, event.time - BOTH_ENDS_S, event.time + BOTH_ENDS_S) or _any_between(
            self._lost_contact.get(host), event.time, event.time + FOLLOWS_S
        )


def _any_between(times: list[float] | None, low: float, high: float) -> bool:
    """``times`` ascend."""
    if not times:
        return False
    place = bisect_left(times, low)
    return place < len(times) and times[place] <= high
