"""What a kind of fact is: one declaration holds all that is special to it, beside the detector that concludes it.

Everybody else (incidents, verdicts, sentences, repairs, reports, pages, docs) reads the declarations through
``correlator.facts.registry``. Adding a kind therefore touches its own file or folder and nothing else.

Texts for people are templates: ``{host}``, ``{device}``, ``{count}`` and ``{nodes}`` of the hosts, ``{for_time}``, ``{runs}``
and every attribute of the fact by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast

from correlator.model.nouns import Event, Fact
from parsers.hostlist import fold

Severity = Literal["benign", "degraded"]

#: A sentence of advice and, where one helps, a command.
Advice = tuple[str, str | None]

#: Whose words in a run's output speak for a cause: of a GPU, of storage, of lost peers.
Words = Literal["", "gpu", "storage", "peers"]


class NoAttrs(TypedDict):
    """The attributes of a kind that says no more than what, when and where."""


A = TypeVar("A", bound=Mapping[str, object])


@dataclass(frozen=True)
class Cause:
    """How a kind of fact stands at the root of an incident.

    ``event`` is the contract's name of the root cause, ``repeated`` the one it has where it came several times in one
    incident. Words for people: ``title`` is the clause of an incident's title, ``short`` what a table has room for (without
    it the title up to its first comma), ``plain`` follows "your job died because", ``advice`` says what to do and
    ``disproof`` what would be seen if the cause were another one.

    ``root``: a run's end may be blamed on it. ``unharmed``: how much it matters where no run suffered; None makes no incident
    then. ``exhausted``: something that jobs use up or wait for. ``trivial(world, fact)``: such a fact is everyday's work and makes no incident by itself. ``needs_effect``: neither
    does one that nothing follows from.

    ``words``: the words of a run's output that speak for it. ``reported``: what a run reports, where the fact is known from
    a run's own output only. ``surest``: a verdict with this root is at most so sure; ``doubt`` says what is not known.
    ``nameless``: what would name the thing, where a fact is nameless. ``began``: what happened at a moment that is only
    inferred, and ``inferred_from``: why that is known at all. ``family``: the part of a node that incidents are counted for
    when a node is suspected of failing more often than others; none where it does not speak of the node itself.
    """

    event: str
    category: str
    title: str
    plain: str
    advice: tuple[Advice, ...] = ()
    short: str = ""
    disproof: str = "A sign that the cause was elsewhere: another node of the same job failing first, or the same error without this event."
    root: bool = True
    repeated: str = ""
    unharmed: Severity | None = None
    exhausted: bool = False
    trivial: Callable[[Any, Fact], bool] | None = None
    needs_effect: bool = False
    words: Words = ""
    reported: str = ""
    surest: float = 1.0
    doubt: str = ""
    nameless: str = ""
    began: str = "the machine went down"
    inferred_from: str = ""
    family: str = ""


@dataclass(frozen=True)
class Trace:
    """What a kind would have left in the logs, for runs whose node was set DOWN and of which no such fact is known:
    ``rival`` names it among the rejected causes, ``absent`` says what was not seen. ``also``: further kinds that are the same
    rival; ``anywhere``: on whichever host it happened."""

    rival: str
    absent: str
    also: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch on the time axis. ``state`` is its class on the page (``no_carrier``), ``text`` its words."""

    lane: str
    layer: str
    host: str | None
    device: str | None
    state: str
    text: str


@dataclass(frozen=True, eq=False)
class Kind(Generic[A]):
    """A kind of fact.

    ``layer`` is its lane on the time axis, ``summary`` what the fact says (one sentence, for the docs), ``attrs`` the type of
    its attributes. ``brief`` names it in a list of causes, with its length where it is ``timed``. ``events``: the catalogue's
    events that tell of it, where those are the extension's own: they stand on the same lane.

    ``cause``: how it stands at the root of an incident; None never does. ``variant(fact)``: another cause for special facts of
    the kind. ``repeats_s``: later facts of the same device within so many seconds belong to the same incident. ``flaps``: so do
    all that follow each other closely, and they are counted. ``component``: the part of a node that a drain reason
    names for it. ``pace``: a run shows it by its pace and not by ending. ``sets_down``: it makes Slurm give its node up.
    ``role``: what its lines are in an incident whose root is another fact. ``measured(fact)``: words for a fact without a line
    of its own. ``reach(fact)``: which runs it reaches besides one ("behind leaf12"), where that is not "on its host".
    ``bands(fact)``: its stretches on the time axis. ``trace``: see ``Trace``. ``awaits(fact)``: while its hosts are
    silent, their next lines may tell of another cause.
    """

    name: str
    layer: str
    summary: str
    attrs: type[A]
    brief: str = ""
    timed: bool = False
    events: tuple[str, ...] = ()
    cause: Cause | None = None
    variant: Callable[[Fact], Cause | None] | None = None
    repeats_s: float | None = None
    flaps: bool = False
    component: str = ""
    pace: bool = False
    sets_down: bool = False
    role: Literal["effect", "symptom"] = "symptom"
    measured: Callable[[Fact], str] | None = None
    reach: Callable[[Fact], str] | None = None
    bands: Callable[[Fact], list[Band]] | None = None
    trace: Trace | None = None
    awaits: Callable[[Fact], bool] | None = None

    def fact(
        self, start: float, end: float | None, sigma: float, host: str | None = None, device: str | None = None,
        run: str | None = None, attrs: A | None = None, events: tuple[Event, ...] = (),
    ) -> Fact:  # fmt: skip
        """A fact of this kind, with attributes of its own type."""
        return Fact(self.name, start, end, sigma, host, device, run, attrs or {}, events)

    def attrs_of(self, fact: Fact) -> A:
        """The attributes of a fact of this kind, by their types."""
        return cast("A", fact.attrs)

    def cause_of(self, fact: Fact) -> Cause:
        """How this fact of the kind stands at the root of an incident."""
        special = self.variant(fact) if self.variant else None
        return special or self.cause or Cause(self.name, "unknown", f"{self.name} on {{host}}", self.name, root=False)


def undeclared(name: str) -> Kind[NoAttrs]:
    """What can be said of a kind that a detector names and nobody declares."""
    return Kind(name, "node", "", NoAttrs)


def literal(text: object) -> str:
    """A text inside a template that holds no placeholders, whatever it says."""
    return str(text).replace("{", "{{").replace("}", "}}")


def fill(template: str, fact: Fact) -> str:
    """The template with the fact's own words in it."""
    if "{" not in template and "}" not in template:
        return template
    seconds, hosts = fact.duration, fact.attrs.get("hosts", ())
    words: dict[str, object] = {
        "code": None, "behind": None, **fact.attrs,
        "host": fact.host or "an unnamed node", "device": fact.device or "the port",
        "what": f"switch {fact.host}" if fact.host else "what these nodes share", "runs": _runs(fact),
        "nodes": fold(sorted(hosts)) if "{nodes}" in template else "", "count": len(hosts),
        "for_time": f" for {seconds:.1f} s" if seconds is not None else "",
    }  # fmt: skip
    return template.format_map(words)


def _runs(fact: Fact) -> str:
    runs = fact.attrs.get("runs") or ()
    return f"{len(runs)} runs" if len(runs) > 1 else f"job {runs[0]}" if runs else "the run"
