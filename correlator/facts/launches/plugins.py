"""Nodes where no step starts because slurmstepd cannot load its plugins: one that plugstack.conf requires is missing, or one finds
no control groups.

The files are root's, and so are the lines: slurmstepd writes them before the user's program, or anything of the job's, is run.
But the plugins of plugstack.conf also read the options and the environment of a job, and what one refuses ends a step with the same
words. So of these, only a plugin that could not be loaded is the node's fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from correlator.facts.jobs.lines import of_run
from correlator.facts.launches.kinds import PLUGIN_FAILURE, PluginFailure
from correlator.facts.world import World
from correlator.model.daemon_words import HEAD
from correlator.model.nouns import Event, Fact, Run, in_order

_DAEMONS = ("slurmd", "slurmstepd")
#: slurm src/slurmd/slurmstepd/mgr.c (job_manager, _spawn_job_container), src/common/plugstack.c.
_FAILED = re.compile(rf"{HEAD}(?:exiting abnormally: )?Plugin (?P<stack>stack )?initialization failed\b")
_MISSING = re.compile(rf"{HEAD}\S+:\d+: (?P<why>Failed to load plugin \S+?)\. Aborting")

#: Steps that failed within one such part of the hour (seconds) are one failure: their runs may wait for half an hour, and must lie
#: within the window of edge E79.
_PART_S = 300.0


def plugin_failures(world: World) -> list[Fact]:
    """``plugin.failure`` per node: steps that could not be started, and the runs that they are of."""
    of_runs: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in world.kinds("slurm.node_error"):
        if event.job_id is None or not event.host or not _is_about_plugins(event):
            continue
        for run in world.runs_of_job.get(event.job_id, ()):
            if of_run(run, [event]) and (not run.nodes or event.host in run.nodes):
                of_runs[event.host, run.key].append(event)
    failures: defaultdict[tuple[str, float], dict[str, list[Event]]] = defaultdict(dict)
    for (host, key), lines in of_runs.items():
        for line in lines if _is_nodes(lines) else ():  # a script may try again for hours
            failures[host, line.time // _PART_S].setdefault(key, []).append(line)
    facts = []
    for (host, _), runs in sorted(failures.items()):
        found = in_order(*runs.values())
        named = (match["why"] for line in found if (match := _MISSING.search(line.message)))
        attrs: PluginFailure = {"why": next(named, "Plugin initialization failed"), "runs": sorted(runs)}
        facts.append(
            PLUGIN_FAILURE.fact(found[0].time, found[-1].time, found[0].sigma, host, attrs=attrs, events=found[:50])
        )
    return facts


def refused(world: World, run: Run) -> list[Event]:
    """Lines of the run's nodes that the plugins of one of its steps could not be set up, where they do not show what the node
    lacks."""
    on_hosts: defaultdict[str | None, list[Event]] = defaultdict(list)
    for event in of_run(run, world.by_job.get(run.job_id, ())):
        if event.kind == "slurm.node_error" and _is_about_plugins(event):
            on_hosts[event.host].append(event)
    return [e for some in on_hosts.values() if not _is_nodes(some) for e in some if _FAILED.search(e.message)]


def _is_about_plugins(event: Event) -> bool:
    is_own = event.source in _DAEMONS and event.own
    return is_own and (_FAILED.search(event.message) or _MISSING.search(event.message)) is not None


def _is_nodes(lines: Sequence[Event]) -> bool:
    """Do the lines about a job's steps on a node show that the node lacks what it needs to start them?"""
    failed = [match for line in lines if (match := _FAILED.search(line.message))]
    if not failed:
        return False  # a plugin that is not required
    return not any(match["stack"] for match in failed) or any(_MISSING.search(line.message) for line in lines)
