"""What operators did about an incident: its state, who looks after it, comments. Rows are only added.

An incident that nobody touched is new. One that was resolved and has evidence since then that it did not have is still
resolved, and says so; lists count it among the unhandled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from store.door import Answers, Door
from store.errors import NoSuchTable
from store.questions import triage
from store.tables import TRIAGE

Row = dict[str, Any]
STATES = ("new", "acknowledged", "resolved", "wrong")
#: The filters of lists: the states, and what nobody handled.
FILTERS = ("unhandled", *STATES)
#: What stands about an incident without changes.
UNTOUCHED: Row = {
    "state": "new", "by": None, "at": None, "assignee": None, "new_evidence": False, "comment": None, "comments": 0,
    "changes": 0,
}  # fmt: skip
_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("cluster", "incident_id", "state", "assignee", "comment", "author"), pl.String), "signed": pl.Boolean,
    "at": pl.Datetime("us"), "events": pl.List(pl.String), "jobs": pl.List(pl.String),
}  # fmt: skip


class ChangedMeanwhileError(Exception):
    """Somebody else changed the incident after the asker read it; ``standing`` is what stands now."""

    def __init__(self, standing: Row) -> None:
        super().__init__("the incident was changed meanwhile")
        self.standing = standing


@dataclass(frozen=True)
class Wish:
    """A change. None leaves a state or an assignee as it is; an empty assignee is nobody.

    ``last``: the number of changes that the asker saw, None for whatever stands. ``signed``: the author is not only what
    somebody typed.
    """

    state: str | None = None
    assignee: str | None = None
    comment: str | None = None
    author: str = ""
    signed: bool = False
    last: int | None = None


def attach(read: Answers, rows: Sequence[Row]) -> None:
    """Adds ``triage`` to rows of incidents: what stands, and the incident's age in seconds."""
    found = _standing(read, [row["incident_id"] for row in rows])
    now = _now()
    for row in rows:
        row["triage"] = found.get(row["incident_id"], UNTOUCHED) | {"age_s": _seconds(row["start"], now)}


def history(read: Answers, incident_id: str) -> list[Row]:
    """The changes of an incident, oldest first."""
    try:
        return read.ask(triage.history(incident_id))
    except NoSuchTable:  # a store of an older version, opened for reading
        return []


def change(store: Door, incident: Row, wish: Wish) -> Row:
    """Keeps a change and returns what stood before it. ``incident``: a row with its document.

    Raises ``ChangedMeanwhileError`` if the asker did not see the last change.
    """
    document, name = incident["document"], incident["incident_id"]
    with store.write() as writer:
        past = writer.ask(triage.history(name))
        before = _standing(writer, [name]).get(name, UNTOUCHED)
        if wish.last is not None and wish.last != len(past):
            raise ChangedMeanwhileError(before)
        at = _now()
        if past:  # the order of changes is that of their times
            at = max(at, past[-1]["at"] + timedelta(microseconds=1))
        row = {
            "cluster": incident["cluster"], "incident_id": name, "state": wish.state, "assignee": wish.assignee,
            "comment": wish.comment, "author": wish.author, "signed": wish.signed, "at": at, "events": None, "jobs": None,
        }  # fmt: skip
        if wish.state is not None:
            row["events"] = [str(event["id"]) for event in document.get("events") or []]
            row["jobs"] = [str(job["job_id"]) for job in document.get("jobs") or []]
        writer.insert(TRIAGE, pl.DataFrame([row], schema=_SCHEMA))
    return before


def counts(read: Answers, start: datetime | None, end: datetime | None) -> dict[str, int]:
    """How many incidents of a range are in each state, and how many nobody handled."""
    found = dict.fromkeys(FILTERS, 0)
    for row in read.ask(triage.counts(start, end)):
        if row["state"] in found:
            found[row["state"]] += row["n"]
        if row["state"] == "new" or row["new_evidence"]:
            found["unhandled"] += row["n"]
    return found


def _standing(read: Answers, names: Sequence[str]) -> dict[str, Row]:
    try:
        rows = read.ask(triage.standing(names)) if names else []
    except NoSuchTable:  # a store of an older version, opened for reading
        return {}
    return {
        str(row.pop("incident_id")): row | {"by": row["by"] or None, "assignee": row["assignee"] or None}
        for row in rows
    }


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _seconds(start: datetime | None, now: datetime) -> float | None:
    return round((now - start).total_seconds(), 3) if start else None
