"""``ip -ts monitor link``: two lines for each change of an interface, the first with time, name and flags.

A switch port is a member of a bridge (``master X``); the catalogue distinguishes hosts from switches by that.
"""

from __future__ import annotations

import re
from typing import Any

from parsers.formats.base import Format, by_line
from parsers.record import Origin

_CHANGE = re.compile(
    r"\[(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)\] (?P<text>(?P<deleted>Deleted )?(?P<index>\d+): "
    r"(?P<port>[^\s:@]+)(?:@(?P<below>[^\s:]+))?: <(?P<flags>[A-Z_,0-9-]*)>(?P<rest>.*))$",
    re.DOTALL,
)


def _row(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _CHANGE.match(text)
    if found is None:
        return None
    state = re.search(r"\bstate (\w+)", found["rest"])
    return {
        "format": "ip_link", "source": origin.source or "kernel", "unit": "ip", "iso": found["iso"], "stamp": found["iso"],
        "message": found["text"], "severity": "warning" if state and state[1] == "DOWN" else "info",
    }  # fmt: skip


MONITOR = Format(
    "ip_link",
    "ip -ts monitor link: [time] index: name: <FLAGS>",
    r"^\[\d{4}-\d\d-\d\dT[^\]]+\] (?:Deleted )?\d+: \S+: <",
    by_line(_row),
)
