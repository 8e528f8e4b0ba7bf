"""Requirements of edges about the run itself. Each gives the reason if it does not hold."""

from __future__ import annotations

from correlator.edges.conditions.declaration import Conditions
from correlator.facts.jobs.deaths import killed_at_once
from correlator.facts.world import World, run_of
from correlator.model.attributes import WORDS
from correlator.model.nouns import Fact, Run

CONDITIONS = Conditions()


def _had_several(run: Run, end: Fact) -> bool:
    return len(run.nodes) != 1


@CONDITIONS.named("several nodes", "The run had more than one node.", _had_several)
def several_nodes(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return None if run is None or len(run.nodes) > 1 else f"job {run.key} ran on one node only"


@CONDITIONS.named("no words of its own", "The run's output tells of no error of its own.")
def no_own_words(world: World, cause: Fact, effect: Fact) -> str | None:
    words = effect.attrs.get(WORDS) or {}
    return "the run's output tells of its own error" if words.get("own") else None


@CONDITIONS.named("a task ended by itself", "A task of the run ended before the others were killed.")
def ended_by_itself(world: World, cause: Fact, effect: Fact) -> str | None:
    """A rank that loses its rail gives up, with a code or an abort; the others are killed after it."""
    return "all tasks of the run were killed, none had ended before" if killed_at_once(effect) else None


@CONDITIONS.named(
    "no lost peers reported", "The run's output does not tell when its peers were lost.", formerly="no lost peers told"
)
def no_lost_peers(world: World, cause: Fact, effect: Fact) -> str | None:
    """A run whose output dates the loss of its peers is judged by that moment, not by its end."""
    words = effect.attrs.get(WORDS) or {}
    return "the run's output tells when its peers were lost" if words.get("peers") else None
