"""Published logs of old machines: Blue Gene/L, Thunderbird, and LANL's HPC cluster.

The first word is the publishers' label of the line ("-" for none), followed by the epoch second.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from parsers.formats.base import SEVERITY_WORDS, Format, by_line, source_of_program
from parsers.record import Origin

_BLUE_GENE = re.compile(
    r"(?P<alert>-|[A-Z][A-Z0-9_]*) (?P<epoch>\d{9,10}) \d{4}\.\d\d\.\d\d (?P<host>\S+) "
    r"(?:(?P<bgl>\d{4}-\d\d-\d\d-\d\d\.\d\d\.\d\d\.\d+) \S+ (?P<kind>\S+) (?P<component>\S+) (?P<level>[A-Z]+) (?P<message>.*)"
    r"|[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d (?P<who>\S+) (?P<rest>.*))$",
    re.DOTALL,
)
_TAGGED = re.compile(r"(?P<unit>-? ?[^\[:]{1,80}?)(?:\[(?P<pid>\d+)\])?: ?(?P<message>.*)$", re.DOTALL)
_DRIVER = re.compile(r"[a-z]\w*\d?$")
_EPOCH = datetime(1970, 1, 1)
_HPC = re.compile(
    r"(?P<id>\d+) (?P<host>\S+) (?P<component>\S+) (?P<state>\S+) (?P<epoch>\d{9,10}) (?:-?\d+) (?P<message>.*)$",
    re.DOTALL,
)


#: The columns of a time that is exact to a second.
_EXACT = {"format": "loghub", "quality": "line", "resolution_us": 1_000_000}
_quoted = lru_cache(maxsize=4_096)(json.dumps)


def _blue_gene(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _BLUE_GENE.match(text)
    if found is None:
        return None
    alert, epoch, host, bgl, _, component, level, message, _, rest = found.groups()
    row: dict[str, Any] = {**_EXACT, "time": _EPOCH + timedelta(seconds=int(epoch)), "host": host}
    extra = f'{{"epoch": {int(epoch)}'
    if alert != "-":
        extra += f', "loghub_alert": "{alert}"'
        row["tag"] = f"loghub_alert:{alert}"
    if bgl:
        row["message"], row["severity"] = message, SEVERITY_WORDS.get(level.lower())
        row["source"] = "kernel" if component == "KERNEL" else "syslog"
        row["extra"] = f'{extra}, "component": {_quoted(component)}, "level": "{level}"}}'
        return row
    tagged = _TAGGED.match(rest)
    if tagged is None:
        row |= {"message": rest, "source": "syslog", "extra": extra + "}"}
        return row
    unit, pid, message = tagged.groups()
    row["unit"] = unit = unit.strip()
    # Drivers log without "kernel:" here: a line without a pid may be the kernel's.
    if pid is not None:
        row["pid"], row["source"] = int(pid), source_of_program(unit)
    else:
        row["source"] = "kernel" if _DRIVER.match(unit) else "syslog"
    row["message"] = message if pid is not None or unit == "kernel" else rest
    row["extra"] = f'{extra}, "program": {_quoted(unit)}}}'
    return row


def _hpc(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _HPC.match(text)
    if found is None:
        return None
    _, host, component, state, epoch, message = found.groups()
    return {
        **_EXACT, "time": _EPOCH + timedelta(seconds=int(epoch)), "host": host, "unit": component, "source": "hpc",
        # The state's name is half of the line's meaning.
        "message": f"{component} {state} {message}",
        "extra": f'{{"component": {_quoted(component)}, "state": {_quoted(state)}, "epoch": {int(epoch)}}}',
    }  # fmt: skip


BLUE_GENE = Format(
    "loghub",
    "label, epoch, yyyy.mm.dd",
    r"^(?:-|[A-Z][A-Z0-9_]*) \d{9,10} \d{4}\.\d\d\.\d\d ",
    by_line(_blue_gene),
)
HPC = Format(
    "loghub",
    "number, node, component, state, epoch",
    r"^\d+ \S+ \S+ \S+ \d{9,10} -?\d+ ",
    by_line(_hpc),
)
