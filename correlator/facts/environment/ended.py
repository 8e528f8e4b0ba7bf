"""Runs that ended by themselves, well or not, as arrays by time: what became of jobs here and elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from correlator.facts.environment.symptoms import Signature
from correlator.facts.gpu_holders import none_counted
from correlator.model.nouns import Run
from parsers.job_states import SUCCEEDED

Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: How runs end that tell whether their environment was whole; a cancelled run tells nothing.
CONCLUSIVE = SUCCEEDED | {"FAILED"}

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Failure:
    """A failed run with a signature. ``host``: the node where it failed, None if no line says which of several."""

    run: Run
    signature: Signature
    host: str | None

    @property
    def end(self) -> float:
        return self.run.end or 0.0

    @property
    def user(self) -> str:
        return str(self.run.row.get("user") or "")


def partition_of(run: Run) -> str:
    """The partition that a run was in; empty if it is not known."""
    return str(run.row.get("partition") or "")


class Ended:
    """All runs that ended COMPLETED or FAILED, in order of their end.

    ``failed_so`` maps keys of runs to the signature by which they failed.
    """

    def __init__(self, runs: Iterable[Run], failed_so: dict[str, tuple[str, str]]) -> None:
        self.runs: list[Run] = sorted(
            (r for r in runs if r.end is not None and r.state in CONCLUSIVE and r.row.get("user")),
            key=lambda r: (r.end or 0.0, r.key),
        )
        self.ends = np.array([r.end for r in self.runs], np.float64)
        self.starts = np.array([r.start if r.start is not None else r.end for r in self.runs], np.float64)
        self.well = np.array([r.state == "COMPLETED" for r in self.runs], np.bool_)
        numbers = {key: n for n, key in enumerate(sorted(set(failed_so.values())))}
        self.numbers = numbers
        self.failed_so = np.array(
            [numbers[failed_so[r.key]] if r.key in failed_so else -1 for r in self.runs], np.int64
        )
        users: defaultdict[str, list[int]] = defaultdict(list)
        hosts: defaultdict[str, list[int]] = defaultdict(list)
        for place, run in enumerate(self.runs):
            users[str(run.row["user"])].append(place)
            for node in run.nodes:
                hosts[node].append(place)
        self._counted = np.ones(len(self.runs), np.bool_)
        self._users = {user: np.array(places, np.int64) for user, places in users.items()}
        self._hosts = {host: np.array(places, np.int64) for host, places in hosts.items()}

    @cached_property
    def with_gpus(self) -> Self:
        """The same without the runs that had no GPU by accounting, which must count those of runs."""
        found = copy(self)
        found._counted = np.array([not none_counted(r) for r in self.runs], np.bool_)
        return found

    def well_in(self, partition: str) -> Self:
        """The same without the runs that ended well in other partitions: nodes there may differ in anything. What failed there counts."""
        found = copy(self)
        found._counted = self._counted & (
            ~self.well | np.array([partition_of(r) == partition for r in self.runs], np.bool_)
        )
        return found

    def on(self, hosts: Collection[str], low: float, high: float) -> Numbers:
        """Places in ``runs`` of those on any of some hosts that ended from ``low`` to ``high``."""
        return self._between(self._using(hosts), low, high)

    def of(self, user: str, low: float, high: float) -> Numbers:
        """The same for those of a user, wherever they ran."""
        return self._between(self._users.get(user, _NONE), low, high)

    def all(self, low: float, high: float) -> Numbers:
        first, behind = np.searchsorted(self.ends, [low, np.nextafter(high, np.inf)])
        return np.arange(first, behind)[self._counted[first:behind]]

    def elsewhere(self, places: Numbers, hosts: Collection[str]) -> Numbers:
        """Those of the places that used none of the hosts."""
        return places[~np.isin(places, self._using(hosts), assume_unique=True)]

    def _using(self, hosts: Collection[str]) -> Numbers:
        found = [self._hosts[host] for host in sorted(hosts) if host in self._hosts]
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found)) if found else _NONE

    def alike(self, places: Numbers, key: tuple[str, str]) -> int:
        """How many of these runs failed with a signature."""
        return int((self.failed_so[places] == self.numbers.get(key, -2)).sum())

    def users_of(self, places: Sequence[int] | Numbers) -> set[str]:
        return {str(self.runs[place].row["user"]) for place in places}

    def _between(self, places: Numbers, low: float, high: float) -> Numbers:
        ends = self.ends[places]
        found = places[np.searchsorted(ends, low) : np.searchsorted(ends, np.nextafter(high, np.inf))]
        return found[self._counted[found]]
