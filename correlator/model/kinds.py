"""What a kind of fact is: one declaration holds all that is special to it, beside the detector that concludes it.

Everybody else (incidents, verdicts, sentences, repairs, reports, pages, docs) reads the declarations through
``correlator.facts.registry``. Adding a kind therefore touches its own file or folder and nothing else.

Texts for people are templates: ``{host}``, ``{device}``, ``{count}`` and ``{nodes}`` of the hosts, ``{for_time}``, ``{runs}``
and every attribute of the fact by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast, get_type_hints

from correlator.model.nouns import Event, Fact
from parsers.hostlist import fold

Severity = Literal["benign", "degraded"]

#: The lanes of the time axis: ``layer`` of a kind is one of them.
LANES = ("switch", "link", "gpu", "storage", "kernel", "slurmd", "slurmctld", "node", "job")

#: The contract's categories: ``category`` of a cause is one of them, and what an operator may say it was.
CATEGORIES = (
    "infra.network", "infra.gpu", "infra.node", "infra.storage", "infra.scheduler", "app.error", "app.oom", "app.timeout",
    "user.cancel", "sched.preempt", "unknown",
)  # fmt: skip

#: A sentence of advice and, where one helps, a command.
Advice = tuple[str, str | None]

#: Whose words in a run's output speak for a cause: of a GPU, of storage, of lost peers.
Words = Literal["", "gpu", "storage", "peers"]


class NoAttrs(TypedDict):
    """The attributes of a kind that says no more than what, when and where."""


A = TypeVar("A", bound=Mapping[str, object])


@dataclass(frozen=True)
class Cause:
    """How a kind of fact stands at the root of an incident."""

    #: The contract's name of the root cause, and its category.
    event: str
    category: str
    #: What broke, as a clause of an incident's title.
    title: str
    #: What follows "your job died because".
    plain: str
    #: What to do.
    advice: tuple[Advice, ...] = ()
    #: The title where there is little room; without it, the title up to its first comma.
    short: str = ""
    #: What would be seen if the cause were another one.
    disproof: str = "A sign that the cause was elsewhere: another node of the same job failing first, or the same error without this event."
    #: May a run's end be blamed on it?
    root: bool = True
    #: The contract's name where it came several times in one incident.
    repeated: str = ""
    #: How much it matters where no run suffered; None makes no incident then.
    unharmed: Severity | None = None
    #: ``trivial(world, fact)``: is such a fact everyday's work, which makes no incident by itself?
    trivial: Callable[[Any, Fact], bool] | None = None
    #: Does it make an incident only where something follows from it?
    needs_effect: bool = False
    #: Is it something that jobs use up, or wait for?
    exhausted: bool = False
    #: The words of a run's output that speak for it.
    words: Words = ""
    #: What a run reports, of facts that are known from a run's output only.
    reported: str = ""
    #: A verdict with this root is at most so sure.
    surest: float = 1.0
    #: What is not known of it.
    doubt: str = ""
    #: What would name it, where a fact is nameless.
    nameless: str = ""
    #: What happened at a moment that is only inferred, and why that is known at all.
    began: str = "the machine went down"
    inferred_from: str = ""
    #: The part of a node for which incidents are counted when a node is suspected of failing more often than others. Empty where
    #: it does not speak of the node itself.
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
    """A kind of fact."""

    name: str
    #: Its lane on the time axis.
    layer: str
    #: What a fact of this kind says, in one sentence.
    summary: str
    #: The type of its attributes.
    attrs: type[A]
    #: What it is called in a list of causes, and whether that ends with how long it lasted.
    brief: str = ""
    timed: bool = False
    #: Events of the catalogue that only an extension knows: they stand on the lane of this kind.
    events: tuple[str, ...] = ()
    #: How it stands at the root of an incident; None where it is only an effect.
    cause: Cause | None = None
    #: ``variant(fact)``: another cause for special facts of the kind, or None.
    variant: Callable[[Fact], Cause | None] | None = None
    #: Later facts of the same device within so many seconds belong to the same incident.
    repeats_s: float | None = None
    #: Facts of one device that follow each other closely are one incident, and are counted.
    flaps: bool = False
    #: The part of a node that a drain reason names for it.
    component: str = ""
    #: Does a run show it by its pace, and not by ending?
    pace: bool = False
    #: Does it make Slurm give its node up?
    sets_down: bool = False
    #: What its lines are in an incident whose root is another fact.
    role: Literal["effect", "symptom"] = "symptom"
    #: ``measured(fact)``: words for a fact without a line of its own.
    measured: Callable[[Fact], str] | None = None
    #: ``reach(fact)``: where the runs are that it reaches ("behind leaf12"), if that is not "on its host".
    reach: Callable[[Fact], str] | None = None
    #: ``bands(fact)``: its stretches on the time axis.
    bands: Callable[[Fact], list[Band]] | None = None
    #: What it would have left in the logs.
    trace: Trace | None = None
    #: ``awaits(fact)``: may the next lines of its silent hosts tell of another cause?
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


#: What every template may name, besides the attributes of its own kind.
_WORDS = frozenset({"code", "behind", "host", "device", "what", "runs", "nodes", "count", "for_time"})


def misplaced(kind: Kind[Any]) -> list[str]:
    """A lane or a category of a declaration that does not exist; a reader would not find such a fact where he looks for it."""
    wrong = []
    if kind.layer not in LANES:
        wrong.append(f"there is no lane {kind.layer!r}, but {', '.join(LANES)}")
    if kind.cause is not None and kind.cause.category not in CATEGORIES:
        wrong.append(f"there is no category {kind.cause.category!r}, but {', '.join(CATEGORIES)}")
    return wrong


def unfilled(kind: Kind[Any]) -> list[str]:
    """What is wrong with the templates of a declaration: names that neither its attributes nor every template has."""
    cause, known = kind.cause, _WORDS | set(get_type_hints(kind.attrs))
    texts = {"brief": [kind.brief]}
    if cause is not None:
        texts |= {
            "title": [cause.title], "short": [cause.short],
            "advice": [text for advice in cause.advice for text in advice if text],
        }  # fmt: skip
    wrong = []
    for where, templates in texts.items():
        for template in templates:
            try:
                names = {
                    re.split(r"[.\[]", name)[0] for _, name, _, _ in Formatter().parse(template) if name is not None
                }
            except ValueError as error:
                wrong.append(f"{where} {template!r}: {error}")
                continue
            for name in sorted(names - known):
                wrong.append(f"{where} {template!r} names {{{name}}}; there is {', '.join(sorted(known))}")
    return wrong


def fill(template: str, fact: Fact) -> str:
    """The template with the fact's own words in it."""
    if "{" not in template and "}" not in template:
        return template
    seconds, hosts = fact.duration, fact.attrs.get("hosts", ())
    words: dict[str, object] = {  # their names stand in _WORDS
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
