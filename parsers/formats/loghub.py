"""Published logs of old machines: Blue Gene/L, Thunderbird, and LANL's HPC cluster.

The first word is the publishers' label of the line ("-" for none), followed by the epoch second.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
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
_HPC = re.compile(
    r"(?P<id>\d+) (?P<host>\S+) (?P<component>\S+) (?P<state>\S+) (?P<epoch>\d{9,10}) (?:-?\d+) (?P<message>.*)$",
    re.DOTALL,
)


def _iso(epoch: str) -> str:
    return datetime.fromtimestamp(int(epoch), UTC).isoformat()


def _blue_gene(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _BLUE_GENE.match(text)
    if found is None:
        return None
    row: dict[str, Any] = {"format": "loghub", "iso": _iso(found["epoch"]), "host": found["host"]}
    extra: dict[str, Any] = {"epoch": int(found["epoch"])}
    if found["alert"] != "-":
        extra["loghub_alert"] = found["alert"]
        row["tag"] = f"loghub_alert:{found['alert']}"
    if found["bgl"]:
        extra |= {"component": found["component"], "level": found["level"]}
        source: str | None = "kernel" if found["component"] == "KERNEL" else "syslog"
        row |= {"message": found["message"], "source": source, "severity": SEVERITY_WORDS.get(found["level"].lower())}
    else:
        tagged = _TAGGED.match(found["rest"])
        unit = tagged["unit"].strip() if tagged else None
        # Drivers log without "kernel:" here: a line without a pid may be the kernel's.
        is_daemon = tagged is not None and tagged["pid"] is not None
        source = (
            source_of_program(unit) if is_daemon else "kernel" if unit and re.match(r"[a-z]\w*\d?$", unit) else "syslog"
        )
        keep_all = tagged is None or not (is_daemon or unit == "kernel")
        row |= {"message": found["rest"] if keep_all else tagged["message"], "unit": unit, "source": source}  # type: ignore[index]
        row["pid"] = int(tagged["pid"]) if is_daemon and tagged else None
        extra["program"] = unit
    return {**row, "extra": json.dumps({k: v for k, v in extra.items() if v is not None})}


def _hpc(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _HPC.match(text)
    if found is None:
        return None
    extra = {"component": found["component"], "state": found["state"], "epoch": int(found["epoch"])}
    return {
        "format": "loghub", "iso": _iso(found["epoch"]), "host": found["host"], "unit": found["component"], "source": "hpc",
        # The state's name is half of the line's meaning.
        "message": f"{found['component']} {found['state']} {found['message']}", "extra": json.dumps(extra),
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
