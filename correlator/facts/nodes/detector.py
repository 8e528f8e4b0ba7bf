"""Nodes: set DOWN, rebooted, panicked, dead."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import (
    ADMIN_DOWN,
    FRESH_BOOT_S,
    MEMORY_ERROR,
    NODE_DEAD,
    NODE_DOWN,
    NODE_OVERHEATED,
    NODE_PANIC,
    NODE_REBOOT,
    SAME_DOWN_S,
    SAME_PANIC_S,
    SPEAKS_WITHIN_S,
    AdminDown,
    NodeDead,
    NodeDown,
    NodeReboot,
)
from correlator.facts.nodes.polls import down_by_state, polled_downs
from correlator.facts.world import BOOT_STAMPS_S, World, hosts_of, merge_near
from correlator.model.attributes import BOOT, FAR_END_ONLY, INFERRED, LAST_RESPONSE, NOTICED, PROMOTED, SILENT
from correlator.model.attrs import with_attr
from correlator.model.nouns import Event, Fact, in_order
from parsers.documents.fields import number
from parsers.reasons import split_reason

#: slurmd logs several lines at its start.
SAME_START_S = 10.0


def node_downs(world: World) -> list[Fact]:
    """``node.down``: slurmctld gave the node up. ``admin.down``: an administrator set it DOWN."""
    facts: list[Fact] = []
    reasons: dict[str, list[Event]] = defaultdict(list)
    for event in world.by_kind.get("slurm.node_reason", ()):
        for host in hosts_of(event):
            reasons[host].append(event)
    for event in world.by_kind.get("slurm.node_down", ()):
        by_admin = _by_admin(event)
        # The ResumeTimeout of a cloud node that did not come up (slurm src/slurmctld/power_save.c): it never answered,
        # so it did not fall silent. No other pattern of this event has seconds.
        waited = event.entities.get("secs")
        for host in hosts_of(event):
            unresumed = None if waited is None else str(waited)
            if by_admin:
                admin = _given(reasons.get(host, ()), event.time, {"said_by": event.source, "unresumed": unresumed})
                facts.append(ADMIN_DOWN.fact(event.time, None, event.sigma, host, attrs=admin, events=(event,)))
            else:
                attrs: NodeDown = {"said_by": event.source, "unresumed": unresumed}
                facts.append(NODE_DOWN.fact(event.time, None, event.sigma, host, attrs=attrs, events=(event,)))
    facts += _powered_down(world, reasons)
    facts += _downs_from_states(world, facts)
    ups = ups_of(world)
    return _without_recalled(
        world, _dedupe(replace(fact, end=_next(ups.get(fact.host or "", []), fact.start)) for fact in facts)
    )


def _next(times: list[float], after: float) -> float | None:
    """The first of ascending moments that lies after another one."""
    place = bisect_right(times, after)
    return times[place] if place < len(times) else None


#: ``scontrol update`` writes a reason and a state in one transaction.
SAME_UPDATE_S = 1.0


def _given(reasons: Iterable[Event], time: float, attrs: AdminDown) -> AdminDown:
    """``attrs`` with the reason given with a node's new state, the component that it names, and the owner of that."""
    near = [e for e in reasons if abs(e.time - time) <= SAME_UPDATE_S]
    if not near:
        return attrs
    reason = str(near[-1].entities.get("reason") or "")
    split = split_reason(reason)
    attrs["reason"], attrs["component"], attrs["owner"] = reason, split.get("component", ""), split["owner"]
    return attrs


#: slurmctld's line about a node that somebody had it power down; power saving has lines of its own, and takes no
#: node from a job (slurm src/slurmctld/node_mgr.c update_node, power_save.c).
_POWER_DOWN = re.compile(r"^(?:update_node: )?(?:powering down node \S|node \S+ state set to POWER(?:ED|ING)?_DOWN)")
_LOST_NODE = re.compile(r"\bKilling .* on failed node |\bdue to failure of node ")


