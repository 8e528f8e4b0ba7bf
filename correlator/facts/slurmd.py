"""slurmd: it died, or was stopped, while its machine stayed up."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from correlator.facts.munge import MUNGE_FAILURE
from correlator.facts.named_processes import is_death_of, is_units_death
from correlator.facts.nodes.detector import SAME_START_S, reported_uptime
from correlator.facts.nodes.kinds import FRESH_BOOT_S, NODE_REBOOT
from correlator.facts.world import World, merge_near
from correlator.model.attributes import CLOCK, SAID
from correlator.model.kinds import Cause, Kind, NoAttrs, Trace
from correlator.model.nouns import Event, Fact


class SlurmdCrash(TypedDict, total=False):
    """``said``: its end was logged. ``noticed``: when it started again.

    ``inferred``: it came some time between start and end.
    """

    said: bool
    inferred: bool
    noticed: float


SLURMD_CRASH = Kind(
    "slurmd.crash", "slurmd", "slurmd died while its machine stayed up.", SlurmdCrash,
    witnesses=("slurmd", "kernel"),
    brief="slurmd died", sets_down=True, trace=Trace("slurmd crash", "its slurmd neither failed nor started anew"),
    cause=Cause(
        "slurm.slurmd_crash", "infra.scheduler", "slurmd of {host} died", "Slurm's daemon on a node died",
        (("See why slurmd of {host} ended: journal, core file, memory. The node's network and machine were fine.", None),),
        unharmed="degraded", family="software", software=("os", "image"), began="slurmd died",
        inferred_from="slurmd started again without having been stopped, and the machine had not booted",
        disproof="A boot of the machine, or a stop of slurmd by an administrator, at that time.",
    ),
)  # fmt: skip

SLURMD_STOP = Kind(
    "slurmd.stop", "slurmd", "slurmd was stopped.", NoAttrs,
    witnesses=("slurmd", "kernel"),
    brief="slurmd was stopped",
    cause=Cause(
        "slurm.admin_action", "infra.scheduler", "slurmd of {host} was stopped and not started again{for_time}", "Slurm's daemon on a node was stopped",
        (("Ask who stopped slurmd of {host} (systemctl, a package upgrade, a configuration tool), and start it.", "systemctl start slurmd"),),
        # Restarting a daemon is routine, unless its node was given up meanwhile.
        short="slurmd of {host} was stopped", unharmed="degraded", needs_effect=True,
        disproof="A start of slurmd before the node was given up, or its machine going down with it.",
    ),
)  # fmt: skip

#: The kernel's segfault line, systemd's and slurmd's own last line are one death.
SAME_CRASH_S = 30.0


def slurmd_deaths(world: World) -> list[Fact]:
    """slurmd started without having been stopped, on a machine that did not boot: it had died (or was killed).

    When it died is unknown. The fact lies between the last line that only slurmd writes and the start.
    """
    booted = {(f.host, f.end or f.start) for f in world.facts_of(NODE_REBOOT.name)}
    facts: list[Fact] = []
    logging_hosts = {e.host for e in world.kinds("slurm.daemon_start", "slurm.daemon_fatal") if e.source == "slurmd"}
    named = {
        e.id: e.host for e in world.kinds("kernel.segfault", "kernel.oom_kill", "sys.service_failed")
        if is_death_of(world, e, "slurmd", world.by_host.get(e.host or "", ()))
        or is_units_death(world, e, "slurmd", world.by_host.get(e.host or "", ()))
    }  # fmt: skip
    logging_hosts.update(named.values())
    for host in sorted(h for h in logging_hosts if h):
        events = world.by_host[host]
        mine = [
            e for e in events if e.source in ("slurmd", "slurmstepd", "kernel", "syslog") or e.kind.startswith("sys.")
        ]
        stopped_at: float | None = None
        stop: Event | None = None
        started_at = -SAME_START_S
        for event in mine:
            if event.kind == "slurm.daemon_stop" and _of_slurmd(event):
                stopped_at, stop = event.time, event
            elif (event.kind == "slurm.daemon_fatal" and event.source == "slurmd") or event.id in named:
                # It is away from its stop on if the start after it fails.
                again = event.kind == "slurm.daemon_fatal" and stop is not None and event.time - stop.time <= RESTART_S
                crash_events = (stop, event) if again and stop is not None else (event,)
                facts.append(
                    SLURMD_CRASH.fact(
                        crash_events[0].time, None, event.sigma, host, attrs={"said": True}, events=crash_events
                    )
                )
                stopped_at, stop = event.time, None
            elif event.kind == "slurm.daemon_start" and event.source != "slurmd" and _of_slurmd(event):
                _back(facts, host, event)  # it was started; systemd does not log whether its machine had booted
            elif event.kind == "slurm.daemon_start" and event.source == "slurmd":
                if event.time - started_at < SAME_START_S:
                    continue
                started_at = event.time
                uptime = reported_uptime(world, event)
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
                    facts.append(SLURMD_CRASH.fact(died_after, event.time, 0.0, host,
                                      attrs={"inferred": True, "noticed": event.time}, events=(event,)))  # fmt: skip
                elif stopped_at is not None:
                    _back(facts, host, event)
                stopped_at = None
    return _same_deaths(facts)


def _back(deaths: list[Fact], host: str, start: Event) -> None:
    """Ends logged deaths of a host's slurmd at its next start."""
    for n, fact in enumerate(deaths):
        if fact.host == host and fact.end is None:
            deaths[n] = replace(fact, end=start.time, events=(*fact.events, start))


