"""Unknown settings, narrowed by observed delays.

SlurmdTimeout decides how long after a loss a node is set DOWN. If no slurm.conf was collected, each loss that lasted
until the node was set DOWN gives bounds on the setting. The estimate stays marked as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from correlator.model.attributes import END_UNSEEN, ROLE
from correlator.model.nouns import Fact
from correlator.site.site import Site
from correlator.site.windows import Value

#: MessageTimeout is seldom changed; its default bounds the estimate (slurm.conf(5)).
MESSAGE_TIMEOUT_S = 10.0


def narrow_slurmd_timeout(site: Site, outages: Iterable[Fact], downs: Iterable[Fact]) -> None:
    """Replaces an unknown SlurmdTimeout by the range that fits all link outages after which the node was set DOWN."""
    known = site.settings["SlurmdTimeout"]
    if known.known:
        return
    low, high, seen = known.low, known.high, False
    losses = [f for f in outages if f.attrs.get(ROLE) != "fabric" and not f.attrs.get(END_UNSEEN)]
    for down in sorted(downs, key=lambda f: f.key):
        before = [
            f for f in losses if f.host == down.host and f.start < down.start and (f.end is None or f.end > down.start)
        ]
        if not before:
            continue
        lag = down.start - max(f.start for f in before)
        # lag lies in [2T/3, max(5T/3 + MessageTimeout, T + 2*MessageTimeout + 6 s)] (edge E03)
        least = min(3 * (lag - MESSAGE_TIMEOUT_S) / 5, lag - 2 * MESSAGE_TIMEOUT_S - 6)
        fits_low, fits_high = max(low, least), min(high, 3 * lag / 2)
        if fits_low <= fits_high:
            low, high, seen = fits_low, fits_high, True
    if seen:
        # Whole seconds, and no count of delays: a further delay that narrows nothing leaves every verdict unchanged, so
        # only the few that do narrow it require concluding about everything anew.
        site.settings["SlurmdTimeout"] = Value(math.floor(low), math.ceil(high), False, "estimated from delays seen")
        message = site.settings["MessageTimeout"]
        if not message.known:
            site.settings["MessageTimeout"] = Value(
                MESSAGE_TIMEOUT_S, MESSAGE_TIMEOUT_S, False, "Slurm's default assumed"
            )
