"""Queries about what operators did about incidents: states, assignees, comments (``kept.triage``).

A change keeps the name that the incident had then. If the incident continues under another name, so do its changes; if
two became one, the later change counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import Element, const, counted, fixed_subquery, has_all, json_texts, last_by, listed
from store.questions.incidents import overlapping
from store.tables import ALIASES, INCIDENTS, TRIAGE

N, T = INCIDENTS.c, TRIAGE.c

_HEIRS = fixed_subquery(
    sa.select(ALIASES.c.alias, last_by(ALIASES.c.incident_id, ALIASES.c.since).label("heir")).group_by(ALIASES.c.alias),
    "heirs",
)
_SELF = INCIDENTS.alias("itself")
#: The name that the incident of a change has now. One that is concluded under its old name again is itself.
name_now: Element = func.coalesce(_SELF.c.incident_id, _HEIRS.c.heir, T.incident_id)
_OF_NOW = TRIAGE.outerjoin(_SELF, _SELF.c.incident_id == T.incident_id).outerjoin(
    _HEIRS, _HEIRS.c.alias == T.incident_id
)
_AUTHOR_OF_STATE = sa.case((T.state.is_not(None), func.coalesce(T.author, const(""))))
#: One row for each incident with changes: what stands.
_STANDING = fixed_subquery(
    sa.select(
        name_now.label("name"), last_by(T.state, T.at).label("state"), last_by(T.assignee, T.at).label("assignee"),
        last_by(_AUTHOR_OF_STATE, T.at).label("by"), func.max(T.at).filter(T.state.is_not(None)).label("at"),
        last_by(T.events, T.at).label("events"), last_by(T.jobs, T.at).label("jobs"), counted().label("changes"),
        counted(T.comment.is_not(None)).label("comments"), last_by(T.comment, T.at).label("comment"),
    ).select_from(_OF_NOW).group_by(name_now), "standing",
)  # fmt: skip
S = _STANDING.c
state_now: Element = func.coalesce(S.state, const("new"))
#: An incident that was resolved has events or ended jobs that it did not have then.
NEW_EVIDENCE = func.coalesce(
    sa.and_(
        S.state == const("resolved"),
        sa.not_(
            sa.and_(
                has_all(S.events, json_texts(N.document, "$.events[*].id")),
                has_all(S.jobs, json_texts(N.document, "$.jobs[*].job_id")),
            )
        ),
    ),
    sa.false(),
)
#: Every incident, beside what stands about it.
WITH_STANDING = INCIDENTS.outerjoin(_STANDING, S.name == N.incident_id)


def standing(names: Sequence[str]) -> sa.Select[Any]:
    """``incident_id``, ``state``, ``by``, ``at``, ``assignee``, ``new_evidence``, ``comment`` (the last one), ``comments`` and
    ``changes`` (their numbers) of those of some incidents that have changes."""
    return (
        sa.select(
            N.incident_id, state_now.label("state"), S.by, S.at, S.assignee, NEW_EVIDENCE.label("new_evidence"), S.comment,
            S.comments, S.changes,
        ).select_from(INCIDENTS.join(_STANDING, S.name == N.incident_id)).where(listed(N.incident_id, names))
    )  # fmt: skip


def history(name: str) -> sa.Select[Any]:
    """The changes of an incident, oldest first, with the names that it had."""
    asked = sa.select(T.incident_id, T.state, T.assignee, T.comment, T.author.label("by"), T.signed, T.at)
    return asked.select_from(_OF_NOW).where(name_now == name).order_by(T.at)


#: Nobody did anything about it, or it has evidence that it did not have when it was resolved.
UNHANDLED = sa.or_(state_now == const("new"), NEW_EVIDENCE)


def in_state(state: str) -> sa.ColumnElement[bool]:
    """Whether an incident is in a state, or "unhandled"."""
    named = sa.select(N.incident_id).select_from(WITH_STANDING).correlate(None)
    return INCIDENTS.c.incident_id.in_(named.where(UNHANDLED if state == "unhandled" else state_now == state))


def assigned_to(person: str) -> sa.ColumnElement[bool]:
    """Whether an incident is assigned to a person."""
    return INCIDENTS.c.incident_id.in_(sa.select(S.name).where(S.assignee == person))


def counts(start: datetime | None, end: datetime | None) -> sa.Select[Any]:
    """``state``, ``new_evidence`` and ``n``: how many incidents of each overlap a range."""
    kinds: list[Any] = [state_now.label("state"), NEW_EVIDENCE.label("new_evidence")]
    asked = sa.select(*kinds, counted().label("n")).select_from(WITH_STANDING).where(*overlapping(start, end))
    return asked.group_by(*kinds)
