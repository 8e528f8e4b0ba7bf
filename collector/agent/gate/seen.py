"""What the agent sees of its own node right now: GPUs that are gone, ports without a link, a root that is read-only.

Only files of /sys and /proc are read, a few dozen, and no program is run. What was there earlier in this boot and is
gone is a fault; what never was there is not: an empty port and a node without GPUs say nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from collector.agent.gate.answer_file import DOUBTFUL, UNFIT
from collector.agent.source import Context

#: A port must be down in two looks that are this far apart: cables are reseated, and drivers reset their ports.
CONFIRM_S = 25.0
#: Names that are remembered, so that a host of many virtual ports costs no memory.
MOST_PORTS = 256
#: Xids after which NVIDIA's catalogue asks for a reset of the GPU or a reboot (parsers/catalogue/xid.csv: RESET_GPU,
#: RESTART_BM; a test compares).
RESET_XIDS = frozenset({46, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
_XID = re.compile(rb"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{1,20})\): (\d{1,5})\b")
_LOST = re.compile(rb"NVRM: GPU ([0-9A-Fa-f:.]{1,20}) is lost, told by NVML")
#: Samples of the source ``nvml``, inside JSON: what a faulty row of a GPU's memory waits for.
_REMAP = re.compile(rb'DCGM_FI_DEV_ROW_REMAP_(PENDING|FAILURE)\{[^}]*pci_bus_id=\\?"([0-9A-Fa-f:.]{1,20})[^}]*\} (\d+)')
#: Stands for an Xid where NVML alone says that the GPU is gone.
_NO_XID = 0
_NVIDIA, _DISPLAYS = "0x10de", ("0x0300", "0x0302")
#: File systems on a disk of the node: a root on one of them that is read-only was not made so.
_ON_DISK = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs")


@dataclass(frozen=True)
class Sight:
    """A fault that is there now. ``verdict``: doubtful or unfit."""

    verdict: str
    text: str


@dataclass
class Seen:
    """Looks at the node. ``file`` keeps what was there earlier in this boot, for an agent that is started again."""

    context: Context
    file: Path | None = None
    gpus: set[str] = field(default_factory=set)
    ports: set[str] = field(default_factory=set)
    xids: dict[str, int] = field(default_factory=dict)
    #: GPU and PENDING or FAILURE; the source reports all of them when it starts.
    rows: set[tuple[str, str]] = field(default_factory=set)
    root_writable: bool = False
    _down_since: dict[str, float] = field(default_factory=dict)
    _kept: str = ""

    def open(self) -> None:
        """Remembers what an agent of this boot saw."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            kept = json.loads(self.file.read_text(encoding="utf-8")) if self.file is not None else {}
            if kept["boot"] == self.context.boot_id():
                self.gpus, self.ports = set(map(str, kept["gpus"])), set(map(str, kept["ports"]))
                self.xids = {str(gpu): int(code) for gpu, code in kept["xids"].items()}
                self.root_writable = bool(kept["root_writable"])

    def note(self, body: bytes) -> None:
        """Takes what the agent has read of the kernel and of NVML: GPUs that need a reset. Called by other threads."""
        if b"NVRM: " in body:
            found = [(gpu, int(code)) for gpu, code in _XID.findall(body)]
            found += [(gpu, _NO_XID) for gpu in _LOST.findall(body)]
            for gpu, code in found:
                if (code == _NO_XID or code in RESET_XIDS) and len(self.xids) < MOST_PORTS:
                    self.xids[_bus(gpu)] = code
        if b"_ROW_REMAP_" in body:
            for kind, gpu, count in _REMAP.findall(body):
                known = (_bus(gpu), kind.decode())
                if int(count) and len(self.rows) < MOST_PORTS:
                    self.rows.add(known)
                elif not int(count):
                    self.rows.discard(known)

    def look(self) -> list[Sight]:
        """What is wrong now."""
        found = [*self._gpus(), *self._links(), *self._root()]
        self._keep()
        return found

    def _keep(self) -> None:
        if self.file is None:
            return
        text = json.dumps({
            "boot": self.context.boot_id(), "gpus": sorted(self.gpus), "ports": sorted(self.ports), "xids": dict(self.xids),
            "root_writable": self.root_writable,
        })  # fmt: skip
        if text != self._kept:
            with contextlib.suppress(OSError):
                new = self.file.with_suffix(".new")
                new.write_text(text, encoding="utf-8")
                new.replace(self.file)
                self._kept = text

    # ---------------------------------------------------------------------------------------------------------- GPUs

    def _gpus(self) -> Iterator[Sight]:
        present = set()
        for device in _entries(self.context.path("/sys/bus/pci/devices")):
            if _text(device / "vendor") == _NVIDIA and _text(device / "class")[:6] in _DISPLAYS:
                present.add(device.name)
                if _head(device / "config") == b"\xff\xff\xff\xff":  # what a bus returns for a device that is gone
                    yield Sight(UNFIT, f"GPU {device.name} does not answer on its bus")
        self.gpus |= set(sorted(present)[:MOST_PORTS])
        for gone in sorted(self.gpus - present):
            yield Sight(UNFIT, f"GPU {gone} is gone; it was there earlier in this boot")
        for gpu, code in sorted(dict(self.xids).items()):
            what = f"reported Xid {code} in this boot" if code != _NO_XID else "is lost, NVML says"
            yield Sight(UNFIT, f"GPU {gpu} {what}; it needs a reset or a reboot")
        for gpu, kind in sorted(self.rows.copy()):
            if kind == "FAILURE":
                yield Sight(UNFIT, f"GPU {gpu} could not replace a faulty row of its memory; NVIDIA has it exchanged")
            else:
                yield Sight(DOUBTFUL, f"GPU {gpu} replaces a faulty row of its memory at its next reset")

    # --------------------------------------------------------------------------------------------------------- links

    def _links(self) -> Iterator[Sight]:
        states = {**dict(self._rdma_ports()), **dict(self._ethernet())}
        now = self.context.monotonic()
        for name, (is_up, verdict, text) in sorted(states.items()):
            if is_up:
                self._down_since.pop(name, None)
                if len(self.ports) < MOST_PORTS:
                    self.ports.add(name)
            elif name in self.ports and now - self._down_since.setdefault(name, now) >= CONFIRM_S:
                yield Sight(verdict, f"{name} {text}; it was up earlier in this boot")

    def _rdma_ports(self) -> Iterator[tuple[str, tuple[bool, str, str]]]:
        for port in self.context.path("/sys/class/infiniband").glob("*/ports/*"):
            state = _text(port / "state").partition(": ")[2]
            if port.name.isdigit() and state:
                disabled = "disabled" in _text(port / "phys_state").lower()
                text = "was switched off" if disabled else f"is {state}"
                name = f"{port.parent.parent.name} port {port.name}"
                yield name, (state == "ACTIVE", DOUBTFUL if disabled else UNFIT, text)

    def _ethernet(self) -> Iterator[tuple[str, tuple[bool, str, str]]]:
        """Ports of machines, not bridges and the like. A port may be one of several that do the same: a doubt."""
        for port in _entries(self.context.path("/sys/class/net")):
            if (port / "device").exists() and not (port / "device" / "infiniband").exists():
                carrier = _text(port / "carrier")  # refused while the port is switched off
                text = "has no carrier" if carrier == "0" else "was switched off"
                yield port.name, (carrier == "1", DOUBTFUL, text)

    # ---------------------------------------------------------------------------------------------------------- root

    def _root(self) -> Iterator[Sight]:
        mounts = [line.split() for line in _text(self.context.path("/proc/mounts")).splitlines()]
        root = [fields for fields in mounts if len(fields) > 3 and fields[1] == "/"]
        if not root:
            return
        kind, options = root[-1][2], root[-1][3].split(",")
        if "rw" in options:
            self.root_writable = True
        elif kind in _ON_DISK and (self.root_writable or "errors=remount-ro" in options):
            yield Sight(UNFIT, f"the root file system ({kind}) has become read-only")


def _bus(device: bytes) -> str:
    """The kernel's 0000:1b:00 for NVML's 00000000:1B:00.0."""
    domain, _, rest = device.decode().lower().split(".")[0].partition(":")
    return f"{domain[-4:]}:{rest}"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64 * 1024).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _head(path: Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(4)
    except OSError:
        return b""
