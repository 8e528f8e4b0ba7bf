"""A job's output from hooks, as lines of its run: once, however many hooks of one job fetched the same file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import true

from collector.agent import wire
from store.changes import Mark
from store.door import Door
from store.functions import PLACE
from store.questions import job_output
from store.tables import ARTIFACTS

#: After a start, anything fetched earlier was delivered by the previous process: the keys of its lines may be
#: forgotten.
LOOKS_BACK = timedelta(hours=20)
#: How far a node's clock may be ahead of the service's.
AHEAD = timedelta(minutes=5)


@dataclass
class JobOutput:
    """``keep(records, key)`` puts wire records into the spool under a key and returns when they are on disk; ``known``
    are the keys of what is stored, and when they arrived (naive UTC). An output is identified by job, run, kind and
    path, whichever hook fetched it; a reused job ID is another run."""

    store: Door
    keep: Callable[[bytes, str], None]
    known: Callable[[], Mapping[str, datetime]]
    _seen: Mark | None = None
    #: Positions of outputs after ``_seen`` that were delivered before a round was interrupted.
    _delivered: set[int] = field(default_factory=set)

    def round(self) -> int:
        """Delivers what is new; returns how many outputs. An exception of ``keep`` stops the round, and the next one
        continues."""
        new = self.store.changes((ARTIFACTS.name,), self._seen)
        change = new.tables[ARTIFACTS.name]
        again = new.too_old or change.removed > 0
        if again:
            self._delivered.clear()  # retention removed rows: those left may have other positions now
        if new.nothing:
            self._seen = new.until  # what other tables took in meanwhile does not matter
        if new.nothing or not new.rows[ARTIFACTS.name]:
            return 0
        if again:
            question = job_output.new_outputs(true(), datetime.now(UTC).replace(tzinfo=None) - LOOKS_BACK)
        else:
            question = job_output.new_outputs(self.store.stored_since(ARTIFACTS, new), datetime.min)
        delivered = 0
        for row in self.store.ask(question):
            if row[PLACE] in self._delivered:
                continue
            key = self._fresh_key(row)
            if key is not None:
                self.keep(_lines(row), key)
                delivered += 1
            self._delivered.add(row[PLACE])
        self._seen = new.until
        self._delivered.clear()
        return delivered

    def _fresh_key(self, row: dict[str, Any]) -> str | None:
        """The key to deliver an output under; None if it was delivered. Earlier versions used keys without a time: what
        such a key denotes was delivered when the key arrived, so a later output belongs to another run."""
        known = self.known()
        before = f"output {row['cluster']} {row['job_id']} {row['restarts'] or 0} {row['kind']} {row['path']}"
        key = f"{before} {row['taken_at'].isoformat()}"
        came = known.get(before)
        return None if key in known or (came is not None and row["taken_at"] <= came + AHEAD) else key


def _lines(row: dict[str, Any]) -> bytes:
    """The read time is when the hook ran, hence when the job had ended, however late it is reported."""
    host, _, path = str(row["file"]).partition(":")
    about = wire.head(
        stream="hooks", source=f"job_{row['kind']}", path=path, host=host, cluster=row["cluster"], job_id=row["job_id"],
        restarts=row["restarts"] or 0,
    )  # fmt: skip
    read = wire.stamp(row["taken_at"].replace(tzinfo=UTC).timestamp())
    return wire.lines_record(about, row["content"].removesuffix("\n").encode(), read=read)
