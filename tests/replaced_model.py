"""Tables of ``model`` as a test wants them, by way of the protocol."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import sqlalchemy as sa

from store.door import Door
from store.tables import METADATA


def replace_model(store: Door, tables: Mapping[str, pl.DataFrame]) -> None:
    """Replaces whole tables of ``model``, in one transaction."""
    with store.write() as writer:
        for name, data in tables.items():
            table = METADATA.tables[f"model.{name}"]
            writer.change(sa.delete(table))
            writer.insert(table, data)
