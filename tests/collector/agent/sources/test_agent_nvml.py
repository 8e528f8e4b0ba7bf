# ruff: noqa: N802 - the stand-in for NVML has NVML's names
"""GPUs through the real nvidia-ml-py: its own functions and structures, with a stub for the driver's library below it.

So every name that the source calls, every argument and every structure is that of the package; only the answers of
libnvidia-ml's C functions are simulated. Names of the C functions are those that nvidia-ml-py looks up.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from made_host import Host, asked, parsed, rows, tables

from parsers.engine import LineParser

pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
OK, NOT_SUPPORTED, TIMEOUT, LOST = 0, 3, 10, 15
#: The answer of each C function for a healthy GPU, and the field of dcgm-exporter that must show it.
PLAIN = {
    "nvmlDeviceGetTemperature": (61, "GPU_TEMP", 61), "nvmlDeviceGetPowerUsage": (312_500, "POWER_USAGE", 312.5),
    "nvmlDeviceGetCurrentClocksEventReasons": (0x40, "CLOCK_THROTTLE_REASONS", 0x40),
    "nvmlDeviceGetPcieReplayCounter": (3, "PCIE_REPLAY_COUNTER", 3),
    "nvmlDeviceGetCurrPcieLinkWidth": (8, "PCIE_LINK_WIDTH", 8),
    "nvmlDeviceGetMaxPcieLinkWidth": (16, "PCIE_MAX_LINK_WIDTH", 16),
    "nvmlDeviceGetCurrPcieLinkGeneration": (5, "PCIE_LINK_GEN", 5),
}  # fmt: skip


class Driver:
    """libnvidia-ml with GPUs, links and events; its functions by name, as nvidia-ml-py looks them up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gpus: int = 2) -> None:
        self.gpus, self.lost, self.missing = gpus, set[int](), set[str]()
        self.xids: list[tuple[int, int]] = []
        self.registered: list[tuple[int, int]] = []
        self.answers = {name: value for name, (value, _, _) in PLAIN.items()}
        self.calls: list[str] = []
        monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", self.function)

    def function(self, name: str) -> Callable[..., int]:
        self.calls.append(name)
        own = getattr(self, name, None)
        if name in self.missing or (own is None and name not in self.answers):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

        def call(*arguments: Any) -> int:
            gpu = _index(arguments[0]) if arguments else None
            if gpu is not None and gpu in self.lost and "PciInfo" not in name:
                return LOST
            if own is not None:
                return int(own(*arguments))
            arguments[-1]._obj.value = self.answers[name]
            return OK

        return call

    def nvmlInitWithFlags(self, flags: Any) -> int:
        return OK

    def nvmlInit_v2(self) -> int:
        return OK

    def nvmlShutdown(self) -> int:
        return OK

    def nvmlDeviceGetCount_v2(self, out: Any) -> int:
        out._obj.value = self.gpus
        return OK

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        _set(out._obj, index.value)
        return OK

    def nvmlDeviceGetPciInfo_v3(self, gpu: Any, out: Any) -> int:
        out._obj.busId = b"00000000:9B:00.0" if _index(gpu) else b"00000000:1B:00.0"
        return OK

    def nvmlDeviceGetUUID(self, gpu: Any, text: Any, size: Any) -> int:
        text.value = b"GPU-%d" % (_index(gpu) or 0)
        return OK

    def nvmlDeviceGetName(self, gpu: Any, text: Any, size: Any) -> int:
        text.value = b"NVIDIA H100 80GB HBM3"
        return OK

    def nvmlDeviceGetClockInfo(self, gpu: Any, kind: Any, out: Any) -> int:
        out._obj.value = {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}[kind.value]
        return OK

    def nvmlDeviceGetUtilizationRates(self, gpu: Any, out: Any) -> int:
        out._obj.gpu = 97
        return OK

    def nvmlDeviceGetMemoryInfo(self, gpu: Any, out: Any) -> int:
        out._obj.used = (2048 + 615) * 2**20  # with the driver's reserve
        return OK

    def nvmlDeviceGetMemoryInfo_v2(self, gpu: Any, out: Any) -> int:
        assert out._obj.version == pynvml.nvmlMemory_v2
        out._obj.used, out._obj.reserved = 2048 * 2**20, 615 * 2**20
        return OK

    def nvmlDeviceGetTotalEccErrors(self, gpu: Any, kind: Any, counter: Any, out: Any) -> int:
        out._obj.value = 10 * (kind.value == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED) + (
            counter.value == pynvml.NVML_AGGREGATE_ECC
        )
        return OK

    def nvmlDeviceGetRemappedRows(self, gpu: Any, *outs: Any) -> int:
        for out, value in zip(outs, (1, 2, 1, 0), strict=True):
            out._obj.value = value
        return OK

    def nvmlDeviceGetNvLinkState(self, gpu: Any, link: Any, out: Any) -> int:
        if link > 1:
            return NOT_SUPPORTED
        out._obj.value = link == 0
        return OK

    def nvmlDeviceGetNvLinkErrorCounter(self, gpu: Any, link: Any, counter: Any, out: Any) -> int:
        if link > 1:
            return NOT_SUPPORTED
        out._obj.value = 100 * counter + link
        return OK

    def nvmlEventSetCreate(self, out: Any) -> int:
        return OK

    def nvmlEventSetFree(self, events: Any) -> int:
        return OK

    def nvmlDeviceRegisterEvents(self, gpu: Any, kinds: Any, events: Any) -> int:
        self.registered.append((_index(gpu) or 0, kinds.value))
        return OK

    def nvmlEventSetWait_v2(self, events: Any, out: Any, timeout: Any) -> int:
        assert timeout.value == 0, "never waits: the agent polls"
        if not self.xids:
            return TIMEOUT
        gpu, xid = self.xids.pop(0)
        handle = pynvml.c_nvmlDevice_t()
        _set(handle, gpu)
        out._obj.device, out._obj.eventData = handle, xid
        out._obj.eventType = pynvml.nvmlEventTypeXidCriticalError
        return OK


