"""NVIDIA GPUs through NVML: XID events, ECC, row remapping, clocks and throttle reasons, NVLink, PCIe.

Metrics have dcgm-exporter's names, because dashboards and rules use those. An XID is reported in the kernel driver's
format, marked as NVML's: on hosts whose kernel log cannot be read, it is the only witness.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Changes, Context, Labels, Reading, Samples, SourceKind, metrics_reading

#: nvml.h: nvmlEventTypeXidCriticalError
_XID_EVENTS = 0x8
#: nvml.h: nvmlMemoryErrorType_t, nvmlEccCounterType_t
_CORRECTED, _UNCORRECTED, _VOLATILE, _AGGREGATE = 0, 1, 0, 1
#: A GPU that fell off the bus answers every call with this (NVML_ERROR_GPU_IS_LOST).
_LOST = 15


@dataclass
class Nvml:
    """``library``: the module pynvml, or a test's replacement."""

    context: Context
    metrics_s: float
    interval: float
    library: Any = None
    _devices: list[tuple[int, Any, Labels]] = field(default_factory=list)
    _events: Any = None
    _changes: Changes = field(default_factory=Changes)
    _metrics_at: float = float("-inf")
    _lost: set[int] = field(default_factory=set)

    def open(self, positions: Mapping[str, Any]) -> None:
        if self.library is None:
            try:
                self.library = importlib.import_module("pynvml")
            except ImportError as error:
                raise Missing("the package nvidia-ml-py is not installed") from error
        nvml = self.library
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise Missing(f"NVML: {error}") from error
        self._devices = []
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):  # a GPU that is gone for good must not hide the others
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                labels = (("gpu", str(index)), ("UUID", self._text_of(nvml.nvmlDeviceGetUUID, device)),
                          ("pci_bus_id", self._bus(device)), ("modelName", self._text_of(nvml.nvmlDeviceGetName, device)))  # fmt: skip
                self._devices.append((index, device, labels))
        if not self._devices:
            nvml.nvmlShutdown()
            raise Missing("NVML finds no GPU")
        kept = positions.get("nvml") or {}
        self._lost = set(kept.get("lost", ())) if kept.get("boot") == self.context.boot_id() else set()
        self._events = self._register()

    def _text_of(self, ask: Callable[[Any], Any], device: Any) -> str:
        """A name; empty if the GPU does not give one."""
        try:
            return _text(ask(device))
        except self.library.NVMLError:
            return ""

    def _bus(self, device: Any) -> str:
        """The address in the common form: "00000000:9B:00.0" in NVML is "0000:9b:00.0"."""
        return self._text_of(lambda asked: self.library.nvmlDeviceGetPciInfo(asked).busId, device).lower()[-12:]

    def _register(self) -> Any:
        """An event set with the XIDs of all GPUs; None if the driver offers none (some virtual machines)."""
        nvml = self.library
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        for _, device, _ in self._devices:
            with contextlib.suppress(nvml.NVMLError):  # a lost GPU sends no events
                nvml.nvmlDeviceRegisterEvents(device, _XID_EVENTS, events)
        return events

    def poll(self) -> Iterator[Reading]:
        lines, lost, is_deaf = self._xids(), set(self._lost), False
        now, monotonic = self.context.now(), self.context.monotonic()
        changed: Samples = {}
        if monotonic - self._metrics_at >= self.metrics_s:
            self._metrics_at = monotonic
            samples: Samples = {}
            for index, device, labels in self._devices:
                self._measure(index, device, labels, samples, lines)
            is_deaf = not samples
            changed = self._changes.of(samples, now)
        if lines:
            body = wire.lines_record(
                b'{"stream":"nvml","source":"kernel"',
                "\n".join(lines).encode(),
                time=wire.stamp(now),
                read=wire.stamp(now),
            )
            yield Reading(body, len(lines))
        if self._lost != lost:
            yield Reading(b"", 0, {"nvml": {"boot": self.context.boot_id(), "lost": sorted(self._lost)}})
        if changed:
            yield metrics_reading(changed, "nvml", now)
        if is_deaf:  # the driver was reloaded: old handles no longer work
            raise Missing("NVML: no GPU answers")

    def _xids(self) -> list[str]:
        nvml, lines = self.library, []
        while self._events is not None:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError:  # a timeout: no more events wait
                break
            pci = self._bus(event.device).rpartition(".")[0] or "unknown"
            lines.append(f"NVRM: Xid (PCI:{pci}): {int(event.eventData)}, told by NVML")
        return lines

    def _measure(self, index: int, device: Any, labels: Labels, samples: Samples, lines: list[str]) -> None:
        nvml = self.library
        lost = False
        for name, ask in _QUESTIONS.items():
            try:
                found = ask(nvml, device)
            except nvml.NVMLError as error:  # not supported by this GPU, or the GPU is gone
                lost = lost or getattr(error, "value", None) == _LOST
                continue
            except (AttributeError, TypeError):  # an older nvidia-ml-py
                continue
            for more, value in found if isinstance(found, list) else [((), found)]:
                samples[(f"DCGM_FI_DEV_{name}", labels + more)] = float(value)
        if lost and index not in self._lost:
            lines.append(f"NVRM: GPU {dict(labels)['pci_bus_id']} is lost, told by NVML")
        (self._lost.add if lost else self._lost.discard)(index)

    def close(self) -> None:
        nvml, events = self.library, self._events
        self._events, self._devices = None, []
        if nvml is None:
            return
        if events is not None:
            nvml.nvmlEventSetFree(events)
        nvml.nvmlShutdown()


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _links(counter: str) -> Callable[[Any, Any], list[tuple[Labels, float]]]:
    """One NVLink error counter of every link."""

    def ask(nvml: Any, device: Any) -> list[tuple[Labels, float]]:
        found: list[tuple[Labels, float]] = []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                value = nvml.nvmlDeviceGetNvLinkErrorCounter(device, link, getattr(nvml, counter))
            except nvml.NVMLError:
                continue
            found.append(((("link", str(link)),), float(value)))
        return found

    return ask