def _powered_down(world: World, reasons: Mapping[str, Iterable[Event]]) -> list[Fact]:
    """``admin.down`` of nodes that somebody had powered down under their jobs (``state=power_down_force``)."""
    lost: dict[str, list[float]] = defaultdict(list)
    for event in world.kinds("slurm.job_node_fail", "slurm.job_requeue"):
        if event.source == "slurmctld" and _LOST_NODE.search(event.message):
            for host in hosts_of(event):
                lost[host].append(event.time)
    facts = []
    for event in world.by_kind.get("slurm.node_power", ()):
        if event.source != "slurmctld" or not _POWER_DOWN.search(event.message):
            continue
        for host in hosts_of(event):
            if any(abs(time - event.time) <= SAME_UPDATE_S for time in lost.get(host, ())):
                attrs: AdminDown = {"said_by": event.source, "unresumed": None, "powered": True}
                given = _given(reasons.get(host, ()), event.time, attrs)
                facts.append(ADMIN_DOWN.fact(event.time, None, event.sigma, host, attrs=given, events=(event,)))
    return facts


def ups_of(world: World) -> dict[str, list[float]]:
    """When slurmctld logged for each node that it was back, ascending."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in world.kinds("slurm.node_up"):
        for host in hosts_of(event):
            found[host].append(event.time)
    return found


def _by_admin(event: Event) -> bool:
    if event.entities.get("actor") in ("admin", "root", "user"):
        return True
    return "update_node" in event.message and "not responding" not in event.message.lower()


def _downs_from_states(world: World, known: list[Fact]) -> list[Fact]:
    """Slurm's answers about its nodes replace slurmctld's log where it is missing."""
    facts = []
    by_host = defaultdict(list)
    for fact in known:
        by_host[fact.host or ""].append(fact.start)
    for time, host, state, reason, who in polled_downs(world):
        if state.is_draining and not state.is_silent:
            continue  # the reason belongs to the drain, which came before
        if any(abs(start - time) <= SAME_DOWN_S for start in by_host[host]):
            continue
        down = down_by_state(time, host, state, reason, who)
        if down is not None and (reason or down.attrs.get(SILENT)):
            facts.append(down)
    return facts


#: What slurmctld logs when it reads its state: another one may have set these nodes DOWN (slurm src/slurmctld/read_config.c).
_RECALLED = "Down nodes: "


def _without_recalled(world: World, facts: list[Fact]) -> list[Fact]:
    """Without the nodes that a slurmctld found DOWN when it read its state, if they had been set DOWN, were not back, and began
    no run since."""
    found = []
    of_host: dict[str | None, list[Fact]] = defaultdict(list)
    for fact in facts:
        of_host[fact.host].append(fact)
    for fact in facts:
        if all(e.message.startswith(_RECALLED) for e in fact.events) and fact.events:
            before = max((f.start for f in of_host[fact.host] if f.start < fact.start <= (f.end or inf)), default=None)
            if before is not None and not any(
                r.start is not None and before < r.start <= fact.start for r in world.runs_on.get(fact.host or "", ())
            ):
                continue
        found.append(fact)
    return found


def _dedupe(facts: Iterable[Fact]) -> list[Fact]:
    kept: list[Fact] = []
    for fact in sorted(facts, key=lambda f: (f.host or "", f.kind, f.start)):
        last = kept[-1] if kept else None
        if last and last.host == fact.host and last.kind == fact.kind and fact.start - last.start <= SAME_DOWN_S:
            kept[-1] = replace(last, events=in_order(last.events, fact.events))
            continue
        kept.append(fact)
    return kept


def reboots(world: World) -> list[Fact]:
    """A machine that booted again under Slurm: slurmctld noticed, the kernel logged it, or slurmd's uptime is short."""
    of_host: dict[str, list[Fact]] = defaultdict(list)
    for event in world.by_kind.get("slurm.node_reboot", ()):
        for host in hosts_of(event) if not is_order(event) else ():
            _add_noticed_boot(of_host[host], event, host)
    for host, facts in of_host.items():
        facts[:] = [_gone_unseen(world, host, fact) for fact in facts]
    for event in world.by_kind.get("kernel.boot", ()):
        facts = of_host[event.host or ""]
        near = [n for n, f in enumerate(facts) if abs(f.start - event.time) <= FRESH_BOOT_S]
        for n in near:
            facts[n] = replace(facts[n], events=(*facts[n].events, event))
        if event.host and not near:
            facts.append(
                NODE_REBOOT.fact(
                    event.time, event.time, event.sigma, event.host, attrs={"boot": event.time}, events=(event,)
                )
            )
    _add_boots_from_slurmd(world, of_host)  # first: it knows when the machine was gone
    _add_boots_from_states(world, of_host)
    _add_boots_from_polls(world, of_host)
    return [f for facts in of_host.values() for f in facts]


