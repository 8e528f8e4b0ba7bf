"""The offset of one clock, and the timestamps to which it applies."""

from __future__ import annotations

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
