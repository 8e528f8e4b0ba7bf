"""Durations as Slurm writes them in its configuration."""

from __future__ import annotations

import re

_UNITS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "msec": 0.001, "ms": 0.001,
    "usec": 1e-6, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0, "hour": 3600.0, "hours": 3600.0,
    "hr": 3600.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_COUNTED = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\.?")
_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){1,2})")


def seconds(value: str) -> float | None:
    """ "24 sec", "300", "00:05:00", "5:00", "1-00:00:00" -> seconds; None for INFINITE, UNLIMITED and anything that is
    not a time.

    A bare number is seconds, as for the timeouts of slurm.conf. "0" is 0.0: its meaning depends on the parameter.
    """
    text = value.strip()
    counted = _COUNTED.fullmatch(text)
    if counted:
        unit = _UNITS.get(counted["unit"].lower())
        return None if unit is None else float(counted["count"]) * unit
    clock = _CLOCK.fullmatch(text)
    if not clock:
        return None
    parts = [int(part) for part in clock["clock"].split(":")]
    if clock["days"]:
        # After a day, hours come first: "1-12:30" is a day, 12 hours and 30 minutes.
        parts += [0] * (3 - len(parts))
    total = 0
    for part in parts:
        total = total * 60 + part
    return float(total + int(clock["days"] or 0) * 86_400)
