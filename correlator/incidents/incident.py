"""An incident as a value, and what is read from one alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.model.attributes import HOSTS
from correlator.model.nouns import Event, Fact, Hop, Run
from correlator.verdicts.verdict import Unproven, Verdict

#: What is certain about an incident that ended no run; and about the loss of a node, if it is open what lost it.
UNSUFFERED_SURE, OPEN_LOSS_SURE = 0.9, 0.5


@dataclass
class Incident:
    """``members`` are the facts of the incident, ``hops`` the causal steps between them, the root first.

    ``left_open``: verdicts on runs of which it is open whether this root ended them.
    """

    id: str
    root: Fact
    severity: str
    category: str
    verdicts: list[Verdict] = field(default_factory=list)
    left_open: list[Verdict] = field(default_factory=list)
    members: list[Fact] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    flaps: list[Fact] = field(default_factory=list)
    slowed: list[Run] = field(default_factory=list)
    untouched: Survivors | None = None
    unproven: Unproven | None = None

    @property
    def confidence(self) -> float:
        at_most = self.unproven.at_most if self.unproven else 1.0
        unsuffered = OPEN_LOSS_SURE if self.left_open and self.root.kind == NODE_DOWN.name else UNSUFFERED_SURE
        return min(at_most, max((v.confidence for v in self.verdicts), default=unsuffered))

    @property
    def times(self) -> int:
        """How often the root came, if it is one that comes and goes."""
        return 1 + len(self.flaps)

    @property
    def start(self) -> float:
        return min([self.root.start, *(f.start for f in self.flaps)])

    @property
    def end(self) -> float:
        ends = [f.end if f.end is not None else f.start for f in [self.root, *self.members, *self.flaps]]
        return max([*ends, *(v.end.start for v in self.verdicts)])

    @property
    def hosts(self) -> list[str]:
        """The hosts of its facts, the root's included, by name."""
        of_facts = [self.root, *self.members]
        return sorted({h for f in of_facts for h in ([f.host] if f.host else []) + list(f.attrs.get(HOSTS, ()))})


#: A run that was still active this long after an incident was not ended by it.
AFTERMATH_S = 60.0


#: At most this many surviving runs are named; the rest of a large cluster is a number.
LISTED = 50


@dataclass(frozen=True)
class Survivors:
    """Runs that went on through an incident: some by name (those on its own hosts first), all as a number."""

    named: tuple[Run, ...]
    count: int


def facts_of(incident: Incident) -> list[Fact]:
    return [incident.root, *incident.members, *incident.flaps]


def events_by_id(incident: Incident) -> dict[str, Event]:
    """Events of all facts of the incident."""
    return {event.id: event for fact in facts_of(incident) for event in fact.events}


def events_of(incident: Incident) -> list[Event]:
    """Events of all facts of the incident, in time order, each once."""
    return sorted(events_by_id(incident).values(), key=attrgetter("time", "id"))
