"""What an interface carries: the jobs' data ("fabric"), Slurm's messages ("management"), or nobody knows ("unknown").

A name seldom proves it: ``enp157s0np0`` may be the rail of a GPU or the only port of a machine. What a name leaves open is
left open; then both kinds of edges may speak, and the verdict says that nobody knows what the interface carries. A site tells
its own names in the configuration (``[interfaces]``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Protocol

FABRIC, MANAGEMENT, UNKNOWN = "fabric", "management", "unknown"

#: What a site's configuration tells, among the values that it sets: shell patterns of names.
FABRIC_SETTING, MANAGEMENT_SETTING = "interfaces.fabric", "interfaces.management"

#: Names of RDMA devices, of InfiniBand, Slingshot and Omni-Path, and those that sites give to the rails of their GPUs.
_FABRIC = re.compile(r"(ib|hsn|mlx\d_|rdma|roce|efa|irdma|opa|hfi|bnxt_re|ibp|ibs|rail)", re.IGNORECASE)
#: The first port, ports on the mainboard, and those that are called after their use. Clouds count the NICs of the GPUs on from
#: eth1, and bonds of two ports of a NIC carry the data of RoCE.
_MANAGEMENT = re.compile(r"(eth0(?!\d)|eno\d|em\d|mgmt|bond0(?!\d)|br|lan|oob|bmc)", re.IGNORECASE)
#: systemd's names by slot or path; a port's own name behind it (``np0``) is given by drivers of fast adapters alone
#: (phys_port_name of mlx5, bnxt_en, ice and nfp), whichever way those are used.
_BY_PLACE = re.compile(r"en[ps]\w*", re.IGNORECASE)
_FAST_PORT = re.compile(r"en[psx]\w*np\d+", re.IGNORECASE)

#: Drivers of adapters of 1 Gb/s, or of virtual machines: no fabric's.
_SLOW_DRIVERS = frozenset({"igb", "igc", "e1000", "e1000e", "tg3", "r8169", "bnx2", "forcedeth", "virtio_net", "sky2"})
#: Drivers of adapters that fabrics are made of as well as management networks.
_FAST_DRIVERS = frozenset({"mlx4_en", "mlx4_core", "mlx5_core", "bnxt_en", "ice", "irdma", "cxi_core", "hns3", "nfp", "qede", "cxgb4", "ionic"})  # fmt: skip


@dataclass(frozen=True)
class Interfaces:
    """``fabric`` and ``management``: patterns of names as a site tells them, which settle it."""

    fabric: re.Pattern[str] | None = None
    management: re.Pattern[str] | None = None

    def role(self, device: str, driver: str | None = None) -> str:
        """By the name, and by the driver where a line told it."""
        if self.fabric is not None and self.fabric.fullmatch(device):
            return FABRIC
        if self.management is not None and self.management.fullmatch(device):
            return MANAGEMENT
        if _FABRIC.match(device):
            return FABRIC
        if _MANAGEMENT.match(device) or driver in _SLOW_DRIVERS:
            return MANAGEMENT
        if driver in _FAST_DRIVERS or _FAST_PORT.fullmatch(device):
            return UNKNOWN
        return MANAGEMENT if _BY_PLACE.fullmatch(device) else UNKNOWN


def interfaces(settings: Mapping[str, object] | None) -> Interfaces:
    """From the values that a site's configuration sets."""
    known = settings or {}
    return Interfaces(_pattern(known.get(FABRIC_SETTING)), _pattern(known.get(MANAGEMENT_SETTING)))


#: The fact of ``model.facts`` that holds the settings: who makes a report has no configuration.
FACT = "interfaces"


class Facts(Protocol):
    """What keeps a store's facts."""

    def fact(self, name: str, /) -> str | None: ...

    def set_fact(self, name: str, value: str, /) -> None: ...


def remember(store: Facts, settings: Mapping[str, object] | None) -> None:
    """Keeps what a site tells of its interfaces beside what is concluded with it."""
    text = json.dumps(
        {name: settings[name] for name in (FABRIC_SETTING, MANAGEMENT_SETTING) if settings and name in settings}
    )
    if text != (store.fact(FACT) or "{}"):
        store.set_fact(FACT, text)


def remembered(text: str | None) -> dict[str, Any]:
    """What ``remember`` kept, for ``interfaces``."""
    return dict(json.loads(text)) if text else {}


def _pattern(names: object) -> re.Pattern[str] | None:
    if (
        not isinstance(names, Iterable)
        or isinstance(names, str | bytes)
        or not (given := [str(name) for name in names])
    ):
        return None
    return re.compile("|".join(translate(name) for name in given))
