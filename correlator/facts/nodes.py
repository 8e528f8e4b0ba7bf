"""Nodes: set DOWN, rebooted, panicked, dead, their slurmd dead or stopped."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from correlator.events import seconds_of
from correlator.facts import World, merge_near
from correlator.model import Event, Fact
from parsers.reasons import split_reason

#: Two statements about one node going down (log line, accounting's whole second) are one within this.
SAME_DOWN_S = 3.0

#: slurmd says in several lines that it started.
SAME_START_S = 10.0

#: slurmd reports the machine's uptime when it starts; younger than this means that the machine just booted.
FRESH_BOOT_S = 300.0


def hosts_of(event: Event) -> list[str]:
    """The nodes that an event is about: a list in the line, else the host that wrote it."""
    nodes = event.entities.get("nodes")
    if isinstance(nodes, str):
        nodes = [nodes]
    return list(nodes) if nodes else [event.host] if event.host else []


#: A node of a cloud that did not come up (slurm src/slurmctld/power_save.c): it never answered, so nothing fell silent.
_UNRESUMED = re.compile(r"not resumed by ResumeTimeout\((?P<seconds>\d+)\)")
UNTOLD = "not told"


def node_downs(world: World) -> list[Fact]:
    """``node.down``: slurmctld gave the node up. ``admin.down``: somebody set it so."""
    facts: list[Fact] = []
    reasons: dict[str, list[Event]] = defaultdict(list)
    for event in world.by_kind.get("slurm.node_reason", ()):
        for host in hosts_of(event):
            reasons[host].append(event)
    for event in world.by_kind.get("slurm.node_down", ()):
        kind = "admin.down" if _by_admin(event) else "node.down"
        waited = _UNRESUMED.search(event.message)
        for host in hosts_of(event):
            attrs = {"said_by": event.source, "unresumed": waited["seconds"] if waited else None}
            if kind == "admin.down":
                attrs |= _given(reasons.get(host, ()), event.time)
            facts.append(Fact(kind, event.time, None, event.sigma, host, attrs=attrs, events=(event,)))
    facts += _downs_from_states(world, facts)
    ups = ups_of(world)
    for fact in facts:
        back = ups.get(fact.host or "", [])
        place = bisect_right(back, fact.start)
        fact.end = back[place] if place < len(back) else None
    return _dedupe(facts)


#: ``scontrol update`` writes a reason and a state in one transaction.
SAME_UPDATE_S = 1.0


def _given(reasons: Iterable[Event], time: float) -> dict[str, str]:
    """The reason that was given with a node's new state, what part of the node it speaks of, and whose it is."""
    near = [e for e in reasons if abs(e.time - time) <= SAME_UPDATE_S]
    if not near:
        return {}
    reason = str(near[-1].entities.get("reason") or "")
    told = split_reason(reason)
    return {"reason": reason, "component": told.get("component", ""), "owner": told["owner"]}


def ups_of(world: World) -> dict[str, list[float]]:
    """When slurmctld said of each node that it was back, ascending."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in world.kinds("slurm.node_up"):
        for host in hosts_of(event):
            found[host].append(event.time)
    return found


def _by_admin(event: Event) -> bool:
    if event.entities.get("actor") in ("admin", "root", "user"):
        return True
    return "update_node" in event.message and "not responding" not in event.message.lower()


#: Answers of Slurm that date a node's state by when it was set: accounting's events, and the stamp of a reason.
_DATED = frozenset({"sacctmgr_events", "scontrol", "slurmrestd"})


def states_told(world: World, word: str) -> Iterable[tuple[float, str, str, str, str]]:
    """(time, host, state, reason, who) of the nodes' states with ``word`` in them, as Slurm answered when it was asked."""
    for row in world.node_states:
        state, start = str(row["state"] or "").lower(), row["time"]
        if word in state and row["source"] in _DATED and isinstance(start, datetime):
            who = str(row.get("actor") or "").split("(")[0]
            yield seconds_of(start) or 0.0, str(row["host"]), state, str(row["reason"] or ""), who


