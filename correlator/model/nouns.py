"""The nouns of the correlator: events, facts, runs, edges.

An *event* is what somebody logged (copies of one line in several files are one event). A *fact* is what happened,
concluded from events: a link outage with its beginning and end, a node set DOWN, a run that ended. Causal *edges*
connect facts. All times are seconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parsers.job_states import NOT_FAILED


@dataclass(slots=True, eq=False)
class Event:
    """One event; nobody changes it (a frozen class would take six times as long to make, and there are many).

    ``sigma`` is the uncertainty of ``time`` in seconds (resolution of the stamp, clock residual). ``clock_offset`` is
    by how much the line's own stamp was ahead of ``time`` (its host's clock was off; clocks.py). ``own``: it stands in the own
    file of Slurm's daemon that wrote it, not under its name in a log that others write as well. ``known_by``: of a line with
    the kernel's name by what that is known, "name" or "facility"; empty where nobody else can have written it or one of its copies
    (gather/kernel_lines.py).
    """

    id: str
    time: float
    sigma: float
    kind: str
    host: str | None
    device: str | None
    job_id: int | None
    message: str
    source: str | None
    layer: str
    severity: str | None
    file: str | None
    line: int | None
    received: float | None
    time_quality: str
    count: int
    last: float
    entities: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[tuple[str, int], ...] = ()
    clock_offset: float = 0.0
    own: bool = False
    known_by: str = ""


@dataclass(slots=True, eq=False, frozen=True)
class Fact:
    """Something that happened between ``start`` and ``end`` (None: still going on when the data ends).

    Nobody changes a fact. What attributes it has, its kind declares (model/kinds.py); who knows better later concludes another
    fact in its place (``Revision``).
    """

    kind: str
    start: float
    end: float | None
    sigma: float
    host: str | None = None
    device: str | None = None
    run: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    @property
    def key(self) -> tuple[str, float, str, str, str]:
        """Total order that does not depend on how facts were found."""
        return (self.kind, self.start, self.host or "", self.device or "", self.run or "")

    @property
    def duration(self) -> float | None:
        return None if self.end is None else self.end - self.start


@dataclass(slots=True, eq=False, frozen=True)
class Revision:
    """A fact that is known better than when it was concluded: ``fact`` takes the place of ``of``."""

    of: Fact
    fact: Fact


@dataclass(slots=True, eq=False)
class Draft:
    """A fact that a detector is about to revise, with the fields of ``of``. Nobody else sees it."""

    of: Fact
    kind: str
    start: float
    end: float | None
    sigma: float
    host: str | None
    device: str | None
    run: str | None
    attrs: dict[str, Any]
    events: tuple[Event, ...]

    @staticmethod
    def from_fact(of: Fact) -> Draft:
        return Draft(of, of.kind, of.start, of.end, of.sigma, of.host, of.device, of.run, dict(of.attrs), of.events)

    @property
    def key(self) -> tuple[str, float, str, str, str]:
        return (self.kind, self.start, self.host or "", self.device or "", self.run or "")

    @property
    def duration(self) -> float | None:
        return None if self.end is None else self.end - self.start

    def fact(self) -> Fact:
        return Fact(
            self.kind, self.start, self.end, self.sigma, self.host, self.device, self.run, self.attrs, self.events
        )

    def revision(self) -> Revision | None:
        """What takes the place of ``of``; None where nothing was changed."""
        made = self.fact()
        same = all(getattr(made, name) == getattr(self.of, name) for name in Fact.__slots__)
        return None if same else Revision(self.of, made)


def in_order(*groups: Iterable[Event]) -> tuple[Event, ...]:
    """The events of several groups, each once, by time."""
    return tuple(sorted({event for group in groups for event in group}, key=lambda e: (e.time, e.id)))


@dataclass(slots=True, eq=False)
class Run:
    """One run of one job: what accounting, hooks and slurmctld's lines say together."""

    key: str
    job_id: int
    attempt: int
    state: str
    nodes: tuple[str, ...]
    submit: float | None
    start: float | None
    end: float | None
    row: Mapping[str, Any]
    steps: tuple[dict[str, Any], ...] = ()

    @property
    def ended_badly(self) -> bool:
        return self.state not in NOT_FAILED

    @property
    def gpus(self) -> int:
        return int(self.row.get("gpus") or 0)

    def covers(self, time: float, slack: float = 1.0) -> bool:
        """Was the run going on at ``time``? sacct's whole seconds need a second of slack."""
        return self.start is not None and self.start - slack <= time and (self.end is None or time <= self.end + slack)


#: How many other runs that a cause reached an edge's prior is worth, unless its file says otherwise.
PRIOR_RUNS = 2.0


@dataclass(frozen=True)
class Edge:
    """A causal edge, as read from ``edges/*.toml``.

    One that ``blocks`` says what an effect is *not*: a link that goes down because its machine boots is nobody's cause.
    Of one that is ``shared`` other runs tell as well, to which the prior is worth ``prior_runs`` of them (survivors.py).
    """

    id: str
    cause: tuple[str, ...]
    effect: tuple[str, ...]
    scope: str
    window: str
    prior: float
    requires: tuple[str, ...]
    because: tuple[str, ...]
    text: str
    reference: str
    anchor: str
    file: str
    density: str = "even"
    blocks: bool = False
    shared: bool = False
    prior_runs: float = PRIOR_RUNS


@dataclass(frozen=True, eq=False)
class Hop:
    """An edge that holds between two facts: ``lag`` in seconds inside ``window``, ``strength`` 0..1, what became of the
    ``others`` that the cause reached included."""

    edge: Edge
    cause: Fact
    effect: Fact
    lag: float
    window: tuple[float, float]
    because: str
    strength: float
    coincidence: float
    others: Others | None = None


@dataclass(frozen=True)
class Others:
    """Keys of the other exposed runs: ``hit`` ended by the same cause, ``survivors`` ran on. ``where``: what they share with the
    cause, in words; ``factor``: what that does to the weight. ``asked`` of ``reached`` runs were looked at. ``before``: how
    often the run itself had been through the same before, and had run on."""

    hit: tuple[str, ...]
    survivors: tuple[str, ...]
    where: str
    factor: float
    asked: int = 0
    reached: int = 0
    before: int = 0
