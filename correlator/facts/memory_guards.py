"""Memory guards: daemons that kill the largest process of a node when its memory is nearly used up (earlyoom,
systemd-oomd).

The kernel still had memory and logs nothing, and Slurm's limits were kept: the node was full, of what its jobs took or
of what others did. earlyoom's own numbers show which.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TypedDict

from correlator.facts.world import World
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Event, Fact, Run
from parsers.documents.fields import integer, number


class GuardKill(TypedDict):
    """What a guard killed: the ``process`` of ``of_uid`` (systemd-oomd: of job ``of_job``), which held ``rss_mib`` of the
    ``used_mib`` on the node; None if it did not log that."""

    guard: str
    process: str
    of_uid: int | None
    of_job: int | None
    rss_mib: float | None
    used_mib: float | None


#: Attributes that are read in this file only.
GUARD: Attr[str] = attr("guard")
PROCESS: Attr[str] = attr("process")
OF_UID: Attr[int | None] = attr("of_uid")
OF_JOB: Attr[int | None] = attr("of_job")
RSS_MIB: Attr[float | None] = attr("rss_mib")
USED_MIB: Attr[float | None] = attr("used_mib")

#: Every user of a node can write such a line into its syslog.
WRITTEN_SURE = 0.5

GUARD_KILL = Kind(
    "memory.guard", "node", "A memory guard of a node killed a process because the node's memory was used up.", GuardKill,
    witnesses=("kernel",),
    brief="memory guard killed {process}",
    cause=Cause(
        "node.memory_pressure", "infra.node", "{guard} of {host} killed {process}, as the node's memory was used up", "others had used up its node's memory",
        (("See what else had taken the memory of {host} at that time (agents, leftovers of earlier jobs, file systems in memory), and limit it.", None),),
        unharmed="benign", needs_effect=True, exhausted=True, surest=WRITTEN_SURE,
        doubt="Any user of the node can write such a line into its syslog",
        disproof="The job itself having taken most of the node's memory, or a user having written the guard's lines.",
    ),
)  # fmt: skip

#: earlyoom logs how much memory is left and what it does about it at once.
SAME_ALARM_S = 10.0

#: systemd-oomd kills whole control groups; slurmstepd's have the job's number.
_OOMD = re.compile(r"^Killed (?P<group>/\S+) due to memory (?:used|pressure)\b")
_GROUP_OF_JOB = re.compile(r"/job_(\d{1,10})(?:/|$)")


def guard_kills(world: World) -> list[Fact]:
    """``memory.guard``: each kill that a guard logged, with what is known about the memory at that moment."""
    lows = world.by_kind.get("sys.memory_low", [])
    found = [_by_earlyoom(event, lows) for event in world.kinds("sys.guard_kill") if event.host]
    for event in world.kinds("kernel.oom_kill"):
        match = _OOMD.search(event.message) if event.host and event.source == "syslog" else None
        job = _GROUP_OF_JOB.search(match["group"]) if match else None
        if match and job:
            attrs: GuardKill = {
                "guard": "systemd-oomd", "process": match["group"], "of_uid": None, "of_job": int(job[1]), "rss_mib": None, "used_mib": None,
            }  # fmt: skip
            found.append(_fact(event, attrs, (event,)))
    return found


def _by_earlyoom(kill: Event, lows: Sequence[Event]) -> Fact:
    near = [e for e in lows if e.host == kill.host and 0.0 <= kill.time - e.time <= SAME_ALARM_S]
    used = _used(near[-1]) if near else None
    attrs: GuardKill = {
        "guard": "earlyoom", "process": str(kill.entities.get("process") or "a process"), "of_uid": integer(kill.entities.get("uid")), "of_job": None,
        "rss_mib": number(kill.entities.get("rss_mib")), "used_mib": used,
    }  # fmt: skip
    return _fact(kill, attrs, (*near[-1:], kill))


def _fact(event: Event, attrs: GuardKill, events: tuple[Event, ...]) -> Fact:
    return GUARD_KILL.fact(event.time, None, event.sigma, event.host, attrs=attrs, events=events)


def _used(low: Event) -> float | None:
    total, left = number(low.entities.get("total_mib")), number(low.entities.get("avail_mib"))
    return total - left if total is not None and left is not None else None


#: slurmstepd logs the death of a task at once; the guard logs its kill before or after it.
DIES_WITHIN_S = 5.0


def kills_of(world: World, run: Run, deaths: Iterable[Event]) -> list[Fact]:
    """The guards' kills that ended tasks of a run, whose ``deaths`` its nodes' slurmstepd logged."""
    deaths = list(deaths)
    found = []
    for host in dict.fromkeys(run.nodes):
        kills = [f for f in world.facts_of(GUARD_KILL.name) if f.host == host]
        times = sorted(e.time for e in deaths if e.host == host)
        found += [f for f in kills if _is_of(f, run) and _any_within(times, f.start)]
    return sorted(found, key=lambda f: f.key)


def _is_of(kill: Fact, run: Run) -> bool:
    if kill.attrs[OF_JOB] is not None:
        return kill.attrs[OF_JOB] == run.job_id
    uid, own = kill.attrs[OF_UID], run.row.get("uid")
    return uid is not None and uid != 0 and (own is None or str(own) == str(uid))


def _any_within(times: Sequence[float], moment: float) -> bool:
    return bisect_right(times, moment + DIES_WITHIN_S) > bisect_left(times, moment - DIES_WITHIN_S)


#: A run that held this share of the memory in use, or more, used it up itself.
MOST = 0.5


def held_by(kill: Fact, tasks: int) -> float | None:
    """The share of the used memory that a run of this many tasks on the node held at most; None if that is not known.

    A guard kills the largest process, so no other task held more.
    """
    rss, used = kill.attrs[RSS_MIB], kill.attrs[USED_MIB]
    return None if rss is None or not used else min(1.0, rss * max(1, tasks) / used)


def says(kill: Fact) -> str:
    """What the guard did, in a few words."""
    return f"{kill.attrs[GUARD]} of {kill.host} killed {kill.attrs[PROCESS]}, as the node's memory was used up"


KINDS = (GUARD_KILL,)
DETECTORS = [guard_kills]