def _downs_from_states(world: World, known: list[Fact]) -> list[Fact]:
    """What Slurm answers about its nodes stands in where slurmctld's log is missing."""
    facts = []
    told = defaultdict(list)
    for fact in known:
        told[fact.host or ""].append(fact.start)
    for time, host, state, reason, who in states_told(world, "down"):
        if "drain" in state and "*" not in state:
            continue  # the reason is of the drain, which came before
        if any(abs(start - time) <= SAME_DOWN_S for start in told[host]):
            continue
        attrs = {"said_by": "accounting", "reason": reason}
        if "*" in state or "not responding" in reason.lower():
            facts.append(Fact("node.down", time, None, 0.5, host, attrs=attrs | {"silent": True}))
        elif "resumetimeout" in reason.lower():
            facts.append(Fact("node.down", time, None, 0.5, host, attrs=attrs | {"unresumed": UNTOLD}))
        elif who and who != "slurm" and reason and split_reason(reason)["owner"] == "admin":
            facts.append(Fact("admin.down", time, None, 0.5, host, attrs=attrs | {"who": who}))
    return facts


def _dedupe(facts: Iterable[Fact]) -> list[Fact]:
    kept: list[Fact] = []
    for fact in sorted(facts, key=lambda f: (f.host or "", f.kind, f.start)):
        last = kept[-1] if kept else None
        if last and last.host == fact.host and last.kind == fact.kind and fact.start - last.start <= SAME_DOWN_S:
            last.events = tuple(sorted({*last.events, *fact.events}, key=lambda e: (e.time, e.id)))
            continue
        kept.append(fact)
    return kept


def reboots(world: World) -> list[Fact]:
    """A machine that started anew under Slurm: slurmctld noticed, the kernel said so, or slurmd's uptime is young."""
    of_host: dict[str, list[Fact]] = defaultdict(list)
    for event in world.by_kind.get("slurm.node_reboot", ()):
        for host in hosts_of(event) if not is_order(event) else ():
            _add_noticed_boot(of_host[host], event, host)
    for host, facts in of_host.items():
        for fact in facts:
            if fact.attrs["boot"] and fact.attrs["last_response"] is None:
                fact.start, fact.attrs["inferred"] = _gone_since(world, host, fact.start), True
    for event in world.by_kind.get("kernel.boot", ()):
        near = [f for f in of_host[event.host or ""] if abs(f.start - event.time) <= FRESH_BOOT_S]
        for fact in near:
            fact.events = (*fact.events, event)
        if event.host and not near:
            attrs = {"boot": event.time}
            of_host[event.host].append(
                Fact("node.reboot", event.time, event.time, event.sigma, event.host, attrs=attrs, events=(event,))
            )
    _add_boots_told_by_slurmd(world, of_host)  # first: it knows when the machine had gone
    _add_boots_told_by_states(world, of_host)
    return [f for facts in of_host.values() for f in facts]


#: slurmctld tells one boot in up to three lines, when the node registers.
SAME_NOTICE_S = 2.0


def _add_noticed_boot(known: list[Fact], event: Event, host: str) -> None:
    """``known``: this host's reboots so far, all of them noticed by slurmctld."""
    boot, last = _number(event.entities.get("boot_time")), _number(event.entities.get("last_response"))
    ago = _number(event.entities.get("secs"))
    if boot is None and ago is not None:
        boot = event.time - ago
    start = min(boot if boot and boot <= event.time + 1 else event.time, event.time)
    told = {"boot": boot, "last_response": last, "noticed": event.time}
    for fact in known:
        if abs(fact.attrs["noticed"] - event.time) <= SAME_NOTICE_S:
            fact.start, fact.events = min(fact.start, start), (*fact.events, event)
            fact.attrs |= {k: v for k, v in told.items() if fact.attrs[k] is None}
            return
    known.append(Fact("node.reboot", start, event.time, event.sigma, host, attrs=told, events=(event,)))


def uptime_told(world: World, start: Event) -> float | None:
    """The machine's uptime in seconds that slurmd told with this start, if it did."""
    told = [
        uptime for time, uptime in world.slurmd_starts(start.host or "") if -1.0 <= time - start.time <= SAME_START_S
    ]
    return told[0] if told else None


#: ``scontrol reboot`` and what slurmctld makes of it: nobody is taken by surprise (slurm src/slurmctld/node_mgr.c, power_save.c).
_ORDER = re.compile(r"reboot request|issuing reboot|rebooting nodes?\b|reboot nodes?\b|reboot timed out", re.IGNORECASE)


def is_order(event: Event) -> bool:
    """Does a line about a reboot only ask for one?"""
    return _ORDER.search(event.message) is not None


