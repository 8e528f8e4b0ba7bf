"""Conditions that questions of several subjects share."""

from __future__ import annotations

import sqlalchemy as sa

from store.functions import Element, same


def of_cluster(column: Element, cluster: str | None) -> sa.ColumnElement[bool]:
    """Rows of a cluster, or of none that was named: those may be of any."""
    return sa.or_(column.is_(None), same(column, cluster))
