"""GPUs and the PCIe bus: XIDs with their class, lost devices, AER storms, heat."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from functools import cache, lru_cache
from typing import NotRequired, TypedDict

from correlator.facts.world import World, bursts, bus_of, hosts_of
from correlator.model.attributes import CODE, COOLING, FAMILY, PROCESSORS
from correlator.model.attrs import Attr, attr, with_attr
from correlator.model.gauges import OF_GPUS
from correlator.model.kinds import Advice, Cause, Grave, Kind, literal
from correlator.model.measurements import Throttled
from correlator.model.nouns import Event, Fact, in_order
from parsers import xid as xid_catalogue
from parsers.documents.fields import integer
from parsers.reasons import split_reason


class Xid(TypedDict):
    """``code`` is the leading one of ``codes``, ``family`` its class (hardware, application, consequence, benign).

    ``pids`` are the processes that the lines name. ``inferred``: no kernel line shows it; it came some time between
    start and end.
    """

    code: int | None
    codes: list[int]
    family: str
    pids: list[str]
    inferred: NotRequired[bool]


class AerStorm(TypedDict):
    """``count`` errors, ``uncorrected`` ones among them; ``bridge``: of a bridge and not of a device."""

    count: int
    uncorrected: bool
    bridge: bool


class Heat(TypedDict, total=False):
    """Heat ``measured`` by telemetry on ``gpus`` in this many ``samples``.

    ``cooling``: what the node's controller reported before. ``processors``: the kernel tells of those only.
    """

    gpus: list[str]
    measured: bool
    samples: int
    cooling: str
    processors: bool


#: Attributes that are read in this file only.
BRIDGE: Attr[bool] = attr("bridge")
CODES: Attr[list[int]] = attr("codes")
GPUS: Attr[list[str]] = attr("gpus")


#: What of a node's software can have to do with a GPU.
SOFTWARE = ("nvidia_driver", "kernel", "image")

#: After these actions of NVIDIA's catalogue the GPU cannot be used before they are done.
NEEDS_RESET = frozenset({"RESET_GPU", "RESTART_BM"})
#: Xids of a GPU that went on: a row was replaced, many single bits were corrected (NVIDIA's catalogue,
#: parsers/catalogue/xid.csv).
_CORRECTED_XIDS = frozenset({"63", "92"})


def _named(device: str | None) -> str:
    return f"GPU {device}" if device else "a GPU"


def _reset_asked(device: str | None, xid: int | None) -> str | None:
    known = xid_catalogue.xids().get(xid) if xid is not None else None
    if known is None or known.action not in NEEDS_RESET:
        return None
    return f"{_named(device)} reported Xid {known.code} ({known.text}); NVIDIA recommends: {known.advice}"


def _lost(device: str | None, xid: int | None) -> str:
    return f"{_named(device)} is lost; {xid_catalogue.ACTIONS['RESTART_BM']}"


def _is_corrected_xid(event: Event) -> bool:
    if event.kind == XID.name:
        return str(event.entities.get("xid")) in _CORRECTED_XIDS
    return _is_corrected(event)


def _is_corrected(event: Event) -> bool:
    words = f"{event.message} {event.entities.get('severity', '')}".lower()
    return "corr" in words and "uncorr" not in words


_FAILED = Cause(
    "gpu.xid", "infra.gpu", "GPU {device} of {host} reported Xid {code}", "a GPU failed",
    (("Drain {host}, reset or reboot it, and run the GPU's diagnostics.",
      "scontrol update nodename={host} state=drain reason='Xid {code}'"),),
    short="Xid {code} on {host}", unharmed="degraded", words="gpu", family="gpu", began="the GPU failed", software=SOFTWARE,
    trivial=lambda world, fact: fact.attrs.get(FAMILY) in ("application", "consequence"),
    disproof="An error of the program printed before the Xid, or the same Xid following the run to other GPUs.",
)  # fmt: skip


def _with_nvidias_advice(fact: Fact) -> Cause | None:
    code = fact.attrs.get(CODE)
    cause = (None if code is None else _of_xid(code)) or _FAILED
    if fact.device is None:
        cause = replace(cause, title="a GPU of {host} reported Xid {code}")
    return replace(cause, unharmed="benign") if fact.attrs.get(FAMILY) == "benign" else cause


@cache
def _of_xid(code: int) -> Cause | None:
    known = xid_catalogue.xids().get(code)
    if known is None or not known.advice:
        return None
    first: Advice = (literal(f"NVIDIA recommends for Xid {known.code} ({known.text}): {known.advice}."), None)
    # To drain the node would contradict it. A GPU that has to be reset, mended or looked at is not well, though no job was on it.
    goes_on = known.action in ("IGNORE", "RESTART_APP")
    if goes_on:
        return replace(_FAILED, advice=(first,), unharmed="benign")
    return replace(_FAILED, advice=(first, *_FAILED.advice))


#: A device that failed keeps logging errors until it is reset: those within this are the same fault.
COMPLAINS_S = 3600.0

XID = Kind(
    "gpu.xid", "gpu", "A GPU reported an Xid, or was found lost.", Xid,
    witnesses=("kernel", "telemetry"),
    brief="Xid {code}", repeats_s=COMPLAINS_S, component="gpu", cause=_FAILED, variant=_with_nvidias_advice,
    measured=lambda fact: f"Xid {fact.attrs.get(CODE)} seen by telemetry", gauges=OF_GPUS,
    signs={"gpu.xid": "corrected", "gpu.ecc": "corrected"}, corrected=_is_corrected_xid,
    grave={"gpu.xid": Grave(_reset_asked, conclusive=True), "gpu.fallen_off_bus": Grave(_lost), "gpu.lost": Grave(_lost)},
)  # fmt: skip

_OF_BUS = Cause(
    "pcie.aer", "infra.gpu", "the bus of {device} in {host} reported errors", "a GPU's bus failed",
    (("Reseat or replace the device at {device} of {host}.", None),),
    short="bus errors on {host}", unharmed="benign", words="gpu", family="gpu", software=("bios", "kernel", "nvidia_driver", "nic_"),
    disproof="The same errors going on for days without harm on this bus.",
)  # fmt: skip
_OF_SOME_BUS = replace(
    _OF_BUS, title="a bus of {host} reported errors", advice=(("Find the device at that bus of {host}, and reseat or replace it.", None),)
)  # fmt: skip

PCIE_AER = Kind(
    "pcie.aer", "gpu", "A bus reported an uncorrected error, or many corrected ones.", AerStorm,
    witnesses=("kernel",),
    brief="PCIe errors", repeats_s=COMPLAINS_S, component="gpu", gauges=OF_GPUS, any_device=True,
    signs={"pcie.aer": "corrected"}, corrected=_is_corrected,
    cause=_OF_BUS, variant=lambda fact: None if fact.device else _OF_SOME_BUS,
)  # fmt: skip

_HOT = Cause(
    "gpu.thermal", "infra.gpu", "GPUs of {host} were throttled by heat", "a GPU was slowed by heat",
    (("Check fans, coolant and inlet temperature of {host}.", None),),
    short="GPUs of {host} too hot", unharmed="degraded", exhausted=True, family="gpu", software=SOFTWARE,
    disproof="Steps that stay slow after the GPU has cooled, or other runs on the node that kept their pace.",
)  # fmt: skip
_HOT_PROCESSORS = replace(
    _HOT, event="node.thermal", category="infra.node", title="processors of {host} were throttled by heat",
    plain="the processors of a node were slowed by heat", short="processors of {host} too hot", family="machine", software=("bios", "kernel"),
    disproof="Other runs on the node that kept their pace, or the same program as slow elsewhere.",
)  # fmt: skip


@cache
def _hot(processors: bool, warned: bool) -> Cause:
    cause = _HOT_PROCESSORS if processors else _HOT
    return replace(cause, title=f"{cause.title}, after its controller warned of the cooling") if warned else cause


THERMAL = Kind(
    "gpu.thermal", "gpu", "GPUs of a node were throttled by heat, or its processors.", Heat,
    witnesses=("telemetry",),
    brief="throttled by heat", component="gpu", cause=_HOT,
    variant=lambda fact: _hot(bool(fact.attrs.get(PROCESSORS)), bool(fact.attrs.get(COOLING))), variants=(_HOT_PROCESSORS,),
    measured=lambda fact: f"telemetry saw {len(fact.attrs.get(GPUS, ()))} GPUs held back by heat", gauges=("temperature", "clock", "power"),
    reported_within_s=300.0,
)  # fmt: skip

#: One memory fault is reported by several of these; 48/94/95/140 name the fault, 63/64 its repair.
MEMORY_XIDS = frozenset({48, 94, 95, 140, 63, 64})

#: Xids of one GPU within this are one fault.
SAME_FAULT_S = 10.0

#: This many correctable errors on one bus within this time are a storm (correlation.md, E26).
STORM_COUNT, STORM_S = 5, 300.0


#: The length of texts about which an answer is kept: that of a PCI address, with room.
_KEPT_TEXT = 64


def bus(device: object) -> str | None:
    """``0000:3a:00.0`` and ``00000000:3A:00`` -> ``0000:3a:00``: the form that GPU lines use."""
    text = str(device or "")
    return _bus(text) if len(text) <= _KEPT_TEXT else _bus.__wrapped__(text)


@lru_cache(maxsize=4096)  # asked for each of very many lines of few devices
def _bus(text: str) -> str | None:
    return bus_of(text) if ":" in text else None


def xids(world: World) -> list[Fact]:
    """``gpu.xid`` with attrs code and family; Xids of one GPU within 10 s are one fault named by its leading code."""
    groups: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in world.kinds("gpu.xid", "gpu.fallen_off_bus"):
        if event.host:
            pci = bus(event.entities.get("pci")) or event.device or ""
            groups[(event.host, pci)].append(event)
    return [
        _fault(host, pci, burst)
        for (host, pci), events in sorted(groups.items())
        for burst in bursts(events, SAME_FAULT_S)
    ]


#: A health check runs every few minutes: a GPU that it finds lost was lost at most this long before
#: (HealthCheckInterval is 300 to 600 s at most sites).
CHECK_S = 600.0


def unlogged_xids(world: World) -> list[Fact]:
    """Faults without a kernel line (its log is missing or was lost), seen by telemetry or by a health check."""
    known: defaultdict[str | None, list[Fact]] = defaultdict(list)
    for fact in world.facts_of(XID.name):
        known[fact.host].append(fact)
    facts: list[Fact] = []
    for seen in world.xids_seen:
        pci = bus(seen.gpu) or seen.gpu
        if any(f.device in (pci, None) and seen.before - 60 <= f.start <= seen.seen + 60 for f in known[seen.host]):
            continue
        facts.append(_concluded(seen.host, pci, seen.code, seen.before, seen.seen, ()))
    for event, host, pci, code in _found_broken(world):
        near = (f for f in (*known[host], *facts) if f.host == host and -CHECK_S <= f.start - event.time <= 5.0)
        # A reason without a bus is about whichever GPU of the node reported that Xid.
        if any(f.device in (pci, "", None) or (not pci and code in f.attrs[CODES]) for f in near):
            continue
        if not pci and _is_a_persons(event) and host in world.reporting_hosts:
            continue
        facts.append(_concluded(host, pci, code, event.time - CHECK_S, event.time, (event,)))
    return facts


#: What health checks write into a drain reason about a GPU.
_REASON = re.compile(
    r"gpu[\s:]+(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\S* is lost|\bxid[\s:=]*(?P<xid>\d{1,3})\b", re.IGNORECASE
)


def _found_broken(world: World) -> list[tuple[Event, str, str, int]]:
    """(event, host, bus, code) of GPUs that a health check found broken, in its own line or as a drain reason."""
    found = []
    for event in world.kinds("gpu.lost", "slurm.node_reason", "slurm.node_drain"):
        if event.kind == "gpu.lost":
            if event.host:
                # nvidia-smi's "GPU is lost" is what Xid 79 looks like from user space.
                found.append((event, event.host, bus(event.entities.get("pci")) or event.device or "", 79))
            continue
        match = _REASON.search(str(event.entities.get("reason") or event.message))
        if match:
            code = int(match["xid"]) if match["xid"] else 79
            found += [(event, host, bus(match["pci"]) or "", code) for host in hosts_of(event)]
    return found


def _is_a_persons(event: Event) -> bool:
    """Is it a reason that a person gave? People give them hours after they read of a fault in the kernel's log: where that
    was collected and has no such line shortly before, the fault is an older one. A health check reports what it finds."""
    return event.kind != "gpu.lost" and split_reason(str(event.entities.get("reason") or ""))["owner"] == "admin"


def _concluded(host: str, pci: str, code: int, earliest: float, latest: float, events: tuple[Event, ...]) -> Fact:
    attrs: Xid = {"code": code, "codes": [code], "family": family_of(code), "pids": [], "inferred": True}
    return XID.fact(earliest, latest, 1.0, host, pci or None, attrs=attrs, events=events)


def family_of(code: int | None) -> str:
    """``application``, ``benign``, ``consequence`` or ``hardware``; an unlisted code is not called harmless."""
    known = xid_catalogue.xids().get(code) if code is not None else None
    if known is None:
        return "hardware"
    if known.kind == "application":
        return "application"
    if known.action == "IGNORE":
        return "benign"
    return "consequence" if known.kind in ("consequence", "directive") else "hardware"


def code_of(event: Event) -> int | None:
    try:
        return int(event.entities.get("xid", 79 if event.kind == "gpu.fallen_off_bus" else ""))
    except (TypeError, ValueError):
        return None


def _fault(host: str, pci: str, burst: list[Event]) -> Fact:
    codes = [c for e in burst if (c := code_of(e)) is not None]
    leading = next((c for c in codes if family_of(c) not in ("consequence", "benign")), codes[0] if codes else None)
    if leading in MEMORY_XIDS:
        leading = next((c for c in codes if c in (48, 94, 95, 140)), leading)
    pids = sorted({str(e.entities["pid"]) for e in burst if e.entities.get("pid") not in (None, "", "<unknown>")})
    nonfatal = all("nonfatal" in e.message.lower() for e in burst)
    attrs: Xid = {"code": leading, "codes": codes, "family": "benign" if nonfatal else family_of(leading), "pids": pids}
    return XID.fact(burst[0].time, burst[-1].time, burst[0].sigma, host, pci or None, attrs=attrs, events=tuple(burst))


def aer_storms(world: World) -> list[Fact]:
    """``pcie.aer``: an uncorrected error, or many corrected ones on one bus.

    A bridge's errors belong to the device behind it.
    """
    groups: dict[tuple[str, str], list[Event]] = defaultdict(list)
    most: dict[tuple[str, str], int] = defaultdict(int)
    for event in world.kinds("pcie.aer"):
        if event.host:
            place = (event.host, bus(event.entities.get("pci")) or event.device or "")
            groups[place].append(event)
            most[place] += STORM_COUNT if _uncorrected(event) else event.count
    facts = []
    # Most of very many are single corrected errors.
    for (host, pci), events in sorted((place, groups[place]) for place, count in most.items() if count >= STORM_COUNT):
        for burst in bursts(events, STORM_S):
            severe = any(_uncorrected(e) for e in burst)
            count = sum(e.count for e in burst)
            if severe or count >= STORM_COUNT:
                bridge = all("pcieport" in e.message for e in burst)
                attrs: AerStorm = {"count": count, "uncorrected": severe, "bridge": bridge}
                facts.append(PCIE_AER.fact(burst[0].time, burst[-1].last, burst[0].sigma, host, pci or None, attrs=attrs, events=tuple(burst)))  # fmt: skip
    return _without_bridges(facts)


def _without_bridges(facts: list[Fact]) -> list[Fact]:
    kept = [f for f in facts if not f.attrs[BRIDGE]]
    for fact in (f for f in facts if f.attrs[BRIDGE]):
        behind = [
            f
            for f in kept
            if f.host == fact.host
            and f.start - STORM_S <= (fact.end or fact.start)
            and fact.start <= (f.end or f.start) + STORM_S
        ]
        if len(behind) != 1:
            kept.append(fact)
            continue
        start, events = min(behind[0].start, fact.start), in_order(behind[0].events, fact.events)
        kept[kept.index(behind[0])] = replace(behind[0], start=start, events=events)
    return kept


def _uncorrected(event: Event) -> bool:
    severity = str(event.entities.get("severity", ""))
    ask = _is_fatal if len(severity) <= _KEPT_TEXT else _is_fatal.__wrapped__
    return "uncorrect" in event.message.lower() or ask(severity)


@lru_cache(maxsize=256)
def _is_fatal(severity: str) -> bool:
    return "fatal" in severity.lower().replace("non-fatal", "").replace("nonfatal", "")


#: Lines about heat on one host within this are one episode.
SAME_HEAT_S = 1800.0

#: A CPU core that exceeds its limit for a moment logs it and recovers; a host in trouble logs it repeatedly.
HOT_LINES = 3

#: The kernel repeats its line about a processor after this long at the earliest, and counts meanwhile (linux
#: arch/x86/kernel/cpu/mce/therm_throt.c, CHECK_INTERVAL).
REPEATED_S = 300.0


def heat(world: World) -> list[Fact]:
    """``gpu.thermal``: GPUs that telemetry saw throttled by heat, joined with the kernel's lines about the host.

    Lines alone count if a GPU's driver or several kernel lines report it; one line of one core is routine.
    """
    facts = _measured_heat(world)
    by_gpu: dict[str, list[Event]] = defaultdict(list)
    for event in world.kinds("gpu.thermal", "kernel.thermal"):
        if event.host:
            by_gpu[event.host].append(event)
    for host, events in sorted(by_gpu.items()):
        measured = [n for n, f in enumerate(facts) if f.host == host]
        for burst in bursts(events, SAME_HEAT_S):
            near = [n for n in measured if _goes_on_with(facts[n], burst)]
            if near:
                facts[near[0]] = _with_lines(facts[near[0]], burst)
            elif (
                any(e.kind == THERMAL.name for e in burst) or len([e for e in burst if _whole_package(e)]) >= HOT_LINES
            ):
                facts.append(_logged_heat(host, burst))
    return [_with_cooling(world, fact) for fact in facts]


def _logged_heat(host: str, burst: list[Event]) -> Fact:
    """Heat that lines alone report."""
    device = next((e.device for e in burst if e.device and e.kind == THERMAL.name), None)
    end, attrs = burst[-1].last, Heat()
    if not any(e.kind == THERMAL.name for e in burst):
        attrs = Heat(processors=True)
        if _goes_on(burst):
            end += REPEATED_S
    return THERMAL.fact(burst[0].time, end, burst[0].sigma, host, device, attrs=attrs, events=tuple(burst))


def _goes_on(burst: list[Event]) -> bool:
    """Were processors throttled more often from line to line?"""
    counts = [count for e in burst if (count := integer(e.entities.get("total_events"))) is not None]
    return burst[-1].time > burst[0].last and (not counts or max(counts) > counts[0])


def _goes_on_with(heat: Fact, lines: list[Event]) -> bool:
    """Did telemetry see it hot when the lines were written?"""
    return heat.start - heat.sigma <= lines[-1].last and lines[0].time <= (heat.end or heat.start) + heat.sigma


#: A fan, a pump or the air fails some minutes before the GPUs throttle (correlation.md, E30).
COOLING_S = 900.0

COOLING_WORDS = re.compile(r"\bfan|coolant|cooling|inlet|pump|temp", re.IGNORECASE)


def _with_cooling(world: World, fact: Fact) -> Fact:
    """Adds what the node's controller logged about fans, coolant and air to a fact about heat."""
    alarms = [e for e in world.by_host.get(fact.host or "", ()) if e.kind == "platform.alarm" and COOLING_WORDS.search(e.message)
            and -COOLING_S - fact.sigma <= e.time - fact.start <= 60.0 + fact.sigma]  # fmt: skip
    if not alarms:
        return fact
    return replace(fact, attrs=with_attr(fact.attrs, COOLING, alarms[0].message), events=in_order(fact.events, alarms))


