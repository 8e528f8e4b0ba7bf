"""Measurements: GPUs throttled by heat, seconds per training step, when a host wrote its last line.

All of it is computed in the store, so that only the few rows that matter reach Python.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from correlator.clocks.clocks import TRUE_ACCOUNTING_TIME, AccountingTime, Offset, ahead
from correlator.model.measurements import Throttled, XidSeen
from correlator.model.moments import moment_of
from store.boots import is_same_boot
from store.questions import hosts, job_output, job_rows
from store.questions import telemetry as samples
from store.questions.job_output import Pace
from store.questions.source import ALL, Source

if TYPE_CHECKING:
    from store.door import Asks

#: NVML clock event reasons that mean heat: software thermal 0x20, hardware thermal 0x40 (nvml.h
#: nvmlClocksEventReason*).
THERMAL_BITS = 0x20 | 0x40

#: Metric names for the bit mask of reasons: dcgm-exporter before and since 3.3, nvidia_gpu_exporter.
_REASON_METRICS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "nvidia_smi_clocks_throttle_reasons_active",
                   "nvidia_smi_clocks_event_reasons_active")  # fmt: skip


def throttled(store: Asks, cluster: str | None, source: Source = ALL) -> list[Throttled]:
    if not store.ask(samples.any_sample(cluster, source, _REASON_METRICS)):
        return []
    rows = store.ask(samples.throttled(cluster, _REASON_METRICS, THERMAL_BITS, source))
    return [
        Throttled(r["host"], r["gpu"] or "", r["first"], r["last"], r["before"], r["after"], r["samples"]) for r in rows
    ]


#: Gauges that hold the last Xid of a GPU (0: none since the driver was loaded).
XID_METRICS = ("DCGM_FI_DEV_XID_ERRORS", "nvidia_smi_xid_errors", "nvml_xid_errors")


def xids_seen(store: Asks, cluster: str | None, source: Source = ALL) -> list[XidSeen]:
    if not store.ask(samples.any_sample(cluster, source, XID_METRICS)):
        return []
    rows = store.ask(samples.xids_seen(cluster, XID_METRICS, source))
    return [XidSeen(r["host"], r["gpu"] or "", r["code"], r["before"], r["t"]) for r in rows]


#: How trainers log the time of a step, in seconds or milliseconds, or steps per second. RE2 syntax: it runs in the
#: store.
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_STEP = r"(?:iter(?:ation)?[ _-]?time|step[ _-]?time|time[ _/]per[ _](?:step|iter(?:ation)?)|(?:wall|time|sec(?:onds)?)/(?:step|iter)|batch[ _]time)"
STEP_TIME = (
    Pace(rf"(?i)(?:elapsed time per iteration|iter(?:ation)?[ _-]?time|step[ _-]?time)\s*\(ms\)\s*[:=]\s*{_NUMBER}", 1e-3, False),
    Pace(rf"(?i)(?:iter(?:ation)?[ _-]?time|step[ _-]?time|time/step)\s*[:=]?\s*{_NUMBER}\s*ms\b", 1e-3, False),
    Pace(rf"(?i){_STEP}\s*[:=]?\s*{_NUMBER}\s*(?:s\b|sec|$|[|,; ])", 1.0, False),
    Pace(rf"(?i){_NUMBER}\s*s/(?:it|iter|step|batch)\b", 1.0, False),
    Pace(rf"(?i){_NUMBER}\s*(?:it|iter|steps?|batch(?:es)?)/s(?:ec)?\b", 1.0, True),
)  # fmt: skip

#: Lines without one of these words are not searched for a pace.
STEP_WORD = r"(?i)(?:iter|step|batch|it/s|s/it)"


def progress(
    store: Asks, cluster: str | None, source: Source = ALL
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """(job, restart count) -> [(epoch seconds, seconds per step)] from stamped lines of the run's output."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    if not store.ask(job_output.any_pace(cluster, STEP_TIME, STEP_WORD, source)):
        return found
    rows = store.ask(job_output.progress(cluster, STEP_TIME, STEP_WORD, source))
    for row in rows:
        found.setdefault((row["job_id"], row["restarts"]), []).append((row["t"], row["seconds"]))
    return found


def _by_host(zoned: Iterable[Offset]) -> dict[str, list[Offset]]:
    found: dict[str, list[Offset]] = defaultdict(list)
    for offset in zoned:
        found[offset.host].append(offset)
    return found


def speaking(store: Asks, cluster: str | None, zoned: Iterable[Offset] = ()) -> Callable[[str], Sequence[float]]:
    """``spoke(host)``: times of the lines that the host itself wrote, at most one per second, cached per host.

    Times in another zone (``zoned``) are corrected. Lines about the host from a switch, the controller or accounting do
    not count.
    """
    known: dict[str, list[float]] = {}
    by_host = _by_host(zoned)

    def spoke(host: str) -> Sequence[float]:
        if host not in known:
            rows = store.ask(hosts.own_lines(cluster, host))
            known[host] = sorted(
                {r["t"] - ahead(by_host.get(host, ()), r["t"], r["inferred"], r["slurm"]) for r in rows}
            )
        return known[host]

    return spoke


