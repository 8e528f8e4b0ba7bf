"""A NIC driver's own counters, as ``ethtool -S`` shows them, read from the kernel without a program."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.agent.failure import Missing
from collector.agent.source import Changes, Context, Reading, Samples, SourceKind, metrics_reading

#: linux/sockios.h and linux/ethtool.h
_SIOCETHTOOL, _GSTRINGS, _GSTATS, _GSSET_INFO = 0x8946, 0x1B, 0x1D, 0x37
_SET_STATS, _NAME_BYTES = 1, 32
#: Spare room for counters: the kernel writes as many as the driver has at that moment, whatever size it was given.
_ROOM = 4096
#: Of some thousand counters (mlx5, per queue), those for errors, losses, pauses and the physical layer.
_WANTED = (
    r"err|drop|discard|crc|fcs|symbol|fault|timeout|link_down|out_of_buffer|pause|fec|recover|reset|lost|missed|cnp|"
    r"retrans|out_of_sequence|rnr|fatal|corrected|jabber|undersize|oversize"
)
#: Per-queue and per-priority counters: their sums are reported as well.
_UNWANTED = r"^(?:rx|tx|ch)\d+_|queue_\d|_prio\d|\[\d+\]"


@dataclass
class Ethtool:
    context: Context
    match: str
    skip: str
    interval: float
    _changes: Changes = field(default_factory=Changes)
    _places: dict[str, tuple[int, list[tuple[int, str]]]] = field(default_factory=dict)

    def open(self, positions: Mapping[str, Any]) -> None:
        self._wanted, self._unwanted = re.compile(self.match), re.compile(self.skip)
        self._places.clear()

    def poll(self) -> Iterator[Reading]:
        samples: Samples = {}
        names = self._interfaces()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for name in names:
                for counter, value in self._counters(asked.fileno(), name):
                    samples[(f"ethtool_{counter}_total", (("device", name),))] = float(value)
        if not samples:
            raise Missing(f"no counters from {', '.join(names) or 'any network device'}")
        now = self.context.now()
        changed = self._changes.of(samples, now)
        if changed:
            yield metrics_reading(changed, "ethtool", now)

    def _interfaces(self) -> list[str]:
        """Interfaces that are devices (bridges, tunnels and container ends are not)."""
        folder = self.context.path("/sys/class/net")
        try:
            return sorted(entry.name for entry in folder.iterdir() if (entry / "device").exists())
        except OSError as error:
            raise Missing("no /sys/class/net") from error

    def _counters(self, handle: int, name: str) -> list[tuple[str, int]]:
        try:
            count = _size(handle, name)
            if self._places.get(name, (-1, []))[0] != count:  # the driver may change its set (ethtool -L)
                self._places[name] = count, self._names(handle, name, count)
            places = self._places[name][1]
            if not places:
                return []
            data = array.array("B", struct.pack("=II", _GSTATS, count) + bytes(8 * (count + _ROOM)))
            _ask(handle, name, data)
        except OSError:  # the driver has none, or the device is gone
            self._places.pop(name, None)
            return []
        if struct.unpack_from("=I", data, 4)[0] != count:
            del self._places[name]
            return []
        values = struct.unpack_from(f"={count}Q", data, 8)
        return [(counter, values[place]) for place, counter in places]

    def _names(self, handle: int, name: str, count: int) -> list[tuple[int, str]]:
        room = bytes(_NAME_BYTES * (count + _ROOM))
        strings = array.array("B", struct.pack("=III", _GSTRINGS, _SET_STATS, count) + room)
        if count:
            _ask(handle, name, strings)
        raw = strings.tobytes()[12:]
        found = []
        for place in range(count):
            text = (
                raw[place * _NAME_BYTES : (place + 1) * _NAME_BYTES].split(b"\0")[0].decode("ascii", "replace").strip()
            )
            if self._wanted.search(text) and not self._unwanted.search(text):
                found.append((place, re.sub(r"\W+", "_", text)))
        return found

    def close(self) -> None:
        self._places.clear()


def _size(handle: int, name: str) -> int:
    """How many counters a driver has now."""
    info = array.array("B", struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET_STATS, 0))
    _ask(handle, name, info)
    return int(struct.unpack_from("=I", info, 16)[0]) if struct.unpack_from("=Q", info, 8)[0] else 0


def _ask(handle: int, name: str, data: array.array[int]) -> None:
    """Sends one ethtool request; the answer is written into ``data``."""
    request = struct.pack("16sP", name.encode()[:15], data.buffer_info()[0])
    fcntl.ioctl(handle, _SIOCETHTOOL, request)


def _make(context: Context, options: Mapping[str, Any]) -> Ethtool:
    return Ethtool(context, options["match"], options["skip"], options["every_s"])


SOURCE = SourceKind(
    "ethtool", _make, {"match": _WANTED, "skip": _UNWANTED, "every_s": 30.0},
    reads="the NIC driver's error, drop, pause and physical-layer counters; those that changed, with their growth",
    costs="one ioctl per NIC every 30 s (mlx5 asks its firmware: 1-5 ms)",
    blind_to="counters per queue and priority; events that a driver does not count",
)  # fmt: skip
