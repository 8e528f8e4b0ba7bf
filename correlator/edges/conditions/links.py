"""Requirements of edges about links: what they carry, when they were down, which other paths there are, what a loss can cost.

Each gives the reason if it does not hold.
"""

from __future__ import annotations

import re

from correlator.edges.conditions.declaration import Conditions
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.world import World, run_of
from correlator.model.attributes import (
    BONDED,
    FAR_END_ONLY,
    LEGS,
    PROMOTED,
    RATIO,
    ROLE,
    STAND_IN,
    TIMEOUT,
    TOKEN,
)
from correlator.model.nouns import Fact
from correlator.site.interfaces import UNKNOWN

CONDITIONS = Conditions()


def name_of(fact: Fact) -> str:
    return f"{fact.device} of {fact.host}" if fact.device else str(fact.host)


@CONDITIONS.named("management link", "The link may carry Slurm's messages, and no other leg of its bond took over.")
def management(world: World, cause: Fact, effect: Fact) -> str | None:
    if cause.attrs.get(ROLE) == "fabric":
        return f"{name_of(cause)} carries the jobs' data, not Slurm's messages"
    return _carried_on(world, cause, effect)


def _carried_on(world: World, cause: Fact, effect: Fact) -> str | None:
    """A bond goes on over its other leg, as long as that one has its link."""
    took_over, legs = cause.attrs.get(STAND_IN), cause.attrs.get(LEGS) or ()
    if not took_over and not legs:
        return None
    away = {
        f.device for f in world.facts_of(LINK_OUTAGE.name)
        if f.host == cause.host and f.start <= effect.start and (f.end is None or f.end >= cause.start)
    }  # fmt: skip
    if took_over and took_over not in away:
        return f"{took_over} of {cause.host} took over from {cause.device}"
    left = [leg for leg in legs if leg not in away]
    return f"{left[0]} of {cause.host}, the other leg of the bond, carried on without {cause.device}" if left else None


def _all_carried_on(world: World, cause: Fact, effect: Fact) -> str | None:
    """Did all nodes of the switch go on over another switch?"""
    if not cause.attrs.get(BONDED):
        return None
    run = run_of(world, effect)
    hosts = {effect.host} if effect.host else set(run.nodes if run else ())
    lost = [f for f in world.facts_of(LINK_OUTAGE.name) if f.host in hosts and f.attrs.get(PROMOTED) == (cause.host or cause.attrs.get(TOKEN))]  # fmt: skip
    reasons = [_carried_on(world, link, effect) for link in lost]
    return reasons[0] if reasons and all(reasons) else None


#: What an edge requires of a link that carries the jobs' data.
FABRIC_LINK = "fabric link"


@CONDITIONS.named(FABRIC_LINK, "The link may carry the jobs' data, and no other leg of its bond took over.")
def fabric(world: World, cause: Fact, effect: Fact) -> str | None:
    if cause.attrs.get(ROLE) == "management":
        return f"{name_of(cause)} carries Slurm's messages, not the jobs' data"
    return _carried_on(world, cause, effect)


@CONDITIONS.named(
    "reported by its host or known rail",
    "The link's own host logged the loss, or the link is known to be a rail.",
    formerly="host told or known rail",
)
def reported_by_host(world: World, cause: Fact, effect: Fact) -> str | None:
    """Did the link's own host tell of its loss, or is it known to be a rail?

    The clocks of switches are often not kept. When another clock is off, a loss that only the switch tells of comes before
    the end of a run that it has nothing to do with.
    """
    if cause.attrs.get(FAR_END_ONLY) and cause.attrs.get(ROLE) == UNKNOWN:
        return (
            f"only the other end of {name_of(cause)} tells of it, and nothing tells whether it carries the jobs' data"
        )
    return None


@CONDITIONS.named(
    "switch carries fabric", "The switch may carry the jobs' data, and no bond went on over another switch."
)
def switch_fabric(world: World, cause: Fact, effect: Fact) -> str | None:
    if world.roles_of_links(cause) == {"management"}:
        return f"{cause.host} carries Slurm's messages, not the jobs' data"
    return _all_carried_on(world, cause, effect)