def _set(handle: Any, index: int) -> None:
    ctypes.memmove(ctypes.byref(handle), ctypes.byref(ctypes.c_void_p(0x1000 + index)), ctypes.sizeof(ctypes.c_void_p))


def _index(handle: Any) -> int | None:
    if not isinstance(handle, pynvml.c_nvmlDevice_t):
        return None
    address = ctypes.cast(handle, ctypes.c_void_p).value
    return None if address is None else address - 0x1000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def shown(row: dict[str, Any], gpu: str = "0") -> dict[tuple[str, str | None], float]:
    """(field of dcgm-exporter, link) -> value of one GPU."""
    found: dict[tuple[str, str | None], float] = {}
    for sample in tables(row)["metrics"].to_dicts():
        labels = json.loads(sample["labels"])
        if labels["gpu"] == gpu:
            found[sample["metric"].removeprefix("DCGM_FI_DEV_"), labels.get("link")] = sample["value"]
    return found


def test_each_thing_that_a_gpu_can_say_is_a_metric_under_dcgms_name(host: Host, driver: Driver) -> None:
    runner = host.runner("nvml")
    (row,) = asked(runner)
    assert driver.registered == [(0, 8), (1, 8)]
    expected: dict[tuple[str, str | None], float] = {(name, None): value for _, name, value in PLAIN.values()}
    expected |= {("SM_CLOCK", None): 1980, ("MEM_CLOCK", None): 2619, ("GPU_UTIL", None): 97, ("FB_USED", None): 2048}
    expected |= {("ECC_SBE_VOL_TOTAL", None): 0, ("ECC_DBE_VOL_TOTAL", None): 10}
    expected |= {("ECC_SBE_AGG_TOTAL", None): 1, ("ECC_DBE_AGG_TOTAL", None): 11}
    expected |= {("CORRECTABLE_REMAPPED_ROWS", None): 1, ("UNCORRECTABLE_REMAPPED_ROWS", None): 2}
    expected |= {("ROW_REMAP_PENDING", None): 1, ("ROW_REMAP_FAILURE", None): 0}
    expected |= {("NVLINK_STATE", "0"): 1, ("NVLINK_STATE", "1"): 0}
    for at, name in enumerate(("REPLAY", "RECOVERY", "CRC_FLIT")):
        expected |= {(f"NVLINK_{name}_ERROR_COUNT", str(link)): 100 * at + link for link in (0, 1)}
    assert shown(row) == expected
    assert shown(row, "1") == expected
    labels = json.loads(tables(row)["metrics"]["labels"][0])
    assert (labels["pci_bus_id"], labels["UUID"], labels["modelName"]) == (
        "0000:1b:00.0",
        "GPU-0",
        "NVIDIA H100 80GB HBM3",
    )
    runner.close()
    assert "nvmlEventSetFree" in driver.calls and driver.calls[-1] == "nvmlShutdown"


