"""Whose process a line names: a process is called what its owner calls it (``prctl``, a link, argv[0]).

The kernel's lines about a process that died (segfault, trap, out of memory) name it by these 15 letters. Such a line is a
daemon's only if it does not show another owner: a uid that is not the daemon's, a job's control group. Out of memory, the
kernel shows both in lines of the same moment. Where none shows an owner and a user's job was on the host, the daemon's own
words must agree: systemd reports its unit, its own log begins anew, or slurmctld gets no answer. A line of the daemon
itself, without a start between, shows that it lives.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from correlator.facts.nodes.kinds import FRESH_BOOT_S, NODE_REBOOT
from correlator.facts.world import World
from correlator.gather.confirmed import FOLLOWS_S
from correlator.model.nouns import Event
from parsers.documents.fields import integer

_DEATHS = ("kernel.segfault", "kernel.oom_kill")
#: It asked for memory; the lines after it name who was killed for it.
_ASKS = " invoked oom-killer"
#: systemd's words about a unit whose cgroup may hold jobs' processes as well (cgroup/v1, proctrack/linuxproc).
_SOME_PROCESS = "A process of this unit has been killed"
#: Control groups of jobs and of people's sessions.
_OF_USERS = re.compile(r"/(?:job_\d+|uid_\d+|user\.slice|user-\d+)(?:[/.]|$)")
#: The lines of one death are written at once; a daemon's last line may be stamped this much after its death.
_SAME_DEATH_S, _LAST_WORD_S = 2.0, 1.0
#: systemd reports the end of a unit's process within this: a core dump is written before.
_REPORTS_S = 60.0
_ROOT = 0
#: So many lines behind a death are looked through for a word of the daemon.
_MOST = 2_000
_TIME = attrgetter("time")


def is_death_of(world: World, event: Event, name: str, events: Sequence[Event]) -> bool:
    """Does a line show that the daemon ``name`` died? ``events``: those of its host, in order. The daemon runs as root, and
    writes lines with ``name`` for their source."""
    if event.kind not in _DEATHS or event.entities.get("process") != name or _ASKS in event.message:
        return False
    owner = _owner(event, events)
    return _agrees(world, event, name, events) if owner is None else owner == _ROOT


def is_units_death(world: World, event: Event, name: str, events: Sequence[Event]) -> bool:
    """Does systemd's line show that the service ``name`` failed?"""
    if not _names_unit(event, name):
        return False
    return _SOME_PROCESS not in event.message or _agrees(world, event, name, events)


def _names_unit(event: Event, name: str) -> bool:
    """Does a line tell of a failed unit of the daemon? A folder that could not be mounted may have any name."""
    text = event.message.lower()
    return event.kind == "sys.service_failed" and name in text and "mount" not in text


def _owner(event: Event, events: Sequence[Event]) -> int | None:
    """The uid of the process; -1 if it is somebody's whose uid is not shown, None if no line shows an owner."""
    process, pid = event.entities.get("process"), event.entities.get("pid")
    shown: list[int] = []
    for one in _within(events, event.time - _SAME_DEATH_S, event.time + _SAME_DEATH_S):
        if one.kind not in _DEATHS or _ASKS in one.message:
            continue
        of_it = one is event or (one.entities.get("process") == process and one.entities.get("pid") == pid)
        if not of_it:
            continue
        if one.job_id is not None or _OF_USERS.search(str(one.entities.get("cgroup") or "")):
            return -1
        if (uid := integer(one.entities.get("uid"))) is not None:
            shown.append(uid)
    return max(shown, default=None)


def _within(events: Sequence[Event], low: float, high: float) -> Sequence[Event]:
    return events[bisect_left(events, low, key=_TIME) : bisect_right(events, high, key=_TIME)]


def _agrees(world: World, event: Event, name: str, events: Sequence[Event]) -> bool:
    """Does what else is known of the daemon agree with its death? Where no user had a job, nothing need agree."""
    host, at = event.host or "", event.time
    after = bisect_right(events, at + _LAST_WORD_S, key=_TIME)
    # A process may die again and again: not all that follows is looked through each time.
    words = (e for e in events[after : after + _MOST] if e.source == name and not e.message.startswith("["))
    word = next(words, None)
    anew = word is not None and word.kind in ("slurm.daemon_start", "slurm.daemon_fatal")
    if word is not None and not anew:
        return False
    if not world.is_used(host, at):
        return True
    if any(
        _names_unit(e, name) and _SOME_PROCESS not in e.message
        for e in _within(events, at - _REPORTS_S, at + _REPORTS_S)
    ) or world.confirmed.followed(event):  # fmt: skip
        return True
    if word is None or word.time - at > FOLLOWS_S:
        return False
    # A machine that booted began its daemons anew.
    boots = (f for f in world.facts_of(NODE_REBOOT.name) if f.host == host)
    return not any(at <= (f.end or f.start) and abs((f.end or f.start) - word.time) <= FRESH_BOOT_S for f in boots)
