"""Fabric managers that ended: without one, CUDA finds the GPUs behind an NVSwitch not initialised (error 802)."""

from __future__ import annotations

import re

from correlator.facts.gpus import SOFTWARE
from correlator.facts.world import World, merge_near
from correlator.gather.standing import OUTPUT
from correlator.model.gauges import OF_GPUS
from correlator.model.kinds import Cause, Kind, NoAttrs
from correlator.model.nouns import Fact

FABRIC_MANAGER = Kind(
    "gpu.fabric_manager", "gpu", "The fabric manager of a node's NVSwitches ended with an error.", NoAttrs,
    witnesses=("kernel",),
    brief="fabric manager ended", component="gpu", gauges=OF_GPUS,
    cause=Cause(
        "gpu.fabric_error", "infra.gpu", "nvidia-fabricmanager of {host} ended with an error", "the GPUs of its node were not ready",
        (("See why nvidia-fabricmanager of {host} ended (journalctl -u nvidia-fabricmanager, /var/log/fabricmanager.log); drain the node until it runs.",
          "scontrol update nodename={host} state=drain reason='fabric manager'"),),
        short="fabric manager of {host} ended", unharmed="degraded", words="gpu", family="gpu", software=SOFTWARE,
        disproof="A program with a GPU that began on the node afterwards and went on.",
    ),
)  # fmt: skip

#: systemd's lines about its unit (systemd src/core/service.c).
_ENDED = re.compile(r"^nvidia-fabricmanager\.service: (?:(?:Main|Control) process exited|Failed\b)|^Failed to start .*fabric ?manager", re.IGNORECASE)  # fmt: skip
_STARTED = re.compile(r"\bfabric ?manager\b", re.IGNORECASE)

#: A unit that systemd starts again and again ends each time: these are one fault.
SAME_S = 600.0


def ended(world: World) -> list[Fact]:
    """``gpu.fabric_manager`` per node and fault."""
    lines = (
        e for e in world.kinds("gpu.fabric_error") if e.host and e.source not in OUTPUT and _ENDED.search(e.message)
    )
    return merge_near((FABRIC_MANAGER.fact(e.time, e.last, e.sigma, e.host, events=(e,)) for e in lines), SAME_S)


def started_between(world: World, host: str | None, low: float, high: float) -> bool:
    """Did systemd start the fabric manager of a host between two moments?"""
    return any(
        e.host == host and low < e.time < high and _STARTED.search(e.message)
        for e in world.kinds("sys.service_started")
    )


KINDS = (FABRIC_MANAGER,)
DETECTORS = [ended]
