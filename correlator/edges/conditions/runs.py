"""Requirements of edges about the run itself. Like those of ``registry.py``: None if one holds, else why it does not."""

from __future__ import annotations

from correlator.facts.jobs.deaths import killed_at_once
from correlator.facts.world import World, run_of
from correlator.model.attributes import WORDS
from correlator.model.nouns import Fact


def several_nodes(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return None if run is None or len(run.nodes) > 1 else f"job {run.key} ran on one node only"


def no_own_words(world: World, cause: Fact, effect: Fact) -> str | None:
    words = effect.attrs.get(WORDS) or {}
    return "the run's output tells of its own error" if words.get("own") else None


def ended_by_itself(world: World, cause: Fact, effect: Fact) -> str | None:
    """A rank that loses its rail gives up, with a code or an abort; the others are killed after it."""
    return "all tasks of the run were killed, none had ended before" if killed_at_once(effect) else None


def no_lost_peers(world: World, cause: Fact, effect: Fact) -> str | None:
    """A run whose output dates the loss of its peers is judged by that moment, not by its end."""
    words = effect.attrs.get(WORDS) or {}
    return "the run's output tells when its peers were lost" if words.get("peers") else None
