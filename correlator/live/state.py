"""The state the live engine keeps per cluster between two ticks: conclusions, memory, and the changes of the last tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from correlator.conclusions import Conclusions
from correlator.incidents.incident import Incident
from correlator.live.lookup import Index
from correlator.model.nouns import Fact, Run
from correlator.verdicts.horizon import Horizon

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Touched:
    """What may differ from the conclusions before; all other documents are the same objects.

    ``incidents`` are the indices of incidents that are new or changed. ``gone`` maps the id of each document that was
    dropped or replaced to it and the incident it was made from. ``verdicts`` are the keys of runs whose verdict is new,
    changed or gone.
    """

    incidents: list[int]
    gone: dict[str, tuple[Document, Incident]]
    verdicts: set[str]


class Wait(NamedTuple):
    """What a verdict waits for: the end of its time at ``until`` (epoch seconds, when it becomes final), for lines of
    ``hosts``."""

    until: float
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """What the next tick builds on.

    ``settled_until`` is the moment (RFC 3339) up to which finality was decided. ``open_verdicts`` (keys of runs) and
    ``open_incidents`` (ids) are not final, or new. ``horizons`` says how far open verdicts can still change, ``shown``
    what their documents say of it. ``index`` holds lookups over all that is known; each tick updates it. Events and facts
    from before ``packed_until`` (epoch seconds) are packed (old.py).
    """

    settled_until: str | None = None
    open_verdicts: frozenset[str] = frozenset()
    open_incidents: frozenset[str] = frozenset()
    horizons: Mapping[str, Horizon] = field(default_factory=dict)
    shown: Mapping[str, Wait] = field(default_factory=dict)
    index: Index | None = None
    packed_until: float = float("-inf")


@dataclass(frozen=True)
class TickChange:
    """What one tick changed.

    Before ``border`` (epoch seconds) nothing differs from the conclusions before. ``again`` are the runs that were
    built again, before and after. ``states_differ``: node states may differ. ``touched`` is None if nothing was
    compared yet. ``facts`` are those that are replaced or gone, and those that are new or differ.
    """

    border: float = float("-inf")
    again: tuple[list[Run], list[Run]] = field(default_factory=lambda: ([], []))
    states_differ: bool = True
    touched: Touched | None = None
    facts: tuple[list[Fact], list[Fact]] = field(default_factory=lambda: ([], []))


def stored() -> TickChange:
    """The change of conclusions that are stored as they are: none. If a later tick makes one of them final, nothing else
    has to be compared or stored."""
    return TickChange(border=float("inf"), states_differ=False)


@dataclass
class LiveConclusions(Conclusions):
    """Conclusions as a tick leaves them for the next one."""

    memory: Memory = field(default_factory=Memory)
    change: TickChange = field(default_factory=TickChange)

    @classmethod
    def of(cls, found: Conclusions, **changes: Any) -> LiveConclusions:
        """``found`` without memory, with ``changes`` to its fields."""
        values = {each.name: getattr(found, each.name) for each in fields(Conclusions)}
        return cls(**(values | changes))


def index_of(known: LiveConclusions) -> Index:
    """The index, built once after a full pass; ``correlator.live.window`` updates it."""
    if known.memory.index is None:
        index = Index.of(known.events, known.runs, known.stories, known.facts, known.strays)
        known.memory = replace(known.memory, index=index)
        return index
    return known.memory.index
