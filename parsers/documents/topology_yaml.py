"""``topology.yaml`` (Slurm 25.05 and later): several named topologies, each a tree of switches, blocks, or flat.

Read line by line: the file is a list of small mappings, and a faulty line must not lose the others.
"""

from __future__ import annotations

import re

from parsers.documents.document import Document, Gathered, Line, split_lines
from parsers.hostlist import expand
from parsers.record import Origin, Parsed

_PAIR = re.compile(
    r"""(?P<name>switch|block|base_block|children|nodes)\s*:\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>(?:[^\s#{}"',\[]|\[[^\]]*\]|,(?=\S))+))"""
)
_CHILDREN = {"nodes": "node", "children": "switch"}


def _put(gathered: Gathered, item: dict[str, str], line: Line) -> None:
    name = item.get("switch") or item.get("block") or item.get("base_block")
    for key, kind in _CHILDREN.items():
        for child in expand(item[key]) if name and key in item else []:
            gathered.add("topology", {"switch": name, "child": child, "kind": kind}, line.number)


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    item: dict[str, str] = {}
    begun: Line | None = None
    for line in split_lines(data):
        text = line.text.partition(" #")[0].strip()
        if text.startswith("- ") or text == "-":
            if begun:
                _put(gathered, item, begun)
            item, begun = {}, line
        if text.startswith("#"):
            continue
        for pair in _PAIR.finditer(text):
            item[pair["name"]] = pair["double"] or pair["single"] or pair["bare"] or ""
    if begun:
        _put(gathered, item, begun)
    return gathered.parsed()


DOCUMENT = Document(kinds=("topology_yaml",), read=_read)
