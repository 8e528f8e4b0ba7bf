"""topology.conf: which nodes are attached to which switch (tree) or belong to which block."""

from __future__ import annotations

import re

from parsers.documents.document import Document, Gathered
from parsers.documents.slurm_conf import logical_lines
from parsers.hostlist import expand
from parsers.record import Origin, Parsed

_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for line, text in logical_lines(data):
        row = {key.lower(): value for key, value in _PAIR.findall(text)}
        names = expand(row.get("switchname") or row.get("blockname") or row.get("name") or "")
        if not names and "blocksizes" in row:
            continue
        if not names:
            gathered.keep_unread(line, f"no SwitchName= or BlockName=: {text[:60]!r}")
            continue
        for switch in names:
            for column, what in (("nodes", "node"), ("switches", "switch")):
                for child in expand(row.get(column, "")):
                    gathered.add("topology", {"switch": switch, "child": child, "kind": what})
    return gathered.parsed()


DOCUMENT = Document(kinds=("topology_conf",), read=_read)
