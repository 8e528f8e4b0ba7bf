"""Requirements of edges about memory guards. Each gives the reason if it does not hold."""

from __future__ import annotations

from correlator.edges.conditions.declaration import Conditions
from correlator.facts.jobs.deaths import killed_tasks, tasks_on, was_killed
from correlator.facts.memory_guards import MOST, held_by, kills_of
from correlator.facts.world import World, run_of
from correlator.model.nouns import Fact

CONDITIONS = Conditions()


@CONDITIONS.named("killed by the guard", "A task of the run died by SIGKILL as the guard killed a process of its user.")
def killed_it(world: World, cause: Fact, effect: Fact) -> str | None:
    """A task of the run died by SIGKILL as the guard killed a process of its user."""
    run = run_of(world, effect)
    if run is None or not was_killed(world, run, effect):
        return "the run did not end by SIGKILL"
    if not any(kill is cause for kill in kills_of(world, run, killed_tasks(world, run))):
        return f"no task of the run on {cause.host} was killed at that moment"
    return None


@CONDITIONS.named("others held the memory", "It is known who held the memory, and the run held less than most of it.")
def others_held_most(world: World, cause: Fact, effect: Fact) -> str | None:
    held = held_by(cause, tasks_on(cause.host or "", effect))
    if held is None:
        return "it does not tell who held the memory"
    return f"the run may have held {held:.0%} of the memory in use" if held >= MOST else None