def _measured_heat(world: World) -> list[Fact]:
    """One fact per host and episode: several GPUs of a host that are hot together have one cause (air, coolant, fan)."""
    by_host: dict[str, list[Throttled]] = defaultdict(list)
    for episode in world.throttling:
        by_host[episode.host].append(episode)
    facts = []
    for host, episodes in sorted(by_host.items()):
        episodes.sort(key=lambda t: (t.first, t.gpu))
        groups: list[list[Throttled]] = []
        for episode in episodes:
            if groups and episode.first <= max(t.last for t in groups[-1]) + SAME_HEAT_S / 2:
                groups[-1].append(episode)
            else:
                groups.append([episode])
        for group in groups:
            first, last = group[0], max(group, key=lambda t: t.last)
            earliest = first.before if first.before is not None else first.first
            # It began between two samples: the fact starts in the middle, with half the gap as uncertainty.
            gpus = sorted({bus(t.gpu) or t.gpu for t in group})
            attrs: Heat = {
                "gpus": gpus,
                "measured": True,
                "samples": sum(t.samples for t in group),
            }
            facts.append(THERMAL.fact((earliest + first.first) / 2, last.last, (first.first - earliest) / 2 + 1.0, host,
                              ",".join(gpus), attrs=attrs))  # fmt: skip
    return facts


def _with_lines(fact: Fact, lines: list[Event]) -> Fact:
    inside = [e.time for e in lines if abs(e.time - fact.start) <= fact.sigma]
    start, sigma = (min(inside), lines[0].sigma) if inside else (fact.start, fact.sigma)
    end = max(fact.end or start, lines[-1].last)
    return replace(fact, start=start, end=end, sigma=sigma, events=in_order(fact.events, lines))


def _whole_package(event: Event) -> bool:
    return "package" in event.message.lower()


KINDS = (XID, PCIE_AER, THERMAL)
DETECTORS = [xids, unlogged_xids, aer_storms, heat]
