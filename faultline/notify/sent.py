"""What was sent to a target about each subject, and news with what to remember of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from faultline.notify.message import Message

#: States of a subject beside the digest of an incident's document.
WITHDRAWN, RENAMED, SILENT, SPEAKS = "withdrawn", "renamed", "silent", "heard"
#: The names of subjects that are not incidents begin so.
SOURCE, FORGED = "source ", "forged "


@dataclass(frozen=True)
class Sent:
    """The last state of a subject that was sent to a target. ``thread`` is the subject of the first message about it, and
    ``times`` how many messages of that thread it got; ``about``: what an incident was about then."""

    digest: str
    cluster: str | None
    thread: str
    at: datetime
    times: int
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Sent:
        """A row of ``notices.last_sent``. Those of an older version form no threads."""
        about = json.loads(row["about"]) if row["about"] else {}
        return cls(row["digest"], row["cluster"], row["thread"] or row["name"], row["told_at"], row["times"], about)


#: By the name of the subject.
Known = Mapping[str, Sent]


@dataclass(frozen=True)
class Kept:
    """What the store remembers of a subject once its news was sent."""

    name: str
    digest: str
    cluster: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class News:
    """``message`` is None if nothing needs to be sent, and only remembered under another name."""

    message: Message | None
    kept: tuple[Kept, ...]
    thread: str
