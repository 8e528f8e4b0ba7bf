"""What a kind of fact is: one declaration holds all that is special to it, beside the detector that concludes it.

Everything else (incidents, verdicts, sentences, repairs, reports, pages, docs) reads the declarations through
``correlator.facts.registry``. Adding a kind therefore touches its own file or folder and nothing else.

Texts for people are templates: ``{host}``, ``{device}``, ``{count}`` and ``{nodes}`` of the hosts, ``{for_time}``,
``{runs}`` and every attribute of the fact by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast, get_args, get_type_hints

from correlator.model.attributes import HOSTS, RUNS
from correlator.model.attrs import Attrs, by_name
from correlator.model.categories import CATEGORIES
from correlator.model.nouns import Event, Fact
from parsers.hostlist import fold

Severity = Literal["benign", "degraded"]

#: Lines that come longer than this (seconds) after a fact or the end of a run change neither: detectors join what is
#: less apart, and a tick looks no further back (live/reach.py).
REPORTED_WITHIN_S = 900.0


@dataclass(frozen=True)
class Lane:
    """A lane of the time axis: the ``layer`` of its kinds, and the heading on the axis.

    A lane of a package names the built-in one that it is ``after``. ``families``: the beginnings of the names of events
    that are on it ("nic" of ``nic.link_down``); a package names its events one by one (``Kind.events``).
    """

    name: str
    title: str
    after: str = ""
    families: tuple[str, ...] = ()


#: In the order in which a fault travels up. Slurm's events are on the lane of the daemon that wrote them.
BUILT_IN_LANES = (
    Lane("switch", "Network", families=("switch",)), Lane("link", "Network", families=("nic", "fabric")),
    Lane("gpu", "GPU", families=("gpu",)), Lane("storage", "Storage", families=("storage",)),
    Lane("kernel", "Host", families=("kernel", "pcie", "platform")), Lane("slurmd", "Slurm"), Lane("slurmctld", "Slurm"),
    Lane("node", "Node state", families=("sys",)), Lane("job", "Jobs", families=("job",)),
)  # fmt: skip

#: Their names: ``layer`` of a kind is one of them, or of a package's.
LANES = tuple(lane.name for lane in BUILT_IN_LANES)


#: A sentence of advice and, where one helps, a command.
Advice = tuple[str, str | None]

#: Which lines in a run's output support a cause: about a GPU, about storage, about lost peers; any: its last error was
#: compared already.
Words = Literal["", "gpu", "storage", "peers", "any"]

#: A source that may witness a fact. kernel: the kernel or system log of its hosts; slurmd: their slurmd's log; switch:
#: the log of the switch itself, or of the one at the other end of the link; telemetry: measurements of GPUs; slurmctld:
#: the controller's log.
Source = Literal["kernel", "slurmd", "switch", "telemetry", "slurmctld"]
SOURCES: tuple[Source, ...] = get_args(Source)


class NoAttrs(TypedDict):
    """The attributes of a kind without any besides what, when and where."""


A = TypeVar("A", bound=Mapping[str, object])


@dataclass(frozen=True)
class Instead:
    """What to do about a cause that is over: ``once`` if it came a single time and hurt something, ``unhurt`` if it hurt
    nothing, however often it came; and about one on a ``switch``, which Slurm does not know. Empty: the cause's advice."""

    once: tuple[Advice, ...] = ()
    unhurt: tuple[Advice, ...] = ()
    switch: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Cause:
    """A kind of fact as the root cause of an incident."""

    #: The contract's name of the root cause, and its category (model/categories.py).
    event: str
    category: str
    #: What broke, as a clause of an incident's title.
    title: str
    #: What follows "your job died because".
    plain: str
    #: What to do.
    advice: tuple[Advice, ...] = ()
    #: The title where there is little room; by default, the title up to its first comma.
    short: str = ""
    #: What would be seen if the cause were another one.
    disproof: str = "A sign that the cause was elsewhere: another node of the same job failing first, or the same error without this event."
    #: May a run's end be blamed on it?
    root: bool = True
    #: The contract's name if it came several times in one incident.
    repeated: str = ""
    #: The severity if no run suffered; None makes no incident then.
    unharmed: Severity | None = None
    #: ``trivial(world, fact)``: is such a fact routine, making no incident by itself?
    trivial: Callable[[Any, Fact], bool] | None = None
    #: Does it make an incident only if something follows from it?
    needs_effect: bool = False
    #: Is it something that jobs use up, or wait for?
    exhausted: bool = False
    #: Does its node go on taking jobs? Then one that is submitted again must avoid it.
    avoid: bool = False
    #: What must be so for a job that is submitted again, behind "submit again": it would end the same way otherwise.
    again: str = ""
    #: The lines in a run's output that support it.
    words: Words = ""
    #: What a run reports, for facts that are known from a run's output only.
    reported: str = ""
    #: The highest confidence of a verdict with this root.
    surest: float = 1.0
    #: What is not known about it.
    doubt: str = ""
    #: What would name it, if a fact is nameless.
    nameless: str = ""
    #: What happened at a moment that is only inferred, and why that is known at all.
    began: str = "the machine went down"
    inferred_from: str = ""
    #: The component of a node by which incidents are counted when a node is suspected of failing more often than
    #: others. Empty if it is not about the node itself.
    family: str = ""
    #: What to do in place of ``advice``.
    instead: Instead = Instead()
    #: The beginnings of the names of a node's software that can have to do with it ("nic_" of ``nic_firmware``), as its
    #: agent reports them (collector/agent/sources/software.py).
    software: tuple[str, ...] = ()
    #: Does the machine start again after it? Then its links come back with it, and nothing logs that.
    restarts: bool = False
    #: Is it known by its place alone? Then one that hurt no run goes on as another at this place, whatever its device.
    placed: bool = False


