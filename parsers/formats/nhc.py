"""LBNL Node Health Check's own log, and its output through wrappers (``node-066 | ERROR: nhc: ...``)."""

from __future__ import annotations

import re
from typing import Any

from parsers.formats.base import Format, by_line
from parsers.record import Origin

_LINE = re.compile(
    r"(?:(?P<day>\d{8})[ T](?P<clock>\d\d:\d\d:\d\d) )?(?:(?P<host>[\w.-]+) \| )?(?P<message>(?:(?P<level>ERROR|WARNING|INFO|DEBUG): +)?"
    r"(?:nhc: +|Node Health Check|\[slurm\] |/usr/\S*nhc\S* ).*)$",
    re.DOTALL,
)
_LEVELS = {"ERROR": "error", "WARNING": "warning", "INFO": "info", "DEBUG": "debug"}


def _row(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _LINE.match(text)
    if found is None:
        return None
    uptime = re.search(r"\[ *(\d+\.\d+)\] NVRM", text)
    day = found["day"]
    return {
        "format": "nhc", "source": "nhc", "unit": "nhc", "host": found["host"], "message": found["message"],
        "severity": _LEVELS.get(found["level"] or ""), "uptime_s": float(uptime[1]) if uptime else None,
        "iso": f"{day[:4]}-{day[4:6]}-{day[6:]}T{found['clock']}" if day else None,
    }  # fmt: skip


NHC = Format(
    "nhc",
    "a line of Node Health Check",
    r"(?:: +nhc: |^(?:\d{8}[ T]\d\d:\d\d:\d\d )?(?:Node Health Check|\[slurm\] /|/usr/\S*nhc))",
    by_line(_row),
)
