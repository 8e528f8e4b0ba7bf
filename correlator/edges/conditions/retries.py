"""Requirements of edges about a transport's retries. Each gives the reason if it does not hold."""

from __future__ import annotations

import re

from correlator.edges.conditions.declaration import Conditions
from correlator.edges.conditions.links import name_of
from correlator.edges.window_values import derived_values
from correlator.facts.world import World
from correlator.model.attributes import END_UNSEEN
from correlator.model.nouns import Fact

CONDITIONS = Conditions()

#: 4.096 us x 2^18 x 7: what NCCL 2.14 to 2.22 retry for; later ones four times as long (nccl env.rst).
TYPICAL_RETRIES_S = 7.5


@CONDITIONS.named(
    "outlasts typical retries",
    "The outage outlasted the retries of the run's transport.",
    formerly="outlasts usual retries",
)
def outlasts_retries(world: World, cause: Fact, effect: Fact) -> str | None:
    """An outage that ended before the run's retries were exhausted was absorbed by them (correlation.md, E08).

    If a run's settings are unknown and its output shows nothing about retries, typical ones are assumed.
    """
    if cause.duration is None or cause.attrs.get(END_UNSEEN):
        return None
    values = derived_values(world.site.values_for(effect.run), effect)
    if values["NCCL_IB_TIMEOUT"].origin == "job environment":
        budget = values["IbRetryBudget"].low
        # Timestamps of both ends, and the time that a port needs until packets flow again.
        if cause.duration + 2.0 * cause.sigma + LINK_TRAINS_S >= budget:
            return None
        return f"{name_of(cause)} was back after {cause.duration:.1f} s, the run's retries last {budget:.0f} s"
    if cause.duration >= TYPICAL_RETRIES_S or any(RETRIED.search(e.message) for e in effect.events):
        return None
    return f"{name_of(cause)} was back after {cause.duration:.1f} s, usual retries last {TYPICAL_RETRIES_S:g} s and more, and the run says nothing of retries"


#: From carrier to the first packet: speed is negotiated, the subnet manager or routing brings the port into use.
LINK_TRAINS_S = 2.0


#: A transport's own message that its retries were exhausted; a closed connection may as well be a dead peer's.
RETRIED = re.compile(r"retry|retries|status[= ]*12\b|timed? ?out|no path", re.IGNORECASE)
