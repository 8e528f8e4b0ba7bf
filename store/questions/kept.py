"""What the running service concluded first, and when; and what operators answered: nothing of it can be made again."""

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
    """``alias``: each former id of an incident."""
    return select(ALIASES.c.alias).distinct()


def heir(alias: str) -> Select[Any]:
    """``incident_id`` under which the story of a former id goes on now."""
    return select(ALIASES.c.incident_id).where(ALIASES.c.alias == alias).order_by(ALIASES.c.since.desc()).limit(1)


def answers(incident_id: str | None = None) -> Select[Any]:
    """Operators' answers, oldest first; of one incident where it is named."""
    found = select(FEEDBACK).order_by(FEEDBACK.c.given_at, FEEDBACK.c.feedback_id)
    return found if incident_id is None else found.where(FEEDBACK.c.incident_id == incident_id)


def hand_on_aliases(incident_id: str, heir: str) -> Update:
    """Former ids of an incident become those of its heir."""
    return update(ALIASES).where(ALIASES.c.incident_id == incident_id).values(incident_id=heir)


def drop_aliases(aliases: Collection[str]) -> Delete:
    """Ids that are no former ones any more."""
    return delete(ALIASES).where(listed(ALIASES.c.alias, aliases))


def keep_answer(row: Mapping[str, Any]) -> Insert:
    """An operator's answer, by the names of its columns."""
    return insert(FEEDBACK).values(dict(row))
