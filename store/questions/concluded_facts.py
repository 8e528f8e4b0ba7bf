"""Facts as the correlator concluded them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.functions import listed, same
from store.tables import CONCLUDED_FACTS


def of_run(cluster: str | None, run_key: str, kinds: Collection[str]) -> sa.Select[Any]:
    """``kind``, ``start``, ``end`` and ``attributes`` (JSON) of facts of these kinds about a run (its name in its cluster)."""
    f = CONCLUDED_FACTS.c
    asked = sa.select(f.kind, f.start, f.end, f.attributes)
    return asked.where(same(f.cluster, cluster), f.run_key == run_key, listed(f.kind, kinds)).order_by(f.start)


def begun(
    cluster: str | None, kinds: Collection[str], hosts: Collection[str], since: datetime, until: datetime
) -> sa.Select[Any]:
    """``kind``, ``host``, ``device``, ``start``, ``end`` and ``attributes`` (JSON) of facts of these kinds on these hosts that
    began in a range."""
    f = CONCLUDED_FACTS.c
    of = (same(f.cluster, cluster), listed(f.kind, kinds), listed(f.host, hosts), f.start >= since, f.start <= until)
    asked = sa.select(f.kind, f.host, f.device, f.start, f.end, f.attributes).where(*of)
    return asked.order_by(f.start, f.host, f.device)
