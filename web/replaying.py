"""Replays of incidents, made one at a time beside the requests (``correlator.replay``); the last ones are kept."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import structlog

from collector.priority import lower_priority
from correlator.model import certainty
from correlator.model.json_text import sorted_json
from correlator.replay import process
from correlator.replay.neighbourhood import TooManyLinesError, neighbourhood
from correlator.replay.process import ReplayFailedError
from correlator.replay.replay import Subject
from store.errors import EngineError
from web.problems import ProblemError
from web.reading import Reader
from web.shaping import moment, wire

log = structlog.get_logger()
Row = dict[str, Any]

#: Of the jobs that an incident hurt, at most so many are followed.
MOST_JOBS = 20
#: Replays that are kept, and those that may wait for their turn.
KEPT, MOST_WAITING = 32, 8
#: A replay of an incident that changed since is shown this long, seconds: one under way changes every few seconds.
FRESH_S = 60.0
#: What is compared of a last moment with the stored verdict.
_COMPARED = ("category", "confidence", "root_cause")


@dataclass
class Made:
    """A replay, or the reason why there is none; both None while it waits or runs."""

    digest: str
    since: float = field(default_factory=time.monotonic)
    document: Row | None = None
    failure: str | None = None

    @property
    def is_over(self) -> bool:
        return self.document is not None or self.failure is not None


class Replays:
    """``read``: a reader of the whole store. ``settings`` and ``edge_paths`` are those of the service's engine."""

    def __init__(
        self, read: Reader, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = ()
    ) -> None:
        self._read, self._settings, self._edge_paths = read, settings, edge_paths
        self._made: dict[tuple[str | None, str], Made] = {}
        self._lock = threading.Lock()
        self._waiting: queue.Queue[tuple[Row, Made]] = queue.Queue(MOST_WAITING)
        self._worker: threading.Thread | None = None

    def known(self, row: Row) -> Made | None:
        """The replay of an incident, if somebody asked for it and it is current; starts nothing."""
        with self._lock:
            made = self._made.get((row["cluster"], row["incident_id"]))
        if made is None or not made.is_over:
            return made
        fresh = time.monotonic() - made.since < FRESH_S
        return made if fresh or made.digest == _digest(row) else None

    def of(self, row: Row) -> Made:
        """The replay of an incident of the whole store; begins one if there is none. Raises ``ProblemError`` if too many
        wait."""
        made = self.known(row)
        if made is not None:
            return made
        made = Made(_digest(row))
        try:
            self._waiting.put_nowait((row, made))
        except queue.Full:
            raise ProblemError(
                429, "Too many replays wait.", do="Ask again in a minute.", headers={"Retry-After": "60"}
            ) from None
        with self._lock:
            self._made = dict([*self._made.items(), ((row["cluster"], row["incident_id"]), made)][-KEPT:])
            if self._worker is None:  # ends with the process, and the process that it waits for ends with it
                self._worker = threading.Thread(target=self._work, daemon=True, name="replays")
                self._worker.start()
        return made

    def _work(self) -> None:
        lower_priority()
        while True:
            row, made = self._waiting.get()
            try:
                made.document = self._replayed(row)
            except (TooManyLinesError, ReplayFailedError) as error:
                made.failure = str(error)
            except (ProblemError, EngineError, OSError, ValueError) as error:
                made.failure = f"{type(error).__name__}: {error}"
                log.warning("an incident was not replayed", incident=row["incident_id"], error=str(error))

    def _replayed(self, row: Row) -> Row:
        document, start = row["document"], moment(row["start"])
        if start is None:
            raise ReplayFailedError("the incident has no beginning")
        hurt = [str(job["job_id"]) for job in document.get("jobs") or []]
        runs = [self._read.run(key) for key in hurt[:MOST_JOBS]]
        evidence = {str(one["id"]): one for one in document.get("events") or []}
        for run in runs:
            evidence = {str(one["id"]): one for one in run["document"].get("evidence") or []} | evidence
        subject = Subject(
            row["incident_id"], row["root_host"], row["root_device"], {str(run["own_key"]): (run["job_id"], wire(run["end"])) for run in runs},
            [{name: one.get(name) for name in _EVIDENCE} for one in evidence.values()],
        )  # fmt: skip
        end = max([moment(row["end"]) or start, *(when for run in runs if (when := run["end"]))])
        hosts = list(document.get("hosts") or [])
        near = neighbourhood(self._read.store, row["cluster"], start, end, hosts)
        found = process.replayed(near, subject, self._settings, self._edge_paths)
        last = found["moments"][-1] if found["moments"] else None
        return found | {
            "incident_id": row["incident_id"], "jobs_left_out": max(0, len(hurt) - MOST_JOBS),
            "differs": _differences(last, runs) if last else [],
        }  # fmt: skip


_EVIDENCE = ("id", "time", "received_time", "host", "event", "message", "source", "line", "role")


def _digest(row: Row) -> str:
    view = [row["document"].get(name) for name in ("events", "jobs", "confidence", "status")]
    return blake2b(sorted_json(view).encode(), digest_size=12).hexdigest()


def _differences(last: Row, runs: Sequence[Row]) -> list[str]:
    """How the last moment differs from the stored verdicts, which rest on the whole history, in words."""
    out = []
    for run in runs:
        stored, here = run["document"], last["verdicts"].get(run["own_key"])
        if here is None:
            out.append(f"Job {run['run_key']} has no verdict here.")
        elif any(here[name] != stored.get(name) for name in _COMPARED):
            words = [certainty.stated(one["category"], one["confidence"]) for one in (stored, here)]
            out.append(f"Job {run['run_key']}: stored is {words[0]}; the last moment here is {words[1]}.")
    return out


def named(document: Row, names: Mapping[str, str]) -> Row:
    """A replay with the names of runs in ``names`` only: name in the cluster -> name shown; others are left out."""
    moments = [
        one | {
            "incident": one["incident"] and stated(one["incident"]),
            "verdicts": {names[key]: stated(view) for key, view in one["verdicts"].items() if key in names},
        }
        for one in document["moments"]
    ]  # fmt: skip
    return document | {"moments": moments}


def stated(view: Row | None) -> Row:
    """A verdict or an incident with its state in one word: none, provisional or final."""
    if view is None:
        return {"verdict": "none", "category": None, "confidence": None, "root_cause": None}
    is_final = view.get("final", view.get("status") == "final")
    return {"verdict": "final" if is_final else "provisional", **view}


def assumptions(document: Row) -> list[str]:
    """What a replay assumes, in sentences."""
    out = []
    if document["assumed"]:
        if document["assumed"] == document["lines"]:
            which = "No line has a time of receipt: they were"
        else:
            which = f"{document['assumed']:,} of {document['lines']:,} lines have no time of receipt: they were"
        out.append(
            f"{which} read from files afterwards. Such a line counts as received when it was written, plus the delay that its "
            "source usually has, where one was measured."
        )
    out.append(
        "Accounting, node states and measurements count from the latest moment that they speak of; configuration and cables "
        "count as known from the beginning."
    )
    since, until = (datetime.fromisoformat(document[name]) for name in ("since", "until"))
    out.append(
        f"Lines from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC were read; what the service knew from before is not used."
    )
    return [*out, *document["left_out"]]
