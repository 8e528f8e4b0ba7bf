"""Requirements of edges about shared storage: the network that its clients reach it by, and which ranks wait for it.

Each gives the reason if it does not hold.
"""

from __future__ import annotations

import re

from correlator.edges.conditions import links
from correlator.edges.conditions.declaration import Conditions
from correlator.facts.links.kinds import SWITCH_OUTAGE
from correlator.facts.storage_hangs import ended_elsewhere, wait_of, went_on
from correlator.facts.world import World, run_of
from correlator.model.attributes import TIMEOUT, UNENDED
from correlator.model.nouns import Fact

CONDITIONS = Conditions()

#: The network in a server's address, as a Lustre client logs it (lustre, lnet/include/uapi/linux/lnet/nidstr.h).
_NET = re.compile(r"@(?P<kind>o2ib|tcp|kfi|gni)\d*\b", re.IGNORECASE)


@CONDITIONS.named(
    "link carries the storage", "The network that the storage's clients use is carried by this link or switch."
)
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


@CONDITIONS.named("away while it waited", "The storage was away for most of the time that the program waited.")
def away_while_waiting(world: World, cause: Fact, effect: Fact) -> str | None:
    """If a program waited N seconds for a silent rank, and the storage answered meanwhile, the rank would have gone on."""
    logged = effect.attrs.get(TIMEOUT)
    timeout = float(logged or 0.0)
    end = effect.start if cause.attrs.get(UNENDED) or cause.end is None else cause.end
    waited = min(end, effect.start) - max(cause.start, effect.start - timeout)
    if waited < MOST * timeout:
        return f"the storage was away for {max(0.0, waited):.0f} of the {timeout:g} s that the program waited"
    return None


#: A wait that made a run miss its time limit takes this long, and this share of the run, at least; half of the run if
#: the storage was back before the limit. Later than this before it (seconds), the run had time to go on.
WAITED_S, SHARE, MOST_OF_IT, BACK_S = 60.0, 0.05, 0.5, 1800.0
#: A shorter wait than ``WAITED_S`` counts from here on, if it took most of a short run and the same program ended elsewhere.
SHORT_S = 30.0
#: A limit that comes this soon after the storage is back left no time to go on (seconds).
NO_TIME_S = 60.0


@CONDITIONS.named(
    "stood still from then on",
    "A client of the run's nodes waited for the storage for so long that the run missed its limit.",
)
def stood_still(world: World, cause: Fact, effect: Fact) -> str | None:
    """A run waits as long as a client of its nodes does, unless its output shows that it went on."""
    run = run_of(world, effect)
    wait = wait_of(world, cause, run) if run else None
    if run is None or run.start is None or run.end is None or wait is None:
        return "no node of the run waited for it, as far as their kernels tell"
    if wait.begin < run.start - 1.0:
        return f"it had not answered for {run.start - wait.begin:.0f} s when the run began"
    waited = wait.end - wait.begin
    short = waited < WAITED_S
    if short and waited >= SHORT_S and wait.share >= MOST_OF_IT:
        short = ended_elsewhere(world, run, wait) is None
    if short or wait.share < SHARE:
        return f"it was away for only {max(0.0, waited):.0f} of the run's {run.end - run.start:.0f} s"
    left = 0.0 if wait.over is None else run.end - wait.over
    if left > BACK_S or (left > NO_TIME_S and wait.share < MOST_OF_IT):
        return f"it was back {left:.0f} s before the time limit"
    return went_on(world, run, wait)
