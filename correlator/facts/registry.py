"""The detectors in the order in which they build on each other, built-in and installed ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from correlator.facts import (
    control,
    cooling,
    gpus,
    jobs,
    links,
    munge,
    nodes,
    output_hardware,
    silent_nodes,
    slow_runs,
    slurmd,
    storage,
    unnamed_causes,
)
from correlator.facts.world import World
from correlator.model.nouns import Fact

#: In the order in which they build on each other.
MODULES: tuple[ModuleType, ...] = (
    links,
    munge,
    nodes,
    slurmd,
    control,
    unnamed_causes,
    gpus,
    cooling,
    storage,
    output_hardware,
    jobs,
    silent_nodes,
    slow_runs,
)

Detector = Callable[[World], list[Fact]]


@cache
def detectors() -> tuple[Detector, ...]:
    """Built-in detectors in the order in which they build on each other, then those of installed packages; found once,
    because asking what is installed reads files."""
    found: list[Detector] = [d for module in MODULES for d in module.DETECTORS]
    for point in sorted(entry_points(group="faultline.detectors"), key=lambda p: p.name):
        found += point.load()
    return tuple(found)


@cache
def kinds() -> frozenset[str]:
    """All kinds of facts that any detector may conclude: what edges may name."""
    own = {kind for module in MODULES for kind in module.KINDS}
    return frozenset(own.union(*(getattr(d, "kinds", ()) for d in detectors())))


def conclude(world: World) -> list[Fact]:
    """Runs every detector; the result is sorted, so that it does not depend on detector internals."""
    for detector in detectors():
        world.facts += sorted(detector(world), key=lambda f: f.key)
    world.facts.sort(key=lambda f: f.key)
    world._facts_by_kind, world._facts_by_job = (-1, {}), (-1, {})
    return world.facts
