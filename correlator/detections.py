"""When the running service first reported each incident."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from store.errors import NoSuchTable

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore


def detections(store: DuckStore) -> dict[str, datetime]:
    """Incident id -> when the running service first said it (UTC); empty after offline work only."""
    try:
        rows = store.rows("SELECT incident_id, min(detected_at) AS at FROM kept.detections GROUP BY incident_id")
    except NoSuchTable:  # a store written by an older version and opened for reading
        return {}
    return {r["incident_id"]: r["at"] for r in rows}
