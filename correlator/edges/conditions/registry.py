"""Requirements of edges by name, gathered from the modules that declare them: hard filters that give a reason when they fail."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from correlator.edges.conditions import gpus, guards, hangs, io_errors, launches, links, nodes, retries, runs, storage
from correlator.edges.conditions.declaration import Condition, Conditions, Test, declared
from correlator.facts.registry import vocabulary

MODULES = (gpus, guards, hangs, io_errors, launches, links, nodes, retries, runs, storage)


def _gathered() -> Conditions:
    found = Conditions()
    for module in MODULES:
        for name, condition in module.CONDITIONS.items():
            if name in found:
                raise ValueError(f"{module.__name__}: the requirement {name!r} is declared already")
            found[name] = condition
    return found


CONDITIONS = _gathered()


@cache
def conditions() -> Mapping[str, Condition]:
    """All requirements by name, including those of installed packages."""
    found: Mapping[str, Condition | Test] = vocabulary("CONDITIONS", CONDITIONS)
    return {name: declared(name, one) for name, one in found.items()}


@cache
def tests() -> Mapping[str, Test]:
    """The test of each requirement: None if it holds, else why it does not."""
    return {name: condition.test for name, condition in conditions().items()}
