"""The output of ``mlxlink`` for one port: every number as ``mlxlink_<name>``, and its diagnosis as an event.

The section "Troubleshooting Info" gives the firmware's diagnosis of a link: ``fabric.link_errors``, unless there is no
issue, no cable, or the port was closed on purpose. The file's name gives the device (``mlxlink.mlx5_0.txt``).
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from parsers.documents.document import Document, Gathered, StatedEvent, split_lines
from parsers.record import Origin, Parsed

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_VALUE = re.compile(r"(?P<name>[A-Za-z][^:]*?)\s*: (?P<value>.*?)\s*$")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NAMED = re.compile(r"mlxlink[-_. ]+(?P<device>[A-Za-z][\w]*?\d\w*)(?:\.(?:txt|log|out))?$")
#: Recommendations for unused links.
_UNUSED = re.compile(r"(?i)no issue|closed by command|disabled|unplugged|not plugged|N/A")


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    named = _NAMED.search(PurePosixPath(origin.path or "").name)
    device = named["device"] if named else "unknown"
    opcode = ""
    for line in split_lines(data):
        found = _VALUE.match(_COLOUR.sub("", line.text))
        if found is None:
            gathered.keep(line, gathered.time)
            continue
        name, value = found["name"].strip(), found["value"]
        link_event = None
        if name == "Status Opcode":
            opcode = value
        elif name == "Recommendation" and opcode not in ("", "0", "N/A") and not _UNUSED.search(value):
            link_event = StatedEvent(
                "fabric.link_errors", {"reason": value, "code": opcode, "ibdev": device if named else None}
            )
        elif name == "State":
            gathered.sample("infiniband_port_active", float(value.lower() == "active"), device, device=device)
        gathered.keep(line, gathered.time, stated=link_event)
        number = _NUMBER.match(value)
        # "0,0,0,0" is a value per lane and "45 [-10..80]" one with its limits; "4x" and "0x18" are not numbers.
        if number and not re.match(r"[\w,]", value[number.end() :]):
            metric = re.sub(r"\W+", "_", name.lower()).strip("_")
            gathered.sample(f"mlxlink_{metric}", float(number[0]), device, device=device)
    return gathered.parsed()


DOCUMENT = Document(kinds=("mlxlink",), read=_read)
