"""A notification: one text for people, and the same as JSON for programs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from correlator.model.certainty import stated
from parsers.visible import visible

State = Literal["opened", "changed", "withdrawn", "again", "silent", "heard", "more"]

_HEADS: dict[State, str] = {
    "opened": "New", "changed": "Changed", "withdrawn": "Withdrawn", "again": "Concluded again", "silent": "Silent", "heard": "Heard again", "more": "More",
}  # fmt: skip


def harmless_in_chat(text: str) -> str:
    """Text without mentions and foreign links: a job's name may be ``@channel`` or ``<https://evil|log in>``."""
    text = re.sub(r"(?<![\w.+-])@(?=\w)", "\uff20", text)
    return text.replace("](", "] (").translate({ord("<"): "\u2039", ord(">"): "\u203a"})


@dataclass(frozen=True)
class Message:
    """``key`` is the subject (an incident's ID, a source); ``state`` what happened to it. ``document`` is the incident
    as in ``GET /api/v1/incidents/{id}``, without its lines. All messages about one fault have the same ``thread``, and
    ``number`` counts those before this one: 0 begins it."""

    key: str
    state: State
    severity: str
    title: str
    link: str
    cluster: str | None = None
    document: dict[str, Any] = field(default_factory=dict)
    thread: str = ""
    number: int = 0

    def __post_init__(self) -> None:
        if not self.thread:
            object.__setattr__(self, "thread", self.key)

    @property
    def subject(self) -> str:
        """One line."""
        where = f"{self.cluster}: " if self.cluster else ""
        return visible(f"[{self.severity}] {where}{_HEADS[self.state]}: {self.title}", lines=False)

    @property
    def text(self) -> str:
        """The full text for a person: what, how certain, who is affected, what to do, where to look."""
        lines = [self.subject]
        if self.document:
            lines.append(stated(self.document.get("category"), self.document.get("confidence")))
        if jobs := self.document.get("jobs"):
            shown = ", ".join(f"{job['job_id']} of {job.get('user') or '?'}" for job in jobs[:5])
            lines.append(f"{len(jobs)} job{'s' * (len(jobs) > 1)} hit: {shown}{', ...' * (len(jobs) > 5)}")
        for advice in (self.document.get("advice") or [])[:3]:
            lines.append(f"- {advice['text']}" + (f"  {advice['command']}" if advice.get("command") else ""))
        lines.append(self.link)
        return "\n".join(visible(line, lines=False) for line in lines)

    def as_json(self) -> dict[str, Any]:
        """``text`` is the member that chat programs show of an incoming webhook."""
        return {
            "text": harmless_in_chat(self.text), "key": self.key, "state": self.state, "severity": self.severity, "title": self.title,
            "link": self.link, "cluster": self.cluster, "incident": self.document or None,
            "thread": self.thread, "number": self.number,
        }  # fmt: skip
