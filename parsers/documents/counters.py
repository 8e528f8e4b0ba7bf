"""Counters of links as files: ``ethtool -S``, and /sys/class/infiniband and /sys/class/net, copied or printed by grep.

The metrics have the names that our own agent uses: ``ethtool_<counter>_total``, ``infiniband_<counter>_total``,
``infiniband_port_active``, ``infiniband_port_rate_gbps``; for a net device ``net_<statistic>_total`` and
``net_carrier``.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

from parsers.documents.document import Document, Gathered, split_lines
from parsers.record import Origin, Parsed

#: A file of an InfiniBand device's port, under any prefix that the copy was placed in.
PORT_FILE = re.compile(
    r"(?:^|/)(?P<device>(?:mlx|hfi|qib|bnxt_re|irdma|efa|rocep|ibp|rdmap|hns|i40iw|cxgb|qedr|rxe|siw)[\w.-]*)/ports/(?P<port>\d+)/(?P<name>(?:hw_)?counters/\w+|state|phys_state|rate|link_layer|lid|sm_lid|cap_mask)$"
)  # fmt: skip
#: Everything else below a device, which is not a counter: addresses, firmware, tables of GIDs and pkeys, queues,
#: features.
DEVICE_FILE = re.compile(r"(?:^|/)(?:class/(?:infiniband|net)|sys-class-(?:infiniband|net)[^/]*)/[^/]+/[\w./:-]+$")
NET_FILE = re.compile(
    r"(?:^|/)class/net/(?P<device>[\w.@-]+)/(?P<name>statistics/\w+|carrier|carrier_changes|carrier_up_count|carrier_down_count|operstate|speed|mtu)$"
)
_DUMPED = re.compile(r"(?P<path>\S*(?:class/infiniband|class/net)/\S+?):(?P<value>.*)$")
_STATE = re.compile(r"(?P<number>\d+): (?P<word>\S+)")
_ETHTOOL = re.compile(r"\s*(?P<name>\S.*?):\s*(?P<value>-?\d+)\s*$")
#: The interface in a file's name: "ethtool-S.eth0.txt", "ethtool_-S_ens1f0".
_INTERFACE = re.compile(r"ethtool(?:[-_. ]*S)?[-_. ]+(?P<device>[a-z][\w]*?\d\w*)(?:\.(?:txt|log|out))?$")


def _put(gathered: Gathered, metric: str, value: float, device: str, port: str | None) -> None:
    labels = {"device": device} | ({"port": port} if port else {})
    gathered.add("metrics", {
        "time": gathered.origin.received or gathered.origin.reference, "host": gathered.origin.host, "metric": metric,
        "value": value, "device": device, "labels": json.dumps(labels, sort_keys=True),
    })  # fmt: skip


def take(gathered: Gathered, path: str, text: str) -> bool:
    """Takes one file of the tree; False if it holds no number."""
    value = text.strip()
    found = PORT_FILE.search(path)
    if found:
        name, device, port = found["name"], found["device"], found["port"]
        if "counters/" in name and re.fullmatch(r"-?\d+", value):
            _put(gathered, f"infiniband_{name.rpartition('/')[2]}_total", float(value), device, port)
        elif name in ("state", "phys_state") and _STATE.match(value):
            wanted = "ACTIVE" if name == "state" else "LinkUp"
            _put(
                gathered,
                f"infiniband_port_{'active' if name == 'state' else 'link_up'}",
                float(wanted in value),
                device,
                port,
            )
        elif name == "rate" and re.match(r"[\d.]+ Gb/sec", value):
            _put(gathered, "infiniband_port_rate_gbps", float(value.split()[0]), device, port)
        else:
            return name in ("link_layer", "lid", "sm_lid", "cap_mask")
        return True
    found = NET_FILE.search(path)
    if found is None:
        return bool(DEVICE_FILE.search(path))
    name = found["name"].rpartition("/")[2]
    if name == "operstate":
        _put(gathered, "net_operstate_up", float(value == "up"), found["device"], None)
    elif re.fullmatch(r"-?\d+", value):
        ending = "" if name in ("carrier", "speed", "mtu") else "_total"
        _put(gathered, f"net_{name}{ending}", float(value), found["device"], None)
    return True


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    time = origin.received or origin.reference
    if kind == "ethtool_statistics":
        named = _INTERFACE.search(PurePosixPath(origin.path or "").name)
        device = named["device"] if named else "unknown"
        for line in lines:
            gathered.keep(line, time)
            found = _ETHTOOL.match(line.text)
            if found:
                name = re.sub(r"\W+", "_", found["name"].strip()).strip("_")
                _put(gathered, f"ethtool_{name}_total", float(found["value"]), device, None)
        return gathered.parsed()
    for line in lines:
        dumped = _DUMPED.match(line.text) if kind == "sysfs_dump" else None
        path, value = (dumped["path"], dumped["value"]) if dumped else (origin.path or "", line.text)
        if kind == "sysfs_dump" and dumped is None:
            gathered.keep_unread(line)
        elif take(gathered, path, value):
            gathered.keep(line, time)
        else:
            gathered.keep_unread(line, f"no counter: {line.text[:40]!r}")
    return gathered.parsed()


DOCUMENT = Document(kinds=("ethtool_statistics", "sysfs_file", "sysfs_dump"), read=_read)
