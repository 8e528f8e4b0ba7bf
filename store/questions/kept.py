"""First conclusions of the running service, with their times, and operators' answers: none of it can be rebuilt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Delete, Insert, Select, Update, delete, func, insert, select, update

from store.functions import const, listed
from store.tables import ALIASES, DETECTIONS, FEEDBACK, VERSIONS


def first_detections() -> Select[Any]:
    """``incident_id`` and ``at``: when the running service first concluded each incident."""
    return select(DETECTIONS.c.incident_id, func.min(DETECTIONS.c.detected_at).label("at")).group_by(
        DETECTIONS.c.incident_id
    )


def last_versions(kind: str) -> Select[Any]:
    """The last version of each document of a ``kind`` ("verdict", "incident"), with all its columns."""
    place = func.row_number().over(
        partition_by=(VERSIONS.c.cluster, VERSIONS.c.name), order_by=VERSIONS.c.version.desc()
    )  # fmt: skip
    found = select(VERSIONS, place.label("place")).where(VERSIONS.c.kind == kind).subquery("numbered")
    return select(*(column for column in found.c if column.name != "place")).where(found.c.place == const(1))


def aliases() -> Select[Any]:
    """``alias``: each former ID of an incident."""
    return select(ALIASES.c.alias).distinct()


def heir(alias: str) -> Select[Any]:
    """``incident_id`` that continues a former ID now."""
    return select(ALIASES.c.incident_id).where(ALIASES.c.alias == alias).order_by(ALIASES.c.since.desc()).limit(1)


def answers(incident_id: str | None = None) -> Select[Any]:
    """Operators' answers, oldest first; those of one incident if it is given."""
    found = select(FEEDBACK).order_by(FEEDBACK.c.given_at, FEEDBACK.c.feedback_id)
    return found if incident_id is None else found.where(FEEDBACK.c.incident_id == incident_id)


def hand_on_aliases(incident_id: str, heir: str) -> Update:
    """Former IDs of an incident become those of its heir."""
    return update(ALIASES).where(ALIASES.c.incident_id == incident_id).values(incident_id=heir)


def drop_aliases(aliases: Collection[str]) -> Delete:
    """Deletes IDs that are no longer former ones."""
    return delete(ALIASES).where(listed(ALIASES.c.alias, aliases))


def keep_answer(row: Mapping[str, Any]) -> Insert:
    """Stores an operator's answer, by the names of its columns."""
    return insert(FEEDBACK).values(dict(row))
