"""Incidents by their roots, as the lemon score counts them."""

from __future__ import annotations

from typing import Any


def as_document(row: dict[str, Any]) -> dict[str, Any]:
    """A row of ``questions.rooted`` in the form that ``lemons.risk`` reads."""
    return {
        "id": row["incident_id"], "severity": row["severity"], "root_cause": {"event": row["root_event"], "host": row["root_host"]},
        "jobs": [{"job_id": row["job"]}] if row["job"] else [],
    }  # fmt: skip
