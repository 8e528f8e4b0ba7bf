"""How sure a cause can be that only lines tell which any user of its host can write (gather/kernel_lines.py).

What no user writes takes the doubt away: the word of slurmctld or of a switch, another host's, telemetry of the same device. A
run's own output does not: who forges a kernel's line may well own the run that it clears.
"""

from __future__ import annotations

from collections.abc import Iterable

from correlator.facts.gpus import XID
from correlator.facts.world import World
from correlator.gather.kernel_lines import BARE, ODD, STAMPED, UNCONFIRMED
from correlator.gather.standing import OUTPUT
from correlator.model.nouns import Event, Fact, Hop
from correlator.verdicts.verdict import Unproven

#: At most so sure, by what is known of the lines; the surest of them counts.
SURE = {STAMPED: 0.9, BARE: 0.7, ODD: 0.7, UNCONFIRMED: 0.5}
#: Telemetry's samples and the kernel's lines of one fault lie so near (seconds).
SEEN_S = 60.0
_WHY = {
    STAMPED: "their uptime fits, which every user of the node can read as well",
    BARE: "they carry no uptime that could be compared",
    UNCONFIRMED: "the kernel's own buffer of that time was collected and does not hold them",
    ODD: "their uptime fits no boot that earlier lines of this kernel show: a forger, or a clock that was set",
}


def unproven(world: World, root: Fact, hops: Iterable[Hop]) -> Unproven | None:
    """What is wanting of the evidence of a root cause, with the steps from it; None where nothing is."""
    reported = {world.kernel_standing.get(e.id) for e in root.events}
    if not reported or None in reported or len({e.host for e in root.events}) > 1:
        return None
    if any(_confirms(world, event) for fact in _between(hops) for event in fact.events) or _measured(world, root):
        return None
    how = max((one for one in reported if one is not None), key=lambda one: (SURE.get(one, 0.0), one))
    places = sorted({e.file for e in root.events if e.file}) or ["a log"]
    where = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
    return Unproven(
        SURE.get(how, 0.0),
        f"Only lines in {where}, where anybody on {root.host} can write, tell of the cause; {_WHY.get(how, how)}. "
        "The node's journalctl -k or dmesg shows whether its kernel wrote them",
    )


def _between(hops: Iterable[Hop]) -> list[Fact]:
    """What followed from a root, without ends of runs: slurmctld tells of those whatever the cause."""
    return [hop.effect for hop in hops if not hop.effect.kind.startswith("run.")]


def _confirms(world: World, event: Event) -> bool:
    return event.source not in OUTPUT and event.id not in world.kernel_standing


def _measured(world: World, root: Fact) -> bool:
    """Did telemetry see an Xid on this GPU appear about then?"""
    return root.kind == XID.name and any(
        seen.host == root.host and seen.before - SEEN_S <= root.start <= seen.seen + SEEN_S for seen in world.xids_seen
    )
