"""What a requirement of an edge is: its name, what it means and its test, declared in one place.

``CONDITIONS = Conditions()`` of a module collects those that its functions test::

    @CONDITIONS.named("fabric link", "The link carries the jobs' data.")
    def fabric(world: World, cause: Fact, effect: Fact) -> str | None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from correlator.facts.world import World
from correlator.model.nouns import Fact, Run

#: ``test(world, cause, effect)``: None if the requirement holds, else why it does not, in words for a person.
Test = Callable[[World, Fact, Fact], str | None]

#: ``of_run(run, end)``: may the requirement hold for a run's end, whatever the cause is?
OfRun = Callable[[Run, Fact], bool]


@dataclass(frozen=True)
class Condition:
    """A requirement by which an edge holds or not. Edges name it."""

    name: str
    #: What must be so, in one sentence.
    summary: str
    test: Test
    #: For a requirement that a run decides without its cause: the run does not wait for the lines of a cause that could
    #: not meet it (verdicts/horizon.py).
    of_run: OfRun | None = None
    #: The name under which a site's edge files may still have it.
    formerly: str = ""


class Conditions(dict[str, Condition]):
    """Requirements by name."""

    def named(
        self, name: str, summary: str, of_run: OfRun | None = None, *, formerly: str = ""
    ) -> Callable[[Test], Test]:
        """Declares the function as the test of a requirement. The function itself stays what it is."""
        if name in self:
            raise ValueError(f"the requirement {name!r} is declared already")

        def declare(test: Test) -> Test:
            self[name] = Condition(name, summary, test, of_run, formerly)
            return test

        return declare


def declared(name: str, offered: Condition | Test) -> Condition:
    """A requirement of a package, by the name that edges use. It may be a bare function: then the first line of its
    docstring says what it means."""
    if isinstance(offered, Condition):
        return offered if offered.name == name else replace(offered, name=name)
    return Condition(name, first_line(offered), offered)


def first_line(offered: object) -> str:
    """The first line of a docstring; empty without one."""
    return next(iter((getattr(offered, "__doc__", None) or "").strip().splitlines()), "")