def _add_boots_told_by_states(world: World, known: dict[str, list[Fact]]) -> None:
    """slurmctld's reason for a node that booted unasked, where its log is missing: it noticed in that second."""
    for time, host, _, reason, _ in states_told(world, "down"):
        if "unexpectedly rebooted" not in reason.lower():
            continue
        near = [f for f in known[host] if -SAME_DOWN_S <= time - (f.end or f.start) <= FRESH_BOOT_S]
        for fact in near:
            fact.attrs.setdefault("noticed", time)
        if not near:
            known[host].append(Fact("node.reboot", time, time, 0.5, host, attrs={"noticed": time}))


def _add_boots_told_by_slurmd(world: World, known: dict[str, list[Fact]]) -> None:
    """Boots that neither the kernel nor slurmctld tells of: slurmd starts on a machine that is young.

    It went down somewhere between the last line that the host wrote and the boot."""
    for event in world.kinds("slurm.daemon_start"):
        if event.source != "slurmd" or not event.host:
            continue
        near = [f for f in known[event.host] if abs((f.end or f.start) - event.time) <= FRESH_BOOT_S]
        uptime = None if near else uptime_told(world, event)
        if uptime is None or uptime >= FRESH_BOOT_S:
            continue
        boot = event.time - uptime
        attrs = {"boot": boot, "noticed": event.time, "inferred": True}
        last = _gone_since(world, event.host, boot)
        known[event.host].append(Fact("node.reboot", last, boot, event.sigma, event.host, attrs=attrs, events=(event,)))


def _gone_since(world: World, host: str, boot: float) -> float:
    """The earliest moment at which a machine that booted then may have gone: that of its last line; else the boot itself."""
    spoke = world.spoke_at(host)
    place = bisect_left(spoke, boot - BOOT_STAMPS_S)
    return spoke[place - 1] if place and boot - spoke[place - 1] <= SPEAKS_WITHIN_S else boot


#: A boot's first lines may carry stamps that are so much older than the boot time that others reckon.
BOOT_STAMPS_S = 15.0


def word_between(world: World, host: str, low: float, high: float) -> float | None:
    """When the host itself wrote its last line after ``low`` and before ``high`` (its boot); None if it was silent."""
    spoke = world.spoke_at(host)
    place = bisect_right(spoke, high - BOOT_STAMPS_S)
    return spoke[place - 1] if place and spoke[place - 1] > low else None


#: A dying kernel writes its panic in many lines (lockup, oops, panic, end trace) within minutes.
SAME_PANIC_S = 120.0

#: The kernel's segfault line, systemd's and slurmd's own last word tell one death.
SAME_CRASH_S = 30.0


def panics(world: World) -> list[Fact]:
    """``node.panic``: the kernel gave up, or a CPU hung hard."""
    return merge_near((
        Fact("node.panic", e.time, None, e.sigma, e.host, attrs={}, events=(e,))
        for e in world.kinds("kernel.panic", "kernel.lockup") if e.host and (e.kind == "kernel.panic" or e.severity in ("emerg", "alert", "crit"))
    ), SAME_PANIC_S)  # fmt: skip


#: Words of a memory that lost what was written to it (EDAC, x86 machine checks, mm/memory-failure.c); corrected errors are not.
_MEMORY_LOST = re.compile(
    r"hardware memory (?:corruption|error in user)|uncorrected .*memory|\bUE\b.*(?:memory|on)\b", re.IGNORECASE
)
_TOO_HOT = re.compile(r"critical (?:temperature|thermal).*(?:shut|power)", re.IGNORECASE)


def hardware_words(world: World) -> list[Fact]:
    """``memory.error``: a machine's memory lost data; ``node.overheated``: its kernel shut it down because of heat."""
    lost = [
        Fact("memory.error", e.time, e.last, e.sigma, e.host, events=(e,))
        for e in world.kinds("kernel.mce") if e.host and _MEMORY_LOST.search(e.message)
    ]  # fmt: skip
    hot = [
        Fact("node.overheated", e.time, None, e.sigma, e.host, events=(e,))
        for e in world.kinds("kernel.thermal") if e.host and _TOO_HOT.search(e.message)
    ]  # fmt: skip
    return merge_near([*lost, *hot], SAME_PANIC_S)


