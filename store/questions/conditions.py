"""Conditions that queries of several subjects share."""

from __future__ import annotations

import sqlalchemy as sa

from store.functions import Element, same


def of_cluster(column: Element, cluster: str | None) -> sa.ColumnElement[bool]:
    """Rows of a cluster, and rows without one: those may belong to any."""
    return sa.or_(column.is_(None), same(column, cluster))
