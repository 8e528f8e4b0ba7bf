"""What the live engine holds of one cluster between two ticks: conclusions, what it remembers, and what the last tick changed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from correlator.conclusions import Conclusions
from correlator.incidents.incident import Incident
from correlator.live.lookup import Index
from correlator.model.nouns import Run

Document = dict[str, Any]


@dataclass(frozen=True)
class Touched:
    """What may differ from the conclusions before: the places of incidents that are new or say something else; by id, the
    incidents that are not among the documents any more, with what they were made from; the keys of runs whose verdict is
    new, another or gone. All other documents are the same objects."""

    incidents: list[int]
    gone: dict[str, tuple[Document, Incident]]
    verdicts: set[str]


@dataclass(frozen=True)
class Memory:
    """What the next tick builds on.

    ``settled_until``: up to which moment (RFC 3339) finality was decided; ``open_verdicts`` (keys of runs) and
    ``open_incidents`` (ids): what is not final or is new. ``index``: lookups over all that is known, kept up by each tick.
    """

    settled_until: str | None = None
    open_verdicts: frozenset[str] = frozenset()
    open_incidents: frozenset[str] = frozenset()
    index: Index | None = None


@dataclass(frozen=True)
class TickChange:
    """What one tick changed.

    Before ``border`` (epoch seconds) nothing differs from the conclusions before. ``again``: the runs that were put together
    anew, as they were and as they are. ``states_differ``: whether node states may differ. ``touched`` is None where nobody
    compared yet.
    """

    border: float = float("-inf")
    again: tuple[list[Run], list[Run]] = field(default_factory=lambda: ([], []))
    states_differ: bool = True
    touched: Touched | None = None


@dataclass
class LiveConclusions(Conclusions):
    """Conclusions as a tick leaves them for the next one."""

    memory: Memory = field(default_factory=Memory)
    change: TickChange = field(default_factory=TickChange)

    @classmethod
    def of(cls, found: Conclusions, **changes: Any) -> LiveConclusions:
        """``found`` with nothing remembered, and with ``changes`` to its fields."""
        values = {each.name: getattr(found, each.name) for each in fields(Conclusions)}
        return cls(**(values | changes))


def index_of(known: LiveConclusions) -> Index:
    """Made once after everything was concluded anew; ``correlator.live.window`` keeps it up."""
    if known.memory.index is None:
        index = Index.of(known.events, known.runs, known.stories, known.facts)
        known.memory = Memory(
            known.memory.settled_until, known.memory.open_verdicts, known.memory.open_incidents, index
        )
        return index
    return known.memory.index
