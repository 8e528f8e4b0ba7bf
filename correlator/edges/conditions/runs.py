"""Requirements of edges about the run itself. Each gives the reason if it does not hold."""

from __future__ import annotations

from correlator.edges.conditions.declaration import Conditions
from correlator.facts.control import ROOT
from correlator.facts.jobs.deaths import killed_at_once
from correlator.facts.world import World, run_of
from correlator.model.attributes import BOOT, WORDS
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


def _nobody_asked(run: Run, end: Fact) -> bool:
    return run.row.get("cancelled_by") in (None, "")


@CONDITIONS.named("nobody asked for its end", "Accounting names nobody who cancelled the run.", _nobody_asked)
def nobody_asked(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return None if run is None or _nobody_asked(run, effect) else "accounting names who cancelled it"


def _may_be_roots(run: Run, end: Fact) -> bool:
    return run.row.get("cancelled_by") in (None, "") or str(run.row["cancelled_by"]) in ROOT


@CONDITIONS.named(
    "its batch host, in its time",
    "It is the run's first node, which runs the batch script, and it came while the run went on; nobody but root cancelled the run.",
    _may_be_roots,
)
def batch_host_in_its_time(world: World, cause: Fact, effect: Fact) -> str | None:
    """A node that boots keeps nothing of a run: where slurmctld does not notice, the run lasts until somebody cancels it."""
    run = run_of(world, effect)
    if run is None or run.start is None or not _may_be_roots(run, effect):
        return "accounting names who cancelled it" if run is not None and run.start is not None else "no start is known"
    if not run.nodes or run.nodes[0] != cause.host:
        return f"{cause.host} is not the first node of the run, which runs its batch script"
    boot = cause.attrs.get(BOOT) or cause.start
    if boot <= run.start:
        return "it came before the run began"
    after = any(
        e.kind == "slurm.step_start" and e.host == cause.host and boot < e.time <= effect.start
        for e in world.by_job.get(run.job_id, ())
    )
    return f"{cause.host} started tasks of the run after it" if after else None
