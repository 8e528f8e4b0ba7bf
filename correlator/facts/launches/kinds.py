"""The attributes and kinds of facts about launches that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import NotRequired, TypedDict

from correlator.facts.nodes.kinds import RESUME
from correlator.model.attributes import ALONE, HOSTS
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Fact


class LaunchUnopened(TypedDict):
    """``opened``: what Slurm could not open, at ``path``, and the error (``why``).

    ``started``: the program ran nevertheless: Slurm goes to another working folder.
    """

    opened: str
    path: str
    why: str
    started: bool


class LaunchGivenUp(TypedDict):
    """``why``: the error that the node's daemons logged; empty if they logged none."""

    why: str


class MountFailure(TypedDict):
    """``path``: the file system; ``why``: the error; ``runs`` that met it, on ``hosts``.

    ``alone``: the runs of one user show it, and nobody else's.
    """

    path: str
    why: str
    runs: list[str]
    hosts: list[str]
    alone: NotRequired[bool]


class SpoolFailure(TypedDict):
    """``why``: the error."""

    why: str


class PluginFailure(TypedDict):
    """``why``: the error; ``runs`` of which steps could not be started by it."""

    why: str
    runs: list[str]


class LaunchLost(TypedDict):
    """``runs`` that slurmctld had allocated and no node had started."""

    runs: list[str]


LAUNCH_UNOPENED = Kind(
    "launch.unopened", "job", "Slurm could not open a file of a run, or enter its working folder.", LaunchUnopened,
    brief="{opened} could not be opened", reported_within_s=60.0,
)  # fmt: skip

LAUNCH_GIVEN_UP = Kind(
    "launch.given_up", "slurmd", "A node could not launch a run and gave it back to Slurm.", LaunchGivenUp,
    brief="launch given up", reported_within_s=60.0,
)  # fmt: skip

_ON_NODE = Cause(
    "node.mount_failure", "infra.node", "{path} could not be used on {host} ({why})", "a file system could not be used on its node",
    (("See on {host} whether {path} is mounted, writable and answers, and compare with another node.", "findmnt -T {path}"), RESUME),
    short="{path} unusable on {host}", unharmed="degraded", words="storage", family="software", avoid=True,
    disproof="Another job on the node that used the same file system at that time, or the same error on other nodes.",
)  # fmt: skip

#: Several nodes met it at once: what they share failed.
_EVERYWHERE = replace(
    _ON_NODE, event="storage.outage", category="infra.storage", title="{path} could not be used on {nodes} ({why})",
    plain="the shared storage failed", short="{path} unusable on {count} nodes", family="",
    advice=(("Check the servers of {path}, and its mounts on {nodes}.", None),),
    disproof="Jobs on other nodes that used the same file system at that time.",
)  # fmt: skip

_OF_ONE_USER = replace(_ON_NODE, doubt="Only the jobs of one user show it: their own folder may be at fault")


def _where(fact: Fact) -> Cause | None:
    if len(fact.attrs.get(HOSTS, ())) > 1:
        return _EVERYWHERE
    return _OF_ONE_USER if fact.attrs.get(ALONE) else None


MOUNT_FAILURE = Kind(
    "mount.failure", "storage", "slurmstepd could not use a file system that jobs need, on one node or on several.", MountFailure,
    witnesses=("slurmd", "kernel"),
    brief="file system unusable", component="storage", cause=_ON_NODE, variant=_where, variants=(_EVERYWHERE,),
)  # fmt: skip

SPOOL_FAILURE = Kind(
    "spool.failure", "slurmd", "slurmd could not use its spool directory.", SpoolFailure,
    witnesses=("slurmd", "kernel"),
    brief="slurmd's spool unusable", component="storage",
    cause=Cause(
        "node.spool_failure", "infra.node", "slurmd of {host} could not use its spool directory ({why})", "a node's own file system failed",
        (("Look at the file system of SlurmdSpoolDir on {host}: its mount, its disk and the kernel log.", None), RESUME),
        short="spool of {host} unusable", unharmed="degraded", family="disk", avoid=True,
        disproof="A launch on the node that succeeded at the same time.",
    ),
)  # fmt: skip

PLUGIN_FAILURE = Kind(
    "plugin.failure", "slurmd", "slurmstepd could not load its plugins: no step starts on the node.", PluginFailure,
    witnesses=("slurmd",), brief="Slurm's plugins cannot be loaded", reported_within_s=60.0,
    cause=Cause(
        "node.plugin_failure", "infra.node", "slurmstepd of {host} could not load its plugins ({why}), so that no step starts there", "Slurm's own plugins could not be loaded on its node",
        (("See which plugin slurmd's log of {host} names, and compare plugstack.conf, cgroup.conf and Slurm's plugins with another node's.",
          "scontrol update nodename={host} state=drain reason='slurmstepd: plugins'"), RESUME),
        short="Slurm's plugins of {host} cannot be loaded", unharmed="degraded", family="software", software=("os", "image"), avoid=True,
        disproof="A step that was started on the node at the same time.",
    ),
)  # fmt: skip

LAUNCH_LOST = Kind(
    "launch.lost", "slurmctld", "slurmctld ended after it had allocated nodes to runs and before they were launched.", LaunchLost,
    witnesses=("slurmctld", "slurmd"),
    brief="slurmctld ended during the launch",
    cause=Cause(
        "slurm.controller_restart", "infra.scheduler", "slurmctld was restarted while it launched jobs", "Slurm's controller was restarted while it launched the job",
        (("See why slurmctld ended: its log, core files, who restarted it.", None),),
        short="slurmctld restarted in a launch", disproof="A line of the node's slurmd that shows that it launched the job.",
    ),
)  # fmt: skip
