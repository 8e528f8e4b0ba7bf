"""The subject of a message, from the form of its first words: which device, interface or rank.

The kernel's device messages begin with driver, bus address and interface, its file systems' with the device in
parentheses, whatever the text after them is; libraries of jobs name the rank. So this works for lines without a
pattern, and for entities that a pattern does not name. A pattern's values take precedence.
"""

from __future__ import annotations

import re
from typing import Any

from parsers.formats.base import JOB_SOURCES

#: Names of network interfaces: the kernel's, udev's, those of switches and of sites that name them after their use.
_INTERFACE = (
    r"(?:eth|en[opsxP]|ib|team|hsn|swp|lan|wan|nic|em|p\d+p|wl[ops]|ww[ops]|usb|sfp|mgmt|dp|vlan)[\w.-]*\d[\w.@-]*"
)
_PCI = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
#: A regex may use a group name only once: further ones end in "_".
_KERNEL = re.compile(
    rf"(?:(?P<driver>[a-z][\w-]+) )?(?P<pci>{_PCI})(?: (?P<port>[A-Za-z][\w.-]*))?(?: \(.*?\))?: "
    # Other buses: "1e100000.ethernet", "virtio3", a GUID of Hyper-V.
    rf"|(?P<driver_>[a-z][\w-]*) (?=\S*\d)[\w.:-]+ (?P<port_>{_INTERFACE})(?: \(.*?\))?: "
    r"|infiniband (?P<ibdev>[a-z]\w*): "
    r"|(?:XFS|EXT[234]-fs|LDISKFS-fs|BTRFS|F2FS-fs)[^(:]{0,24}\((?:device )?(?P<device>[\w-]+)\)"
    r"|(?:nvme|block) (?P<device_>nvme\w+): |(?P<device__>nvme\d+n\d+|ata\d+(?:\.\d+)?): "
    r"|sd \d+:\d+:\d+:\d+: \[(?P<device___>sd[a-z]+)\]|md(?:/\w+)?: ?(?P<device____>md\d+)\b"
    r"|(?:bonding: )?(?P<bond>bond[\w.-]*): (?:\(slave (?P<port__>[\w.-]+)\): )?"
    rf"|NVRM: (?:\w+: )?GPU (?:at )?(?:PCI:)?(?P<pci_>{_PCI})"
    rf"|(?:(?P<driver__>[a-z]\w+): )?(?P<port___>{_INTERFACE})(?: \([^)]*\))?: "
)
_SYSTEM = re.compile(
    rf"Device: (?P<device>/dev/[\w/-]+)|(?:<\w+> +\[[\d.]+\] )?device \((?P<port>{_INTERFACE})\)"
    r"|(?P<service>[\w@.-]+\.(?:service|mount)): "
)
_RANK = re.compile(r"\[rank(\d{1,6})\]|\bRank (\d{1,6})\]")
_PEER = re.compile(r"\bremote peer ([\w.:%-]+)<\d+>")
#: Names that only InfiniBand and RoCE adapters have.
_ADAPTER = re.compile(r"\b((?:mlx[45]_|bnxt_re|irdma|hfi1_|rdmap\d+s|efa_)\w*\d\w*)")
#: Most characters searched in a job's message: more is a dump of its data.
_SEARCHED = 400


def of(message: str | None, source: str | None) -> dict[str, Any]:
    """The entities that a message of ``source`` (None: unknown) names in a position where its writer always names
    them."""
    if not message:
        return {}
    found: dict[str, Any] = {}
    if source == "kernel" or source is None:
        found = _named(_KERNEL, message)
    elif source == "syslog":
        found = _named(_SYSTEM, message)
    if not found and (source is None or source in JOB_SOURCES):
        head = message[:_SEARCHED]
        if rank := _RANK.search(head):
            found["rank"] = int(rank[1] or rank[2])
        if peer := _PEER.search(head):
            found["peer"] = peer[1]
        if adapter := _ADAPTER.search(head):
            found["ibdev"] = adapter[1]
    return found


def _named(regex: re.Pattern[str], message: str) -> dict[str, Any]:
    """The values of groups whose names are equal except for trailing "_"."""
    match = regex.match(message)
    if match is None:
        return {}
    return {name.rstrip("_"): value for name, value in match.groupdict().items() if value is not None}
