"""Programs that named a network interface which their nodes do not have: NCCL finds none, and tells which it was to use.

An interface that was lost looks the same to the program. So the network of its nodes must be known by another name, as
the kernel, the switch or the inventory call it, and none of their lines may name the one that the program asked for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from correlator.facts.jobs.lines import between, of_run
from correlator.facts.world import World
from correlator.gather.standing import OUTPUT
from correlator.model.attributes import WORDS
from correlator.model.nouns import Event, Fact, Run
from correlator.site.interfaces import UNKNOWN

_NAMED = "job.nccl_interface"
_FOUND_NONE = re.compile(r"\bno socket interface found\b", re.IGNORECASE)
#: The same name with another number is another port of the same network.
_STEM = re.compile(r"^[A-Za-z_]+")
#: Names of RDMA devices, whose interfaces have names of their own.
_OF_RDMA = re.compile(r"mlx\d|bnxt_re|irdma|hfi|efa|opa|cxi|rdma|roce", re.IGNORECASE)
#: Lines about interfaces count from this long before the end of a run (seconds): a tick looks no further back.
SEEN_S = 900.0
#: The name may be right for other nodes of a site, or its environment may have set it.
NAMED_SURE = 0.8


class Named(NamedTuple):
    reason: str
    events: list[Event]
    sure: float


def wrongly_named(world: World, run: Run, end: Fact) -> Named | None:
    """What shows that all nodes of a run lack the interface that it named, but have that network under another name."""
    lines = [e for e in end.attrs[WORDS]["peers"] if _FOUND_NONE.search(e.message)]
    if not lines or {e.host for e in lines if e.host} != set(run.nodes):
        return None
    asked = [e for e in of_run(run, world.by_job.get(run.job_id, ())) if e.kind == _NAMED]
    names = {str(e.entities.get("reason")) for e in asked}
    if len(names) != 1:
        return None
    name = names.pop().removeprefix("=")
    if not name[:1].isalpha() or "," in name:  # a list, or names that are excluded
        return None
    role, others = world.site.interfaces.role(name), _interfaces(world, run, end)
    alike = sorted(other for other in others if world.site.interfaces.role(other) == role)
    if role == UNKNOWN or not alike or any(_stem(other) == _stem(name) for other in others):
        return None
    reason = f"its environment names the network interface {name} (NCCL_SOCKET_IFNAME), which its nodes do not have: theirs is {', '.join(alike[:3])}"
    return Named(reason, [*asked[:2], *lines[:3]], NAMED_SURE)


def _interfaces(world: World, run: Run, end: Fact) -> set[str]:
    """The interfaces of a run's nodes that the inventory, or lines that are not the program's own, name."""
    known = {device for host, device in world.site.cables if host in run.nodes}
    for node in run.nodes:
        for event in between(world.by_host.get(node, ()), end.start - SEEN_S, end.start):
            if event.device and event.kind.startswith("nic.") and event.source not in OUTPUT:
                known.add(event.device)
    return {device for device in known if device[:1].isalpha() and not _OF_RDMA.match(device)}


def _stem(name: str) -> str:
    found = _STEM.match(name)
    return found[0].lower() if found else name
