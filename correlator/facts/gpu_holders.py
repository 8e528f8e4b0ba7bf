"""Which runs held a GPU: a fault of one that a run did not hold did not end it.

Telemetry that labels GPUs with jobs decides it. Otherwise accounting shows that a run had no GPU at all, or all of its
nodes, and root's hook (``SLURM_JOB_GPUS``) or slurmctld (``gres_detail``) the numbers of those it had. A run of which only
a count is known may have held any GPU of its nodes that nobody else is known to have had.

Slurm numbers GPUs by their order in gres.conf: that of their device files, or of their addresses (AutoDetect). On some
boards the two differ (slurm src/interfaces/gres.c, gres_common_epilog_set_env). So a GPU is another run's only if neither
of its two numbers is among those of the run.
"""

from __future__ import annotations

import re

from correlator.facts.world import World, bus_of
from correlator.gather.standing import OUTPUT
from correlator.model.nouns import Fact, Run
from parsers.hostlist import numbers as numbers_in

_NUMBERS = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*")


def not_held(world: World, run: Run, fault: Fact) -> str | None:
    """Why a run cannot have held the GPU that failed, for people; None if it may have."""
    host, device = fault.host or "", fault.device or ""
    owner = world.gpu_owner(host, device, fault.start)
    if owner is not None:
        return None if owner == run.job_id else f"telemetry shows job {owner} on this GPU"
    if had_none(world, run, fault.start):
        return f"job {run.key} had no GPU, as accounting tells"
    if (other := _named_another(world, run, fault)) is not None:
        return other
    numbers, held = _numbers_of(world, host, device, fault.start), _held_numbers(world, run)
    if held and numbers:
        if not numbers.isdisjoint(held):
            return None
        return f"job {run.key} had the GPUs {run.row['gpu_index']} of {host}, and this is {min(numbers)}"
    for holder in _beside(world, run, fault) if numbers else ():
        if numbers <= _held_numbers(world, holder):
            return f"job {holder.key} had the GPUs {holder.row['gpu_index']} of {host}, and this is {min(numbers)}"
    return None


def _had_all(world: World, run: Run) -> bool:
    """Did a run have all GPUs of its nodes, by accounting and slurm.conf?"""
    counts = [world.gpus_of_nodes.get(node, 0) for node in run.nodes] if run.gpus else []
    return bool(counts) and all(counts) and run.gpus == sum(counts)


def gpus_on(run: Run) -> float:
    """How many GPUs a run had on one of its nodes; 0 if nothing tells."""
    return run.gpus / len(run.nodes) if run.nodes else 0.0


def _held_numbers(world: World, run: Run) -> frozenset[int]:
    """The numbers of a run's GPUs on its only node; empty if they are not known, or are those of slices of GPUs (MIG)."""
    listed = str(run.row.get("gpu_index") or "")
    known = len(run.nodes) == 1 and _NUMBERS.fullmatch(listed)  # a hook's list is that of one node
    if known and run.nodes[0] in world.nodes_with_slices:
        return frozenset()
    return frozenset(numbers_in(listed)) if known else frozenset()


#: Runs that were both active for longer than accounting rounds their times to were there together (seconds).
_TOGETHER_S = 1.0


def _beside(world: World, run: Run, fault: Fact) -> list[Run]:
    """The runs of other jobs that were on the node of a fault for as long as it needs to tell them from an earlier or
    later one, while it occurred."""
    own = _job_with_parts(world, run)
    return [r for r in world.runs_at(fault.host or "", fault.start, slack=-_TOGETHER_S)
            if r.job_id not in own and _overlap(r, run) > _TOGETHER_S]  # fmt: skip


def _overlap(one: Run, other: Run) -> float:
    """How long two runs were both active, in seconds."""
    infinite = float("inf")
    ends = (infinite if r.end is None else r.end for r in (one, other))
    starts = (infinite if r.start is None else r.start for r in (one, other))
    return min(ends) - max(starts)


