"""What the repair list consists of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol

from store.door import Answers


class Rows(Answers, Protocol):
    """The queries that the list needs from a store."""


@dataclass
class Repair:
    """One device. ``kind``: "link", or "gpu" for all that corrects errors by itself; its ``role`` is then "gpu" or, if no line says that
    it is a GPU, "pci".

    ``down_s`` excludes outages whose end was not seen; ``down``: it has not come back. ``expected`` is what an ordinary
    device of the same role has in the period, ``probability`` that of as many or more there (lemons.py), ``outlier``
    that chance does not explain it. ``node`` is the host's name in the whole store. ``planes`` are those that the host
    is cabled to, one of which is ``plane``. ``runs`` ran on the host meanwhile; ``ended`` are those it ended,
    ``slowed`` those it only slowed. ``held``: why the node is not to be drained, though the device would be reason enough.
    ``newest_fault``: when a link's last new fault was that rests on lines which no user can write; None without one.
    """

    kind: str
    cluster: str | None
    host: str
    device: str
    node: str = ""
    switch: str | None = None
    switch_port: str | None = None
    plane: str | None = None
    rail: str | None = None
    planes: int = 0
    role: str = "unknown"
    flaps: int = 0
    down_s: float = 0.0
    longest_s: float = 0.0
    down: bool = False
    together: int = 0
    errors: int = 0
    optics: int = 0
    first: datetime | None = None
    last: datetime | None = None
    newest_fault: datetime | None = None
    expected: float = 0.0
    probability: float = 1.0
    outlier: bool = False
    runs: int = 0
    slowed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    incidents: list[str] = field(default_factory=list)
    urgency: str = "watch"
    action: str = ""
    command: str | None = None
    held: str = ""

    def document(self) -> dict[str, Any]:
        """The repair as JSON; times are naive UTC."""
        return asdict(self)


@dataclass(frozen=True)
class RepairList:
    """The devices with faults from ``since`` to ``until`` (naive UTC; None: nothing is stored), the most urgent first."""

    since: datetime | None
    until: datetime | None
    repairs: list[Repair]
