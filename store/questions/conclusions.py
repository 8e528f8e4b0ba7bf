"""Conclusions as they are stored: verdicts and incidents."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, select

from store.functions import among, same
from store.tables import FACTS, INCIDENTS, RUNS


def incident_documents() -> Select[Any]:
    """``cluster`` and ``document`` of each incident, by start."""
    one = INCIDENTS.c
    return select(one.cluster, one.document).order_by(one.start, one.incident_id)


def incident_ids() -> Select[Any]:
    """``incident_id`` of each incident."""
    return select(INCIDENTS.c.incident_id)


def verdict_documents() -> Select[Any]:
    """``cluster``, ``run_key`` (its name in its cluster) and ``document`` of each run with a verdict."""
    return select(RUNS.c.cluster, RUNS.c.run_key, RUNS.c.document).where(RUNS.c.document.is_not(None))


def documents_of_runs(cluster: str | None, keys: Collection[str]) -> Select[Any]:
    """``name`` (its key in its cluster) and ``document`` of these runs of a cluster, if they have a verdict."""
    one = RUNS.c
    asked = select(one.run_key.label("name"), one.document).where(same(one.cluster, cluster), among(one.run_key, keys))
    return asked.where(one.document.is_not(None))


def documents_of_incidents(cluster: str | None, ids: Collection[str]) -> Select[Any]:
    """``name`` (the id) and ``document`` of these incidents of a cluster."""
    one = INCIDENTS.c
    asked = select(one.incident_id.label("name"), one.document)
    return asked.where(same(one.cluster, cluster), among(one.incident_id, ids))


def fact(name: str) -> Select[Any]:
    """``value`` of a named fact about the whole store."""
    return select(FACTS.c.value).where(FACTS.c.name == name)
