"""Whose process wrote an entry of the journal. journald itself notes account and unit (fields that begin with ``_``): no program
can. What a person's process wrote is that person's, whatever it calls itself.

An account below ``PEOPLE`` is the system's (``UID_MIN`` of login.defs), as are those that systemd makes for a service
(``DynamicUser``). Sites run Slurm's daemons under accounts with higher numbers as well; nobody else's program runs in their
units. In ``slurmd``'s, jobs run. Where no account is known, the unit tells: of a session, or of a user's own systemd.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The first account that is a person's, and those behind it that are a service's (systemd.io/UIDS-GIDS).
PEOPLE = 1_000
SERVICES_FROM, SERVICES_TO = 61_184, 65_519
#: Units whose programs speak for themselves under any account.
DAEMONS = ("slurmctld.service", "slurmdbd.service", "slurmrestd.service")
#: How the units begin in which people's programs run.
SESSIONS = ("session-", "user@", "user-")
#: An entry of a person's comes with this facility: it is what everybody gets, and any other was chosen by its writer.
FACILITY = "user"

#: How journald and shippers of its entries (Fluent Bit, Journalbeat and Filebeat, Promtail) call what it notes: the account, the
#: unit, the unit of a user's own systemd. In small letters, each with what it is in if that names it.
UIDS = ("_uid", "journald.uid", "__journal__uid")
UNITS = ("_systemd_unit", "systemd.unit", "__journal__systemd_unit")
OWN_UNITS = ("_systemd_user_unit", "systemd.user_unit", "__journal__systemd_user_unit")
#: What is in every text that may be such an object, in small letters.
MARKS = ("uid", "_unit")


def of_person(uid: Any, unit: Any, own_unit: Any = None) -> bool:
    """Whether a person's process wrote an entry with these fields."""
    number = int(uid) if str(uid).isascii() and str(uid).isdecimal() else None
    if number is None:
        return bool(own_unit) or str(unit or "").startswith(SESSIONS)
    return number >= PEOPLE and not SERVICES_FROM <= number <= SERVICES_TO and unit not in DAEMONS


def writer(record: Mapping[str, Any]) -> bool:
    """Whether an object of JSON that is flat says that a person's process wrote its line."""
    small = {name.lower(): value for name, value in record.items() if isinstance(value, (str, int))}
    return of_person(*(_first(small, names) for names in (UIDS, UNITS, OWN_UNITS)))


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    ends = tuple(f".{name}" for name in names)
    found = next((record[name] for name in names if name in record), None)
    return next((value for name, value in record.items() if name.endswith(ends)), None) if found is None else found
