"""Which users had runs on a host at a moment: each of them could have written a line there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from correlator.model.nouns import Run

#: A run may have begun this much later, or ended this much earlier, than recorded (seconds): clocks differ, and
#: programs outlive their run.
MARGIN_S = 60.0
#: No user of whom a line could be: root needs no job to write one.
NO_USERS = frozenset({None, "", "root"})


@dataclass(frozen=True)
class Presence:
    """The question who had runs on ``host`` at ``time``, asked for an effect ``at``.

    If later rows change the answer, the conclusions about the effect may change.
    """

    at: float
    host: str
    time: float
    #: Logs of other hosts count for nothing here.
    unlogged: ClassVar[frozenset[str]] = frozenset()

    def sees(self, run: Run | None) -> tuple[object, ...]:
        """The properties of a run that count here; runs with equal properties are equivalent."""
        user = None if run is None else user_there(run, self.host, self.time)
        return () if user is None else (user,)


@dataclass(frozen=True, eq=False)
class Crowds:
    """The questions whether more than one user had runs on a host at a moment, for very many lines in one object.

    ``moments``: by host, in order. The answer for a moment may change the conclusions about effects from ``ahead`` seconds
    before it on; ``at`` is the first of those. ``last`` is the last moment.
    """

    moments: Mapping[str, Sequence[float]]
    ahead: float
    at: float
    last: float
    #: Logs of other hosts count for nothing here.
    unlogged: ClassVar[frozenset[str]] = frozenset()

    @staticmethod
    def of(moments: Mapping[str, Sequence[float]], ahead: float) -> list[Crowds]:
        """One if there are any moments, none otherwise."""
        if not moments:
            return []
        first, last = min(some[0] for some in moments.values()), max(some[-1] for some in moments.values())
        return [Crowds(moments, ahead, first - ahead, last)]

    def between(self, low: float, high: float) -> list[Crowds]:
        """The questions about effects from ``low`` to before ``high``."""
        first, end = low + self.ahead, high + self.ahead
        cut = {host: some[bisect_left(some, first) : bisect_left(some, end)] for host, some in self.moments.items()}
        return Crowds.of({host: some for host, some in cut.items() if some}, self.ahead)

    def sees(self, run: Run | None) -> tuple[tuple[str, float, str], ...]:
        """The properties of a run that count here; runs with equal properties are equivalent."""
        if run is None:
            return ()
        seen = ((host, time, user_there(run, host, time)) for host in run.nodes for time in self.moments.get(host, ()))
        return tuple((host, time, user) for host, time, user in seen if user is not None)


def user_there(run: Run, host: str, time: float) -> str | None:
    """The user of a run that had a host at about ``time``.

    None if the run did not have the host, if its user is unknown, and for root, who needs no job to write there.
    """
    if host not in run.nodes or not run.covers(time, MARGIN_S):
        return None
    user = run.row.get("user")
    return None if user in NO_USERS else str(user)


def user_there_between(run: Run, host: str, since: float, until: float) -> str | None:
    """The same for any moment between two."""
    begun = run.start
    if begun is None or host not in run.nodes or begun > until + MARGIN_S:
        return None
    return user_there(run, host, max(begun, since))


def users_there(runs: Iterable[Run], host: str, time: float) -> frozenset[str]:
    """The users of those of some runs that had a host at about ``time``."""
    return frozenset(user for run in runs if (user := user_there(run, host, time)) is not None)
