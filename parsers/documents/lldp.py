"""Turns LLDP neighbours into links between a host's port and a switch's port. Shared by the readers of every output.

LLDP names the other end but seldom its type. The ends are distinguished by their port names (``swp3``, ``Ethernet1/4``
and ``xe-0/0/2`` are a switch's, ``ens1f0np0`` and ``mlx5_0`` a host's), then by the system description, then by the
capabilities (IEEE 802.1AB, 8.5.8). Nothing is invented: a neighbour with only MAC addresses has no name, and a
truncated name counts as none. A link between two switches, or two hosts, is not a host's link.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from parsers.documents.document import Gathered
from parsers.host_names import short_name

_MAC = re.compile(r"(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}|[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}", re.IGNORECASE)
#: An address in place of a name, or what looks like one: damaged, or a part of a longer one.
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]*:[0-9a-f:]+", re.IGNORECASE)

#: Port names of network systems: Cumulus, SONiC (and its aliases), Arista, NX-OS, IOS, Junos, OS10, NVOS.
_SWITCH_PORT = re.compile(
    r"swp\d|Eth(?:ernet)?\d|Et\d|ethernet\d+/|(?:xe|et|ge|mge|fe)-\d+/|\w*[Gg]ig(?:abit[Ee]thernet|E)\d|(?:Gi|Te|Twe|Fi|Fo|Hu)\d|"
    r"etp\d|sw\d+p\d|\d+/\d|mgmt\d|Management\d|(?:fxp|me)\d"
)
#: Interface names of Linux, its udev rules and RDMA drivers.
_HOST_PORT = re.compile(
    r"(?:eth|em|ib|rdma|roce|hsn|lan|oob|bond|rail|irdma|efa)\d|en[ospxP]\w|ib[ps]\d|roce[ps]\d|p\d+(?:p\d+)?(?:_\d+)?$|mlx\d+_\d|"
    r"bnxt_re\d|hfi\d|pf\d"
)
#: What may follow in a port's name; a description continues differently (``Ethernet4-to-gpu7``).
_REST = re.compile(r"[\w/.:]*")
#: ``Interface   8 as enp5s0f0``: port description of lldpad and some drivers.
_DESCRIBED = re.compile(r"Interface\s+\d+ as (?P<name>\S+)")
#: Words in the system description of a network system.
_SWITCH_WORDS = re.compile(
    r"SONiC|Cumulus|Arista|NX-OS|\bIOS\b|Cisco Nexus|Junos|Juniper|Onyx|MLNX-OS|\bNVOS\b|\bOS10\b|Comware|FortiSwitch|ArubaOS|\bEOS\b"
)

#: Short forms in the tables of NX-OS, IOS and EOS -> the names in the same switch's log.
_SHORT = {
    "Et": "Ethernet", "Eth": "Ethernet", "Ma": "Management", "Fa": "FastEthernet", "Gi": "GigabitEthernet",
    "Te": "TenGigabitEthernet", "Twe": "TwentyFiveGigE", "Fo": "FortyGigabitEthernet", "Hu": "HundredGigE",
}  # fmt: skip
_SHORTENED = re.compile(rf"(?P<short>{'|'.join(sorted(_SHORT, key=len, reverse=True))})(?P<number>\d.*)")

#: Capabilities: the letters in tables and the words of lldpctl.
_FORWARDS, _STATION = frozenset("BR"), "S"


@dataclass
class Neighbour:
    """One neighbour in an output. ``port_kind``: the type of the port ID (``ifname``, ``mac``, ``local``; empty if the
    output does not give it). ``capabilities``: first letters of the enabled ones; None if none are given."""

    local: str
    system: str = ""
    port: str = ""
    port_kind: str = ""
    port_text: str = ""
    system_text: str = ""
    capabilities: frozenset[str] | None = None
    line: int | None = None

    @property
    def name(self) -> str | None:
        """The system's name; None for an address, a placeholder, or a truncated name."""
        name = self.system.strip()
        if not name or "…" in name or " " in name or name.lower() in ("-", "n/a", "localhost", "not advertised"):
            return None
        return None if _MAC.fullmatch(name) or _ADDRESS.fullmatch(name) else name

    @property
    def far_port(self) -> str:
        """The port at the other end; empty if only its address is given."""
        described = _DESCRIBED.match(self.port_text.strip())
        text = described["name"] if described else self.port_text.strip()
        named = _is_port(text)
        port = self.port.strip()
        if self.port_kind == "ifname" and port:
            return unabridged(port)
        if not port or _MAC.fullmatch(port) or self.port_kind == "mac" or port in ("-", "N/A"):
            return unabridged(text) if named else ""
        # An alias or a number: SONiC and Junos put the interface's own name into the description.
        if named and (self.port_kind in ("local", "ifalias") or port.isdigit()):
            return unabridged(text)
        return unabridged(port)