def _gone_unseen(world: World, host: str, boot: Fact) -> Fact:
    """A machine without a last answer in slurmctld's line may have gone any time after its last line."""
    if not boot.attrs[BOOT] or boot.attrs[LAST_RESPONSE] is not None:
        return boot
    return replace(boot, start=_gone_since(world, host, boot.start), attrs=with_attr(boot.attrs, INFERRED, True))


#: slurmctld logs one boot in up to three lines, when the node registers.
SAME_NOTICE_S = 2.0


def _add_noticed_boot(known: list[Fact], event: Event, host: str) -> None:
    """``known``: this host's reboots so far, all of them noticed by slurmctld."""
    boot, last = number(event.entities.get("boot_time")), number(event.entities.get("last_response"))
    ago = number(event.entities.get("secs"))
    if boot is None and ago is not None:
        boot = event.time - ago
    start = min(boot if boot and boot <= event.time + 1 else event.time, event.time)
    boot_attrs: NodeReboot = {"boot": boot, "last_response": last, "noticed": event.time}
    for n, fact in enumerate(known):
        if abs(fact.attrs[NOTICED] - event.time) <= SAME_NOTICE_S:
            before = NODE_REBOOT.attrs_of(fact)
            attrs: NodeReboot = {
                "boot": boot if before["boot"] is None else before["boot"],
                "last_response": last if before["last_response"] is None else before["last_response"],
                "noticed": before["noticed"],
            }
            known[n] = replace(
                fact, start=min(fact.start, start), events=(*fact.events, event), attrs=NODE_REBOOT.as_attrs(attrs)
            )
            return
    known.append(NODE_REBOOT.fact(start, event.time, event.sigma, host, attrs=boot_attrs, events=(event,)))


def reported_uptime(world: World, start: Event) -> float | None:
    """The machine's uptime in seconds that slurmd logged at this start; None if it did not."""
    uptimes = [
        uptime for time, uptime in world.slurmd_starts(start.host or "") if -1.0 <= time - start.time <= SAME_START_S
    ]
    return uptimes[0] if uptimes else None


#: ``scontrol reboot`` and what slurmctld makes of it: a planned reboot (slurm src/slurmctld/node_mgr.c, power_save.c).
_ORDER = re.compile(r"reboot request|issuing reboot|rebooting nodes?\b|reboot nodes?\b|reboot timed out", re.IGNORECASE)


def is_order(event: Event) -> bool:
    """Does a line about a reboot only request one?"""
    return _ORDER.search(event.message) is not None


def _add_boots_from_states(world: World, known: dict[str, list[Fact]]) -> None:
    """slurmctld's reason for a node that booted unexpectedly, where its log is missing: it noticed in that second."""
    for time, host, _, reason, _ in polled_downs(world):
        if "unexpectedly rebooted" not in reason.lower():
            continue
        facts = known[host]
        near = [n for n, f in enumerate(facts) if -SAME_DOWN_S <= time - (f.end or f.start) <= FRESH_BOOT_S]
        for n in near:
            facts[n] = replace(facts[n], attrs=with_attr(facts[n].attrs, NOTICED, facts[n].attrs.get(NOTICED, time)))
        if not near:
            facts.append(NODE_REBOOT.fact(time, time, 0.5, host, attrs={"noticed": time}))


def _add_boots_from_polls(world: World, known: dict[str, list[Fact]]) -> None:
    """A BootTime that differs from the one before: the machine went down between its last line and that boot.

    Setting a clock moves BootTime as well: by the known offset, and to none of these moments.
    """
    for boot, host in world.booted:
        near = [f for f in known[host] if abs((f.end or f.start) - boot) <= FRESH_BOOT_S]
        if near or boot < world.first - FRESH_BOOT_S:
            continue
        attrs: NodeReboot = {"boot": boot, "inferred": True}
        known[host].append(NODE_REBOOT.fact(_gone_since(world, host, boot), boot, 1.0, host, attrs=attrs))


def _add_boots_from_slurmd(world: World, known: dict[str, list[Fact]]) -> None:
    """Boots that neither the kernel nor slurmctld logged: slurmd starts on a machine with a short uptime.

    It went down between the last line that the host wrote and the boot.
    """
    for event in world.kinds("slurm.daemon_start"):
        if event.source != "slurmd" or not event.host:
            continue
        near = [f for f in known[event.host] if abs((f.end or f.start) - event.time) <= FRESH_BOOT_S]
        uptime = None if near else reported_uptime(world, event)
        if uptime is None or uptime >= FRESH_BOOT_S:
            continue
        boot = event.time - uptime
        attrs: NodeReboot = {"boot": boot, "noticed": event.time, "inferred": True}
        last = _gone_since(world, event.host, boot)
        known[event.host].append(NODE_REBOOT.fact(last, boot, event.sigma, event.host, attrs=attrs, events=(event,)))


