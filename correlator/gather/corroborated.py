"""Lines of shared storage that many hosts wrote alike in one moment, though users were on each of them.

Any user of a host can write such a line there, and nowhere else: not in the name of hosts where none of that user's jobs was. So the
lines count if, whichever user is left out of account, three further hosts say the same at that time. No user alone can make that.
Lines that anybody can have sent in a host's name show nothing. Hosts that somebody was on of whom nothing is known count for nobody.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from correlator.gather.presence import SOMEBODY
from correlator.model.nouns import Event

#: What the clients of one server say of it: all of them say the same.
_SHARED = frozenset({"storage.lustre_error", "storage.nfs_error", "storage.recovered"})
#: Clients notice a server that is gone at their next access (seconds before and after): most use it all the time.
SAME_S = 30.0
#: So many hosts must remain without any one user's.
HOSTS = 3

#: ``users(event)``: who had a run on its host when it was written, and could have written it.
UsersOf = Callable[[Event], frozenset[str]]


def is_shared(event: Event) -> bool:
    """Is it a line about something that all hosts share, so that others may confirm it?"""
    return event.kind in _SHARED and event.device is not None and event.host is not None


def corroborated(open_to_users: Iterable[Event], users: UsersOf) -> set[str]:
    """The ids of the events that no user alone can have made count. ``open_to_users``: those that users of their host alone can write."""
    groups: defaultdict[tuple[str, str, bool], list[Event]] = defaultdict(list)
    for event in open_to_users:
        if is_shared(event):
            groups[event.kind, event.device or "", "evict" in event.message.lower()].append(event)
    found: set[str] = set()
    for events in groups.values():
        if len({event.host for event in events}) >= HOSTS:  # few of very many groups
            found.update(event.id for event in _confirmed(sorted(events, key=_moment), users))
    return found


def _confirmed(events: list[Event], users: UsersOf) -> Iterator[Event]:
    """Those of one statement, in time order, that enough hosts confirm."""
    times = [event.time for event in events]
    there: dict[str, frozenset[str]] = {}
    first = last = -1
    enough = False
    for event in events:
        span = bisect_left(times, event.time - SAME_S), bisect_right(times, event.time + SAME_S)
        if span != (first, last):
            (first, last), enough = span, _is_enough(events[slice(*span)], users, there)
        if enough:
            yield event


def _is_enough(events: list[Event], users: UsersOf, there: dict[str, frozenset[str]]) -> bool:
    """Do three hosts remain without those that any one user was on? ``there``: what was asked before, by event."""
    by_host: dict[str, frozenset[str]] = {}
    for event in events:
        if event.id not in there:
            there[event.id] = users(event)
        host = event.host or ""
        by_host[host] = by_host.get(host, frozenset()) | there[event.id]
    known = [names for names in by_host.values() if SOMEBODY not in names]
    most = max(Counter(name for names in known for name in names).values(), default=0)
    return len(known) - most >= HOSTS


def _moment(event: Event) -> tuple[float, str]:
    return event.time, event.id
