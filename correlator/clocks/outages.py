"""Outages of links that clocks which were off moved away from others of the same moment.

No line shows such a clock: only its node's outage began at another time than those of the others, and was as long. So it
is corrected for this outage alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from correlator.model.nouns import Draft

#: munge rejects hosts further off than this, which would have been out of service before. An outage logged up to this
#: much earlier or later, and as long to within some seconds, may be the same one with a wrong clock.
CLOCK_OFF_S, AS_LONG_S = 300.0, 5.0
#: Shorter outages are equally long anyway.
COMPARABLE_S = 60.0


def strays(group: Sequence[Draft], candidates: Iterable[Draft]) -> list[Draft]:
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


def moved_to(start: float, late: Iterable[Draft]) -> Iterator[tuple[Draft, float]]:
    """Moves each of ``late`` to ``start``. Yields it, and by how many seconds its host's clock was ahead."""
    for fact in late:
        off = fact.start - start
        fact.start, fact.end = fact.start - off, None if fact.end is None else fact.end - off
        yield fact, off
