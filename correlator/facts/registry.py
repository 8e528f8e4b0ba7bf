"""All kinds of facts and their detectors, built-in and installed: the one place to look up a kind.

A *subject* is a module (or a package) with ``KINDS``, its declarations, and ``DETECTORS``, the functions that conclude
them. It may have ``EDGES``, its files of causal edges, and its own ``CONDITIONS`` and ``SCOPES`` for them. Subjects of
other packages are entry points of the group ``faultline.facts`` that name the module; they are read like the built-in
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from correlator.facts import (
    configuration,
    control,
    cooling,
    fabric_managers,
    forgotten_jobs,
    gpus,
    link_modules,
    memory_guards,
    memory_limits,
    munge,
    output_hardware,
    silent_nodes,
    slow_runs,
    slurmd,
    storage,
    storage_hangs,
    time_limits,
    unnamed_causes,
)
from correlator.facts.environment import detector as environment
from correlator.facts.jobs import detector as jobs
from correlator.facts.launches import detector as launches
from correlator.facts.links import detector as links
from correlator.facts.nodes import detector as nodes
from correlator.facts.world import World
from correlator.model.categories import CATEGORIES
from correlator.model.kinds import Cause, Grave, Kind, Sign, fill, undeclared
from correlator.model.nouns import Fact, Revision
from correlator.model.subjects import installed, packages, register
from correlator.model.unchanged import Unchanged
from parsers import extensions

#: In the order in which they build on each other.
BUILT_IN = (
    links, link_modules,
    munge, nodes, slurmd, control, configuration, forgotten_jobs, memory_guards, unnamed_causes, gpus, fabric_managers, cooling, storage, output_hardware, jobs, memory_limits,
    environment, launches, silent_nodes, slow_runs, storage_hangs, time_limits,
)  # fmt: skip

register(kind for subject in BUILT_IN for kind in subject.KINDS)

V = TypeVar("V")

#: Concludes facts from a world, or revises earlier ones.
Detector = Callable[[World], Sequence[Fact | Revision]]


@cache
def subjects() -> tuple[Any, ...]:
    """Built-in subjects in the order in which they build on each other, then those of installed packages."""
    return (*BUILT_IN, *installed())


@cache
def detectors() -> tuple[Detector, ...]:
    """The detectors of all subjects, then single ones of installed packages (entry points of ``faultline.detectors``)."""
    built_in = (detector for subject in BUILT_IN for detector in subject.DETECTORS)
    return (*built_in, *_brought())


@cache
def _brought() -> Mapping[Detector, str]:
    """The detectors of installed packages, with the entry points' names for messages."""
    found = {detector: called for called, module in packages().items() for detector in module.DETECTORS}
    for called, single in extensions.load("faultline.detectors", _several):
        found |= dict.fromkeys(single, called)
    return found


def _several(offered: object, extension: extensions.Extension) -> tuple[str, tuple[Detector, ...]]:
    if not isinstance(offered, (list, tuple)) or not all(callable(detector) for detector in offered):
        raise TypeError(f"is of type {type(offered).__name__}, not a list of functions")
    return extension.called, tuple(offered)


@cache
def kinds() -> Mapping[str, Kind[Any]]:
    """All kinds of facts that any detector may conclude, by name: the names that edges may use.

    Raises ``ValueError`` if two built-in subjects declare the same one. A package that does so is skipped
    (``correlator.model.subjects``).
    """
    found: dict[str, Kind[Any]] = {}
    for subject in subjects():
        for kind in subject.KINDS:
            if kind.name in found:
                raise ValueError(f"{subject.__name__}: the kind of fact {kind.name!r} is declared already")
            found[kind.name] = kind
    for detector in detectors():
        for name in getattr(detector, "kinds", ()):
            found.setdefault(name, undeclared(name))
    return found


@cache
def _unknown(name: str) -> Kind[Any]:
    return undeclared(name)


def vocabulary(name: str, built_in: Mapping[str, V]) -> Mapping[str, V]:
    """The ``CONDITIONS`` or ``SCOPES`` that edges may use.

    Subjects add to the built-in ones and replace none of them.
    """
    found: dict[str, V] = {}
    for called, module in packages().items():
        for word in sorted(built_in.keys() & getattr(module, name, {}).keys()):
            extensions.warn_once(f"{called}: {word!r} of its {name} is taken by a built-in one, which is used")
    for subject in subjects():
        found |= getattr(subject, name, {})
    return {**found, **built_in}


def kind_of(name: str) -> Kind[Any]:
    """The declaration of a kind; an empty one if it is not declared."""
    return kinds().get(name) or _unknown(name)


def kinds_where(test: Callable[[Kind[Any]], object]) -> frozenset[str]:
    """The names of the kinds for which ``test`` holds."""
    return frozenset(name for name, kind in kinds().items() if test(kind))


@cache
def roots() -> frozenset[str]:
    """Kinds of facts that a run's end may be blamed on: the rest are ways of showing it."""
    return kinds_where(lambda kind: kind.cause is not None and kind.cause.root)


@cache
def event_names() -> frozenset[str]:
    """The contract's names of all root causes."""
    return frozenset(kind.cause.event for kind in kinds().values() if kind.cause)


@cache
def kinds_of_event(event: str) -> tuple[str, ...]:
    """The kinds of facts whose root cause has this name in the contract."""
    return tuple(
        sorted(
            name
            for name, kind in kinds().items()
            if kind.cause and event in {kind.cause.event, *(one.event for one in kind.variants)}
        )
    )


