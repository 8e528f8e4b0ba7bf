"""Which users had runs on a host at a moment: each of them could have written a line there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from math import inf, nextafter
from sys import intern
from typing import ClassVar, NamedTuple, Self

from correlator.model.nouns import Run

#: A run may have begun this much later, or ended this much earlier, than recorded (seconds): clocks differ, and
#: programs outlive their run.
MARGIN_S = 60.0
#: The user of a run of which nothing tells the user.
SOMEBODY = "?"


def user_of(run: Run) -> str | None:
    """The user of a run who could write lines; None for root, who needs no job to do that."""
    user = str(run.row.get("user") or SOMEBODY)
    return None if user == "root" else user


class Stay(NamedTuple):
    """How long the user of a run could write lines on its nodes (epoch seconds)."""

    since: float
    until: float
    user: str


def stay_of(run: Run) -> Stay | None:
    """The stay of a run's user; None if it did not begin, and for root."""
    user = user_of(run)
    if user is None or run.start is None:
        return None
    return Stay(run.start - MARGIN_S, inf if run.end is None else run.end + MARGIN_S, user)


class Presence:
    """Which users were on one host at any moment, by their ``stays`` there."""

    def __init__(self, stays: Iterable[Stay]) -> None:
        stays = list(stays)
        changes = [(stay.since, 1, stay.user) for stay in stays]
        changes += [(nextafter(stay.until, inf), -1, stay.user) for stay in stays if stay.until < inf]
        changes.sort()
        #: From each moment to the next, these users were there.
        self._from: list[float] = []
        self._users: list[frozenset[str]] = []
        there: Counter[str] = Counter()
        for moment, by, user in changes:
            there[user] += by
            users = frozenset(name for name, runs in there.items() if runs > 0)
            if self._from and self._from[-1] == moment:
                self._users[-1] = users
            else:
                self._from.append(moment)
                self._users.append(users)

    def at(self, time: float) -> frozenset[str]:
        """The users at about a moment."""
        place = bisect_right(self._from, time)
        return self._users[place - 1] if place else frozenset()


class WhoWasThere:
    """The questions whether nobody, one user or several had runs on some hosts at some moments: one object for very many
    lines.

    ``moments`` are (time, host), in order. The answer for one may change the conclusions about effects from ``ahead``
    seconds before it on; ``at`` is the first of those.
    """

    __slots__ = ("_hosts", "_times", "ahead", "at", "hosts")
    #: Logs of other hosts count for nothing here.
    unlogged: ClassVar[frozenset[str]] = frozenset()
    #: Does it count who was there, and not only how many?
    exact: ClassVar[bool] = False

    def __init__(self, times: Sequence[float], names: Sequence[str], ahead: float, hosts: frozenset[str]) -> None:
        self._times, self._hosts, self.ahead, self.hosts = times, names, ahead, hosts
        self.at = times[0] - ahead

    @classmethod
    def of(cls, moments: Collection[tuple[float, str]], ahead: float) -> list[Self]:
        """One if there are any ``moments``, none otherwise."""
        if not moments:
            return []
        times, names = zip(*sorted(moments), strict=True)
        names = tuple(map(intern, names))  # few hosts, and questions are kept for long
        return [cls(times, names, ahead, frozenset(names))]

    def between(self, low: float, high: float) -> list[Self]:
        """The questions about effects from ``low`` to before ``high``."""
        first, end = bisect_left(self._times, low + self.ahead), bisect_left(self._times, high + self.ahead)
        if first == 0 and end == len(self._times):
            return [self]
        if first >= end:
            return []
        left = self._hosts[first:end]
        # ``hosts`` may name up to twice as many as are left: a set of all would take every tick its time.
        hosts = self.hosts if 2 * len(left) > len(self.hosts) else frozenset(left)
        return [type(self)(self._times[first:end], left, self.ahead, hosts)]

    def sees(self, run: Run | None) -> tuple[tuple[float, str, str], ...]:
        """The properties of a run that count here; runs with equal properties are equivalent."""
        if run is None or run.start is None or self.hosts.isdisjoint(run.nodes):
            return ()
        user = user_of(run)
        if user is None:
            return ()
        low = bisect_left(self._times, run.start - MARGIN_S)
        high = len(self._times) if run.end is None else bisect_right(self._times, run.end + MARGIN_S)
        nodes = frozenset(run.nodes)
        seen = zip(self._times[low:high], self._hosts[low:high], strict=True)
        return tuple((time, host, user) for time, host in seen if host in nodes)


class WhoExactly(WhoWasThere):
    """The questions which users had runs on some hosts at some moments."""

    __slots__ = ()
    exact: ClassVar[bool] = True


def changed_answers(
    looks: Iterable[WhoWasThere],
    changed: Collection[tuple[Run | None, Run | None]],
    before: Iterable[Run],
    after: Iterable[Run],
    elsewhere: Callable[[float], Iterable[Run]],
) -> list[float]:
    """The effects of the questions whose answers differ ``after`` from those ``before``. ``changed``: the runs that do,
    as they were and are; ``elsewhere`` returns the runs that are in neither and ended after a moment."""
    touched = {node for pair in changed for run in pair if run is not None for node in run.nodes}
    asked: dict[tuple[float, str], float] = {}
    exactly: set[tuple[float, str]] = set()
    for look in looks:
        if touched.isdisjoint(look.hosts):
            continue
        for one, other in changed:
            for time, host, _ in set(look.sees(one)) ^ set(look.sees(other)):
                asked[time, host] = min(time - look.ahead, asked.get((time, host), inf))
                if look.exact:
                    exactly.add((time, host))
    if not asked:
        return []
    hosts = {host for _, host in asked}
    others = list(elsewhere(min(time for time, _ in asked) - MARGIN_S))
    then, now = (_by_host(hosts, chain(others, runs)) for runs in (before, after))
    found = []
    for (time, host), at in asked.items():
        was, is_now = then[host].at(time), now[host].at(time)
        # Mostly it counts only whether there was nobody, one user or several.
        if was != is_now if (time, host) in exactly else min(len(was), 2) != min(len(is_now), 2):
            found.append(at)
    return found


def _by_host(hosts: set[str], runs: Iterable[Run]) -> dict[str, Presence]:
    found: defaultdict[str, list[Stay]] = defaultdict(list)
    for run in runs:
        if (there := hosts.intersection(run.nodes)) and (stay := stay_of(run)):
            for host in there:
                found[host].append(stay)
    return {host: Presence(found[host]) for host in hosts}


def user_there_between(run: Run, host: str, since: float, until: float) -> str | None:
    """The user of a run that had a host at any moment between two, or about then.

    None if the run did not have the host, if its user is unknown, and for root, who needs no job to write there.
    """
    begun = run.start
    if begun is None or host not in run.nodes or begun > until + MARGIN_S:
        return None
    user = user_of(run)
    return user if user != SOMEBODY and run.covers(max(begun, since), MARGIN_S) else None
