"""Requirements of edges about shared storage: the network that its clients reach it by, and which ranks wait for it.

Like those of ``common.py``: None if a requirement holds, else why it does not.
"""

from __future__ import annotations

import re

from correlator.edges.conditions import links
from correlator.facts.links.kinds import SWITCH_OUTAGE
from correlator.facts.world import World
from correlator.model.attributes import TIMEOUT, UNENDED
from correlator.model.nouns import Fact

#: The network in a server's address, as a Lustre client logs it (lustre, lnet/include/uapi/linux/lnet/nidstr.h).
_NET = re.compile(r"@(?P<kind>o2ib|tcp|kfi|gni)\d*\b", re.IGNORECASE)


def carries(world: World, cause: Fact, effect: Fact) -> str | None:
    """LNet's o2ib runs over the fabric's adapters, tcp over those of the management network; NFS is mounted over either."""
    kinds = {match["kind"].lower() for event in effect.events if (match := _NET.search(event.message))}
    of_switch = cause.kind == SWITCH_OUTAGE.name
    checks = {
        "fabric": links.switch_fabric if of_switch else links.fabric,
        "management": links.switch_management if of_switch else links.management,
    }
    asked = (
        ["fabric"] if kinds and "tcp" not in kinds else ["management"] if kinds == {"tcp"} else ["fabric", "management"]
    )
    reasons = [checks[name](world, cause, effect) for name in asked]
    return None if None in reasons else reasons[0]


#: A rank that waits for storage silences the others for as long as the storage is down: it must be down for most of
#: their wait.
MOST = 0.7


def away_while_waiting(world: World, cause: Fact, effect: Fact) -> str | None:
    """If a program waited N seconds for a silent rank, and the storage answered meanwhile, the rank would have gone on."""
    logged = effect.attrs.get(TIMEOUT)
    timeout = float(logged or 0.0)
    end = effect.start if cause.attrs.get(UNENDED) or cause.end is None else cause.end
    waited = min(end, effect.start) - max(cause.start, effect.start - timeout)
    if waited < MOST * timeout:
        return f"the storage was away for {max(0.0, waited):.0f} of the {timeout:g} s that the program waited"
    return None
