"""Whose process wrote a journal entry. journald itself records account and unit (fields that begin with ``_``), which
no program can forge. What a person's process wrote is attributed to that person, whatever it calls itself.

Accounts below ``PEOPLE`` are the system's (``UID_MIN`` of login.defs), as are those that systemd creates for a service
(``DynamicUser``). Sites run Slurm's daemons under accounts with higher numbers as well; nobody else's program runs in
their units. Jobs run in ``slurmd``'s unit. If the account is unknown, the unit decides: a session's, or a user's own
systemd.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The first account of a person, and the higher range reserved for services (systemd.io/UIDS-GIDS).
PEOPLE = 1_000
SERVICES_FROM, SERVICES_TO = 61_184, 65_519
#: Units whose programs are trusted under any account.
DAEMONS = ("slurmctld.service", "slurmdbd.service", "slurmrestd.service")
#: Name prefixes of the units that people's programs run in.
SESSIONS = ("session-", "user@", "user-")
#: The facility given to a person's entry: it is the default, and the writer chose any other.
FACILITY = "user"

#: Names of journald's trusted fields in journald itself and in shippers (Fluent Bit, Journalbeat and Filebeat,
#: Promtail): the account, the unit, the unit of a user's own systemd. In lower case, with the enclosing object if it
#: has a name. rsyslog's imuxsock (``ParseTrusted``) and syslog-ng's unix-dgram note the account of the socket's peer
#: themselves, under the last two names.
UIDS = ("_uid", "journald.uid", "__journal__uid", "$!.uid", "_unix.uid")
UNITS = ("_systemd_unit", "systemd.unit", "__journal__systemd_unit")
OWN_UNITS = ("_systemd_user_unit", "systemd.user_unit", "__journal__systemd_user_unit")
#: Lower-case substrings of every text that may be such an object.
MARKS = ("uid", "_unit")


def of_person(uid: Any, unit: Any, own_unit: Any = None) -> bool:
    """Whether a person's process wrote an entry with these fields."""
    number = int(uid) if str(uid).isascii() and str(uid).isdecimal() else None
    if number is None:
        return bool(own_unit) or str(unit or "").startswith(SESSIONS)
    return number >= PEOPLE and not SERVICES_FROM <= number <= SERVICES_TO and unit not in DAEMONS


#: Folders in which services keep their files, whatever account they run under: only root makes a folder there.
_OF_SERVICES = ("/var/log/", "/opt/")


def of_persons_file(owner: Any, path: str | None) -> bool:
    """Whether a file belongs to a person, by the number of its owner and where it lies on its host. Slurm's own account
    often has a person's number; so has that of a daemon which logs below ``/opt``."""
    return of_person(owner, None) and not (path or "").startswith(_OF_SERVICES)


def writer(record: Mapping[str, Any]) -> bool:
    """Whether a flat JSON object shows that a person's process wrote its line."""
    small = {name.lower(): value for name, value in record.items() if isinstance(value, (str, int))}
    return of_person(*(_first(small, names) for names in (UIDS, UNITS, OWN_UNITS)))


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    ends = tuple(f".{name}" for name in names)
    found = next((record[name] for name in names if name in record), None)
    return next((value for name, value in record.items() if name.endswith(ends)), None) if found is None else found
