"""A cable inventory: which port of a node is plugged into which port of which switch."""

from __future__ import annotations

import csv
import re

from parsers.documents.document import Document, Gathered
from parsers.record import Origin, Parsed

#: Our column -> the headers that people use for it.
_HEADERS = {
    "host": ("node", "host", "hostname", "server"),
    "device": ("nic", "device", "interface", "ifname", "hca", "node_port", "netdev"),
    "switch": ("switch", "leaf", "tor", "peer"),
    "switch_port": ("port", "switch_port", "switchport", "peer_port"),
    "plane": ("plane",),
    "rail": ("rail",),
    "cluster": ("cluster",),
}
_PLANE = re.compile(r"-p(\d+)(?:-|$)")
_RAIL = re.compile(r"(?:rdma|mlx5_|ib|hsn|roce)(\d+)(?:$|:)")


def columns(header: list[str]) -> dict[str, int]:
    """Our column -> its index in a header; unknown headers are omitted."""
    names = [name.strip().lower().replace(" ", "_") for name in header]
    found = {}
    for column, known in _HEADERS.items():
        place = next((names.index(name) for name in known if name in names), None)
        if place is not None:
            found[column] = place
    return found


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    text = data.decode("utf-8-sig", "replace")
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    rows = csv.reader(text.splitlines(), delimiter=delimiter)
    places = columns(next(rows, []))
    if not {"host", "switch"} <= set(places):
        raise ValueError("no header with a node and a switch column")
    for row in rows:
        if not any(cell.strip() for cell in row) or row[0].startswith("#"):
            continue
        link: dict[str, object] = {
            column: row[place].strip() or None for column, place in places.items() if place < len(row)
        }
        if not link.get("host") or not link.get("switch"):
            gathered.warn(f"{len(row)} fields, no node or no switch", rows.line_num)
            continue
        if "plane" not in places:
            plane = _PLANE.search(str(link["switch"]))
            link["plane"] = plane[1] if plane else None
        if "rail" not in places:
            rail = _RAIL.match(str(link.get("device") or ""))
            link["rail"] = rail[1] if rail else None
        gathered.add("links", link)
    return gathered.parsed()


DOCUMENT = Document(kinds=("links_csv",), read=_read)