@dataclass(frozen=True)
class Trace:
    """What a kind would have left in the logs, for runs whose node was set DOWN without a known fact of the kind.

    ``rival`` names it among the rejected causes, ``absent`` says what was not seen. ``also``: further kinds that are
    the same rival; ``anywhere``: on whichever host it happened.
    """

    rival: str
    absent: str
    also: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True)
class Band:
    """A range on the time axis. ``state`` is its class on the page (``no_carrier``), ``text`` its label."""

    lane: str
    layer: str
    host: str | None
    device: str | None
    state: str
    text: str


#: What a line says of a device on the repair list. down, up: it lost its link, it has it again. state: one of both.
#: trouble: its driver names it. ``spared``: another took over. errors: it corrupted data. optics: its light or its module is
#: out of limits. corrected: it may have corrected an error by itself (``Kind.corrected``).
Sign = Literal["down", "up", "state", "trouble", "spared", "errors", "optics", "corrected"]


@dataclass(frozen=True)
class Grave:
    """An event after which a node is unfit for jobs.

    ``says(device, xid)``: what a line of it says of the device, and what to do; None if it needs nothing.
    """

    says: Callable[[str | None, int | None], str | None]
    #: Does it say more than other events about the same fault?
    conclusive: bool = False


@dataclass(frozen=True, eq=False)
class Kind(Generic[A]):
    """A kind of fact."""

    name: str
    #: Its lane on the time axis.
    layer: str
    #: What a fact of this kind means, in one sentence.
    summary: str
    #: The type of its attributes.
    attrs: type[A]
    #: Its name in a list of causes, and whether that ends with its duration.
    brief: str = ""
    timed: bool = False
    #: Events of the catalogue that only an extension knows: they are on the lane of this kind.
    events: tuple[str, ...] = ()
    #: Its root cause; None if it is only an effect.
    cause: Cause | None = None
    #: ``variant(fact)``: another cause for special facts of the kind, or None.
    variant: Callable[[Fact], Cause | None] | None = None
    #: Those of them that have a name of their own.
    variants: tuple[Cause, ...] = ()
    #: The sources that have a line about it if it is true. A verdict is less sure for each that was not collected.
    witnesses: tuple[Source, ...] = ()
    #: Later facts of the same device within this many seconds belong to the same incident.
    repeats_s: float | None = None
    #: Facts of one device that follow each other closely are one incident, and are counted.
    flaps: bool = False
    #: The component of a node that a drain reason names for it.
    component: str = ""
    #: Does a run show it by its pace, and not by ending?
    pace: bool = False
    #: Does it make Slurm give its node up?
    sets_down: bool = False
    #: The role of its lines in an incident whose root is another fact.
    role: Literal["effect", "symptom"] = "symptom"
    #: ``measured(fact)``: the text for a fact without a line of its own.
    measured: Callable[[Fact], str] | None = None
    #: ``reach(fact)``: the place of the runs that it reaches ("behind leaf12"), if that is not "on its host".
    reach: Callable[[Fact], str] | None = None
    #: ``bands(fact)``: its ranges on the time axis.
    bands: Callable[[Fact], list[Band]] | None = None
    #: What is measured of its device (``correlator.model.gauges``): drawn on the time axis beside it.
    gauges: tuple[str, ...] = ()
    #: May its device be one that these gauges do not measure? That such a one was not sampled says nothing.
    any_device: bool = False
    #: What it would have left in the logs.
    trace: Trace | None = None
    #: ``awaits(fact)``: may the next lines of its silent hosts show another cause?
    awaits: Callable[[Fact], bool] | None = None
    #: Within this many seconds after it began, the lines that show it have been written: a run that ended before is not
    #: explained by it later (verdicts/horizon.py).
    reported_within_s: float = REPORTED_WITHIN_S
    #: For the end of a run: what may still be reported that changes its verdict.
    awaited: str = "causes of its end may be reported"
    #: For a device of which the repair list counts lines: event of the catalogue -> what a line of it says.
    signs: Mapping[str, Sign] = field(default_factory=dict)
    #: ``corrected(event)``: did the device correct an error by itself, and go on?
    corrected: Callable[[Event], bool] | None = None
    #: For a device without which a node is unfit for jobs: event of the catalogue -> what such a line says.
    grave: Mapping[str, Grave] = field(default_factory=dict)

    def fact(
        self, start: float, end: float | None, sigma: float, host: str | None = None, device: str | None = None,
        run: str | None = None, attrs: A | None = None, events: tuple[Event, ...] = (),
    ) -> Fact:  # fmt: skip
        """A fact of this kind, with attributes of its own type."""
        return Fact(self.name, start, end, sigma, host, device, run, attrs or {}, events)  # type: ignore[arg-type]

    def attrs_of(self, fact: Fact) -> A:
        """The attributes of a fact of this kind, by their types."""
        return cast("A", fact.attrs)

    def as_attrs(self, attrs: A) -> Attrs:
        """Attributes of this kind, for a fact that replaces another one (``dataclasses.replace``)."""
        return cast("Attrs", attrs)

    def cause_of(self, fact: Fact) -> Cause:
        """The root cause for this fact of the kind."""
        special = self.variant(fact) if self.variant else None
        return special or self.cause or Cause(self.name, "unknown", f"{self.name} on {{host}}", self.name, root=False)


