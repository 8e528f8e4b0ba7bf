"""What this node runs: kernel, NVIDIA driver, NIC firmware and drivers, BIOS, operating system, image. Read from /proc, /sys and
/etc, without a program; jobs are compared by it (``web.job_software``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.agent.failure import Missing
from collector.agent.source import Changes, Context, Reading, Samples, SourceKind, metrics_reading

#: One sample each, of value 1: labels ``name``, ``version`` and, where several devices have one, ``device``.
METRIC = "node_software_info"
#: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build ..."
_NVRM = re.compile(r"NVRM version:.*?\s(\d+(?:\.\d+)+)\s")
_NIC_MODULES = ("mlx5_core", "bnxt_en", "ice", "irdma", "efa", "ena", "mana", "ionic")
_MOST_BYTES, _MOST_CHARACTERS = 16 << 10, 120


@dataclass
class Software:
    context: Context
    image_file: str
    interval: float
    _changes: Changes = field(default_factory=Changes)

    def open(self, positions: Mapping[str, Any]) -> None:
        """Nothing is held open."""

    def poll(self) -> Iterator[Reading]:
        samples: Samples = {}
        for name, version, device in self._found():
            if version:
                labels = (
                    ("name", name),
                    ("version", version[:_MOST_CHARACTERS]),
                    *((("device", device),) if device else ()),
                )
                samples[METRIC, labels] = 1.0
        if not samples:
            raise Missing("neither /proc/sys/kernel/osrelease nor /etc/os-release")
        now = self.context.now()
        changed = self._changes.of(samples, now)
        if changed:
            yield metrics_reading(changed, "software", now)

    def _found(self) -> Iterator[tuple[str, str, str]]:
        yield "kernel", self._line("/proc/sys/kernel/osrelease"), ""
        loaded = _NVRM.search(self._text("/proc/driver/nvidia/version"))  # what is loaded, not what is installed
        yield "nvidia_driver", loaded[1] if loaded else "", ""
        for device in sorted(self.context.path("/sys/class/infiniband").glob("*")):
            yield "nic_firmware", self._line(f"/sys/class/infiniband/{device.name}/fw_ver"), device.name
        for module in _NIC_MODULES:
            yield f"nic_driver_{module}", self._line(f"/sys/module/{module}/version"), ""
        yield "bios", self._line("/sys/class/dmi/id/bios_version"), ""
        release = self._release()
        yield "os", release.get("PRETTY_NAME", ""), ""
        image = self._line(self.image_file)
        yield "image", image or " ".join(filter(None, map(release.get, ("IMAGE_ID", "IMAGE_VERSION", "BUILD_ID")))), ""

    def _release(self) -> dict[str, str]:
        """os-release(5)."""
        pairs = (line.partition("=") for line in self._text("/etc/os-release").splitlines())
        return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}

    def _line(self, path: str) -> str:
        return " ".join(self._text(path).partition("\n")[0].split())

    def _text(self, path: str) -> str:
        return _text(self.context.path(path))

    def close(self) -> None:
        """Nothing is held open."""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _make(context: Context, options: Mapping[str, Any]) -> Software:
    return Software(context, options["image_file"], options["every_s"])


SOURCE = SourceKind(
    "software", _make, {"image_file": "/etc/faultline/image", "every_s": 60.0},
    reads="kernel, loaded NVIDIA driver, NIC firmware and drivers, BIOS, operating system, image (os-release, or the first line of `image_file`)",
    costs="about twenty small files every 60 s (1 ms); nothing is sent unless it changed, or an hour has passed",
    blind_to="what is installed and not loaded; versions inside containers",
)  # fmt: skip
