"""The machine's own health in /sys: memory errors (EDAC), temperatures and throttling, PCIe AER counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.agent.failure import Missing
from collector.agent.source import Changes, Context, Reading, Samples, SourceKind, metrics_reading

#: PCI classes whose bus errors affect a job: network (02), display (03), processing accelerators (12), NVMe (01).
_CLASSES = ("0x01", "0x02", "0x03", "0x12")
#: A temperature is reported when it has changed by this much: a degree is noise.
_DEGREES = 5.0


@dataclass
class Platform:
    context: Context
    interval: float
    _changes: Changes = field(default_factory=Changes)
    _devices: list[Path] = field(default_factory=list)

    def open(self, positions: Mapping[str, Any]) -> None:
        top = self.context.path("/sys/bus/pci/devices")
        self._devices = [
            device for device in sorted(top.glob("*"))
            if (device / "aer_dev_fatal").exists() and (_read(device / "class") or "").startswith(_CLASSES)
        ]  # fmt: skip

    def poll(self) -> Iterator[Reading]:
        samples: Samples = {}
        self._memory(samples)
        self._heat(samples)
        for device in self._devices:
            for kind in ("correctable", "nonfatal", "fatal"):
                total = _total(device / f"aer_dev_{kind}")
                if total is not None:
                    samples[(f"pcie_aer_{kind}_errors_total", (("device", device.name),))] = total
        if not samples:
            raise Missing("neither EDAC nor thermal zones nor AER counters in /sys")
        now = self.context.now()
        changed = self._changes.of(samples, now)
        if changed:
            yield metrics_reading(changed, "platform", now)

    def _memory(self, samples: Samples) -> None:
        for controller in sorted(self.context.path("/sys/devices/system/edac/mc").glob("mc*")):
            for kind, name in (("ce", "correctable"), ("ue", "uncorrectable")):
                _put(samples, f"node_edac_{name}_errors_total", controller / f"{kind}_count", controller.name)
                for dimm in sorted([*controller.glob("dimm*"), *controller.glob("rank*")]):
                    label = _read(dimm / "dimm_label") or dimm.name
                    _put(
                        samples,
                        f"node_edac_dimm_{name}_errors_total",
                        dimm / f"dimm_{kind}_count",
                        f"{controller.name}/{label}",
                    )

    def _heat(self, samples: Samples) -> None:
        for zone in sorted(self.context.path("/sys/class/thermal").glob("thermal_zone*")):
            text = _read(zone / "temp")
            if text and text.lstrip("-").isdigit():
                rounded = round(int(text) / 1000 / _DEGREES) * _DEGREES
                samples[
                    ("node_thermal_zone_temp", (("device", _read(zone / "type") or zone.name), ("zone", zone.name)))
                ] = rounded
        throttles: dict[str, float] = {}
        for cpu in self.context.path("/sys/devices/system/cpu").glob("cpu[0-9]*"):
            package = _read(cpu / "topology/physical_package_id") or "0"
            count = _read(cpu / "thermal_throttle/package_throttle_count")
            if count and count.isdigit():  # every CPU of a package shows the package's count
                throttles[package] = max(throttles.get(package, 0.0), float(count))
        for package, count_ in throttles.items():
            samples[("node_cpu_package_throttles_total", (("device", f"package{package}"),))] = count_

    def close(self) -> None:
        """Nothing is held open."""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _put(samples: Samples, name: str, path: Path, device: str) -> None:
    text = _read(path)
    if text and text.isdigit():
        samples[(name, (("device", device),))] = float(text)


def _total(path: Path) -> float | None:
    """The last line of an AER file, "TOTAL_ERR_COR 3"."""
    for line in reversed((_read(path) or "").splitlines()):
        name, _, count = line.rpartition(" ")
        if name.startswith("TOTAL_ERR") and count.isdigit():
            return float(count)
    return None


def _make(context: Context, options: Mapping[str, Any]) -> Platform:
    return Platform(context, options["every_s"])


SOURCE = SourceKind(
    "platform", _make, {"every_s": 60.0},
    reads="EDAC memory errors per controller and DIMM, thermal zones (in steps of 5 degrees), CPU throttling, PCIe AER counters",
    costs="a few hundred small files every 60 s (2-10 ms)",
    blind_to="data that only the BMC has (fans, power supplies); heat between two polls",
)  # fmt: skip
