"""``ip -s -d -j link``: carrier changes and errors per interface, as metrics."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from parsers.documents.document import Document, Gathered
from parsers.json_text import loads
from parsers.record import Origin, Parsed

#: Metric -> its path in iproute2's JSON. Counts since the interface was created.
_COUNTERS = {
    "link_carrier_changes": ("carrier_changes",),
    "link_carrier_up_count": ("carrier_up_count",),
    "link_carrier_down_count": ("carrier_down_count",),
    "link_rx_errors": ("stats64", "rx", "errors"),
    "link_rx_dropped": ("stats64", "rx", "dropped"),
    "link_tx_errors": ("stats64", "tx", "errors"),
    "link_tx_dropped": ("stats64", "tx", "dropped"),
    "link_tx_carrier_errors": ("stats64", "tx", "carrier_errors"),
}


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    parts = PurePosixPath(origin.path or "").name.split(".")
    labels = {"snapshot": next(name for name in parts if name in ("before", "after"))} if (
        {"before", "after"} & set(parts)
    ) else {}  # fmt: skip
    time = origin.received or origin.reference
    for link in loads(data):
        if not isinstance(link, dict) or not link.get("ifname"):
            gathered.warn("an entry without ifname")
            continue
        values: dict[str, float | None] = {name: _at(link, path) for name, path in _COUNTERS.items()}
        state = str(link.get("operstate", "UNKNOWN")).upper()
        # A device without carrier detection (lo, tun) always shows UNKNOWN: neither up nor down.
        values["link_operstate_up"] = None if state == "UNKNOWN" else float(state == "UP")
        for metric, value in values.items():
            if value is not None:
                gathered.add("metrics", {
                    "time": time, "host": origin.host, "metric": metric, "value": value,
                    "device": str(link["ifname"]), "labels": json.dumps(labels) if labels else None,
                })  # fmt: skip
    return gathered.parsed()


def _at(link: Any, path: tuple[str, ...]) -> float | None:
    for name in path:
        link = link.get(name) if isinstance(link, dict) else None
    return float(link) if isinstance(link, int) else None


DOCUMENT = Document(kinds=("link_counters",), read=_read)
