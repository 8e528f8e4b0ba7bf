"""Requirements of edges about nodes: their boots, silences and drains.

Each gives the reason if it does not hold.
"""

from __future__ import annotations

from correlator.edges.conditions.declaration import Conditions
from correlator.edges.conditions.links import name_of
from correlator.facts.jobs.lines import of_run
from correlator.facts.nodes.kinds import NODE_DEAD, NODE_OVERHEATED, NODE_PANIC, NODE_REBOOT, SPEAKS_WITHIN_S
from correlator.facts.registry import kind_of
from correlator.facts.world import World, run_of, word_between
from correlator.model.attributes import (
    ASKED,
    BOOT,
    COMPONENT,
    FAR_END_ONLY,
    INFERRED,
    LAST_RESPONSE,
    MAINTENANCE,
    NOTICED,
    PASSING,
    PLANNED,
    UNRESUMED,
)
from correlator.model.nouns import Fact

CONDITIONS = Conditions()


@CONDITIONS.named("not back before effect", "slurmd had not come back before.")
def not_back_before(world: World, cause: Fact, effect: Fact) -> str | None:
    back = cause.attrs.get(NOTICED, cause.end)
    return (
        f"slurmd was back {effect.start - back:.1f} s before"
        if back is not None and back < effect.start - 1.0
        else None
    )


@CONDITIONS.named("a step lost its node", "A step of the run was notified that it had lost a node.")
def names_node_failure(world: World, cause: Fact, effect: Fact) -> str | None:
    """A job that is to outlive its nodes (``--no-kill``) loses a step with one, and ends as its script does."""
    run = run_of(world, effect)
    lines = of_run(run, world.by_job.get(run.job_id, ())) if run else []
    phrases = ("node failure on", "due to node failure")
    if any(e.source != "slurmctld" and any(words in e.message.lower() for words in phrases) for e in lines):
        return None
    return "no step of the run was told to have lost a node"


#: How long a machine that is going down may still log after its network is gone.
LAST_WORDS_S = 10.0


@CONDITIONS.named("silent until it booted", "The machine logged nothing from the loss until it booted.")
def silent_till_boot(world: World, cause: Fact, effect: Fact) -> str | None:
    """The machine logged nothing more until it booted.

    That is so for a machine that a run's other nodes lost; one that ended with its run logs at least that.
    """
    logged = cause.attrs.get(BOOT)
    boot = float(logged or cause.end or cause.start)
    host, run = cause.host or "", run_of(world, effect)
    if run is None or run.start is None or run.start >= boot - cause.sigma:
        return f"the run began after {host} had booted"
    if effect.start >= boot:
        return None
    if cause.attrs.get(PLANNED) or cause.attrs.get(PASSING):
        return f"{host} was rebooted on purpose"
    if word_between(world, host, effect.start - SPEAKS_WITHIN_S, boot) is None:
        return f"nothing tells when {host} wrote last"
    word = word_between(world, host, effect.start + LAST_WORDS_S + effect.sigma, boot)
    return f"{host} still wrote {word - effect.start:.0f} s after" if word else None


@CONDITIONS.named(
    "away at the boot",
    "The link was still down when the machine went down, or was lost within two minutes of its boot.",
)
def away_at_boot(world: World, cause: Fact, effect: Fact) -> str | None:
    """The link was still down when the machine went down, or was lost within two minutes of its boot.

    A machine that goes on logging after its link was lost was up; it may have been booted later, to repair it.
    """
    if abs(effect.start - cause.start) <= 120.0:
        return None
    has_log = bool(world.spoke_at(cause.host or ""))  # for a host whose log is missing, silence proves nothing
    until = cause.start if effect.end is None else effect.end + (POST_S if has_log else 0.0)
    # If only its own moment is known of a boot, the machine may have gone any time after its last line.
    logged = cause.attrs.get(BOOT)
    boot = float(logged or cause.start)
    # Where it logged nothing of the loss, it may have gone in that moment.
    went = effect.start if cause.attrs.get(INFERRED) and effect.attrs.get(FAR_END_ONLY) and has_log else cause.start
    if not effect.start <= min(max(went, cause.start), boot) <= until:
        return f"{name_of(effect)} was back before {cause.host} went down"
    word = word_between(world, cause.host or "", effect.start + SHUTTING_DOWN_S, max(boot, cause.start))
    return f"{cause.host} wrote on for {word - effect.start:.0f} s after {name_of(effect)} was lost" if word else None


#: A machine that is shut down takes its links down first, and writes its last lines within this.
SHUTTING_DOWN_S = 90.0

#: Firmware brings links up while it tests the machine, minutes before the kernel starts.
POST_S = 300.0


@CONDITIONS.named("silent until the boot", "The machine logged nothing from when it was set DOWN until it booted.")
def silent_until_boot(world: World, cause: Fact, effect: Fact) -> str | None:
    """A machine that still logged after slurmctld had given it up was alive; its later boot repaired something else."""
    if cause.start <= effect.start or cause.attrs.get(LAST_RESPONSE) is None:
        return f"{cause.host} had booted before" if cause.start <= effect.start else "its last answer is not known"
    word = word_between(world, cause.host or "", effect.start + effect.sigma + 2.0, cause.start)
    return f"{cause.host} still wrote {word - effect.start:.0f} s after it was set DOWN" if word else None


@CONDITIONS.named("booted by itself", "Nobody ordered the boot, and the node was up before.")
def unasked(world: World, cause: Fact, effect: Fact) -> str | None:
    """A node that was switched on, or ordered to boot, did not go down by itself."""
    asked = cause.attrs.get(ASKED)
    if asked:
        return f"{cause.host} did not boot by itself: {asked}"
    return f"{cause.host} was not up before: Slurm had powered it up" if effect.attrs.get(UNRESUMED) else None


#: A machine that died no longer answers; what was lost after that did not silence it.
DIED_S = 1000.0


@CONDITIONS.named("node lived until then", "The machine had not died before.")
def lived_until_then(world: World, cause: Fact, effect: Fact) -> str | None:
    host = effect.host
    for died in world.facts_of(NODE_PANIC.name, NODE_OVERHEATED.name, NODE_DEAD.name):
        if died.host != host or not 2.0 + died.sigma + cause.sigma < cause.start - died.start <= DIED_S:
            continue
        back = [
            f
            for f in world.facts_of(NODE_REBOOT.name)
            if f.host == host and died.start < (f.end or f.start) <= cause.start
        ]
        if not back:
            return f"{host} had died {cause.start - died.start:.0f} s before"
    return None


@CONDITIONS.named("named by the reason", "The reason given for the node names this component.")
def named_by_reason(world: World, cause: Fact, effect: Fact) -> str | None:
    """A health check names what it found; a person may, too (parsers/reasons.py)."""
    named = effect.attrs.get(COMPONENT)
    if named and named == kind_of(cause.kind).component:
        return None
    return f"the reason given for {effect.host} does not speak of it"


@CONDITIONS.named("planned work", "The drain names planned work, and no run was on the node.")
def planned_work(world: World, cause: Fact, effect: Fact) -> str | None:
    if not cause.attrs.get(MAINTENANCE):
        return "the drain names no planned work"
    return None if not world.runs_at(effect.host or "", effect.start - 2.0) else "runs were still on the node"
