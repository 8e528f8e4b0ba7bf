"""Cables and transceivers that their driver reports as unfit, while the port keeps its carrier.

A module that is too hot, has too little power or a short, or whose receiver gets too little light, may lose data without a
loss of carrier. Where the carrier is lost as well, the outage is the fact. A cage without a module is no fault unless the
port was in use: spare ports are plugged and unplugged at any time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

from correlator.facts.links.detector import Aliases
from correlator.facts.links.kinds import LINK_OUTAGE, SOFTWARE, no_cable
from correlator.facts.world import World, bursts
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Event, Fact


class ModuleFault(TypedDict):
    """``complaint``: what the driver says of the module. ``role``: what the link carries."""

    complaint: str
    role: str


MODULE_FAULT = Kind(
    "link.module_fault", "link", "A port's driver reported that its cable or transceiver cannot carry data; no loss of carrier was logged.", ModuleFault,
    witnesses=("kernel", "switch"),
    brief="cable or transceiver failed", component="network",
    cause=Cause(
        "nic.link_errors", "infra.network", "the cable or transceiver of {device} of {host} failed ({complaint})", "a cable or transceiver of a node failed",
        (("Take {device} of {host} out of the fabric; check cooling, seat and power of its cable or transceiver, or replace it.", None),),
        short="cable or transceiver of {device} of {host} failed", unharmed="benign", trivial=no_cable, words="peers", family="link",
        software=SOFTWARE, surest=0.85, doubt="No line tells that the port lost data: its driver complained of its module, and the errors began then",
        disproof="Other runs over the same port communicating well meanwhile, or the port's error counters standing still.",
    ),
)  # fmt: skip

#: What a module that carries no data, or loses some, is called: by mlx5's firmware (linux mlx5/core/events.c), bnxt_en
#: (bnxt.c, bnxt_get_port_module_status), ice and i40e (ice_main.c), hfi1 (chip.c, handle_qsfp_error_conditions), cxgb4.
_UNFIT = re.compile(
    r"(?:high temperature|temperature too high|power budget exceeded|powered down due to|power requirements exceed|bad or shorted|\bshutdown\b"
    r"|(?:tx|rx) is disabled|channel \S+ (?:power|bias) too|supply voltage too|unplugged|module removed)",
    re.IGNORECASE,
)
#: That there is none: only a port that was in use loses anything by it.
_GONE = re.compile(r"\bunplugged\b|module removed", re.IGNORECASE)
#: That it is there (again).
_FIT = re.compile(r"\bplugged\b|\binserted\b|\benabled\b", re.IGNORECASE)
#: Drivers' errors that have no entity for it are about a module if they name one.
_OF_MODULE = re.compile(r"\b(?:modules?|Q?SFP|cable|transceiver)\b", re.IGNORECASE)

#: Complaints that follow within this are of one fault (seconds).
SAME_FAULT_S = 1800.0
#: A carrier that goes this shortly before or after the complaint was lost with the module (seconds).
BEFORE_S, AFTER_S = 5.0, 10.0


def complaint_of(event: Event) -> str | None:
    """What a line says of a port's module; None if it is about something else."""
    named = event.entities.get("module_event")
    if named is not None:
        return str(named)
    message = event.message.rpartition(": ")[2] or event.message
    return message if event.kind == "nic.error" and _OF_MODULE.search(message) else None


def module_faults(world: World) -> list[Fact]:
    """``link.module_fault`` per port and fault; it ends where a module is plugged in, or a new one is."""
    tracks: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    alias: Aliases | None = None
    for event in world.kinds("nic.error", "nic.module_event"):
        if not event.host or complaint_of(event) is None:
            continue
        alias = alias or Aliases(world)
        if event.device:
            tracks[event.host, alias.of(event.host, event.device, event.time)].append(event)
    carriers = _carriers(world, alias) if alias else {}
    return [
        fact for port, events in sorted(tracks.items()) for fact in _of_port(world, *port, events, carriers.get(port, ()))
    ]  # fmt: skip


def _carriers(world: World, alias: Aliases) -> dict[tuple[str, str], list[tuple[float, bool]]]:
    """When each port got (True) or lost its carrier."""
    found: defaultdict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for event in world.kinds("nic.link_up", "nic.link_down"):
        if event.host and event.device:
            place = event.host, alias.of(event.host, event.device, event.time)
            found[place].append((event.time, event.kind == "nic.link_up"))
    return found


def _had_carrier(carriers: Sequence[tuple[float, bool]], time: float) -> bool:
    before = [up for at, up in carriers if at < time - BEFORE_S]
    return bool(before) and before[-1]


def _of_port(
    world: World, host: str, device: str, events: list[Event], carriers: Sequence[tuple[float, bool]]
) -> list[Fact]:
    outages = [f for f in world.facts_on(LINK_OUTAGE.name, [host]) if f.device == device]
    found = []
    complaints = [(e, complaint_of(e) or "") for e in events]
    cabled = (host, device) in world.site.cables
    unfit = [
        e for e, text in complaints
        if _UNFIT.search(text) and (cabled or not _GONE.search(text) or _had_carrier(carriers, e.time))
    ]  # fmt: skip
    again = [e.time for e, text in complaints if not _UNFIT.search(text) and _FIT.search(text)]
    for burst in bursts(unfit, SAME_FAULT_S):
        first, end = burst[0], next((t for t in again if t > burst[-1].last), None)
        if any(-BEFORE_S <= outage.start - first.time <= AFTER_S for outage in outages):
            continue
        drivers = (str(e.entities["driver"]) for e in burst if e.entities.get("driver"))
        complaint = (complaint_of(first) or "").removeprefix("Cable error, ").rstrip(".")
        attrs: ModuleFault = {
            "complaint": complaint[:80],
            "role": world.site.role(host, device, next(drivers, None)),
        }
        found.append(MODULE_FAULT.fact(first.time, end, first.sigma, host, device, attrs=attrs, events=tuple(burst)))
    return found


KINDS = (MODULE_FAULT,)
DETECTORS = [module_faults]
