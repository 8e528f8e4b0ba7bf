"""What the live engine holds of each cluster between two ticks: the result, its memory, and what the last tick changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from correlator.conclusions import Basis, Conclusions, Pass
from correlator.gather import events as event_rows
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
    """What the next tick builds on, besides the result.

    ``basis`` is what the passes so far learned. ``settled_until`` is the moment (RFC 3339) up to which finality was
    decided. ``open_verdicts`` (keys of runs) and ``open_incidents`` (ids) are not final, or new. ``horizons`` says how far
    open verdicts can still change, ``shown`` what their documents say of it. ``index`` holds lookups over all that is
    known; each tick updates it. Events and facts from before ``packed_until`` (epoch seconds) are packed (old.py).
    ``longest`` is the longest causal window and ``logged_timeout`` the longest timeout that a program logged, both in
    seconds; ``reach.longest_window`` computes them once they are asked for.
    """

    basis: Basis = field(default_factory=Basis)
    settled_until: str | None = None
    open_verdicts: frozenset[str] = frozenset()
    open_incidents: frozenset[str] = frozenset()
    horizons: Mapping[str, Horizon] = field(default_factory=dict)
    shown: Mapping[str, Wait] = field(default_factory=dict)
    index: Index | None = None
    packed_until: float = float("-inf")
    longest: float | None = None
    logged_timeout: float = 0.0


@dataclass(frozen=True)
class TickChange:
    """What one tick changed.

    Before ``border`` (epoch seconds) nothing differs from the conclusions before. ``again`` are the runs that were
    built again, before and after. ``states_differ``: node states may differ. ``touched`` is None if nothing was
    compared yet. ``facts`` are those that are replaced or gone, and those that are new or differ. ``lines`` are the events
    that were read, with their columns: those rows are stored as they were read. ``inputs`` is what the tick concluded from;
    nothing uses it any more, but freeing it takes a while and can wait for a better moment.
    """

    border: float = float("-inf")
    again: tuple[list[Run], list[Run]] = field(default_factory=lambda: ([], []))
    states_differ: bool = True
    touched: Touched | None = None
    facts: tuple[list[Fact], list[Fact]] = field(default_factory=lambda: ([], []))
    lines: event_rows.Lines | None = None
    inputs: object = None


def stored() -> TickChange:
    """The change of conclusions that are stored as they are: none. If a later tick makes one of them final, nothing else
    has to be compared or stored."""
    return TickChange(border=float("inf"), states_differ=False)


@dataclass
class LiveConclusions:
    """One cluster as a tick leaves it for the next one: the result, the memory, and what the tick changed."""

    result: Conclusions
    memory: Memory = field(default_factory=Memory)
    change: TickChange = field(default_factory=TickChange)

    @property
    def cluster(self) -> str | None:
        return self.result.cluster

    @classmethod
    def of(cls, found: Pass) -> LiveConclusions:
        """What a full pass found: nothing is remembered from before it."""
        return cls(found.result, Memory(found.basis, horizons=found.horizons), TickChange(lines=found.lines))


def index_of(known: LiveConclusions) -> Index:
    """The index, built once after a full pass; ``correlator.live.window`` updates it."""
    if known.memory.index is None:
        result, basis = known.result, known.memory.basis
        index = Index.of(result.events, result.runs, basis.stories, result.facts, basis.strays)
        known.memory = replace(known.memory, index=index)
        return index
    return known.memory.index
