"""When the running service first reported each incident."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from store.errors import NoSuchTable
from store.questions import kept

if TYPE_CHECKING:
    from store.door import Asks


def detections(store: Asks) -> dict[str, datetime]:
    """Incident id -> when the running service first reported it (UTC); empty after offline work only."""
    try:
        return {r["incident_id"]: r["at"] for r in store.ask(kept.first_detections())}
    except NoSuchTable:  # a store written by an older version and opened for reading
        return {}
