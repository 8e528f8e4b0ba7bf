"""Which switch port each interface is plugged into, from lldpd: ``lldpctl -f json``.

People move cables, so the source polls rarely and reports when a port has a new neighbour. A port that is down for a
while has none, and the same one afterwards. Only a host without any neighbour yet (switches announce every 30 s, IEEE
802.1AB) is polled again soon after boot.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.agent import wire
from collector.agent.failure import Denied, Missing
from collector.agent.source import Context, Reading, SourceKind

#: Fields that change, or that say nothing about the cable.
_PASSING = frozenset({
    "age", "ttl", "rid", "mgmt-ip", "mgmt-iface", "vlan", "pi", "ppvid", "lldp-med", "unknown-tlvs", "auto-negotiation", "aggregation",
    "mfs", "power",
})  # fmt: skip
#: A host without neighbours is polled again after this, then after twice as long, up to the regular interval.
_FIRST_S = 60.0


@dataclass
class Lldp:
    context: Context
    program: str
    every_s: float
    interval: float = _FIRST_S
    _sent: dict[str, int] = field(default_factory=dict)
    _wait_s: float = _FIRST_S
    _due: float = float("-inf")

    def open(self, positions: Mapping[str, Any]) -> None:
        self._sent = dict((positions.get("lldp") or {}).get("told", {}))
        self._wait_s, self._due = _FIRST_S, float("-inf")

    def poll(self) -> Iterator[Reading]:
        monotonic = self.context.monotonic()
        if monotonic < self._due:
            return
        answer = self._answer()
        digests = {name: zlib.crc32(json.dumps(facts).encode()) for name, facts in _ports(answer)}
        self._wait_s = self.every_s if digests else min(2 * self._wait_s, self.every_s)
        self._due = monotonic + self._wait_s
        if any(self._sent.get(name) != checksum for name, checksum in digests.items()):
            self._sent |= digests
            text = json.dumps(answer, separators=(",", ":")) + "\n"
            body = wire.document("lldpctl_json", text, "lldp", self.context.now())
            yield Reading(body, 1, {"lldp": {"told": dict(self._sent)}})

    def _answer(self) -> Any:
        """The neighbours, without fields that change. An lldpd that is not running or denies access is a status."""
        done = self.context.run([self.program, "-f", "json"], 20.0)
        if done.code:
            complaint = (done.err.strip() or done.out.strip() or f"exit code {done.code}").splitlines()[0]
            if "ermission" in complaint:
                raise Denied(f"{self.program}: {complaint}")
            if "onnect" in complaint or "socket" in complaint or "lldpd" in complaint:
                raise Missing(f"lldpd does not run: {complaint}")
            raise OSError(f"{self.program}: {complaint}")
        return _lasting(json.loads(done.out or "{}"))

    def close(self) -> None:
        """Nothing is held open."""


def _lasting(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _lasting(value) for key, value in document.items() if key not in _PASSING}
    return [_lasting(one) for one in document] if isinstance(document, list) else document


def _ports(answer: Any) -> Iterator[tuple[str, Any]]:
    """(interface, neighbour) pairs: ``json`` makes a list only if there are several."""
    interfaces = answer.get("lldp", {}).get("interface", [])
    for entry in interfaces if isinstance(interfaces, list) else [interfaces]:
        yield from entry.items()


def _make(context: Context, options: Mapping[str, Any]) -> Lldp:
    return Lldp(context, options["program"], options["every_s"])


SOURCE = SourceKind(
    "lldp", _make, {"program": "lldpctl", "every_s": 3600.0},
    reads="the switch and port at the other end of each interface, from lldpd, when they change",
    costs="one lldpctl at startup and one an hour (5 ms); 1 KB per port if a cable was moved",
    blind_to="InfiniBand; ports that are down; switches that do not speak LLDP, or only to the NIC's firmware",
)  # fmt: skip