def _is_port(text: str) -> bool:
    found = _SWITCH_PORT.match(text) or _HOST_PORT.match(text)
    return found is not None and _REST.fullmatch(text, found.end()) is not None


def is_switch_port(name: str) -> bool:
    """Whether network systems name a port like this."""
    return bool(_SWITCH_PORT.match(name))


def unabridged(port: str) -> str:
    """``Eth1/3`` -> ``Ethernet1/3``."""
    found = _SHORTENED.fullmatch(port)
    return _SHORT[found["short"]] + found["number"] if found else port


# ------------------------------------------------------------------------------------------------------ who is speaking

_PROMPT = re.compile(
    r"\[?(?:[\w.-]+@)?(?P<name>[A-Za-z0-9][\w.-]*?)(?:[ :(][^#>$]*?)?\]?[#>$]\s*(?:sudo\s+)?(?:lldp\w*|show|sh|net|nv|networkctl)\b.*"
)
_WORDS = re.compile(
    r"(?:^|[-_. ])(?:show|lldp\w*|neigh\w*|table|net|nv|networkctl|detail\w*|interface|view|output|json0?|xml|keyvalue|txt|log|out)(?=[-_. ]|$)",
    re.IGNORECASE,
)


def speaker(gathered: Gathered, first_lines: Iterable[str] = ()) -> str | None:
    """The device that the neighbours belong to: from a prompt copied along, the file's location, or the name in the
    output."""
    for line in first_lines:
        prompt = _PROMPT.fullmatch(line.strip())
        if prompt:
            return prompt["name"]
    return gathered.origin.host or _of_file_name(gathered.origin.path)


def _of_file_name(path: str | None) -> str | None:
    """``leaf01`` of ``show_lldp_neighbors.leaf01.txt``; None of ``lldp.json``."""
    place = PurePosixPath(path or "")
    left = place.name
    if "lldp" not in f"{place.parent.name}/{left}".lower():
        return None
    for _ in range(left.count(".") + left.count("_") + left.count("-") + 1):
        left = _WORDS.sub("", left, count=1)
    left = left.strip("-_. ")
    return left if re.fullmatch(r"[A-Za-z][\w.-]*", left) else None


# ---------------------------------------------------------------------------------------------------------------- links


def _far_is_switch(neighbour: Neighbour, from_host: bool) -> bool | None:
    """Whether the other end is a switch; None if nothing decides it."""
    port = neighbour.far_port
    if _SWITCH_WORDS.search(neighbour.system_text) or _SWITCH_PORT.match(port):
        return True
    if _HOST_PORT.match(port):
        return False
    capabilities = neighbour.capabilities
    if capabilities is None:
        return from_host  # a host's neighbour is a switch; one at a switch's port without a switch's name is a host
    if capabilities & _FORWARDS:
        return True if from_host else None
    return False if _STATION in capabilities or not from_host else None


def gather(
    gathered: Gathered, reporter: str | None, neighbours: list[Neighbour], at_switch: bool | None = None
) -> None:  # fmt: skip
    """Adds the links among ``neighbours`` of ``reporter``, and reports why the others are not links.

    ``at_switch``: only switches produce this output; otherwise the names of its own ports decide."""
    if not neighbours:
        gathered.warn("no LLDP neighbour in it")
        return
    if reporter is None:
        gathered.warn(f"{len(neighbours)} neighbours, but not whose: put the file into nodes/HOST/ or switches/HOST/, or name the host")  # fmt: skip
        return
    switch = any(is_switch_port(n.local) for n in neighbours) if at_switch is None else at_switch
    left: Counter[str] = Counter()
    for neighbour in neighbours:
        why = _put(gathered, reporter, neighbour, switch)
        if why:
            left[why] += 1
    for why, count in sorted(left.items()):
        if sum(left.values()) == len(neighbours) or why != BETWEEN:
            gathered.warn(f"{count} of {len(neighbours)} neighbours {why}")


#: Why a neighbour is not a link. Links between switches are normal: every leaf has them.
BETWEEN = "are switches too: no link of a host's"
NAMELESS = "tell no system name, only addresses or a name that was cut off"
HOSTS = "are hosts too, not the switch"
OPEN = "may be a host or a switch: neither port, description nor capabilities say"


def _put(gathered: Gathered, reporter: str, neighbour: Neighbour, switch: bool) -> str | None:
    name, far = neighbour.name, _far_is_switch(neighbour, from_host=not switch)
    if switch and far:
        return BETWEEN
    if name is None:
        return NAMELESS
    if far is None:
        return OPEN
    if not switch and not far:
        return HOSTS
    # An unnamed device was not given: the empty name.
    ends: dict[str, object] = {
        "host": name, "device": neighbour.far_port, "switch": reporter, "switch_port": unabridged(neighbour.local),
    } if switch else {
        "host": reporter, "device": neighbour.local, "switch": short_name(name),  # as in its syslog
        "switch_port": neighbour.far_port or None,
    }  # fmt: skip
    gathered.add("links", ends, neighbour.line)
    return None
