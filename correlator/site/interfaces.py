"""What an interface carries: the jobs' data ("fabric"), Slurm's messages ("management"), or "unknown".

A name seldom proves it: ``enp157s0np0`` may be the rail of a GPU or the only port of a machine. If the name does not
decide, the role stays unknown: both kinds of edges may apply, and the verdict says that it is unknown what the
interface carries. A site names its interfaces in the configuration (``[interfaces]``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Protocol

FABRIC, MANAGEMENT, UNKNOWN = "fabric", "management", "unknown"

#: What a site's configuration sets, among its other values: shell patterns of names.
FABRIC_SETTING, MANAGEMENT_SETTING = "interfaces.fabric", "interfaces.management"

#: Names of RDMA devices, of InfiniBand, Slingshot and Omni-Path, and those that sites give to the rails of their GPUs.
_FABRIC = re.compile(r"(ib|hsn|mlx\d_|rdma|roce|efa|irdma|opa|hfi|bnxt_re|ibp|ibs|rail)", re.IGNORECASE)
#: The first port, ports on the mainboard, and those named after their use. Clouds number the NICs of the GPUs from eth1
#: on, and bonds of two ports of a NIC carry the data of RoCE.
_MANAGEMENT = re.compile(r"(eth0(?!\d)|eno\d|em\d|mgmt|bond0(?!\d)|br|lan|oob|bmc)", re.IGNORECASE)
#: systemd's names by slot or path; only drivers of fast adapters append a port's own name (``np0``; phys_port_name of
#: mlx5, bnxt_en, ice and nfp), whatever those are used for.
_BY_PLACE = re.compile(r"en[ps]\w*", re.IGNORECASE)
_FAST_PORT = re.compile(r"en[psx]\w*np\d+", re.IGNORECASE)

#: Interfaces that container engines, virtual machines and tunnels make: Docker, Podman, LXD, libvirt, CNI's plugins, WireGuard, the
#: kernel's own. Bridges by Docker's number only: a site's own bridge may hold a cable. Bonds, teams and VLANs hold one.
_WITHOUT_CABLE = re.compile(
    r"(?:docker\d+|docker_gwbridge|br-[0-9a-f]{12}|veth\w+|virbr\d+(?:-nic)?|vnet\d+|lxc\w+|lxdbr\d+|podman\d+|cni(?:-?\w+)?\d+|nerdctl\d+|flannel[.\w-]*|cali\w+|tunl\d+"
    r"|cilium_\w+|weave|kube-(?:ipvs|bridge)\d*|nodelocaldns|antrea-\w+|ovs-system|br-(?:int|tun)|genev_sys_\d+|vxlan[.\w-]*|geneve\w*|gre(?:tap)?\d+|sit\d+|ip6?tnl\d+"
    r"|tun\d+|tap\w+|macv(?:lan|tap)\d+|wg[\d-]\S*|tailscale\d+|dummy\d+|ifb\d+|lo)"
)  # fmt: skip

#: Drivers of adapters of 1 Gb/s, or of virtual machines: never a fabric's.
_SLOW_DRIVERS = frozenset({"igb", "igc", "e1000", "e1000e", "tg3", "r8169", "bnx2", "forcedeth", "virtio_net", "sky2"})
#: Drivers of adapters that are used for fabrics as well as management networks.
_FAST_DRIVERS = frozenset({"mlx4_en", "mlx4_core", "mlx5_core", "bnxt_en", "ice", "irdma", "cxi_core", "hns3", "nfp", "qede", "cxgb4", "ionic"})  # fmt: skip


@dataclass(frozen=True)
class Interfaces:
    """``fabric`` and ``management``: a site's patterns of names, which take precedence."""

    fabric: re.Pattern[str] | None = None
    management: re.Pattern[str] | None = None

    def role(self, device: str, driver: str | None = None) -> str:
        """The role by name, and by driver if a line named it."""
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


def has_no_cable(device: str) -> bool:
    """Is an interface one of a container, a virtual machine or a tunnel? Its carrier comes and goes with these, and no job's data goes
    over it."""
    return _WITHOUT_CABLE.fullmatch(device) is not None


def interfaces(settings: Mapping[str, object] | None) -> Interfaces:
    """The patterns among the values that a site's configuration sets."""
    known = settings or {}
    return Interfaces(_pattern(known.get(FABRIC_SETTING)), _pattern(known.get(MANAGEMENT_SETTING)))


#: The fact of ``model.facts`` that holds the settings: a report has no access to the configuration.
FACT = "interfaces"


class Facts(Protocol):
    """What keeps a store's facts."""

    def fact(self, name: str, /) -> str | None: ...

    def set_fact(self, name: str, value: str, /) -> None: ...


def remember(store: Facts, settings: Mapping[str, object] | None) -> None:
    """Stores a site's interface settings beside what is concluded with them."""
    text = json.dumps(
        {name: settings[name] for name in (FABRIC_SETTING, MANAGEMENT_SETTING) if settings and name in settings}
    )
    if text != (store.fact(FACT) or "{}"):
        store.set_fact(FACT, text)


def remembered(text: str | None) -> dict[str, Any]:
    """The settings stored by ``remember``, for ``interfaces``."""
    return dict(json.loads(text)) if text else {}


def _pattern(names: object) -> re.Pattern[str] | None:
    if (
        not isinstance(names, Iterable)
        or isinstance(names, str | bytes)
        or not (given := [str(name) for name in names])
    ):
        return None
    return re.compile("|".join(translate(name) for name in given))