def last_spoke(store: Asks, cluster: str | None, named: Collection[str], since: float) -> dict[str, float]:
    """The timestamp (epoch seconds) of each host's last own line, for hosts that wrote any since ``since``."""
    moment = moment_of(since)
    assert moment is not None
    rows = store.ask(hosts.last_lines(cluster, sorted(named), moment))
    return {r["host"]: r["t"] for r in rows}


def starting(
    store: Asks, cluster: str | None, zoned: Iterable[Offset] = ()
) -> Callable[[str], Sequence[tuple[float, float]]]:
    """``starts(host)``: (time, the machine's uptime in seconds) of each start of its slurmd that logs the uptime.

    ``zoned`` as in ``speaking``.
    """
    known: dict[str, list[tuple[float, float]]] = {}
    by_host = _by_host(zoned)

    def starts(host: str) -> Sequence[tuple[float, float]]:
        if host not in known:
            rows = store.ask(hosts.slurmd_starts(cluster, host))
            off = by_host.get(host, ())
            known[host] = sorted({(r["t"] - ahead(off, r["t"], r["inferred"], True), r["uptime"]) for r in rows})
        return known[host]

    return starts


def bonds(store: Asks, cluster: str | None) -> Callable[[str], Sequence[tuple[float, str, str]]]:
    """``legs(host)``: (time, bond, interface) of the bonding driver's lines about a port.

    Most of these lines are from a boot days ago.
    """
    known: dict[str, list[tuple[float, str, str]]] = {}

    def legs(host: str) -> Sequence[tuple[float, str, str]]:
        if host not in known:
            rows = store.ask(hosts.bonded_ports(cluster, host))
            known[host] = [(r["t"], r["bond"], r["port"]) for r in rows]
        return known[host]

    return legs


def gpu_minors(
    store: Asks, cluster: str | None, *, is_measured: bool
) -> Callable[[str], Sequence[tuple[float, str, int]]]:
    """``minors(host)``: (time, PCI address, number of the device file) of the GPUs that nvidia-smi listed, where that
    number is first reported or another one. ``is_measured``: are there any measurements?"""
    known: dict[str, list[tuple[float, str, int]]] = {}
    listed: list[bool] = [] if is_measured else [False]

    def minors(host: str) -> Sequence[tuple[float, str, int]]:
        if not listed:  # one question instead of one for each host with a fault
            listed.append(bool(store.ask(samples.any_sample(cluster, names=samples.MINOR_METRICS))))
        if listed[0] and host not in known:
            rows = store.ask(samples.gpu_minors(cluster, host))
            known[host] = [(r["t"], r["pci"], r["minor"]) for r in rows]
        return known.get(host, ())

    return minors


#: Answers of Slurm with a node's BootTime, which slurmd computes from its uptime in whole seconds.
_BOOT_SOURCES = ("scontrol_node", "slurmrestd")


def booted(store: Asks, cluster: str | None, source: Source = ALL) -> list[tuple[float, str]]:
    """(BootTime, host) of each boot after the first that Slurm reported for a host: the machine was up before it.

    The boots in a time window are compared with all earlier ones.
    """
    rows = store.ask(hosts.boots_again(cluster, _BOOT_SOURCES, source))
    found: list[tuple[float, str]] = []
    for row in rows:
        if not found or found[-1][1] != row["host"] or not is_same_boot(found[-1][0], row["t"]):
            found.append((row["t"], row["host"]))
    return found


#: Sources that hold the log of a host's kernel or system.
KERNEL_SOURCES = ("kernel", "syslog", "journal", "dmesg")


#: Metrics of GPUs in which a fault of one would show.
_GPU_METRICS = (*XID_METRICS, *_REASON_METRICS)


def sampled(store: Asks, cluster: str | None, source: Source = ALL) -> bool:
    """Are GPUs measured?"""
    return bool(store.ask(samples.any_sample(cluster, source, _GPU_METRICS)))


def begun(
    store: Asks, cluster: str | None, known: AccountingTime = TRUE_ACCOUNTING_TIME
) -> Callable[[Collection[int]], dict[int, float]]:
    """``begun(jobs)``: when accounting says that jobs began, for those that began once (epoch seconds, as in
    slurmctld's log).

    ``known``: the zones of accounting.
    """

    def of(jobs: Collection[int]) -> dict[int, float]:
        rows = store.ask(job_rows.begun_once(cluster, sorted(jobs), known.as_logged.times))
        return {r["job_id"]: r["t"] for r in rows}

    return of
