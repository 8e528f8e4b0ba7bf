"""Facts as the correlator concluded them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.functions import listed, same
from store.tables import CONCLUDED_FACTS


def begun(
    cluster: str | None, kinds: Collection[str], hosts: Collection[str], since: datetime, until: datetime
) -> sa.Select[Any]:
    """``kind``, ``host``, ``device``, ``start``, ``end`` and ``attributes`` (JSON) of facts of these kinds on these hosts that
    began in a range."""
    f = CONCLUDED_FACTS.c
    of = (same(f.cluster, cluster), listed(f.kind, kinds), listed(f.host, hosts), f.start >= since, f.start <= until)
    asked = sa.select(f.kind, f.host, f.device, f.start, f.end, f.attributes).where(*of)
    return asked.order_by(f.start, f.host, f.device)
