"""Which events count for nothing, because others than their program can have written them, and why.

* The kernel's other lines or another file show that a line is not the kernel's (kernel_lines.py, kernel_copies.py).
* Nothing shows who sent it (``SENT``).
* It stands in a file that does not show its writer (``SHARED``, or in the kernel's name), and a user's job was on its
  host: its user could have written it to blame the node, or to excuse a failure. If nobody else's job was there, it
  counts if others confirm it (confirmed.py), and what many hosts say alike of their shared storage counts if no user was on
  all of them (corroborated.py). Otherwise verdicts/judge.py leaves open whether it is true.
* It is the kernel's, but about a device that a user can have made (own_devices.py). It counts as the one before does.
* It stands only in files of other hosts (a log host's), or this machine's own log daemon passed it on: whoever was on its
  host, anybody who reaches these can have sent it in its name. Relays are trusted, since the site names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple, Protocol

from correlator.gather.confirmed import Confirmed
from correlator.gather.corroborated import corroborated, is_shared
from correlator.gather.kernel_lines import BARE, REFUTED, SENT, SHARED, STAMPED
from correlator.gather.own_devices import OWN_DEVICE, is_of_own_device
from correlator.gather.presence import SOMEBODY, WhoExactly, WhoWasThere
from correlator.model.kinds import REPORTED_WITHIN_S
from correlator.model.nouns import Event
from correlator.site.open_lines import is_closed, is_log_hosts_own
from correlator.site.senders import Senders

REFUTED_WHY = "it carries no uptime, and earlier lines of this kernel carry one"
SENT_WHY = "anybody can have sent it, and nothing shows that it came from that host"
OPEN_WHY = "the file does not show who wrote it, and {whose} on {host}"
DEVICE_WHY = (
    "the kernel writes the same about a device that a user made in a namespace of their own, and {whose} on {host}"
)
REMOTE_WHY = "only another host has it, and anybody can have sent it there in the name of {host}"
LOG_HOST_WHY = "{host} keeps lines of other hosts in the same file, and anybody can have sent it there in its name"
#: For such a line, of which it is seldom asked.
OPEN, OPEN_DEVICE = "open", "open device"
HOSTLESS_WHY = "the file does not show who wrote it, and it names no host"
#: A clock is not further off: munge rejects such a host, and zones are at least half an hour apart (seconds).
OFF_AT_MOST_S = 400.0
#: What speaks against lines that do not count, whoever was on their host.
NEVER = frozenset({REFUTED, SENT})
#: What speaks against a line only because users of its host can have caused it.
OPEN_TO_USERS = frozenset({SHARED, OWN_DEVICE})
#: What speaks against a line of a file only because users can write to the file.
_OF_FILES = frozenset({SHARED, STAMPED, BARE})


def believed(doubtful: Iterable[Event], doubted: Mapping[str, str], senders: Senders) -> set[str]:
    """The ids of the events that are their program's, because the site says that no user can write where they stand."""
    return {e.id for e in doubtful if doubted[e.id] in _OF_FILES and is_closed(e, senders) and not is_of_own_device(e)}


class Uncounted(NamedTuple):
    """Why an event does not count, in words. ``users``: those who can have written it, where that is why."""

    why: str
    users: frozenset[str] = frozenset()


class Hosts(Protocol):
    """What is known about hosts at a moment, or about then."""

    @property
    def confirmed(self) -> Confirmed: ...

    def is_remote(self, event: Event) -> bool:
        """Can users of other hosts have sent it in the name of its host?"""
        ...

    def is_used(self, host: str, time: float) -> bool:
        """Had any user a run there?"""
        ...

    def users_at(self, host: str, time: float) -> frozenset[str]:
        """The users who had."""
        ...


def reasons(
    doubtful: Iterable[Event], doubted: Mapping[str, str], words: Mapping[str, str], hosts: Hosts
) -> dict[str, str]:
    """Why some of the events that are ``doubted`` do not count, by their ids: in words, or ``OPEN`` or ``OPEN_DEVICE``
    (``explained``). ``words``: what other files show against some."""
    found: dict[str, str] = {}
    confirmed = hosts.confirmed
    asked: list[Event] = []
    for event in doubtful:
        how = doubted[event.id]
        if event.id in words:
            found[event.id] = words[event.id]
        elif how == REFUTED:
            found[event.id] = REFUTED_WHY
        elif how == SENT:
            found[event.id] = SENT_WHY
        elif event.host is None:
            found[event.id] = HOSTLESS_WHY
        elif (_is_used_at(event, event.host, hosts) or hosts.is_remote(event)) and not (
            event.host in confirmed.hosts and _is_confirmed(event, hosts)
        ):
            found[event.id] = OPEN_DEVICE if how == OWN_DEVICE else OPEN
            if is_shared(event) and not hosts.is_remote(event):
                asked.append(event)
    for name in corroborated(asked, lambda event: _users_at(event, hosts)):
        del found[name]
    return found


def _is_confirmed(event: Event, hosts: Hosts) -> bool:
    if hosts.confirmed.measured(event):
        return True
    if not hosts.confirmed.followed(event) or hosts.is_remote(event):
        return False
    return len(_users_at(event, hosts)) == 1


def _moments(event: Event) -> tuple[float, ...]:
    """When a line may have been written: a user's line in the name of a host may carry the right time, though that host's
    clock is off, and others' lines were moved by that."""
    if not event.clock_offset:  # nearly all of very many
        return (event.time,)
    moved = abs(event.written_at - event.time)
    return (event.time, event.written_at) if 0.0 < moved <= OFF_AT_MOST_S else (event.time,)


def _is_used_at(event: Event, host: str, hosts: Hosts) -> bool:
    if not event.clock_offset:
        return hosts.is_used(host, event.time)
    return any(hosts.is_used(host, t) for t in _moments(event))


def _users_at(event: Event, hosts: Hosts) -> frozenset[str]:
    host = event.host or ""
    if not event.clock_offset:
        return hosts.users_at(host, event.time)
    return frozenset().union(*(hosts.users_at(host, t) for t in _moments(event)))


def explained(event: Event, reason: str, hosts: Hosts) -> Uncounted:
    """The reason for people, of an event of a host."""
    if reason not in (OPEN, OPEN_DEVICE) or event.host is None:
        return Uncounted(reason)
    there = _users_at(event, hosts)
    users = there | {SOMEBODY} if hosts.is_remote(event) else there
    if not there:
        why = LOG_HOST_WHY if is_log_hosts_own(event) else REMOTE_WHY
        return Uncounted(why.format(host=event.host), users)
    whose = "jobs of several users were" if len(there) > 1 else "a user's job was"
    why = DEVICE_WHY if reason == OPEN_DEVICE else OPEN_WHY
    return Uncounted(why.format(host=event.host, whose=whose), users)


def questions(open_to_users: Iterable[Event]) -> list[WhoWasThere]:
    """Which users were there when these events were written: if later rows change that, an event counts or no longer
    does, which changes conclusions from ``REPORTED_WITHIN_S`` before it on."""
    hosted = [event for event in open_to_users if event.host]
    moments = [(event.time, event.host or "") for event in hosted]
    moments += [(t, event.host or "") for event in hosted if event.clock_offset for t in _moments(event)]
    moments.sort()
    shared = sorted({(t, event.host or "") for event in hosted if is_shared(event) for t in _moments(event)})
    found = WhoWasThere.of([moment for moment, _ in groupby(moments)], REPORTED_WITHIN_S)
    return [*found, *WhoExactly.of(shared, REPORTED_WITHIN_S)]
