"""Requirements of edges about runs that stood still, became slow, or lost their peers.

Each gives the reason if it does not hold.
"""

from __future__ import annotations

from correlator.edges.conditions.declaration import Conditions
from correlator.edges.conditions.retries import RETRIED
from correlator.facts.gpu_holders import had_none
from correlator.facts.held_back import throttled_share
from correlator.facts.jobs.output import logged_timeout
from correlator.facts.slow_runs import REPORTS
from correlator.facts.world import World, run_of
from correlator.model.attributes import LASTING, LOST, PROCESSORS, TIMEOUT, UNENDED, WORDS
from correlator.model.moments import UNSTAMPED_S
from correlator.model.nouns import Fact

CONDITIONS = Conditions()

#: A hang that began later than this before the time limit did not make the run miss it.
HUNG_S = 120.0


@CONDITIONS.named("hung long before", "The ranks lost their peers long before the time limit ended the run.")
def hung_long_before(world: World, cause: Fact, effect: Fact) -> str | None:
    """The run's ranks had lost their peers long before it ended.

    Ranks that a time limit ends lose their peers as well; such a loss did not hold the run up.
    """
    if cause.sigma >= UNSTAMPED_S:
        # Output without timestamps is placed where the run ended: its lines must show that a rank waited in vain.
        return (
            None
            if any(RETRIED.search(e.message) for e in cause.events)
            else "its ranks were lost when it was ended, as far as its output tells"
        )
    timeout = cause.attrs.get(TIMEOUT)
    lead = effect.start - cause.start + float(timeout or 0.0)
    return (
        None
        if lead >= HUNG_S
        else f"its ranks lost each other {lead:.0f} s before the limit, which it would have reached anyway"
    )


@CONDITIONS.named("printed timeout", "The program printed how long it had waited.")
def printed_timeout(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if effect.attrs.get(TIMEOUT) else "the program printed no timeout"


@CONDITIONS.named("no printed timeout", "The program printed no timeout of its own.")
def no_printed_timeout(world: World, cause: Fact, effect: Fact) -> str | None:
    return "the program printed its own timeout" if effect.attrs.get(TIMEOUT) else None


@CONDITIONS.named("did not hang", "The run did not yet stand still, by its watchdog, when the cause came.")
def did_not_hang(world: World, cause: Fact, effect: Fact) -> str | None:
    """A watchdog that ran out shows that the run had stood still for that long: what silenced it happened before that."""
    timeout = max(
        (
            logged_timeout([e]) or 0.0
            for e in (effect.attrs.get(WORDS) or {}).get("peers", ())
            if e.kind == "job.nccl_timeout"
        ),
        default=0.0,
    )
    if effect.start - cause.start < timeout - HANG_SLACK_S:
        return f"the run had stood still for {timeout:g} s when its watchdog ended it"
    return None


#: What fails while a run already hangs did not make it hang; timestamps and the watchdog's rounds take this much.
HANG_SLACK_S = 90.0


@CONDITIONS.named("slow to the end", "The run stayed slow, or lost more time than it had left.")
def slow_to_the_end(world: World, cause: Fact, effect: Fact) -> str | None:
    """What slowed for a while and recovered cost that time only; it must exceed what the run had left."""
    run = run_of(world, effect)
    length = (run.end - run.start) if run and run.end is not None and run.start is not None else 0.0
    lost = float(cause.attrs.get(LOST, 0.0))
    if not cause.attrs.get(LASTING) and lost < 0.5 * length:
        return f"the run was back to its pace and had lost {lost:.0f} s"
    if lost < 0.05 * length:
        return f"only {lost:.0f} s of {length:.0f} s were lost"
    return None


@CONDITIONS.named("while slow", "The cause lasted for at least half of the time in which the run was slow.")
def while_slow(world: World, cause: Fact, effect: Fact) -> str | None:
    """Cause and slowness must coincide for most of the time (correlation.md, E28: 70 %)."""
    until = effect.end if effect.end is not None else world.last
    over = cause.end is not None and not cause.attrs.get(UNENDED)
    end = cause.end if over and cause.end is not None else until  # no line says that it was over
    shared = min(end + cause.sigma + effect.sigma, until) - max(cause.start - cause.sigma, effect.start - effect.sigma)
    length = max(1.0, until - effect.start)
    return (
        None if shared >= 0.5 * length else f"it went on for {max(0.0, shared):.0f} s of the {length:.0f} slow seconds"
    )


#: A run that was throttled for less of its time than this lost less than that.
HALF = 0.5


@CONDITIONS.named(
    "throttled for most of its time",
    "The run's node was throttled for at least half of its time, and it reported no pace of its own.",
)
def throttled(world: World, cause: Fact, effect: Fact) -> str | None:
    """A run that reports its steps shows by its pace whether heat slowed it (correlation.md, E28)."""
    run = run_of(world, effect)
    if run is None:
        return "nothing tells when it ran"
    if len(world.progress.get((run.job_id, run.attempt), ())) >= REPORTS:
        return f"job {run.key} reported its own pace"
    if not cause.attrs.get(PROCESSORS) and had_none(world, run, effect.start):
        return f"job {run.key} had no GPU"
    share = throttled_share(run, cause)
    return None if share >= HALF else f"{cause.host} was throttled for {share:.0%} of its time"