#: A machine that stops slurmd because it shuts down boots within this.
SHUTDOWN_S = 1200.0

#: A clock that munge rejected may have been as wrong this long before and after; later it has been set.
ASTRAY_S = 1800.0

#: A slurmd that is started this soon after its stop was being restarted, whether or not the start succeeds.
RESTART_S = 60.0


def slurmd_stops(world: World) -> list[Fact]:
    """``slurmd.stop``: slurmd was asked to end and did; ``end`` is its next start.

    A machine that is shut down stops it too, and a start that fails is a crash: neither is included.
    """
    facts: list[Fact] = []
    stops = [e for e in world.kinds("slurm.daemon_stop") if _of_slurmd(e) and e.host]
    for group in _per_host(stops):
        host, stop = group[0].host or "", group[0]
        after = [e for e in world.by_host[host] if _of_slurmd(e) and e.time > stop.time
                 and e.kind in ("slurm.daemon_start", "slurm.daemon_fatal")]  # fmt: skip
        back = after[0] if after else None
        failed = back is not None and back.kind == "slurm.daemon_fatal" and back.time - stop.time <= RESTART_S
        boots = [f for f in world.facts_of(NODE_REBOOT.name) if f.host == host and stop.time <= (f.end or f.start)
                 and f.start - stop.time <= SHUTDOWN_S and (back is None or f.start <= back.time)]  # fmt: skip
        # With a wrong clock it may have started again at once.
        astray = [f for f in world.facts_of(MUNGE_FAILURE.name) if f.host == host and f.attrs.get(CLOCK)
                  and f.start - ASTRAY_S <= stop.time <= (f.end or f.start) + ASTRAY_S]  # fmt: skip
        if failed or boots or astray:
            continue
        events = (*group, back) if back is not None else tuple(group)
        facts.append(
            SLURMD_STOP.fact(stop.time, back.time if back else None, stop.sigma, host, attrs={}, events=events)
        )
    return facts


def _per_host(events: list[Event]) -> list[list[Event]]:
    """Groups lines of one host that follow each other within moments: one occurrence."""
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda e: (e.host or "", e.time, e.id)):
        if groups and groups[-1][0].host == event.host and event.time - groups[-1][-1].time <= SAME_START_S:
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups


def _same_deaths(facts: list[Fact]) -> list[Fact]:
    """Merges logged deaths that are close together; those concluded from a start stay unchanged."""
    stated = [f for f in facts if f.attrs.get(SAID)]
    ends = {(f.host, f.start): f.end for f in stated}
    # Merged by the time of the death, not by when slurmd was back.
    merged = merge_near((replace(f, end=None) for f in stated), SAME_CRASH_S)
    found = []
    for fact in merged:
        backs = [
            ends[f.host, f.start] for f in stated if f.host == fact.host and 0 <= f.start - fact.start <= SAME_CRASH_S
        ]
        found.append(replace(fact, end=max((b for b in backs if b is not None), default=None)))
    return found + [f for f in facts if not f.attrs.get(SAID)]


def _of_slurmd(event: Event) -> bool:
    """Is it slurmd's own line, or systemd's about its unit? At log level ``error`` slurmd does not log a stop."""
    return event.source == "slurmd" or "slurm node daemon" in event.message.lower()


def _sign_of_slurmd(event: Event) -> bool:
    """Lines that slurmd itself (not a surviving slurmstepd) writes."""
    return (
        event.source == "slurmd"
        and event.kind in ("slurm.step_start", "slurm.daemon_start")
        and not event.message.startswith("[")
    )


def _machine_lived(world: World, host: str, start: Event) -> bool:
    """Is it known that the machine did not boot?

    It is if slurmd logged its uptime, or if its kernel and system log is here, which would show a boot.
    """
    if reported_uptime(world, start) is not None or host in world.reporting_hosts:
        return True
    return any(e.time < start.time and e.source in ("kernel", "syslog") for e in world.by_host.get(host, ()))


def _was_alive_before(events: list[Event], start: Event) -> bool:
    return any(_sign_of_slurmd(e) and e.time < start.time - 1 for e in events)


KINDS = (SLURMD_CRASH, SLURMD_STOP)
DETECTORS = [slurmd_deaths, slurmd_stops]