def undeclared(name: str) -> Kind[NoAttrs]:
    """A default declaration for a kind that a detector names and no subject declares."""
    return Kind(name, "node", "", NoAttrs)


def literal(text: object) -> str:
    """Escapes a text, so that a template with it contains no placeholders."""
    return str(text).replace("{", "{{").replace("}", "}}")


#: Names that every template may use, besides the attributes of its own kind.
_WORDS = frozenset({"code", "behind", "host", "device", "what", "runs", "nodes", "count", "for_time"})


def misplaced(kind: Kind[Any], lanes: Sequence[str] = LANES) -> list[str]:
    """A lane, a category, a sign or a source of a declaration that does not exist.

    Readers would not find such a fact where they look for it.
    """
    wrong = []
    if kind.layer not in lanes:
        wrong.append(f"there is no lane {kind.layer!r}, but {', '.join(lanes)}")
    for cause in (kind.cause, *kind.variants):
        if cause is not None and cause.category not in CATEGORIES:
            wrong.append(f"there is no category {cause.category!r}, but {', '.join(CATEGORIES)}")
    for sign in kind.signs.values():
        if sign not in get_args(Sign):
            wrong.append(f"there is no sign {sign!r}, but {', '.join(get_args(Sign))}")
    for source in kind.witnesses:
        if source not in SOURCES:
            wrong.append(f"there is no source {source!r}, but {', '.join(SOURCES)}")
    return wrong


def unfilled(kind: Kind[Any]) -> list[str]:
    """Errors in the templates of a declaration: names that are neither attributes nor common to all templates."""
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
    """The template, filled with the fact's own values."""
    if "{" not in template and "}" not in template:
        return template
    seconds, hosts = fact.duration, fact.attrs.get(HOSTS, ())
    words: dict[str, object] = {  # their names are in _WORDS
        "code": None, "behind": None, **by_name(fact.attrs),
        "host": fact.host or "an unnamed node", "device": fact.device or "the port",
        "what": f"switch {fact.host}" if fact.host else "what these nodes share", "runs": _runs(fact),
        "nodes": fold(sorted(hosts)) if "{nodes}" in template else "", "count": len(hosts),
        "for_time": f" for {seconds:.1f} s" if seconds is not None else "",
    }  # fmt: skip
    return template.format_map(words)


def _runs(fact: Fact) -> str:
    runs = fact.attrs.get(RUNS) or ()
    return f"{len(runs)} runs" if len(runs) > 1 else f"job {runs[0]}" if runs else "the run"
