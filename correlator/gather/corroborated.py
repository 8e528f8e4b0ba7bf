"""Lines of shared storage that many hosts wrote alike in one moment, though users were on each of them.

Any user of a host can write such a line there, and nowhere else: not in the name of hosts where none of that user's jobs was. So the
lines count if, whichever user is left out of account, three further hosts say the same at that time. No user alone can make that.
Lines that anybody can have sent in a host's name show nothing. Hosts that somebody was on of whom nothing is known count for nobody.
"""

from __future__ import annotations

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
    there = [users(event) for event in events]
    near = _Near()
    first = end = 0
    for event in events:
        while end < len(events) and events[end].time <= event.time + SAME_S:
            near.count(events[end].host or "", there[end], 1)
            end += 1
        while events[first].time < event.time - SAME_S:
            near.count(events[first].host or "", there[first], -1)
            first += 1
        if near.is_enough():
            yield event


class _Near:
    """Which users were on the hosts of the lines of a moment: very many lines, of one moment after the other."""

    def __init__(self) -> None:
        #: By host, how many of its lines each user could have written.
        self._lines: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: On how many hosts each user was; hosts that somebody was on of whom nothing is known are none.
        self._hosts: Counter[str] = Counter()
        self._known = 0
        self._enough: bool | None = False

    def count(self, host: str, users: frozenset[str], by: int) -> None:
        """Counts a line of a host (``by`` 1) or no longer (-1)."""
        lines = self._lines[host]
        if (by > 0 and users <= lines.keys()) or (by < 0 and all(lines[user] > 1 for user in users)):
            for user in users:
                lines[user] += by
            return
        self._weigh(lines, -1)
        for user in users:
            lines[user] += by
            if not lines[user]:
                del lines[user]
        self._weigh(lines, 1)
        self._enough = None

    def _weigh(self, lines: Counter[str], by: int) -> None:
        if lines and SOMEBODY not in lines:
            self._known += by
            for user in lines:
                self._hosts[user] += by

    def is_enough(self) -> bool:
        """Do three hosts remain without those that any one user was on?"""
        if self._enough is None:
            self._enough = self._known - max(self._hosts.values(), default=0) >= HOSTS
        return self._enough


def _moment(event: Event) -> tuple[float, str]:
    return event.time, event.id
