"""The store as somebody sees it who may see their own jobs only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store import run_names
from web.problems import ProblemError
from web.reading import PAGE, Reader, Row
from web.timerange import Range


class OwnReader(Reader):
    """Runs of one user, and the incidents that touched them."""

    own = True

    def __init__(self, whole: Reader, user: str) -> None:
        super().__init__(whole.store)
        self.user = user

    def runs(
        self, within: Range, *, state: str | None = None, user: str | None = None, host: str | None = None,
        incident: str | None = None, search: str | None = None, of: Row | None = None, limit: int = PAGE,
        cursor: str | None = None,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        return super().runs(
            within, state=state, user=self.user, host=host, incident=incident, search=search, of=of, limit=limit,
            cursor=cursor,
        )  # fmt: skip

    def run(self, key: str) -> Row:
        found = run_names.find(self.rows, '"user"', key)
        if found is None or found["user"] != self.user:
            raise ProblemError(
                404, f"{self.user} has no job run {key}.", do="Look for the job's number in the list of jobs."
            )
        row = super().run(key)
        row["document"] = self._unnamed(row["document"])
        return row

    def runs_by_key(self, keys: Sequence[str]) -> list[Row]:
        """Others' jobs beside one's own are there, as numbers: whose they are and what they are called is not told."""
        rows = super().runs_by_key(keys)
        return [row if row["user"] == self.user else row | {"user": None, "name": None} for row in rows]

    def incident(self, incident_id: str) -> Row:
        row = super().incident(incident_id)
        if not self._touched(row["incident_id"]):
            raise ProblemError(
                404, f"No job of {self.user} met the incident {incident_id}.", do="See the list of jobs."
            )
        row["document"] = self._unnamed(row["document"])
        return row

    def result(self, whole: dict[str, Any]) -> dict[str, Any]:
        """corr-result/1 without what is others'."""
        own = self._own_keys()
        verdicts = {key: self._unnamed(verdict) for key, verdict in whole["verdicts"].items() if key in own}
        met = [incident for incident in whole["incidents"] if self._touched(incident["id"])]
        incidents = [self._unnamed(incident) for incident in met]
        return {**whole, "verdicts": verdicts, "incidents": incidents, "lemons": []}

    def feedback(self, *, run: Row | None = None, incident_id: str | None = None) -> list[Row]:
        """Answers to the verdicts on one's own runs."""
        own = self._own_keys()
        return [row for row in super().feedback(run=run, incident_id=incident_id) if row["run_key"] in own]

    def _own_keys(self) -> set[str]:
        sql = f'SELECT run_key FROM {run_names.named_runs(self.rows)} WHERE "user" = ?'
        return {str(row["run_key"]) for row in self.rows(sql, [self.user])}

    def _unnamed(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document of an incident or of a verdict that blames it, without whom else it hurt and what their jobs are called."""
        made = dict(document)
        if made.get("jobs"):
            made["jobs"] = [
                job if job.get("user") == self.user else {**job, "user": None, "name": None} for job in made["jobs"]
            ]
        if made.get("advice"):
            made["advice"] = [item for item in made["advice"] if set(item.get("users") or ()) <= {self.user}]
        if made.get("recurrence"):
            made["recurrence"] = [item for item in made["recurrence"] if self._touched(item["id"])]
        return made

    def _touched(self, incident_id: str) -> bool:
        sql = 'SELECT 1 AS found FROM model.runs WHERE incident_id = ? AND "user" = ?'
        return self.one(sql, [incident_id, self.user]) is not None
