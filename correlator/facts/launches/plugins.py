"""Nodes where no step starts because slurmstepd cannot load its plugins: one that plugstack.conf requires is missing, or one finds
no control groups.

The files are root's, and so are the lines: slurmstepd writes them before the user's program, or anything of the job's, is run.
What a plugin itself refuses, as a container's image that is not there, has other words (``required plugin ...: task_init() failed``).
"""

from __future__ import annotations

import re
from collections import defaultdict

from correlator.facts.jobs.lines import of_run
from correlator.facts.launches.bursts import bursts
from correlator.facts.launches.kinds import PLUGIN_FAILURE, PluginFailure
from correlator.facts.world import World
from correlator.model.nouns import Event, Fact

_DAEMONS = ("slurmd", "slurmstepd")
#: slurm src/slurmd/slurmstepd/mgr.c (job_manager, _spawn_job_container), src/common/plugstack.c.
_FAILED = re.compile(r"\bPlugin (?:stack )?initialization failed\b")
_MISSING = re.compile(r"\bspank: \S+: (?P<why>Failed to load plugin \S+?)\. Aborting")


def plugin_failures(world: World) -> list[Fact]:
    """``plugin.failure`` per node: steps that could not be started, and the runs that they are of."""
    found: defaultdict[str, list[tuple[Event, str]]] = defaultdict(list)
    for event in world.kinds("slurm.node_error"):
        if event.source not in _DAEMONS or not event.own or event.job_id is None or not event.host:
            continue
        named, failed = _MISSING.search(event.message), _FAILED.search(event.message)
        if named or failed:
            found[event.host].append((event, named["why"] if named else ""))
    facts = []
    for host, lines in sorted(found.items()):
        for burst in bursts(lines, lambda line: line[0].time):
            runs = {
                run.key for event, _ in burst for run in world.runs_of_job.get(event.job_id or -1, ())
                if of_run(run, [event]) and (not run.nodes or host in run.nodes)
            }  # fmt: skip
            if not any(_FAILED.search(event.message) for event, _ in burst) or not runs:
                continue  # a plugin that is not required, or of which no step is known
            why = next((why for _, why in burst if why), "Plugin initialization failed")
            attrs: PluginFailure = {"why": why, "runs": sorted(runs)}
            first, last = burst[0][0], burst[-1][0]
            facts.append(
                PLUGIN_FAILURE.fact(first.time, last.time, first.sigma, host, attrs=attrs, events=tuple(e for e, _ in burst[:50]))
            )  # fmt: skip
    return facts
