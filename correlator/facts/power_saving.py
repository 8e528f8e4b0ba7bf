"""Nodes that Slurm itself switches off and on (power saving, clouds): what follows from it is no fault."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from correlator.facts.world import World, hosts_of
from correlator.model.nouns import Fact

#: A node that is switched off is gone within this (slurm.conf SuspendTimeout: 30 s, clouds take minutes), and one that
#: is switched on boots within this (ResumeTimeout: 60 s, clouds raise it to ten minutes and more; a tick looks back for
#: half an hour).
SUSPENDS_S, RESUMES_S = 900.0, 1500.0

_OFF, _ON = frozenset({"suspend", "power_down"}), frozenset({"resume", "power_up"})


class Power:
    """When slurmctld switched which node off and on."""

    def __init__(self, world: World) -> None:
        #: By node.
        self.known: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        for event in world.by_kind.get("slurm.node_power", ()):
            word = str(event.entities.get("action") or event.entities.get("state") or "").lower()
            on = word in _ON
            if on or word in _OFF:
                for host in hosts_of(event):
                    self.known[host].append((event.time, on))

    def _last(self, host: str, time: float) -> tuple[float, bool] | None:
        changes = self.known.get(host, [])
        place = bisect_right(changes, (time, True))
        return changes[place - 1] if place else None

    def powered_up(self, host: str, time: float) -> bool:
        """Was the node being switched on?"""
        last = self._last(host, time)
        return last is not None and last[1] and time - last[0] <= RESUMES_S

    def powered_down(self, host: str, time: float) -> bool:
        """Was the node being switched off?"""
        last = self._last(host, time)
        return last is not None and not last[1] and time - last[0] <= SUSPENDS_S


def without_switched_off(world: World, lost: list[Fact]) -> list[Fact]:
    """Outages without those of nodes that were being switched off."""
    power = Power(world)
    return [f for f in lost if not power.powered_down(f.host or "", f.start)] if power.known else lost
