"""The ports of a host's InfiniBand devices as ``ibstat``, ``ibstatus`` and ``ibv_devinfo`` print them.

The metrics are those of the same values in /sys: ``infiniband_port_active``, ``infiniband_port_link_up`` and
``infiniband_port_rate_gbps``. A port that is down is not an event: the time is unknown, and a port without a cable is
always down.
"""

from __future__ import annotations

import re

from parsers.documents.document import Document, Gathered, split_lines
from parsers.record import Origin, Parsed

_DEVICE = re.compile(
    r"CA '(?P<ca>[^']+)'|Infiniband device '(?P<status>[^']+)' port (?P<port>\d+) status:|hca_id:\s*(?P<hca>\S+)"
)
_PORT = re.compile(r"\s+[Pp]ort:?\s+(?P<port>\d+)(?::|$)")
_VALUE = re.compile(r"\s+(?P<name>[A-Za-z][\w ]*?):\s+(?P<value>\S.*?)\s*$")
_RATE = re.compile(r"\d+(?:\.\d+)?")


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    device, port = "unknown", ""
    for line in split_lines(data):
        gathered.keep(line, gathered.time)
        headed = _DEVICE.match(line.text)
        if headed:
            device, port = headed["ca"] or headed["status"] or headed["hca"], headed["port"] or ""
            continue
        numbered = _PORT.match(line.text)
        if numbered:
            port = numbered["port"]
            continue
        found = _VALUE.match(line.text)
        if found and port:
            _take(gathered, found["name"].lower(), found["value"], device, port)
    return gathered.parsed()


def _take(gathered: Gathered, name: str, value: str, device: str, port: str) -> None:
    if name == "state":
        gathered.sample("infiniband_port_active", float("ACTIVE" in value.upper()), device, device=device, port=port)
    elif name in ("physical state", "phys state", "phys_state"):
        up = "LINKUP" in value.upper().replace("_", "")
        gathered.sample("infiniband_port_link_up", float(up), device, device=device, port=port)
    elif name == "rate" and (rate := _RATE.match(value)):
        gathered.sample("infiniband_port_rate_gbps", float(rate[0]), device, device=device, port=port)


DOCUMENT = Document(kinds=("ibstat", "ibstatus", "ibv_devinfo"), read=_read)
