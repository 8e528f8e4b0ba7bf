"""Drains that somebody ended: whoever gives a node back has judged what spoke against it, so the same lines drain it no more.

Only a fault that is reported after that is new evidence, by lines that no user can write: anybody's would let a user lift the decision. A
node that Slurm itself put back into service was judged by nobody.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from correlator.repairs.model import Repair
from correlator.repairs.remedies import is_drain
from store.questions.out_of_service import BY_ITSELF, UNNAMED


@dataclass(frozen=True)
class Undone:
    """A drain that ended ``at`` a moment (naive UTC), by whom: "" if nothing names them."""

    at: datetime
    by: str

    def sentence(self) -> str:
        """That the node was given back, and what it would take to drain it again."""
        return f"resumed by {self.by or 'somebody'} at {self.at:%Y-%m-%d %H:%M} UTC; new evidence would be needed"


#: By cluster and host, in order of time.
UndoneDrains = Mapping[tuple[str | None, str], list[Undone]]


def undone_drains(ledger: Iterable[Mapping[str, Any]]) -> UndoneDrains:
    """From the ledger (``out_of_service.everything``). Periods that follow each other at once, of another state or reason, are one."""
    found: defaultdict[tuple[str | None, str], list[Undone]] = defaultdict(list)
    former: Mapping[str, Any] = {}
    drained = False
    for row in ledger:
        goes_on = former and _place(former) == _place(row) and former["end"] == row["begin"]
        if goes_on and found[_place(row)] and found[_place(row)][-1].at == row["begin"]:
            found[_place(row)].pop()
        drained = row["state"] == "drained" or bool(goes_on and drained)
        if drained and row["end"] is not None and row["undone_by"] != BY_ITSELF:
            by = str(row["undone_by"] or "")
            found[_place(row)].append(Undone(row["end"], "" if by == UNNAMED else by.partition("(")[0]))
        former = row
    return found


def _place(row: Mapping[str, Any]) -> tuple[str | None, str]:
    return row["cluster"], row["host"]


def hold(repair: Repair, undone: UndoneDrains, until: datetime | None = None) -> None:
    """Takes back the advice to drain a node that somebody gave back after the device's last fault, and says so. ``until``: as it
    was known then."""
    drains = undone.get((repair.cluster, repair.host), [])
    place = bisect_right(drains, until, key=lambda one: one.at) if until is not None else len(drains)
    if not place or not is_drain(repair):
        return
    if repair.newest_fault is not None and repair.newest_fault > drains[place - 1].at:
        return
    repair.held = drains[place - 1].sentence()
    repair.action += f" The node was {repair.held} to drain it again."
    repair.command = None


__all__ = ["Undone", "UndoneDrains", "hold", "undone_drains"]
