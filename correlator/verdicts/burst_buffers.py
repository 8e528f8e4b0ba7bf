"""Burst buffers that were not made ready for a run."""

from __future__ import annotations

import re

from correlator.facts.world import World
from correlator.model.nouns import Event, Run

#: slurmctld writes the line of a failure within the second in which it puts the run back, or holds it.
_WRITTEN_S = 5.0

#: A run has its nodes when this stage fails (slurm src/plugins/burst_buffer).
_WITH_NODES = re.compile(r"\b(?:slurm_bb|dws)_pre_run\b")


def unready(world: World, run: Run) -> list[Event]:
    """slurmctld's lines that a burst buffer of this run failed: before it had started, or while it held its nodes and its
    program was not yet started."""
    since = run.start if run.nodes else run.submit
    until = run.end
    return [
        e for e in world.by_job.get(run.job_id, ())
        if e.kind == "slurm.burst_buffer_error" and e.source == "slurmctld" and bool(run.nodes) == bool(_WITH_NODES.search(e.message))
        and (since is None or since - _WRITTEN_S <= e.time) and (until is None or e.time <= until + _WRITTEN_S)
    ]  # fmt: skip
