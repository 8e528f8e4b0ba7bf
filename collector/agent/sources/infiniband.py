"""InfiniBand and RoCE ports in /sys/class/infiniband: state, rate and the port counters of the specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Changes, Context, Labels, Reading, Samples, SourceKind, metrics_reading

#: Traffic counters change all the time and belong in a metrics system; these count faults.
_TRAFFIC = (
    "port_rcv_data",
    "port_xmit_data",
    "_packets",
    "lifespan",
    "rx_read_requests",
    "rx_write_requests",
    "rx_atomic_requests",
)


@dataclass
class Infiniband:
    context: Context
    interval: float
    _changes: Changes = field(default_factory=Changes)
    _states: dict[str, str] = field(default_factory=dict)

    def open(self, positions: Mapping[str, Any]) -> None:
        kept = positions.get("infiniband") or {}
        self._states = dict(kept.get("states", {})) if kept.get("boot") == self.context.boot_id() else {}

    def poll(self) -> Iterator[Reading]:
        ports = self._ports()
        if not ports:
            raise Missing("no /sys/class/infiniband ports")
        samples: Samples = {}
        lines: list[str] = []
        before = dict(self._states)
        for device, port, folder in ports:
            labels = (("device", device), ("port", port))
            state = _words(folder / "state")
            if state and self._states.get(f"{device}/{port}") not in (None, state):
                lines.append(self._line(device, port, state))
            if state:
                self._states[f"{device}/{port}"] = state
                samples[("infiniband_port_active", labels)] = float(state == "ACTIVE")
            physical = _words(folder / "phys_state")
            if physical:  # Polling or Disabled distinguishes a cable or switch port fault from a missing subnet manager
                samples[("infiniband_port_link_up", labels)] = float(physical == "LinkUp")
            _take(folder, labels, samples)
        now = self.context.now()
        if self._states != before:
            body = wire.lines_record(
                b'{"stream":"infiniband","source":"kernel"', "\n".join(lines).encode(), time=wire.stamp(now),
                read=wire.stamp(now),
            ) if lines else b""  # fmt: skip
            position = {"boot": self.context.boot_id(), "states": dict(self._states)}
            yield Reading(body, len(lines), {"infiniband": position})
        changed = self._changes.of(samples, now)
        if changed:
            yield metrics_reading(changed, "infiniband", now)

    def _ports(self) -> list[tuple[str, str, Path]]:
        top = self.context.path("/sys/class/infiniband")
        return sorted(
            (folder.parent.parent.name, folder.name, folder)
            for folder in top.glob("*/ports/*")
            if folder.name.isdigit()
        )

    def _line(self, device: str, port: str, state: str) -> str:
        """The line that the kernel's IB core logs since 6.14 (drivers/infiniband/core/device.c); older kernels log
        none."""
        folder = self.context.path(f"/sys/class/infiniband/{device}/device")
        driver = (folder / "driver").resolve().name if (folder / "driver").exists() else "infiniband"
        return f"{driver} {folder.resolve().name} {device}: Port: {port} Link {state} (seen in /sys)"

    def close(self) -> None:
        """Nothing is held open."""


def _take(folder: Path, labels: Labels, samples: Samples) -> None:
    rate = _words(folder / "rate")
    if rate and rate.split()[0].replace(".", "").isdigit():
        samples[("infiniband_port_rate_gbps", labels)] = float(rate.split()[0])
    for kind in ("counters", "hw_counters"):
        try:
            names = sorted(entry.name for entry in (folder / kind).iterdir())
        except OSError:
            continue
        for name in names:
            if any(word in name for word in _TRAFFIC):
                continue
            try:
                samples[(f"infiniband_{name}_total", labels)] = float(int((folder / kind / name).read_text()))
            except (OSError, ValueError):
                continue  # some firmware refuses single counters (N/A, EINVAL)


def _words(path: Path) -> str:
    """ "4: ACTIVE" -> "ACTIVE"; "400 Gb/sec (4X NDR)" stays."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    number, colon, word = text.partition(": ")
    return word if colon and number.isdigit() else text


def _make(context: Context, options: Mapping[str, Any]) -> Infiniband:
    return Infiniband(context, options["every_s"])


SOURCE = SourceKind(
    "infiniband", _make, {"every_s": 10.0},
    reads="state, rate and error counters of every InfiniBand and RoCE port, counters with their growth",
    costs="about 40 small files per port every 10 s (0.5 ms per port)",
    blind_to="a port that goes down and comes back between two polls, except as growth of link_downed",
)  # fmt: skip