def slurmd_deaths(world: World) -> list[Fact]:
    """slurmd started without having been stopped, on a machine that did not boot: it had died (or was killed).

    Nothing tells when it died. The fact lies between the last sign of life that only slurmd gives and the start.
    """
    booted = {(f.host, f.end or f.start) for f in world.facts_of("node.reboot")}
    facts: list[Fact] = []
    telling = {e.host for e in world.kinds("slurm.daemon_start", "slurm.daemon_fatal") if e.source == "slurmd"}
    telling |= {e.host for e in world.kinds("kernel.segfault", "kernel.oom_kill") if _slurmd_segfault(e)}
    telling |= {e.host for e in world.kinds("sys.service_failed") if _slurmd_unit_failed(e)}
    for host in sorted(h for h in telling if h):
        events = world.by_host[host]
        mine = [
            e for e in events if e.source in ("slurmd", "slurmstepd", "kernel", "syslog") or e.kind.startswith("sys.")
        ]
        stopped_at: float | None = None
        stop: Event | None = None
        started_at = -SAME_START_S
        for event in mine:
            if event.kind == "slurm.daemon_stop" and event.source == "slurmd":
                stopped_at, stop = event.time, event
            elif (
                (event.kind == "slurm.daemon_fatal" and event.source == "slurmd")
                or _slurmd_segfault(event)
                or _slurmd_unit_failed(event)
            ):
                # It is away from its stop on where the start after it fails.
                again = event.kind == "slurm.daemon_fatal" and stop is not None and event.time - stop.time <= RESTART_S
                told = (stop, event) if again and stop is not None else (event,)
                facts.append(
                    Fact("slurmd.crash", told[0].time, None, event.sigma, host, attrs={"said": True}, events=told)
                )
                stopped_at, stop = event.time, None
            elif event.kind == "slurm.daemon_start" and event.source == "slurmd":
                if event.time - started_at < SAME_START_S:
                    continue
                started_at = event.time
                uptime = uptime_told(world, event)
                fresh = any(h == host and abs(t - event.time) <= FRESH_BOOT_S for h, t in booted) or (
                    uptime is not None and uptime < FRESH_BOOT_S
                )
                if (
                    stopped_at is None
                    and not fresh
                    and _was_alive_before(mine, event)
                    and _machine_lived(world, host, event)
                ):
                    died_after = max(
                        (e.time for e in mine if e.time < event.time and _sign_of_slurmd(e)), default=event.time
                    )
                    facts.append(Fact("slurmd.crash", died_after, event.time, 0.0, host,
                                      attrs={"inferred": True, "noticed": event.time}, events=(event,)))  # fmt: skip
                elif stopped_at is not None:
                    for fact in facts:
                        if fact.host == host and fact.kind == "slurmd.crash" and fact.end is None:
                            fact.end = event.time
                            fact.events = (*fact.events, event)
                stopped_at = None
    return _same_deaths(facts)


#: A machine that stops slurmd because it shuts down boots within this.
SHUTDOWN_S = 1200.0

#: A clock that munge complained of may have been as wrong so long before and after; later somebody has set it.
ASTRAY_S = 1800.0

#: A slurmd that is started so soon after it was stopped was being started anew, whether or not the start succeeds.
RESTART_S = 60.0


def slurmd_stops(world: World) -> list[Fact]:
    """``slurmd.stop``: slurmd was asked to end and did; ``end`` is its next start. A machine that is shut down stops it too,
    and a start that fails is a crash: neither is told here."""
    facts: list[Fact] = []
    stops = [e for e in world.kinds("slurm.daemon_stop") if e.source == "slurmd" and e.host]
    for group in _per_host(stops):
        host, stop = group[0].host or "", group[0]
        after = [e for e in world.by_host[host] if e.source == "slurmd" and e.time > stop.time
                 and e.kind in ("slurm.daemon_start", "slurm.daemon_fatal")]  # fmt: skip
        back = after[0] if after else None
        failed = back is not None and back.kind == "slurm.daemon_fatal" and back.time - stop.time <= RESTART_S
        boots = [f for f in world.facts_of("node.reboot") if f.host == host and stop.time <= (f.end or f.start)
                 and f.start - stop.time <= SHUTDOWN_S and (back is None or f.start <= back.time)]  # fmt: skip
        # Who stamps with a wrong clock may have started again at once.
        astray = [f for f in world.facts_of("munge.failure") if f.host == host and f.attrs.get("clock")
                  and f.start - ASTRAY_S <= stop.time <= (f.end or f.start) + ASTRAY_S]  # fmt: skip
        if failed or boots or astray:
            continue
        events = (*group, back) if back is not None else tuple(group)
        facts.append(
            Fact("slurmd.stop", stop.time, back.time if back else None, stop.sigma, host, attrs={}, events=events)
        )
    return facts