def _link_states(nvml: Any, device: Any) -> list[tuple[Labels, float]]:
    found: list[tuple[Labels, float]] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            found.append(((("link", str(link)),), float(nvml.nvmlDeviceGetNvLinkState(device, link))))
        except nvml.NVMLError:
            continue
    return found


def _reasons(nvml: Any, device: Any) -> float:
    """Why clocks are throttled: "event reasons" since R535; the former name leaves the library with CUDA 14."""
    try:
        return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
    except (AttributeError, nvml.NVMLError_FunctionNotFound):
        return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))


def _memory_used(nvml: Any, device: Any) -> float:
    """MiB in use. The first version of the call counts the driver's own reserve, too (615 MiB of an idle H200), which
    dcgm-exporter and nvidia-smi leave out; drivers before R510 have no other."""
    try:
        return float(nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2).used / 2**20)
    except (AttributeError, TypeError, nvml.NVMLError_FunctionNotFound):
        return float(nvml.nvmlDeviceGetMemoryInfo(device).used / 2**20)


def _remapped(place: int) -> Callable[[Any, Any], float]:
    return lambda nvml, device: float(nvml.nvmlDeviceGetRemappedRows(device)[place])


def _ecc(kind: int, counter: int) -> Callable[[Any, Any], float]:
    return lambda nvml, device: float(nvml.nvmlDeviceGetTotalEccErrors(device, kind, counter))


#: Field of dcgm-exporter -> the NVML call that reads it.
_QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "GPU_TEMP": lambda nvml, device: nvml.nvmlDeviceGetTemperature(device, 0),
    "POWER_USAGE": lambda nvml, device: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
    "SM_CLOCK": lambda nvml, device: nvml.nvmlDeviceGetClockInfo(device, 1),
    "MEM_CLOCK": lambda nvml, device: nvml.nvmlDeviceGetClockInfo(device, 2),
    "CLOCK_THROTTLE_REASONS": _reasons,
    "GPU_UTIL": lambda nvml, device: nvml.nvmlDeviceGetUtilizationRates(device).gpu,
    "FB_USED": _memory_used,
    "ECC_SBE_VOL_TOTAL": _ecc(_CORRECTED, _VOLATILE),
    "ECC_DBE_VOL_TOTAL": _ecc(_UNCORRECTED, _VOLATILE),
    "ECC_SBE_AGG_TOTAL": _ecc(_CORRECTED, _AGGREGATE),
    "ECC_DBE_AGG_TOTAL": _ecc(_UNCORRECTED, _AGGREGATE),
    "CORRECTABLE_REMAPPED_ROWS": _remapped(0),
    "UNCORRECTABLE_REMAPPED_ROWS": _remapped(1),
    "ROW_REMAP_PENDING": _remapped(2),
    "ROW_REMAP_FAILURE": _remapped(3),
    "PCIE_REPLAY_COUNTER": lambda nvml, device: nvml.nvmlDeviceGetPcieReplayCounter(device),
    "PCIE_LINK_WIDTH": lambda nvml, device: nvml.nvmlDeviceGetCurrPcieLinkWidth(device),
    "PCIE_MAX_LINK_WIDTH": lambda nvml, device: nvml.nvmlDeviceGetMaxPcieLinkWidth(device),
    "PCIE_LINK_GEN": lambda nvml, device: nvml.nvmlDeviceGetCurrPcieLinkGeneration(device),
    "NVLINK_STATE": _link_states,
    "NVLINK_REPLAY_ERROR_COUNT": _links("NVML_NVLINK_ERROR_DL_REPLAY"),
    "NVLINK_RECOVERY_ERROR_COUNT": _links("NVML_NVLINK_ERROR_DL_RECOVERY"),
    "NVLINK_CRC_FLIT_ERROR_COUNT": _links("NVML_NVLINK_ERROR_DL_CRC_FLIT"),
}


def _make(context: Context, options: Mapping[str, Any]) -> Nvml:
    return Nvml(context, options["metrics_s"], options["every_s"])


SOURCE = SourceKind(
    "nvml", _make, {"every_s": 5.0, "metrics_s": 30.0},
    reads="XID events; ECC, remapped rows, clocks and throttle reasons, temperature, NVLink, PCIe replay and width",
    costs="1-3 ms per GPU every 30 s, about 20 MB for the driver's library",
    blind_to="profiling counters (they need DCGM); an XID that occurred while the agent was down (the kernel log has it)",
)  # fmt: skip