def _gone_since(world: World, host: str, boot: float) -> float:
    """The earliest moment at which a machine that booted then may have gone: its last line, else the boot itself."""
    spoke = world.spoke_at(host)
    place = bisect_left(spoke, boot - BOOT_STAMPS_S)
    return spoke[place - 1] if place and boot - spoke[place - 1] <= SPEAKS_WITHIN_S else boot


def panics(world: World) -> list[Fact]:
    """``node.panic``: the kernel gave up, or a CPU hung hard."""
    return merge_near((
        NODE_PANIC.fact(e.time, None, e.sigma, e.host, attrs={}, events=(e,))
        for e in world.kinds("kernel.panic", "kernel.lockup") if e.host and (e.kind == "kernel.panic" or e.severity in ("emerg", "alert", "crit"))
    ), SAME_PANIC_S)  # fmt: skip


#: Messages about memory that lost its content (EDAC, x86 machine checks, mm/memory-failure.c); corrected errors are
#: excluded.
_MEMORY_LOST = re.compile(
    r"hardware memory (?:corruption|error in user)|uncorrected .*memory|\bUE\b.*(?:memory|on)\b", re.IGNORECASE
)
_TOO_HOT = re.compile(r"critical (?:temperature|thermal).*(?:shut|power)", re.IGNORECASE)


def hardware_words(world: World) -> list[Fact]:
    """``memory.error``: a machine's memory lost data; ``node.overheated``: its kernel shut it down because of heat."""
    lost = [
        MEMORY_ERROR.fact(e.time, e.last, e.sigma, e.host, events=(e,))
        for e in world.kinds("kernel.mce") if e.host and _MEMORY_LOST.search(e.message)
    ]  # fmt: skip
    hot = [
        NODE_OVERHEATED.fact(e.time, None, e.sigma, e.host, events=(e,))
        for e in world.kinds("kernel.thermal") if e.host and _TOO_HOT.search(e.message)
    ]  # fmt: skip
    return merge_near([*lost, *hot], SAME_PANIC_S)


#: Shorter silences are normal on any quiet night.
SILENCE_S = 120.0


def silent_deaths(world: World) -> list[Fact]:
    """``node.dead``: the far end lost the link, and the host wrote no further line before its next boot, if there was
    one.

    A host that stays up without its link logs that the link is gone, and what it writes meanwhile arrives later.
    """
    facts: list[Fact] = []
    for fact in world.facts_of(LINK_OUTAGE.name):
        host = fact.host or ""
        if not fact.attrs.get(FAR_END_ONLY) or fact.attrs.get(PROMOTED) or not world.runs_on.get(host):
            continue
        spoke = world.spoke_at(host)
        before = bisect_right(spoke, fact.start + 2.0 + fact.sigma)
        back = spoke[before] if before < len(spoke) else None
        boots = [e.time for e in world.by_host.get(host, ()) if e.kind == "kernel.boot" and e.time > fact.start]
        until = fact.end if fact.end is not None else world.last
        booted = back is not None and boots and boots[0] - back <= FRESH_BOOT_S
        # A host that boots while the link is down was off; the silence of one that does not must be significant.
        off = booted and boots[0] <= until + FRESH_BOOT_S
        if not before or (fact.start - spoke[before - 1] > SPEAKS_WITHIN_S and not off):
            continue
        if any(
            f.host == host and abs(f.start - fact.start) <= SAME_PANIC_S
            for f in world.facts_of(NODE_PANIC.name, NODE_OVERHEATED.name)
        ):
            continue  # it logged what it died of
        if (back is None or booted) and (back or until) - fact.start >= SILENCE_S:
            end = back if back is not None else fact.end
            attrs: NodeDead = {"last_word": spoke[before - 1], "booted": boots[0] if booted else None}
            facts.append(NODE_DEAD.fact(fact.start, end, fact.sigma, host, attrs=attrs, events=fact.events))
    return merge_near(facts, SAME_DOWN_S + 10.0)


KINDS = (NODE_DOWN, ADMIN_DOWN, NODE_REBOOT, NODE_PANIC, NODE_DEAD, MEMORY_ERROR, NODE_OVERHEATED)
DETECTORS = [node_downs, reboots, panics, hardware_words, silent_deaths]
