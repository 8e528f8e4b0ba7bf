"""Which outages of links belong together: those that began at one moment, and those that wrong clocks moved elsewhere."""

from __future__ import annotations

from correlator.clocks.clocks import moved_to
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


def in_time_with(group: list[Draft], late: list[Draft]) -> None:
    """Moves outages logged with wrong clocks (``strays``) to the time of the group."""
    for fact, off in moved_to(group[0].start, late):
        fact.attrs[CLOCK_OFF] = off
