"""Incidents beside one another that operators handled differently, in the store of one capture."""

from __future__ import annotations

from store.duckdb.store import DuckStore
from tests.correlator.rows import CAPTURES

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")


def hit(store: DuckStore) -> str:
    """The incident that ended job 15."""
    return str(store.rows("SELECT incident_id FROM model.runs WHERE run_key = '15'")[0]["incident_id"])


def four_more(store: DuckStore) -> None:
    """I-1 to I-4 before the incident that ended job 15, an hour apart: on its device; on another device of its node; the
    same elsewhere; another cause elsewhere."""
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO model.incidents SELECT 'I-' || n, cluster, start - INTERVAL 1 HOUR * n, \"end\", severity, category,"
            " CASE n WHEN 4 THEN 'gpu.xid' ELSE root_event END, CASE WHEN n < 3 THEN root_host ELSE 'gpu09' END,"
            " CASE n WHEN 2 THEN 'eth9' ELSE root_device END, replace(document, incident_id, 'I-' || n)"
            " FROM model.incidents, range(1, 5) t(n) WHERE incident_id = ?",
            [hit(store)],
        )
