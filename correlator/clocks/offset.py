"""By how much one clock was off, and of which stamps that holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Offset:
    """``host``'s clock minus true time was ``seconds`` while it showed ``start`` to ``end`` (its own, wrong time). Of a ``zone``
    it is that by which its stamps are in another one than they are taken for; of all its stamps, or of those that name none
    (``inferred``), and ``of`` all its lines, those of "slurm" (slurmd and its steps), or of its "system"."""

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
        """Does it hold of a stamp? ``inferred``: it names no zone; ``slurm``: it is slurmd's."""
        ours = not self.of or (self.of == "slurm") == slurm
        return ours and self.start <= time <= self.end and (inferred or not self.inferred)
