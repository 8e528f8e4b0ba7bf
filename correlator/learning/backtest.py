"""The back-test: how a changed set of edges would have judged stored history.

Nothing is written. Both sides are concluded anew from the same rows, so a difference comes from the edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from correlator.conclusions import Conclusions
from correlator.engine import clusters_of, conclude_cluster, load_edges
from correlator.learning.stated import StatedCause, stated_cause
from parsers.moments import utc

if TYPE_CHECKING:
    from store.door import Door


@dataclass
class Difference:
    """What differs between two sets of edges. ``same`` counts verdicts on which both agree."""

    verdicts: dict[str, tuple[StatedCause, StatedCause]] = field(default_factory=dict)
    surer: dict[str, tuple[float, float]] = field(default_factory=dict)
    appeared: list[Mapping[str, Any]] = field(default_factory=list)
    vanished: list[Mapping[str, Any]] = field(default_factory=list)
    same: int = 0

    def __bool__(self) -> bool:
        return bool(self.verdicts or self.surer or self.appeared or self.vanished)


#: Confidences that differ by less than this are reported as the same.
NOTICEABLE = 0.01


def compare(
    before: Sequence[Conclusions],
    after: Sequence[Conclusions],
    since: datetime | None = None,
    until: datetime | None = None,
) -> Difference:
    """Verdicts on runs that ended in [since, until) and incidents that overlap it (naive UTC; None: no bound)."""
    found = Difference()
    for one, other in zip(before, after, strict=True):
        for key in sorted(one.verdicts.keys() | other.verdicts.keys()):
            old, new = one.verdicts.get(key), other.verdicts.get(key)
            if old is None or new is None or not _inside(old["end"], old["end"], since, until):
                continue
            was, now = stated_cause(old), stated_cause(new)
            if (was.category, was.event, was.host, was.device) != (now.category, now.event, now.host, now.device):
                found.verdicts[key] = (was, now)
            elif abs(was.confidence - now.confidence) >= NOTICEABLE:
                found.surer[key] = (was.confidence, now.confidence)
            else:
                found.same += 1
        old_ids, new_ids = (
            {i["id"]: i for i in c.incidents if _inside(i["start"], i["end"], since, until)} for c in (one, other)
        )
        found.appeared += [i for name, i in new_ids.items() if name not in old_ids]
        found.vanished += [i for name, i in old_ids.items() if name not in new_ids]
    return found


def _inside(start: str | None, end: str | None, since: datetime | None, until: datetime | None) -> bool:
    if start is None or end is None:
        return since is None and until is None
    first, last = (utc(datetime.fromisoformat(t)) for t in (start, end))
    return (until is None or first < until) and (since is None or last >= since)


def replay(
    store: Door, changed: Sequence[Path], *, edge_paths: Sequence[Path] = (), settings: Mapping[str, object] | None = None,
    since: datetime | None = None, until: datetime | None = None,
) -> Difference:  # fmt: skip
    """Today's edges (built in and ``edge_paths``) against those with the files ``changed`` on top.

    Raises ``ValueError`` that names what is wrong in a file.
    """
    today, proposed = load_edges(edge_paths), load_edges([*edge_paths, *changed])
    names = clusters_of(store)
    return compare([conclude_cluster(store, c, today, settings).result for c in names],
                   [conclude_cluster(store, c, proposed, settings).result for c in names], since, until)  # fmt: skip


def lines(found: Difference) -> list[str]:
    """The difference for a person, one line each."""
    rows = [f"verdict   {key}: {was} -> {now}" for key, (was, now) in found.verdicts.items()]
    rows += [f"surer     {key}: {was:.2f} -> {now:.2f}" if now > was else f"less sure {key}: {was:.2f} -> {now:.2f}"
             for key, (was, now) in found.surer.items()]  # fmt: skip
    rows += [f"appears   {i['id']} {i['severity']}: {i['title']}" for i in found.appeared]
    rows += [f"vanishes  {i['id']} {i['severity']}: {i['title']}" for i in found.vanished]
    rows.append(f"{found.same} verdicts stay as they are, {len(found.verdicts)} change, {len(found.surer)} only in confidence;"
                f" {len(found.appeared)} incidents appear, {len(found.vanished)} vanish")  # fmt: skip
    return rows
