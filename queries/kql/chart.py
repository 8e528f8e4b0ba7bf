"""What `render` asks to have drawn of an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Chart:
    """The chart of a query: columns by name, and the other properties of ``with (...)`` as written."""

    kind: str
    x: str
    y: tuple[str, ...]
    series: tuple[str, ...]
    properties: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For the API: ``visualization``, ``x``, ``y``, ``series``, and the properties by their names."""
        return {
            **self.properties,
            "visualization": self.kind,
            "x": self.x,
            "y": list(self.y),
            "series": list(self.series),
        }
