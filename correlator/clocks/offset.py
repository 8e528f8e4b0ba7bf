"""The offset of one clock, and the timestamps to which it applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Offset:
    """``host``'s clock was ``seconds`` ahead of true time while it showed ``start`` to ``end`` (its own, wrong time).

    With ``zone``, the offset is between the assumed time zone and the real one. It applies to all timestamps or only to
    those that name no zone (``inferred``), and to all lines, those of "slurm" (slurmd and its steps), or those of the
    "system" (``of``).
    """

    host: str
    start: float
    end: float
    seconds: float
    sigma: float
    why: str
    zone: bool = False
    inferred: bool = False
    of: str = ""

    def holds(self, time: float, inferred: bool, slurm: bool) -> bool:
        """Does it apply to a timestamp? ``inferred``: it names no zone; ``slurm``: it is slurmd's."""
        ours = not self.of or (self.of == "slurm") == slurm
        return ours and self.start <= time <= self.end and (inferred or not self.inferred)


def clock_ahead(found: Iterable[Offset], time: float) -> float:
    """How far a clock was ahead that showed ``time``, seconds; 0 if it was right. ``found``: the offsets of its host.

    For times that have no zone of their own: those of zones do not apply.
    """
    return next((o.seconds for o in found if not o.zone and o.start <= time <= o.end), 0.0)


def still_ahead(found: Iterable[Offset], since: Mapping[str, float]) -> dict[str, float]:
    """By host, how far its timestamps were ahead when it showed the moment of ``since`` or later, zones included.

    The last offset counts: it holds on for lines that have not come yet.
    """
    return {o.host: o.seconds for o in found if o.host in since and o.end >= since[o.host]}
