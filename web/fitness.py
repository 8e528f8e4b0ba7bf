"""Whether a node is fit for a job: GET /api/v1/nodes/{name}/fitness, and the answers of page, metric and gate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog
from fastapi import APIRouter, Request

from correlator.fitness.model import Answers, Fitness, NodeFitness, Reason
from correlator.fitness.reading import answers
from store.door import Answers as Rows
from web.api import Read
from web.reading import Reader

log = structlog.get_logger()
router = APIRouter(prefix="/api/v1")
#: How long answers are kept, seconds; longer where computing them is expensive: then for this many times as long as it
#: took.
KEPT_S, KEPT_TIMES = 30.0, 20.0
#: Answers older than this are not given while new ones are computed, seconds.
STALE_S = 300.0
#: Who answers.
SERVICE, STORE = "service", "store"


class Memory:
    """The latest answers about all nodes. Safe to use from several threads; ``clock``: seconds of a monotonic clock.

    Answers that are due anew are given once more while a thread computes the next ones: on a large store that takes
    seconds, and neither a page nor a scrape waits for it. Older than ``STALE_S`` they are not given any more.
    """

    def __init__(self, store: Rows, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._latest: tuple[Answers, float] | None = None
        self._kept_s = KEPT_S
        self._renewing: threading.Thread | None = None

    def known(self) -> tuple[Answers, float] | None:
        """The answers that are there, and how many seconds ago they were computed; None before the first. Waits for
        nothing; has new ones computed if these are due."""
        found = self._latest
        age = 0.0 if found is None else self._clock() - found[1]
        thread = self._renewing
        if (found is None or age >= self._kept_s) and (thread is None or not thread.is_alive()):
            self._renewing = threading.Thread(target=self._renew_or_log, name="fitness", daemon=True)
            self._renewing.start()
        return None if found is None else (found[0], age)

    def latest(self) -> tuple[Answers, float]:
        """The answers, and how many seconds ago they were computed; waits for them if there are none yet, or too old."""
        found = self._latest
        if found is not None and self._clock() - found[1] < STALE_S:
            return self.known() or self.renew()
        return self.renew()

    def renew(self, old: Answers | None = None) -> tuple[Answers, float]:
        """Computes the answers, or waits for the thread that does. ``old``: any others will do."""
        asked = self._clock()
        with self._lock:
            found = self._latest
            # Nobody may have computed them while this waited.
            if found is None or (found[1] < asked if old is None else found[0] is old):
                begun = self._clock()
                found = answers(self._store, datetime.now(UTC).replace(tzinfo=None)), begun
                self._kept_s = max(KEPT_S, KEPT_TIMES * (self._clock() - begun))
                self._latest = found
            return found[0], self._clock() - found[1]

    def _renew_or_log(self) -> None:
        try:
            self.renew()
        except Exception as error:  # what was known stays, and grows old
            log.warning("the fitness of nodes was not computed", error=f"{type(error).__name__}: {error}")

    def of(self, node: str) -> tuple[NodeFitness, float] | None:
        """The answer about the node with this name in the whole store, and its age in seconds; None if there is none. A node that is
        not among answers that are due anew waits for the next."""
        found, age = self.latest()
        if node not in found.nodes and age >= self._kept_s:  # it may be newer than they are
            found, age = self.renew(found)
        one = found.nodes.get(node)
        return None if one is None else (one, age)


def memory_of(request: Request) -> Memory:
    found: Memory = request.app.state.fitness
    return found


def unjudged(row: dict[str, Any]) -> NodeFitness:
    """The answer about a node that is not among the latest ones: it is new, or only lines that are no events name it."""
    reason = Reason(Fitness.DOUBTFUL, "nothing is concluded about it yet", "no event, no state, no job")
    return NodeFitness(row["name"], row["host"], row["cluster"], (reason,), runs_jobs=False)


def fitness_of(memory: Memory, row: dict[str, Any], by: str = SERVICE) -> dict[str, Any]:
    """The answer about a node of ``Reader.node`` as JSON."""
    found = memory.of(row["name"]) or (unjudged(row), 0.0)
    return found[0].document(found[1], by)


@router.get("/nodes/{name}/fitness", tags=["nodes"])
def fitness(request: Request, read: Read, name: str) -> dict[str, Any]:
    """Whether a node is fit for a job, doubtful or unfit, with reasons; the gravest first."""
    return fitness_of(memory_of(request), read.node(name))


def from_store(read: Reader, name: str) -> dict[str, Any]:
    """The same answer without a service."""
    return fitness_of(Memory(read), read.node(name), STORE)
