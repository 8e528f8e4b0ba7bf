"""Advice to drain, in shadow: which nodes the repair list would have had drained, and what became of them.

The list is made again for each moment of the past at which a device had reported something new, from the events up to
then. A node for which it says "now" and gives Slurm's command to drain is advice; then the ledger of drains
(``store.tables.DRAINS``) and the runs say whether somebody drained the node, and whether it ended a job first. Nothing
is done to any node.

What was concluded later is used in one respect: to which incident an event belongs, and that incident's root. Runs
count as hurt only once they had ended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from correlator.model.moments import moment_of, seconds_of
from correlator.model.nouns import Event
from correlator.repairs.model import Repair, Rows
from correlator.repairs.remedies import is_drain
from correlator.repairs.repairs import DAYS, Fleet, Noted, events_by_cluster, listed, noted
from correlator.repairs.undone_drains import UndoneDrains, hold, undone_drains
from parsers.moments import later
from store import node_names
from store.questions import out_of_service, repair_list

#: A drain within this time after the advice agrees with it.
HORIZON = timedelta(hours=6)
#: A run that ends so shortly before its node is taken out of service ended by that: accounting has whole seconds.
TOGETHER = timedelta(seconds=5)
#: Advice that is not repeated for this long is over; then the same node can be advised about again.
OVER = timedelta(hours=24)
#: The list is made at most so often; a long period is looked at in longer steps (minutes).
MOST_LOOKS = 300
STEPS_MIN = (5, 10, 30, 60, 180, 360, 720, 1440, 4320, 10080)

#: (host, device) -> (end, key) of runs.
_Deaths = defaultdict[tuple[str, str | None], list[tuple[datetime, str]]]


@dataclass(frozen=True)
class Advice:
    """A node that would have been drained ``at`` a moment, because of ``device`` (naive UTC).

    ``drained``: when it was taken out of service within ``HORIZON``, ``by`` whom: "people", the program that the reason
    names ("nhc", "slurm"), or "unknown"; ``actor`` and ``reason`` are the ledger's. ``killed``: the runs that an incident
    of the device ended from then on, before the node was drained or within ``HORIZON``.
    """

    cluster: str | None
    host: str
    node: str
    device: str
    at: datetime
    action: str
    drained: datetime | None = None
    by: str | None = None
    actor: str | None = None
    reason: str | None = None
    killed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Held:
    """A node that was not advised about again ``at`` a moment (naive UTC), because somebody had given it back (``why``) and its
    ``device`` had reported no fault since."""

    cluster: str | None
    host: str
    node: str
    device: str
    at: datetime
    why: str


@dataclass(frozen=True)
class Shadow:
    """The advice from ``since`` to ``until`` (naive UTC; None: nothing is stored), the newest first. ``step_min``: how
    far apart, in minutes, two looks at the list may be."""

    since: datetime | None
    until: datetime | None
    step_min: int
    advice: list[Advice]
    held: tuple[Held, ...] = ()

    @property
    def by_people(self) -> int:
        return sum(one.by == "people" for one in self.advice)

    @property
    def by_others(self) -> int:
        return sum(one.drained is not None and one.by != "people" for one in self.advice)

    @property
    def killed_first(self) -> int:
        return sum(bool(one.killed) for one in self.advice)


def shadow(store: Rows, since: datetime | None = None, until: datetime | None = None) -> Shadow:
    """The advice of a period. Without ``since`` it covers the last ``DAYS`` before ``until``, which defaults to the last
    stored event."""
    last = store.ask(repair_list.last_event())[0]["dated"]
    if last is None:
        return Shadow(since, until, STEPS_MIN[0], [])
    end = until or later(last, timedelta(microseconds=1))
    begin = since if since is not None else later(end, -timedelta(days=DAYS))
    found: list[Advice] = []
    held: list[Held] = []
    step = STEPS_MIN[0]
    nodes = node_names.NodeNames(store)
    ledger = _ledger(store)
    undone = undone_drains(row for rows in ledger.values() for row in rows)
    for cluster, pairs in sorted(
        events_by_cluster(store, later(begin, -timedelta(days=DAYS)), end).items(), key=lambda c: c[0] or ""
    ):
        known = {row["host"] for row in store.ask(repair_list.hosts_of_slurm(cluster))}
        moments, cluster_step = _moments([e for e, _ in pairs], begin, min(end, last))
        step = max(step, cluster_step)
        past = _Past(store, cluster, pairs, undone)
        made = list(_advised(past, begin, moments, known, ledger))
        deaths = _deaths(store, cluster)
        found += [_outcome(one, ledger, deaths, nodes.of(one.host, cluster)) for one in made if isinstance(one, Advice)]
        held += [replace(one, node=nodes.of(one.host, cluster)) for one in made if isinstance(one, Held)]
    return Shadow(
        begin, end, step, sorted(found, key=_order, reverse=True), tuple(sorted(held, key=_order, reverse=True))
    )


def _order(one: Advice | Held) -> tuple[datetime, str, str]:
    return one.at, one.node, one.device


class _Past:
    """The repair list of one cluster as it was at a moment."""

    def __init__(
        self, store: Rows, cluster: str | None, pairs: Sequence[tuple[Event, str | None]], undone: UndoneDrains
    ) -> None:
        self.cluster, self._pairs, self._undone = cluster, pairs, undone
        self._times = [event.time for event, _ in pairs]
        self._fleet = Fleet(store, cluster)
        self._noted = noted(store, cluster, {i for _, i in pairs if i})
        keys = {key for one in self._noted.values() for key in (*one.ended, *one.slowed)}
        self._ends = {row["run_key"]: row["end"] for row in store.ask(repair_list.ends(cluster, keys))} if keys else {}

    def repairs(self, moment: datetime) -> list[Repair]:
        since, until = later(moment, -timedelta(days=DAYS)), seconds_of(moment) or 0.0
        first = bisect_left(self._times, (seconds_of(since) or 0.0) - 86400.0)  # an outage may have begun before
        found = listed(
            self._pairs[first : bisect_right(self._times, until)], self._fleet, self._as_of(moment), since, moment
        )
        for repair in found:
            hold(repair, self._undone, moment)
        return found

    def _as_of(self, moment: datetime) -> Mapping[str, Noted]:
        """What incidents show, with the runs that had ended by then."""
        return {name: replace(one, ended=self._over(one.ended, moment), slowed=self._over(one.slowed, moment))
                for name, one in self._noted.items()}  # fmt: skip

    def _over(self, keys: Iterable[str], moment: datetime) -> tuple[str, ...]:
        return tuple(key for key in keys if (end := self._ends.get(key)) is not None and end <= moment)


def _moments(events: Sequence[Event], begin: datetime, end: datetime) -> tuple[list[datetime], int]:
    """The moments at which the list may have changed, and the step (minutes) that they are rounded up to."""
    first, last = seconds_of(begin) or 0.0, seconds_of(end) or 0.0
    times = [e.time for e in events if first <= e.time <= last]
    for step in STEPS_MIN:
        size = 60.0 * step
        # An outage counts as lasting a while after it began: one more look after the last line.
        looks = sorted({(t // size + n) * size for t in times for n in (1, 2)})
        if len(looks) <= MOST_LOOKS:
            break
    return [moment for t in looks if (moment := moment_of(t)) is not None], step


def _advised(
    past: _Past, begin: datetime, moments: Iterable[datetime], known: set[str], ledger: Mapping[Any, list[Any]]
) -> Iterator[Advice | Held]:
    """Advice at each moment, once while it lasts: none about a node that is out of service already, and none that stood
    when the period began. Once for each drain that somebody ended: that it is not repeated."""
    standing: dict[str, datetime] = {}
    held: set[tuple[str, str]] = set()
    for moment in (begin, *moments):
        for repair in past.repairs(moment):
            host = repair.host
            if repair.urgency != "now" or not (is_drain(repair) or repair.held) or host not in known:
                continue
            if any(
                row["begin"] <= moment and (row["end"] is None or row["end"] > moment)
                for row in ledger[past.cluster, host]
            ):
                standing.pop(host, None)
                continue
            if repair.held:
                if moment > begin and (host, repair.held) not in held:
                    yield Held(past.cluster, host, host, repair.device, moment, repair.held)
                held.add((host, repair.held))
                continue
            if moment > begin and (host not in standing or moment - standing[host] > OVER):
                yield Advice(past.cluster, host, host, repair.device, moment, repair.action)
            standing[host] = moment


def _ledger(store: Rows) -> defaultdict[tuple[str | None, str], list[dict[str, Any]]]:
    """Periods out of service by cluster and host, in order."""
    found: defaultdict[tuple[str | None, str], list[dict[str, Any]]] = defaultdict(list)
    for row in store.ask(out_of_service.everything()):
        found[row["cluster"], row["host"]].append(row)
    return found


def _deaths(store: Rows, cluster: str | None) -> _Deaths:
    """Runs that an incident ended, by the host and device where it is rooted."""
    found: _Deaths = defaultdict(list)
    for row in store.ask(repair_list.deaths(cluster)):
        found[row["host"], row["device"]].append((row["end"], row["run_key"]))
    return found


def _outcome(one: Advice, ledger: Mapping[Any, list[dict[str, Any]]], deaths: _Deaths, node: str) -> Advice:
    until = one.at + HORIZON
    drain = next((row for row in ledger[one.cluster, one.host] if one.at < row["begin"] <= until), None)
    before = until if drain is None else drain["begin"] - TOGETHER
    killed = tuple(key for end, key in sorted(deaths[one.host, one.device]) if one.at < end <= before)
    if drain is None:
        return replace(one, node=node, killed=killed)
    return replace(
        one,
        node=node,
        killed=killed,
        drained=drain["begin"],
        by=_by(drain),
        actor=drain["actor"],
        reason=drain["reason"],
    )


def _by(drain: Mapping[str, Any]) -> str:
    """Who drained it: people write their own words, programs have theirs; without a reason only the user tells."""
    if drain["owner"]:
        return "people" if drain["owner"] == "admin" else str(drain["owner"])
    actor = str(drain["actor"] or "")
    if actor == out_of_service.BY_ITSELF or actor.partition("(")[0] == "slurm":
        return "slurm"
    return "unknown" if actor in ("", out_of_service.UNNAMED) or actor.startswith("uid ") else "people"


__all__ = ["HORIZON", "Advice", "Held", "Shadow", "shadow"]
