"""The nouns of the correlator: events, facts, runs, edges.

An *event* is what was logged (copies of one line in several files are one event). A *fact* is what happened, concluded
from events: a link outage with its beginning and end, a node set DOWN, a run that ended. Causal *edges* connect facts.
All times are seconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from correlator.model.attrs import Attr, Attrs, DraftAttrs, by_name, draft_of, no_attrs, with_attr
from correlator.model.packed import Packable, Packing
from parsers.job_states import NOT_FAILED

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Event(Packable):
    """One event; treated as immutable (a frozen class would take six times as long to create, and there are many).

    ``sigma`` is the uncertainty of ``time`` in seconds (resolution of the timestamp, clock residual). ``clock_offset``
    is by how much the line's own timestamp was ahead of ``time`` (its host's clock was off; clocks.py). ``own``: it is
    in the own file of the Slurm daemon that wrote it, not under its name in a log that others write as well.
    ``known_by`` is the evidence that a line in the kernel's name is the kernel's, "name" or "facility"; empty if
    nothing else can have written it or one of its copies (gather/kernel_lines.py). ``authority`` is who can have written
    the line, or the copy that is hardest to forge (parsers/writers.py).
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
    authority: str = ""

    @property
    def written_at(self) -> float:
        """The moment that its timestamp showed: ``time`` by its host's clock."""
        return self.time + self.clock_offset

    @property
    def last_written_at(self) -> float:
        """``last`` by its host's clock."""
        return self.last + self.clock_offset


class _PackedEvent(Event):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return EVENTS.value(self, name)


#: An event of a long history keeps what tells whether it is looked for. Its values are in the block of its stretch of the
#: history (thinned.py), which has rows of all values.
EVENTS: Packing[Event] = Packing(
    Event, _PackedEvent, row=[each.name for each in fields(Event)], shared=("kind", "host", "device"), names=(
        "id", "sigma", "job_id", "message", "source", "layer", "severity", "file", "line", "received", "time_quality", "count",
        "last", "entities", "also", "clock_offset", "own", "known_by", "authority",
    ),
)  # fmt: skip


@dataclass(slots=True, eq=False, frozen=True, init=False)
class Fact(Packable):
    """Something that happened between ``start`` and ``end`` (None: it still lasts when the data ends).

    Facts are immutable. Their kind declares their attributes (model/kinds.py); a detector with better knowledge
    concludes another fact in their place (``Revision``).
    """

    kind: str
    start: float
    end: float | None
    sigma: float
    host: str | None = None
    device: str | None = None
    run: str | None = None
    attrs: Attrs = field(default_factory=no_attrs)
    events: tuple[Event, ...] = ()

    def __init__(
        self, kind: str, start: float, end: float | None, sigma: float, host: str | None = None, device: str | None = None,
        run: str | None = None, attrs: Attrs | None = None, events: tuple[Event, ...] = (),
    ) -> None:  # fmt: skip
        # In place of the dataclass's own, which takes twice as long for a frozen class: a tick makes a thousand facts.
        _set_kind(self, kind)
        _set_start(self, start)
        _set_end(self, end)
        _set_sigma(self, sigma)
        _set_host(self, host)
        _set_device(self, device)
        _set_run(self, run)
        _set_attrs(self, no_attrs() if attrs is None else attrs)
        _set_events(self, events)

    @property
    def key(self) -> tuple[str, float, str, str, str]:
        """Total order that does not depend on how facts were found."""
        return (self.kind, self.start, self.host or "", self.device or "", self.run or "")

    @property
    def duration(self) -> float | None:
        return None if self.end is None else self.end - self.start

    def having(self, key: Attr[T], value: T) -> Fact:
        """The fact with this attribute added or replaced. ``dataclasses.replace`` takes twice as long."""
        return Fact(
            self.kind, self.start, self.end, self.sigma, self.host, self.device, self.run,
            with_attr(self.attrs, key, value), self.events,
        )  # fmt: skip


_set_kind, _set_start, _set_end, _set_sigma, _set_host, _set_device, _set_run, _set_attrs, _set_events = (
    vars(Fact)[name].__set__ for name in ("kind", "start", "end", "sigma", "host", "device", "run", "attrs", "events")
)


class _PackedFact(Fact):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return FACTS.value(self, name)


def _refers(fact: Fact) -> bool:
    """Has the end of a run that refers to events of its output or of the memory it used up? A third of the facts of failing
    runs do."""
    attrs = by_name(fact.attrs)
    return _begins_with_object(attrs.get("output")) or _begins_with_object(attrs.get("memory"))


def _begins_with_object(some: object) -> bool:
    return type(some) is list and bool(some) and isinstance(some[0], Packable)


FACTS: Packing[Fact] = Packing(
    Fact, _PackedFact, names=("attrs",), shared=("kind", "host", "device", "run"), refers=_refers
)


@dataclass(slots=True, eq=False, frozen=True)
class Revision:
    """A better known version of a fact: ``fact`` replaces ``of``."""

    of: Fact
    fact: Fact


@dataclass(slots=True, eq=False)
class Draft:
    """A fact that a detector is about to revise, with the fields of ``of``; only that detector sees it."""

    of: Fact
    kind: str
    start: float
    end: float | None
    sigma: float
    host: str | None
    device: str | None
    run: str | None
    attrs: DraftAttrs
    events: tuple[Event, ...]

    @staticmethod
    def from_fact(of: Fact) -> Draft:
        return Draft(of, of.kind, of.start, of.end, of.sigma, of.host, of.device, of.run, draft_of(of.attrs), of.events)

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
        """The replacement of ``of``; None if nothing was changed."""
        of = self.of
        same = (
            self.attrs == of.attrs and self.start == of.start and self.end == of.end and self.events == of.events
            and self.sigma == of.sigma and self.host == of.host and self.device == of.device and self.run == of.run
            and self.kind == of.kind
        )  # fmt: skip
        return None if same else Revision(of, self.fact())


def in_order(*groups: Iterable[Event]) -> tuple[Event, ...]:
    """The events of several groups, each once, by time."""
    return tuple(sorted({event for group in groups for event in group}, key=lambda e: (e.time, e.id)))


@dataclass(slots=True, eq=False)
class Run:
    """One run of one job, merged from accounting, hooks and slurmctld's lines."""

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
        """Was the run active at ``time``? sacct's whole seconds need a second of slack."""
        return self.start is not None and self.start - slack <= time and (self.end is None or time <= self.end + slack)


#: The number of other runs that an edge's prior is worth, unless its file sets it.
PRIOR_RUNS = 2.0


@dataclass(frozen=True)
class Edge:
    """A causal edge, as read from ``edges/*.toml``.

    An edge that ``blocks`` states what an effect is *not*: a link that goes down because its machine boots is no cause.
    For a ``shared`` edge other runs are evidence as well, of which the prior is worth ``prior_runs`` (exposure.py).
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


@dataclass(slots=True, eq=False)
class Hop:
    """An edge that holds between two facts; treated as immutable (a frozen class takes seven times as long to create).

    ``lag`` is in seconds inside ``window``, ``strength`` 0..1, including what became of the ``others`` that the cause
    reached.
    """

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
    """The other exposed runs, by key: ``hit`` ended by the same cause, ``survivors`` ran on.

    ``where``: what they share with the cause, in words. ``factor``: its effect on the weight. ``asked`` of ``reached``
    runs were examined. ``before``: how often the run itself had survived the same before.
    """

    hit: tuple[str, ...]
    survivors: tuple[str, ...]
    where: str
    factor: float
    asked: int = 0
    reached: int = 0
    before: int = 0
