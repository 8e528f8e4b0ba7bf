"""Parallel file systems' own logs: Storage Scale's ``mmfs.log``, BeeGFS's daemons, NFS-Ganesha."""

from __future__ import annotations

import re
from typing import Any

from parsers.formats.base import Format, by_line
from parsers.record import Origin

#: Storage Scale marks each message with a letter; exceptions ([X]) and assertions ([A]) end the daemon.
_MMFS_LEVELS = {
    "I": "info",
    "D": "debug",
    "N": "notice",
    "W": "warning",
    "E": "error",
    "S": "crit",
    "A": "crit",
    "X": "crit",
}
#: BeeGFS also logs its start at levels 0 and 1, so these give no severity (source/common/app/log/LogContext.h).
_BEEGFS_LEVELS = {"2": "warning", "3": "notice", "4": "debug", "5": "debug"}
_GANESHA_LEVELS = {
    "FATAL": "crit",
    "MAJ": "crit",
    "CRIT": "error",
    "WARN": "warning",
    "EVENT": "notice",
    "INFO": "info",
}

_MMFS = re.compile(
    r"(?:(?P<iso>\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d{4})?)"
    r"|[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))? (?P<year>\d{4})): "
    r"(?P<message>(?:\[(?P<level>[A-Z])\] )?.*)$",
    re.DOTALL,
)
_BEEGFS = re.compile(
    r"\((?P<level>[0-5])\) (?:(?P<month>[A-Z][a-z]{2})(?P<day>\d\d) )?(?P<clock>\d\d:\d\d:\d\d) (?P<message>\S+ \[[^\]]+\] >> .*)$",
    re.DOTALL,
)
_GANESHA = re.compile(
    r"(?P<day>\d\d)/(?P<month>\d\d)/(?P<year>\d{4}) (?P<clock>\d\d:\d\d:\d\d) : epoch [0-9a-f]+ : (?P<host>\S+) : "
    r"(?P<unit>[\w.]+)-(?P<pid>\d+)\[[^\]]*\] (?P<message>\S+ :[^:]+ :(?P<level>[A-Z]+) :.*)$",
    re.DOTALL,
)


def _row(text: str, origin: Origin) -> dict[str, Any] | None:
    if (found := _MMFS.match(text)) is not None:
        stamp = found["iso"] and found["iso"].replace("_", "T")
        parts = {} if stamp else {name: found[name] for name in ("month", "day", "clock", "fraction", "year")}
        return {
            "format": "storage", "source": "storage", "unit": "mmfs", "message": found["message"], "stamp": text[: found.start("message") - 2],
            "severity": _MMFS_LEVELS.get(found["level"] or ""), "iso": stamp, **parts,
        }  # fmt: skip
    if (found := _BEEGFS.match(text)) is not None:
        dated = {name: found[name] for name in ("month", "day", "clock")} if found["month"] else {}
        return {
            "format": "storage", "source": "storage", "unit": "beegfs", "message": found["message"],
            "severity": _BEEGFS_LEVELS.get(found["level"]), "stamp": text[4 : found.start("message") - 1], **dated,
        }  # fmt: skip
    if (found := _GANESHA.match(text)) is not None:
        return {
            "format": "storage", "source": "storage", "unit": found["unit"], "pid": int(found["pid"]), "host": found["host"],
            "message": found["message"], "severity": _GANESHA_LEVELS.get(found["level"]), "stamp": text[:19],
            "iso": f"{found['year']}-{found['month']}-{found['day']}T{found['clock']}",
        }  # fmt: skip
    return None


STORAGE = Format(
    "storage",
    "mmfs.log of Storage Scale, a BeeGFS daemon's log or NFS-Ganesha's",
    r"^(?:\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d\S*: |[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} [\d:.]+ \d{4}: |\([0-5]\) \S.* >> |\d\d/\d\d/\d{4} [\d:]{8} : epoch )",
    by_line(_row),
)
