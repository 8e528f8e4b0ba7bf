"""Nodes where no step starts because slurmstepd cannot load its plugins: one that plugstack.conf requires is missing, or one finds
no control groups.

The files are root's, and so are the lines: slurmstepd writes them before the user's program, or anything of the job's, is run.
But the plugins of plugstack.conf also read the options and the environment of a job, and what one refuses ends a step with the same
words. So of these, only a plugin that could not be loaded is the node's fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from correlator.facts.jobs.lines import of_run
from correlator.facts.launches.bursts import bursts
from correlator.facts.launches.kinds import PLUGIN_FAILURE, PluginFailure
from correlator.facts.world import World
from correlator.model.daemon_words import HEAD
from correlator.model.nouns import Event, Fact, Run, in_order

_DAEMONS = ("slurmd", "slurmstepd")
#: slurm src/slurmd/slurmstepd/mgr.c (job_manager, _spawn_job_container), src/common/plugstack.c.
_FAILED = re.compile(rf"{HEAD}(?:exiting abnormally: )?Plugin (?P<stack>stack )?initialization failed\b")
_MISSING = re.compile(rf"{HEAD}\S+:\d+: (?P<why>Failed to load plugin \S+?)\. Aborting")


def plugin_failures(world: World) -> list[Fact]:
    """``plugin.failure`` per node: steps that could not be started, and the runs that they are of."""
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in world.kinds("slurm.node_error"):
        if event.source not in _DAEMONS or not event.own or event.job_id is None or not event.host:
            continue
        if _MISSING.search(event.message) or _FAILED.search(event.message):
            found[event.host].append(event)
    facts = []
    for host, lines in sorted(found.items()):
        for burst in bursts(lines, lambda line: line.time):
            of_node = [line for some in _by_job(burst).values() if _is_nodes(some) for line in some]
            runs = {
                run.key for event in of_node for run in world.runs_of_job.get(event.job_id or -1, ())
                if of_run(run, [event]) and (not run.nodes or host in run.nodes)
            }  # fmt: skip
            if not runs:
                continue
            named = (match["why"] for line in of_node if (match := _MISSING.search(line.message)))
            attrs: PluginFailure = {"why": next(named, "Plugin initialization failed"), "runs": sorted(runs)}
            events = in_order(of_node)
            facts.append(
                PLUGIN_FAILURE.fact(
                    events[0].time, events[-1].time, events[0].sigma, host, attrs=attrs, events=events[:50]
                )
            )
    return facts


def refused(world: World, run: Run) -> list[Event]:
    """Lines of the run's nodes that the plugins of one of its steps could not be set up, where they do not show what the node
    lacks."""
    lines = [
        e for e in of_run(run, world.by_job.get(run.job_id, ()))
        if e.kind == "slurm.node_error" and e.source in _DAEMONS and e.own and (_FAILED.search(e.message) or _MISSING.search(e.message))
    ]  # fmt: skip
    on_hosts: defaultdict[str | None, list[Event]] = defaultdict(list)
    for line in lines:
        on_hosts[line.host].append(line)
    return [e for some in on_hosts.values() if not _is_nodes(some) for e in some if _FAILED.search(e.message)]


def _by_job(lines: Iterable[Event]) -> dict[int | None, list[Event]]:
    found: defaultdict[int | None, list[Event]] = defaultdict(list)
    for line in lines:
        found[line.job_id].append(line)
    return found


def _is_nodes(lines: Sequence[Event]) -> bool:
    """Do the lines about a job's steps on a node show that the node lacks what it needs to start them?"""
    failed = [match for line in lines if (match := _FAILED.search(line.message))]
    if not failed:
        return False  # a plugin that is not required
    return not any(match["stack"] for match in failed) or any(_MISSING.search(line.message) for line in lines)