@CONDITIONS.named(
    "switch carries management", "The switch may carry Slurm's messages, and no bond went on over another switch."
)
def switch_management(world: World, cause: Fact, effect: Fact) -> str | None:
    if world.roles_of_links(cause) == {"fabric"}:
        return f"{cause.host} carries the jobs' data, not Slurm's messages"
    return _all_carried_on(world, cause, effect)


#: The RDMA core's device names: names of one family can be compared, a netdev's name cannot.
_IBDEV = re.compile(r"(?:mlx|bnxt_re|irdma|hfi|qedr|rocep|ibp|rxe|siw|efa)[\w]*\d+", re.IGNORECASE)


@CONDITIONS.named("same adapter", "The error names this adapter, or none.")
def same_adapter(world: World, cause: Fact, effect: Fact) -> str | None:
    """A completion error names the adapter it happened on: another adapter's flap is innocent."""
    named = {str(e.entities.get("ibdev") or "").split(":")[0] for e in effect.events} - {""}
    device = str(cause.device or "")
    if not named or device in named or not _IBDEV.fullmatch(device):
        return None
    if any(_may_be_counted_as(world, cause.host, device, name) for name in named):
        return None
    return f"the error is on {', '.join(sorted(named))}, not on {device}"


#: The kernel counts its adapters in the order of their buses (mlx5_2); systemd names interfaces by the bus (ibp154s0).
_COUNTED, _BY_BUS = (
    re.compile(r"mlx\d_(?P<number>\d+)"),
    re.compile(r"(?P<type>ib|en)p(?P<bus>\d+)s(?P<slot>\d+)(?:f(?P<port>\d+))?\w*"),
)


def _may_be_counted_as(world: World, host: str | None, device: str, counted: str) -> bool:
    """May an interface that is named by its bus be the adapter that the kernel counts so?

    It is counted after the others of its type with lower buses; whether the host's further interfaces are counted before it, nothing tells.
    """
    number, own = _COUNTED.fullmatch(counted), _BY_BUS.fullmatch(device)
    if number is None or own is None:
        return False
    others = [name for of, name in world.site.cables if of == host]
    of_type = sorted(
        _place_on_bus(found)
        for name in {*others, device}
        if (found := _BY_BUS.fullmatch(name)) and found["type"] == own["type"]
    )
    if len(of_type) < 2:
        return False  # which of its adapters it is, nothing tells
    before = of_type.index(_place_on_bus(own))
    return before <= int(number["number"]) <= before + len({*others, device}) - len(of_type)


def _place_on_bus(found: re.Match[str]) -> tuple[int, int, int]:
    return int(found["bus"]), int(found["slot"]), int(found["port"] or 0)


@CONDITIONS.named("single path", "The run has no other plane left to communicate over.")
def single_path(world: World, cause: Fact, effect: Fact) -> str | None:
    """A transport that uses several planes loses a share of its bandwidth with one of them, not the run."""
    run = run_of(world, effect)
    planes = world.site.planes_of(run.key) if run else 1
    lost = ports_lost(world, cause.host, effect.start, cause.start) if planes > 1 else set()
    if planes > 1 and len(lost) < planes:
        return f"the run spreads over {planes} planes and lost {max(1, len(lost))} of them"
    return None


#: Packets on the lost path are sent again, and the load is not balanced over the remaining paths at once.
MORE_THAN_SHARE = 1.25
#: Progress is logged minutes apart: the effect of a lost port may show this late.
SEEN_S = 300.0


