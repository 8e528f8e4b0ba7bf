"""The store as a user sees it who may see only their own jobs.

The SQL is the same for all users (``web.reading``). It reads a restricted view of the store (``Asks.seen_by``) that
holds only this user's rows. A new function of ``Reader`` is therefore right for them from the start, or fails.
Documents are not in that view; they are read here for its rows, and filtered by ``web.access.own_documents``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from store import blocks, run_names
from store.door import Question
from store.functions import KEPT_UNTIL_COMMIT
from store.questions import incidents as incident_questions
from store.questions import runs
from web import slowdowns
from web.access.own_documents import OwnDocuments
from web.reading import PAGE, Reader, Row
from web.shaping import document
from web.timerange import Range


class OwnReader(Reader):
    """Runs of one user, and the incidents that touched them; made for each request."""

    own = True

    def __init__(self, whole: Reader, user: str) -> None:
        super().__init__(whole.store.seen_by(user))
        self.user, self._whole = user, whole
        #: The answers that a store would keep, by the identity of the question (with which each is kept).
        self._kept: dict[int, tuple[Question, list[Row]]] = {}

    def ask(self, question: Question) -> list[Row]:
        """As for all users; what is asked in many places is asked once. A store keeps no answers of a person's view."""
        if not question.get_execution_options().get(KEPT_UNTIL_COMMIT):
            return super().ask(question)
        if id(question) not in self._kept:
            self._kept[id(question)] = (question, super().ask(question))
        return [dict(row) for row in self._kept[id(question)][1]]

    def events_around(
        self, start: datetime, end: datetime, hosts: Sequence[str], *, of: Row, in_document: Sequence[str], most: int = 20_000
    ) -> list[Row]:  # fmt: skip
        """As for all users. To count a person's events costs as much as to read them, and they are seldom many."""
        found = self.events(start=start, end=end, hosts=hosts, of=of, limit=most + 1)
        return (
            found
            if len(found) <= most
            else super().events_around(start, end, hosts, of=of, in_document=in_document, most=most)
        )

    def runs(
        self, within: Range, *, state: str | None = None, user: str | None = None, host: str | None = None,
        incident: str | None = None, search: str | None = None, of: Row | None = None, limit: int = PAGE,
        cursor: str | None = None,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """The user's own runs, whichever user was requested."""
        return super().runs(
            within,
            state=state,
            user=None,
            host=host,
            incident=incident,
            search=search,
            of=of,
            limit=limit,
            cursor=cursor,
        )

    def run(self, key: str) -> Row:
        row = super().run(key)
        whole = self._whole.one(runs.document(row["own_key"], row["cluster"], self.user))
        row["document"] = OwnDocuments(self).verdict(row, document(whole["document"] if whole else None))
        blocks.attach(self, row["document"].get("evidence") or [])
        return row

    def slowdowns(self, run: Row) -> list[Row]:
        """As for all users, without the incidents. ``run``: one of the user's own; nothing about any other."""
        return slowdowns.of_owner(self._whole.slowdowns(run)) if run["user"] == self.user else []

    def incident(self, incident_id: str) -> Row:
        return self._incident(incident_id, OwnDocuments(self))

    def _incident(self, incident_id: str, own_documents: OwnDocuments) -> Row:
        row = super().incident(incident_id)
        whole = self._whole.one(incident_questions.document(row["incident_id"], row["cluster"]))
        shown = own_documents.incident(row, document(whole["document"] if whole else None))
        row["document"] = shown | {"recurrence": row["document"].get("recurrence") or []}
        return row

    def result(self, whole: dict[str, Any]) -> dict[str, Any]:
        """corr-result/1 with the user's runs and the incidents that affected them."""
        own_documents = OwnDocuments(self)
        met = {row["incident_id"] for row in self.ask(incident_questions.NAMES)}
        judged = {str(run["own_key"]): run for run in self.ask(runs.judged(self._runs()))}
        clusters = {run["cluster"] for run in judged.values()}
        if len(clusters) == 1:  # the lines of all documents at once
            met_documents = [one for one in whole["incidents"] if one["id"] in met]
            keys = {str(run["run_key"]) for run in judged.values()}
            judged_documents = [one for key, one in whole["verdicts"].items() if key in keys]
            lists = [one.get("events") or [] for one in met_documents] + [
                one.get("evidence") or [] for one in judged_documents
            ]
            own_documents.read_events(lists, next(iter(clusters)))
        of_whole = self._whole.ask(runs.of_user(run_names.named_runs(self._whole), self.user))
        verdicts = {
            str(judged[name["own_key"]]["run_key"]): own_documents.verdict(judged[name["own_key"]], whole["verdicts"][name["run_key"]])
            for name in of_whole if name["own_key"] in judged and name["run_key"] in whole["verdicts"]
        }  # fmt: skip
        incidents = [
            {**self._incident(one["id"], own_documents)["document"], "detected_at": one.get("detected_at")}
            for one in whole["incidents"] if one["id"] in met
        ]  # fmt: skip
        return {"format": whole["format"], "incidents": incidents, "verdicts": verdicts, "lemons": []}

    def named_runs(self) -> list[Row]:
        """The user's runs with their names."""
        return self.ask(runs.every(self._runs()))

    def runs_of(self, incident: Row) -> list[Row]:
        """The user's runs whose verdicts blame an incident."""
        return self.ask(runs.of_incident(self._runs(), incident["incident_id"], incident["cluster"]))

    def others(self) -> frozenset[str]:
        """Other users who run jobs here: names that no sentence for this user may contain. Never shown."""
        return self._whole.users() - {self.user}