def _per_host(events: list[Event]) -> list[list[Event]]:
    """Statements of one host that follow each other within moments tell one thing."""
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda e: (e.host or "", e.time, e.id)):
        if groups and groups[-1][0].host == event.host and event.time - groups[-1][-1].time <= SAME_START_S:
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups


def _same_deaths(facts: list[Fact]) -> list[Fact]:
    """Deaths that were said so close together are one; those concluded from a start stay as they are."""
    said = [f for f in facts if f.attrs.get("said")]
    ends = {(f.host, f.start): f.end for f in said}
    for fact in said:
        fact.end = None  # merged by when it was said, not by when slurmd was back
    merged = merge_near(said, SAME_CRASH_S)
    for fact in merged:
        backs = [
            ends[f.host, f.start] for f in said if f.host == fact.host and 0 <= f.start - fact.start <= SAME_CRASH_S
        ]
        fact.end = max((b for b in backs if b is not None), default=None)
    return merged + [f for f in facts if not f.attrs.get("said")]


def _sign_of_slurmd(event: Event) -> bool:
    """Lines that slurmd itself (not a surviving slurmstepd) writes."""
    return (
        event.source == "slurmd"
        and event.kind in ("slurm.step_start", "slurm.daemon_start")
        and not event.message.startswith("[")
    )


def _machine_lived(world: World, host: str, start: Event) -> bool:
    """That the machine did not boot is known if slurmd told its uptime, or if its kernel and system log is here, which
    would tell of a boot."""
    if uptime_told(world, start) is not None or host in world.voices:
        return True
    return any(e.time < start.time and e.source in ("kernel", "syslog") for e in world.by_host.get(host, ()))


def _was_alive_before(events: list[Event], start: Event) -> bool:
    return any(_sign_of_slurmd(e) and e.time < start.time - 1 for e in events)


def _slurmd_segfault(event: Event) -> bool:
    process = str(event.entities.get("process") or event.entities.get("program") or "")
    text = event.message.lower()
    return event.kind in ("kernel.segfault", "kernel.oom_kill") and (
        process == "slurmd" or "slurmd[" in text or "(slurmd)" in text
    )


def _slurmd_unit_failed(event: Event) -> bool:
    return event.kind == "sys.service_failed" and "slurmd" in event.message.lower()


#: How long before the loss the host must have spoken last, for its silence to mean something.
SPEAKS_WITHIN_S = 1800.0

#: Shorter silences are every quiet night's.
SILENCE_S = 120.0


def silent_deaths(world: World) -> list[Fact]:
    """``node.dead``: the far end lost the link, and the host never wrote another line before it booted anew, if it did.

    A host that lives on without its link writes that the link is gone, and what it writes meanwhile arrives later.
    """
    facts: list[Fact] = []
    for fact in world.facts_of("link.outage"):
        host = fact.host or ""
        if not fact.attrs.get("far_end_only") or fact.attrs.get("promoted") or not world.runs_on.get(host):
            continue
        spoke = world.spoke_at(host)
        before = bisect_right(spoke, fact.start + 2.0 + fact.sigma)
        back = spoke[before] if before < len(spoke) else None
        boots = [e.time for e in world.by_host.get(host, ()) if e.kind == "kernel.boot" and e.time > fact.start]
        until = fact.end if fact.end is not None else world.last
        booted = back is not None and boots and boots[0] - back <= FRESH_BOOT_S
        # Who boots while the link is away was off; the silence of one who does not must mean something.
        off = booted and boots[0] <= until + FRESH_BOOT_S
        if not before or (fact.start - spoke[before - 1] > SPEAKS_WITHIN_S and not off):
            continue
        if any(
            f.host == host and abs(f.start - fact.start) <= SAME_PANIC_S
            for f in world.facts_of("node.panic", "node.overheated")
        ):
            continue  # it said what it died of
        if (back is None or booted) and (back or until) - fact.start >= SILENCE_S:
            end = back if back is not None else fact.end
            attrs = {"last_word": spoke[before - 1], "booted": boots[0] if booted else None}
            facts.append(Fact("node.dead", fact.start, end, fact.sigma, host, attrs=attrs, events=fact.events))
    return merge_near(facts, SAME_DOWN_S + 10.0)


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except (TypeError, ValueError):
        return None


KINDS = (
    "node.down",
    "admin.down",
    "node.reboot",
    "node.panic",
    "slurmd.crash",
    "slurmd.stop",
    "node.dead",
    "memory.error",
    "node.overheated",
)
DETECTORS = [node_downs, reboots, panics, hardware_words, slurmd_deaths, slurmd_stops, silent_deaths]