@CONDITIONS.named(
    "its share of the planes",
    "The run spreads over several planes, and the slowdown fits the share of them that was lost.",
)
def its_share(world: World, cause: Fact, effect: Fact) -> str | None:
    """The slowdown fits the share of the planes that were lost.

    A run keeps the other N - lost planes: it takes at most N / (N - lost) times as long, if it does nothing but
    communicate.
    """
    run = run_of(world, effect)
    planes = world.site.planes_of(run.key) if run else 1
    if planes < 2:
        return "nothing tells that the run spreads over several planes"
    lost = len(ports_lost(world, cause.host, effect.start + SEEN_S, cause.start))
    most = MORE_THAN_SHARE * planes / max(1, planes - lost)
    ratio = float(effect.attrs.get(RATIO, 1.0))
    if lost < planes and ratio > most:
        return f"{lost} of {planes} planes cost {planes / (planes - lost):.2f} times at most, the run became {ratio:.2f} times slower"
    return None


def ports_lost(world: World, host: str | None, until: float, since: float) -> set[str | None]:
    """The fabric ports of a host that were down at some time between ``since`` and ``until``."""
    return {
        f.device for f in world.facts_of(LINK_OUTAGE.name) if f.host == host and f.start <= until
        and (f.end is None or f.end >= since) and f.attrs.get(ROLE) == "fabric"
    }  # fmt: skip


@CONDITIONS.named("still down at effect", "The link was still down at the ping round that counts.")
def still_down(world: World, cause: Fact, effect: Fact) -> str | None:
    """Was the link still down at the ping round that counts?

    slurmctld pings its nodes every third of SlurmdTimeout and gives up those that did not answer the previous ping. A
    link that was down for most of SlurmdTimeout and came back after that round is back too late.
    """
    if cause.end is None or cause.end + cause.sigma >= effect.start - 1.0:
        return None
    timeout, back = world.site.settings["SlurmdTimeout"], effect.start - cause.end
    if cause.end - cause.start >= 2 * timeout.high / 3 and back <= timeout.low / 3 + cause.sigma:
        return None
    return f"{name_of(cause)} was back {back:.1f} s before"


def may_be_back_too_late(world: World, cause: Fact, effect: Fact) -> bool:
    """Would ``still_down`` hold with another SlurmdTimeout, which is not known? The default is no proof."""
    timeout = world.site.settings["SlurmdTimeout"]
    if timeout.known or cause.end is None:
        return False
    away, back = cause.end - cause.start, effect.start - cause.end - cause.sigma
    return max(timeout.low, 3 * back) <= min(timeout.high, 3 * away / 2)


@CONDITIONS.named(
    "still down at onset", "The outage was long enough for the program's wait: retries get through a short one."
)
def still_down_at_onset(world: World, cause: Fact, effect: Fact) -> str | None:
    """A silence of N seconds needs an outage of about N seconds, or the retries would have got through."""
    timeout = effect.attrs.get(TIMEOUT) or 0.0
    if cause.end is not None and cause.end - cause.start < min(timeout, 10.0) * 0.5:
        return f"{name_of(cause)} was away {cause.end - cause.start:.1f} s, the program waited {timeout:g} s"
    return None


@CONDITIONS.named("unfit while it waited", "The port was unfit still when the program began its wait.")
def unfit_while_waiting(world: World, cause: Fact, effect: Fact) -> str | None:
    timeout: float | None = effect.attrs.get(TIMEOUT)
    began = effect.start - (timeout or 0.0)
    if cause.end is not None and cause.end + cause.sigma + min(effect.sigma, 10.0) < began:
        return f"{name_of(cause)} was well again {began - cause.end:.1f} s before the program began to wait"
    return None


@CONDITIONS.named("down at effect", "The link was still down when the error came.")
def down_at_effect(world: World, cause: Fact, effect: Fact) -> str | None:
    """Retries run out while the link is down; once it is back they succeed."""
    slack = 5.0 + cause.sigma + min(effect.sigma, 10.0)
    if cause.end is not None and cause.end + slack < effect.start:
        return f"{name_of(cause)} was back after {cause.end - cause.start:.1f} s, {effect.start - cause.end:.1f} s before the error"
    return None


@CONDITIONS.named("far end only", "Only the other end of the link logged its loss.")
def far_end_only(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if effect.attrs.get(FAR_END_ONLY) else f"{effect.host} itself logged the loss"
