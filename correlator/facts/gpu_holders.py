"""Which runs held a GPU: a fault of one that a run did not hold did not end it.

Telemetry that labels GPUs with jobs decides it. Otherwise accounting shows that a run had no GPU at all, or root's hook
the numbers of those it had (``SLURM_JOB_GPUS``). A run of which only a count is known may have held any GPU of its nodes.

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
    held = run.row.get("gpu_index")
    if not held or len(run.nodes) != 1 or not _NUMBERS.fullmatch(held):  # a hook's list is that of one node
        return None
    numbers = _numbers_of(world, host, device, fault.start)
    if not numbers or not numbers.isdisjoint(numbers_in(held)):
        return None
    return f"job {run.key} had the GPUs {held} of {host}, and this is {min(numbers)}"


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
    if run.row.get("gpu_index") and len(run.nodes) == 1 and _numbers_of(world, host, device, fault.start):
        return []
    own = world.het_components.get(run.job_id, frozenset()) | {run.job_id}
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
    return run.row.get("gpus") == 0 and not run.row.get("gpu_index") and world.gpus_are_counted(time)


def _numbers_of(world: World, host: str, device: str, time: float) -> set[int]:
    """The numbers that Slurm may have for a GPU, as nvidia-smi listed those of the host; empty if it did not."""
    if ":" not in device:
        return set()
    minors = {bus_of(pci): minor for at, pci, minor in sorted(world.gpu_minors(host)) if at <= time}
    bus = bus_of(device)
    return {minors[bus], sorted(minors).index(bus)} if bus in minors else set()
