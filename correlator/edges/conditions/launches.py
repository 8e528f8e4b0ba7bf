"""Requirements of edges about launches."""

from __future__ import annotations

from correlator.facts.world import World, run_of
from correlator.model.nouns import Fact

#: A node that was silent this long before a launch would have been given up before it (seconds: five thirds of a
#: SlurmdTimeout of ten minutes).
BEFORE_S = 1000.0
#: Slurm waits at most this long for a launch: MessageTimeout and BatchStartTimeout, which sites keep below.
AFTER_S = 600.0


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
