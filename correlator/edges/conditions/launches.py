"""Requirements of edges about launches. Each gives the reason if it does not hold."""

from __future__ import annotations

from correlator.edges.conditions.declaration import Conditions
from correlator.edges.conditions.links import name_of
from correlator.facts.jobs.kinds import RUN_NODE_FAIL
from correlator.facts.jobs.lines import END_SLACK_S
from correlator.facts.nodes.kinds import ADMIN_DOWN, NODE_DOWN, NODE_REBOOT
from correlator.facts.world import World, run_of
from correlator.model.attributes import FAILED_NODES, NOTICED, REFUSED, REVOKED
from correlator.model.nouns import Fact, Run

CONDITIONS = Conditions()

#: A node that was silent this long before a launch would have been given up before it (seconds: five thirds of a
#: SlurmdTimeout of ten minutes).
BEFORE_S = 1000.0
#: Slurm waits at most this long for a launch: MessageTimeout and BatchStartTimeout, which sites keep below.
AFTER_S = 600.0


@CONDITIONS.named(
    "away at the launch",
    "The node, or its slurmd, was away when the run was to be launched, and had launched nothing of it.",
)
def away(world: World, cause: Fact, effect: Fact) -> str | None:
    """Was the node, or its slurmd, away when the run was to be launched, and did it launch nothing before?"""
    run = run_of(world, effect)
    if run is None or run.start is None:
        return "nothing tells when the run was to be launched"
    begun = [
        e for e in world.by_job.get(run.job_id, ())
        if e.kind == "slurm.step_start" and e.host == effect.host and run.start - 5.0 <= e.time <= effect.start
    ]  # fmt: skip
    if begun:
        return f"{effect.host} had launched it"
    over = cause.end if cause.end is not None else effect.start
    if over < run.start - 1.0 - cause.sigma:
        return f"it was over {run.start - over:.0f} s before the launch"
    late = cause.start - run.start
    if not -BEFORE_S <= late <= AFTER_S:
        return f"it came {abs(late):.0f} s {'after' if late > 0 else 'before'} the launch"
    return None


#: A prolog that fails after 120 s ended no run, and it ends one within 120 s (edge E38).
HARDLY_S = 300.0


def _may_have_hardly_begun(run: Run, end: Fact) -> bool:
    return run.start is None or end.start - run.start <= HARDLY_S


@CONDITIONS.named("run hardly began", "The cause came before the node had worked for the run.", _may_have_hardly_begun)
def hardly_began(world: World, cause: Fact, effect: Fact) -> str | None:
    """A prolog runs before the job does: a failure of one that came later belongs to another run."""
    run = run_of(world, effect)
    if run is None or run.start is None:
        return None
    late = cause.start - run.start
    if late > 120:
        return f"it came {late:.0f} s into the run"
    begun = [
        e for e in world.by_job.get(run.job_id, ()) if e.kind == "slurm.step_start" and e.host == cause.host
        and run.start - 5.0 <= e.time < cause.start - 1.0
    ]  # fmt: skip
    if begun and cause.run is None:
        return f"{cause.host} had started a step of the run {cause.start - begun[0].time:.0f} s before"
    return None


@CONDITIONS.named("not killed with its node", "slurmctld did not kill the run together with a node that it gave up.")
def not_killed_with_node(world: World, cause: Fact, effect: Fact) -> str | None:
    """The run was not killed together with a node.

    A failing prolog drains a node, and Slurm requeues or cancels its run. A run killed with a node died of what set
    that node DOWN.
    """
    if effect.kind != RUN_NODE_FAIL.name:
        return None
    for down in world.facts_of(NODE_DOWN.name, ADMIN_DOWN.name, NODE_REBOOT.name):
        noticed = float(down.attrs.get(NOTICED, down.start))
        if down.events and down.host in effect.attrs[FAILED_NODES] and abs(noticed - effect.start) <= END_SLACK_S:
            return f"slurmctld killed the run with {down.host}, which it had given up"
    return None


#: Slurm gives up a launch within this: some attempts to connect, each as long as MessageTimeout.
LAUNCH_TRIED_S = 120.0


@CONDITIONS.named(
    "away all along", "What failed was away from the run's beginning to its end, and started none of its tasks."
)
def away_all_along(world: World, cause: Fact, effect: Fact) -> str | None:
    """What was down from before a run's start to its end kept Slurm from starting its tasks there."""
    run = run_of(world, effect)
    if run is None or run.start is None or run.end is None or run.end - run.start > LAUNCH_TRIED_S:
        return "the run had been working"
    slack = 1.0 + cause.sigma
    if cause.start > run.start + slack or (cause.end is not None and cause.end < run.end - slack):
        return f"{name_of(cause)} was not away from the run's beginning to its end"
    started = any(
        e.kind == "slurm.step_start" and e.host == cause.host and run.start - slack <= e.time <= run.end + slack
        for e in world.by_job.get(run.job_id, ())
    )
    return f"{cause.host} started tasks of the run" if started else None


@CONDITIONS.named("its job was on it", "A former run of the job was on the node when it was set DOWN.")
def job_was_on_it(world: World, cause: Fact, effect: Fact) -> str | None:
    """A node that comes back still considers killed, by number, the jobs that it was to end while it was away."""
    run = run_of(world, effect)
    if run is None or not effect.attrs.get(REVOKED):
        return "the launch was not refused for a revoked credential"
    for other in world.runs_of_job.get(run.job_id, ()):
        if (
            other is not run
            and cause.host in other.nodes
            and other.end is not None
            and abs(other.end - cause.start) <= 5.0
        ):
            return None
    return f"no former run of job {run.job_id} was on {cause.host} when it was set DOWN"


@CONDITIONS.named("node did not answer", "The node did not answer: it did not refuse the job's credential.")
def did_not_answer(world: World, cause: Fact, effect: Fact) -> str | None:
    return f"{effect.host} answered, and refused the job's credential" if effect.attrs.get(REFUSED) else None
