"""Which outages of links belong together: those that began at one moment, and those that wrong clocks moved elsewhere."""

from __future__ import annotations

from correlator.facts.links.kinds import CLOCK_OFF
from correlator.model.nouns import Draft

#: A switch takes its ports down together; with whole-second timestamps and small skew they spread this far.
TOGETHER_S = 5.0


#: At least this many nodes that lose the same interface within seconds lost what is behind it.
UNCABLED_MIN = 4


def together(found: list[Draft]) -> list[list[Draft]]:
    """Outages in groups that began within ``TOGETHER_S`` of their first one."""
    found.sort(key=lambda f: (f.start, f.key))
    groups: list[list[Draft]] = []
    for fact in found:
        if groups and fact.start - groups[-1][0].start <= TOGETHER_S:
            groups[-1].append(fact)
        else:
            groups.append([fact])
    return groups


#: munge rejects hosts further off than this, which would have been out of service before. An outage logged up to this
#: much earlier or later, and as long to within some seconds, may be the same one with a wrong clock.
CLOCK_OFF_S, AS_LONG_S = 300.0, 5.0


#: Shorter outages are equally long anyway.
COMPARABLE_S = 60.0


def strays(group: list[Draft], candidates: list[Draft]) -> list[Draft]:
    """Outages logged with wrong clocks that belong to a group of simultaneous ones by their duration."""
    lasted = sorted(f.duration for f in group if f.duration is not None)
    length = lasted[len(lasted) // 2] if lasted else 0.0
    if length < COMPARABLE_S:
        return []
    start, hosts, devices = group[0].start, {f.host for f in group}, {f.device for f in group}
    return [
        f for f in candidates if f.host not in hosts and f.device in devices and f.duration is not None
        and abs(f.duration - length) <= AS_LONG_S + f.sigma and abs(f.start - start) <= CLOCK_OFF_S
    ]  # fmt: skip


def in_time_with(group: list[Draft], late: list[Draft]) -> None:
    """Moves outages logged with wrong clocks to the time of the group."""
    for fact in late:
        off = fact.start - group[0].start
        fact.start, fact.end = fact.start - off, None if fact.end is None else fact.end - off
        fact.attrs[CLOCK_OFF] = off
