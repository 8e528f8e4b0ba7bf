"""Named facts about the store itself."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from store.tables import FACTS


def value(name: str) -> sa.Select[Any]:
    """``value`` of a fact; no row if it was never written."""
    return sa.select(FACTS.c.value).where(FACTS.c.name == name)
