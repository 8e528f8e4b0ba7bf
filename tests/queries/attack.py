"""One query that costs more than it seems to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Attack:
    """``quick``: also in the default run. ``body``: what is sent besides the query."""

    kind: str
    name: str
    kql: str
    quick: bool = False
    body: dict[str, Any] = field(default_factory=dict)
