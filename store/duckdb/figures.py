"""Figures of a store, for pages and ``check``."""

from __future__ import annotations

from typing import Any

from store.duckdb import archive, segments
from store.duckdb.open_store import DATABASE, OpenStore


def of_store(store: OpenStore) -> dict[str, Any]:
    """Lines, first and last time, size in bytes (``archived``: the part in files of closed days), folder, and lines that
    every text search reads because no filter covers them (``unfiltered``)."""
    tiers = [store.rows("SELECT count(*) AS lines, min(time) AS first, max(time) AS last, 0 AS bytes FROM raw.logs")[0]]
    tiers.append(archive.held(store))
    firsts = [t["first"] for t in tiers if t["first"] is not None]
    lasts = [t["last"] for t in tiers if t["last"] is not None]
    size, archived = 0, tiers[1]["bytes"]
    if store.folder is not None:
        size = sum(p.stat().st_size for p in store.folder.glob(DATABASE + "*") if p.is_file())
    return {
        "lines": tiers[0]["lines"] + tiers[1]["lines"], "first": min(firsts, default=None), "last": max(lasts, default=None),
        "bytes": size + archived, "archived": archived, "folder": str(store.folder or ":memory:"),
        "unfiltered": segments.unfiltered(store),
    }  # fmt: skip
