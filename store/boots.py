"""When two boot times are of one boot of a machine: the only place that says so, for Python and for SQL.

Two neighbours ask other questions, with limits of their own. ``questions.kernel_lines.fits_clock`` asks whether a line's
uptime is one that its host's kernel shows, so its limit is as narrow as the clocks allow. ``FRESH_BOOT_S`` of the
correlator's facts about nodes asks whether a line is about a reboot that other lines report: daemons need minutes to start.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, func

from store.functions import const, epoch

#: Boot times that differ by no more than this (seconds) are of one boot. Nobody specifies such a limit; it is a choice
#: between two facts. One boot's times vary: slurmd computes BootTime from whole seconds of uptime at each registration,
#: NTP sets the clock after the start, and printk's clock is not disciplined by it (10 ppm are a second a day). Two boots
#: are further apart: the firmware of a server alone needs more than a minute.
SAME_BOOT_S = 60.0


def is_same_boot(one: float, other: float) -> bool:
    """Are these boot times (epoch seconds), of one machine, of one boot?"""
    return abs(one - other) <= SAME_BOOT_S


def same_boot(one: ColumnElement[Any], other: ColumnElement[Any]) -> ColumnElement[bool]:
    """``is_same_boot`` of two columns with times."""
    return func.abs(epoch(one) - epoch(other)) <= const(SAME_BOOT_S)


def boot_before(one: ColumnElement[Any], other: ColumnElement[Any]) -> ColumnElement[bool]:
    """Is ``one`` the time of an earlier boot than ``other``? An engine may look it up in order."""
    return one < other - timedelta(seconds=SAME_BOOT_S)
