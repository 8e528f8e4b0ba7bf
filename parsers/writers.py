"""Who can have written a line: the values of ``Logs.Authority`` and ``Events.Authority``, and what they mean in words.

``store/questions/writers.py`` derives the value of a line. ``parsers/authority.py`` decides at parsing what a writer may report.
"""

from __future__ import annotations

from collections.abc import Iterable

#: The kernel's own ring; a daemon's own log; a device without users; root; any user of the host; the user of the job;
#: whoever can send to the log host or to the receiver; nothing shows the writer.
KERNEL, DAEMON, DEVICE, ROOT = "kernel", "daemon", "device", "root"
LOCAL, JOB, NETWORK, UNVERIFIED = "local", "job", "network", "unverified"
#: From the hardest to forge to the easiest.
AUTHORITIES = (KERNEL, DAEMON, DEVICE, ROOT, LOCAL, JOB, NETWORK, UNVERIFIED)
#: Those that no user without further rights can have written.
NO_USERS = frozenset({KERNEL, DAEMON, DEVICE, ROOT})
#: Those that one can have written.
USERS = frozenset(AUTHORITIES) - NO_USERS

_WORDS = {
    KERNEL: "the kernel of {host}, by its own ring",
    DAEMON: "a daemon of {host}, by its own log",
    DEVICE: "the device {host} itself",
    ROOT: "root of {host}",
    LOCAL: "any user of {host} could have written this",
    JOB: "the user of the job wrote this",
    NETWORK: "whoever can send to the log host could have written this",
    UNVERIFIED: "nothing shows who wrote this",
}


def surest(found: Iterable[str]) -> str:
    """The hardest to forge of some values; "" of none."""
    return min(found, key=AUTHORITIES.index, default="")


def in_words(authority: object, host: object) -> str:
    """Who can have written a line of ``host``, for people; "" for a value that is not known here."""
    words = _WORDS.get(authority) if isinstance(authority, str) else None
    return "" if words is None else words.format(host=host or "its host")