def _job_with_parts(world: World, run: Run) -> frozenset[int]:
    """The job of a run, with the other parts of its heterogeneous job."""
    return world.het_components.get(run.job_id, frozenset()) | {run.job_id}


def unproven(world: World, run: Run, fault: Fact, *, used: bool) -> str:
    """Why the source is absent that would tell whether a run held the GPU that failed; empty if none is.

    ``used``: the run's output tells that it used GPUs. Accounting shows who had some, and Slurm's configuration whether it
    shows that.
    """
    if world.gpu_owner(fault.host or "", fault.device or "", fault.start) is not None or run.row.get("gpu_index"):
        return ""
    configured = world.inventory is None or any(row["scope"] == "cluster" for row in world.inventory.settings)
    if not run.gpus and not used and (run.submit is None or not (configured or world.gpus_are_counted(fault.start))):
        return f"nothing tells whether job {run.key} had a GPU"
    named, host = _named(world, run), fault.host or ""
    known = _numbers_of(world, host, fault.device or "", fault.start) or host in world.gpus_of_nodes
    if len(named) == 1 and len(run.nodes) == 1 and not known:
        return f"the error of job {run.key} is about /dev/nvidia{min(named)}, and nothing tells which GPUs {host} has"
    return ""


def may_hold_as_well(world: World, run: Run, fault: Fact) -> list[Run]:
    """Other runs that may have held the GPU that failed in place of this one: nothing tells which GPUs they had there, nor
    which this one had. A GPU is one run's at a time (gres.conf(5)), except for parts of one heterogeneous job, which end together.
    """
    host, device = fault.host or "", fault.device or ""
    if world.gpu_owner(host, device, fault.start) is not None:
        return []
    if _had_all(world, run) or (_held_numbers(world, run) and _numbers_of(world, host, device, fault.start)):
        return []
    own = _job_with_parts(world, run)
    there = (r for r in world.runs_at(host, fault.start) if r.job_id not in own)
    return [r for r in there if not_held(world, r, fault) is None]


#: The device file of a GPU in an error of a program.
_DEVICE_FILE = re.compile(r"/dev/nvidia(\d{1,3})\b")


def _named_another(world: World, run: Run, fault: Fact) -> str | None:
    """Why the program's own error is about another GPU, or about one that the node does not have; None if it is not.

    Its user's words count here, since they blame no machine.
    """
    named = _named(world, run)
    if len(named) != 1 or len(run.nodes) != 1:
        return None
    (number,) = named
    numbers, count = (
        _numbers_of(world, fault.host or "", fault.device or "", fault.start),
        world.gpus_of_nodes.get(fault.host or ""),
    )
    if numbers and number not in numbers:
        return f"the error of job {run.key} is about /dev/nvidia{number}, and this is GPU {min(numbers)}"
    if count is not None and number >= count:
        return f"the error of job {run.key} is about /dev/nvidia{number}, and {fault.host} has {count} GPUs"
    return None


def _named(world: World, run: Run) -> set[int]:
    """The numbers of the device files in a run's output."""
    lines = (e.message for e in world.by_job.get(run.job_id, ()) if e.source in OUTPUT)
    return {int(number) for line in lines for number in _DEVICE_FILE.findall(line)}


def had_none(world: World, run: Run, time: float) -> bool:
    """Did a run have no GPU, by accounting that counted them before ``time``?"""
    return none_counted(run) and world.gpus_are_counted(time)


def none_counted(run: Run) -> bool:
    """Does accounting tell of no GPU of a run? It may count none at all."""
    return run.row.get("gpus") == 0 and not run.row.get("gpu_index")


def _numbers_of(world: World, host: str, device: str, time: float) -> set[int]:
    """The numbers that Slurm may have for a GPU, as nvidia-smi listed those of the host; empty if it did not."""
    if ":" not in device:
        return set()
    minors = {bus_of(pci): minor for at, pci, minor in sorted(world.gpu_minors(host)) if at <= time}
    bus = bus_of(device)
    return {minors[bus], sorted(minors).index(bus)} if bus in minors else set()