@cache
def exhaustions() -> frozenset[str]:
    """Root causes that are a resource which jobs use up or wait for."""
    return frozenset(kind.cause.event for kind in kinds().values() if kind.cause and kind.cause.exhausted)


@cache
def families() -> Mapping[str, str]:
    """Root cause -> the component of a node that it is about, for those about a node itself."""
    return {
        event: kind.cause.family for kind in kinds().values() if kind.cause and kind.cause.family
        for event in (kind.cause.event, kind.cause.repeated) if event
    }  # fmt: skip


@cache
def once() -> Mapping[str, str]:
    """The name of a repeated root cause -> its name when it occurs once."""
    return {kind.cause.repeated: kind.cause.event for kind in kinds().values() if kind.cause and kind.cause.repeated}


@cache
def causes() -> tuple[Cause, ...]:
    """The root causes of all kinds, those with a name of their own in special facts of a kind included."""
    return tuple(
        cause for kind in kinds().values() for cause in ((kind.cause, *kind.variants) if kind.cause else kind.variants)
    )


@cache
def names_of_category(category: str) -> frozenset[str]:
    """The contract's names of all root causes of a category."""
    return frozenset(name for one in causes() if one.category == category for name in (one.event, one.repeated) if name)


@cache
def software_of(event: str) -> tuple[str, ...]:
    """The beginnings of the names of a node's software that can have to do with a root cause."""
    found = {name for one in causes() if event and event in (one.event, one.repeated) for name in one.software}
    return tuple(sorted(found))


@cache
def restarts() -> tuple[str, ...]:
    """Root causes after which a machine starts again."""
    return tuple(sorted({one.event for one in causes() if one.restarts}))


@cache
def signs() -> Mapping[str, tuple[Sign, Kind[Any]]]:
    """Event of the catalogue -> what a line of it says of a device on the repair list, and the kind that declares it."""
    return _first_of("signs", lambda kind: kind.signs)


@cache
def events_with(*wanted: Sign) -> tuple[str, ...]:
    """The events of the catalogue that say this of a device."""
    return tuple(sorted(event for event, (sign, _) in signs().items() if sign in wanted))


@cache
def grave() -> Mapping[str, tuple[Grave, Kind[Any]]]:
    """Event of the catalogue -> why a node is unfit for jobs after a line of it, and the kind that declares it."""
    return _first_of("grave", lambda kind: kind.grave)


def _first_of(what: str, of_kind: Callable[[Kind[Any]], Mapping[str, V]]) -> Mapping[str, tuple[V, Kind[Any]]]:
    """What kinds declare for events. The first one counts, and built-in kinds are first: no package replaces theirs."""
    found: dict[str, tuple[V, Kind[Any]]] = {}
    for kind in kinds().values():
        for event, declared in of_kind(kind).items():
            _, first = found.setdefault(event, (declared, kind))
            if first is not kind:
                extensions.warn_once(
                    f"kind of fact {kind.name}: {event!r} of its {what} is declared by {first.name}, which is used"
                )
    return found


def cause_of(fact: Fact) -> Cause:
    """The root cause that a fact is in an incident."""
    return kind_of(fact.kind).cause_of(fact)


def root_event(fact: Fact, times: int = 1) -> str:
    """The contract's name of a root cause that occurred ``count`` times. Slurm's effect decides severity, not the name."""
    cause = cause_of(fact)
    return cause.repeated if times > 1 and cause.repeated else cause.event


def title_of(fact: Fact) -> str:
    """The clause of an incident's title: what broke."""
    return fill(cause_of(fact).title, fact)


def short_of(fact: Fact) -> str:
    """What broke, short enough for a table."""
    short = cause_of(fact).short
    return fill(short, fact) if short else title_of(fact).split(",")[0]


def brief_of(fact: Fact) -> str:
    """The name of a fact in a list of causes."""
    kind = kind_of(fact.kind)
    return fill(kind.brief, fact) if kind.brief else fact.kind


def _try_texts(found: Sequence[Fact | Revision]) -> None:
    """Fills every template of these facts and looks up their categories. What does not fit must fail here, where it
    costs one detector, and not in the sentences of a verdict, where it would stop the pass."""
    for one in found:
        fact = one.fact if isinstance(one, Revision) else one
        for words_of in (title_of, short_of, brief_of):
            words_of(fact)
        cause = cause_of(fact)
        if cause.category not in CATEGORIES:
            raise ValueError(f"kind {fact.kind}: there is no category {cause.category!r}, but {', '.join(CATEGORIES)}")
        for text in (text for advice in cause.advice for text in advice if text):
            fill(text, fact)


def conclude(world: World) -> list[Fact]:
    """Runs every detector; the result is sorted, so that it does not depend on detector internals.

    An installed package's detector that raises, that changes facts of others, or whose facts do not fit the templates of
    their kind, is left out of this pass; the log and the doubts of every verdict name it.
    """
    world.declared = kinds()
    before: Unchanged | None = None
    for detector in detectors():
        called = _brought().get(detector)
        if called is None:
            world.conclude(detector(world))
            continue
        if before is None:
            before = Unchanged(world.facts)
        try:
            found = list(detector(world))
            _try_texts(found)
            before.check(world.facts)
            world.conclude(found)
            before.remember(world.facts)
        except Exception as error:
            world.facts = before.restored()
            world.facts_moved()
            name = getattr(detector, "__qualname__", repr(detector))
            why = f"detector {name} of {called} raised {extensions.described(error)}"
            extensions.warn_once(f"{why}; it is left out of this pass", error)
            world.left_out.append(f"{why}: what it concludes is missing here.")
    world.facts.sort(key=lambda f: f.key)
    world.facts_moved()
    return world.facts
