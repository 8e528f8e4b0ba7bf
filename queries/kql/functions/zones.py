"""Wall clocks of time zones, from the IANA database that Python finds."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime

from queries.kql.functions.body import Body


def _zone(name: str) -> zoneinfo.ZoneInfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def utc_to_local(moment: datetime, zone: str) -> datetime | None:
    """UTC as the wall clock of a zone; null for a zone nobody knows."""
    found = _zone(zone)
    return moment.replace(tzinfo=UTC).astimezone(found).replace(tzinfo=None) if found else None


def local_to_utc(moment: datetime, zone: str) -> datetime | None:
    """The wall clock of a zone as UTC."""
    found = _zone(zone)
    return moment.replace(tzinfo=found).astimezone(UTC).replace(tzinfo=None) if found else None


BODIES = {
    "datetime_utc_to_local": (Body("t s", "datetime", utc_to_local),),
    "datetime_local_to_utc": (Body("t s", "datetime", local_to_utc),),
}