def test_an_xid_and_a_lost_gpu_are_events_once(host: Host, driver: Driver, parser: LineParser) -> None:
    runner = host.runner("nvml")
    asked(runner)
    driver.xids, driver.lost = [(1, 79)], {1}
    driver.answers["nvmlDeviceGetPcieReplayCounter"] = 4
    host.wait(31)
    lines, metrics = asked(runner)
    xid, lost = parsed(parser, [lines])
    assert (xid["event"], json.loads(xid["entities"])["pci"]) == ("gpu.xid", "0000:9b:00")
    assert json.loads(xid["entities"])["xid"] == 79
    assert (lost["event"], json.loads(lost["entities"])["pci"]) == ("gpu.lost", "0000:9b:00.0")
    assert shown(metrics) == {("PCIE_REPLAY_COUNTER", None): 4} and shown(metrics, "1") == {}, "only what changed"
    host.wait(31)
    assert asked(runner) == [], "a lost GPU is told once"


def test_an_xid_is_reported_between_two_measurements(host: Host, driver: Driver, parser: LineParser) -> None:
    runner = host.runner("nvml")
    asked(runner)
    driver.xids = [(0, 48), (0, 63)]
    host.wait(6)
    (lines,) = asked(runner)
    assert [json.loads(r["entities"])["xid"] for r in parsed(parser, [lines])] == [48, 63]


def test_one_gpu_that_is_gone_hides_no_other(host: Host, driver: Driver, parser: LineParser) -> None:
    """Found by reading: an agent started after the loss watched none of the others, and opened NVML repeatedly."""
    driver.lost = {1}
    runner = host.runner("nvml")
    lines, metrics = asked(runner)
    assert [row["event"] for row in parsed(parser, [lines])] == ["gpu.lost"]
    assert shown(metrics)["GPU_TEMP", None] == 61
    driver.xids = [(0, 48)]
    host.wait(6)
    (xid,) = asked(runner)
    assert "Xid (PCI:0000:1b:00): 48" in xid["lines"]


def test_a_driver_that_was_loaded_anew_is_opened_anew(host: Host, driver: Driver, parser: LineParser) -> None:
    """Its former handles answer nothing: that is a status, not a GPU without news."""
    runner = host.runner("nvml")
    asked(runner)
    driver.lost = {0, 1}
    host.wait(31)
    (lines,) = rows(runner.poll())
    assert [row["event"] for row in parsed(parser, [lines])] == ["gpu.lost"] * 2
    assert runner.status.state == "absent" and "no GPU answers" in runner.status.detail
    host.wait(61)
    assert rows(runner.poll()) == [], "told once, also by the next one"
    driver.lost = set()
    host.wait(61)
    (metrics,) = asked(runner)
    assert shown(metrics, "1")["GPU_TEMP", None] == 61


def test_a_driver_before_the_rename_says_why_clocks_are_held_back(host: Host, driver: Driver) -> None:
    """R535 renamed them to event reasons; the library of an older driver has only the former name."""
    driver.missing = {"nvmlDeviceGetCurrentClocksEventReasons"}
    driver.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x80
    (row,) = asked(host.runner("nvml"))
    assert shown(row)["CLOCK_THROTTLE_REASONS", None] == 0x80


def test_a_driver_without_the_second_answer_about_memory_counts_its_reserve(host: Host, driver: Driver) -> None:
    """Drivers before R510."""
    driver.missing = {"nvmlDeviceGetMemoryInfo_v2"}
    (row,) = asked(host.runner("nvml"))
    assert shown(row)["FB_USED", None] == 2048 + 615


def test_what_a_gpu_does_not_offer_costs_only_itself(host: Host, driver: Driver) -> None:
    """A GPU without ECC, NVLink and events (a T4 in a virtual machine)."""
    driver.missing = {
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkErrorCounter",
        "nvmlEventSetCreate",
    }
    (row,) = asked(host.runner("nvml"))
    found = shown(row)
    assert found["GPU_TEMP", None] == 61 and not [name for name, _ in found if "ECC" in name or "NVLINK" in name]


def test_without_a_gpu_nvml_is_absent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch, gpus=0)
    runner = host.runner("nvml")
    assert rows(runner.poll()) == [] and runner.status.state == "absent" and "no GPU" in runner.status.detail


def test_without_a_driver_nvml_is_absent(host: Host, driver: Driver) -> None:
    driver.missing = {"nvmlInitWithFlags", "nvmlInit_v2"}
    runner = host.runner("nvml")
    assert rows(runner.poll()) == [] and runner.status.state == "absent" and runner.status.detail


def test_without_the_package_nvml_is_absent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    runner = host.runner("nvml")
    assert rows(runner.poll()) == [] and "nvidia-ml-py" in runner.status.detail
