"""Signs of a host's clock: by how much it was off at a moment, or that it was correct."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from correlator.site.cabling import Cabling
from correlator.site.senders import NOBODY, Senders

#: Smaller differences are explained by launch delays and whole seconds.
NOTICEABLE_S = 5.0

#: Two pairs show the same offset if they agree to within this.
AGREE_S = 3.0

#: Other hosts (their launches, cables and arrivals) are compared within this time before and after a host's own signs.
AROUND_S = 7 * 86400.0

#: A clock that is off stays off until it is set, but without another sign that is assumed for at most this long: the
#: longest runs last that long and launch nothing meanwhile.
HOLDS_S = 14 * 86400.0


#: What was compared, as nouns that a count may precede.
PAIR_LAUNCH, PAIR_CABLE, PAIR_RECEIVED = "launches", "ends of its links", "times of arrival"
PAIR_ACCOUNTING = "starts in accounting"
#: Of a controller: it counts only where nothing else shows how far its clock is off, as its nodes' may be off by the same.
PAIR_NODES = "launches of several nodes"


@dataclass(frozen=True)
class Sign:
    """At local time ``time`` the clock was ``seconds`` off (about 0: it was correct).

    ``stated``: the time daemon reported it. ``pair``: what was compared; ``by``: with which host's clock, if several show
    the same moment.
    """

    time: float
    seconds: float
    pair: str = PAIR_LAUNCH
    stated: bool = False
    mended: bool = False
    by: str | None = None


Begun = Callable[[Collection[int]], Mapping[int, float]]


def _nobody(jobs: Collection[int]) -> Mapping[int, float]:
    return {}


@dataclass(frozen=True)
class Known:
    """Evidence about moments and places besides events.

    ``cables`` gives what was connected to a switch's port at a moment. ``begun(jobs)`` gives when accounting says that
    jobs began whose allocation is not logged. ``senders`` shows which events users can have written: their timestamps, or
    what they say of a clock, would move true lines of others.
    """

    cables: Cabling = field(default_factory=Cabling)
    begun: Begun = _nobody
    senders: Senders = NOBODY


NOTHING = Known()

HostSign = tuple[str, Sign]


#: Both ends lose and regain carrier at the same moment. Their logged outages are at most this far from each other:
#: munge rejects hosts further off than 300 s, and such a node would be out of service.
ENDS_S = 360.0

#: A smaller difference than this is a clock's, not a zone's: zones are at least half an hour apart.
ZONE_S = 1800.0 - ENDS_S
