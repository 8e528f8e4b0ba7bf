"""Whether a node is fit for a job: GET /api/v1/nodes/{name}/fitness, and the answers of page, metric and gate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request

from correlator.fitness.model import Answers, Fitness, NodeFitness, Reason
from correlator.fitness.reading import answers
from store.door import Answers as Rows
from web.api import Read
from web.reading import Reader

router = APIRouter(prefix="/api/v1")
#: How long answers are kept, seconds; longer where computing them is expensive: then for this many times as long as it
#: took.
KEPT_S, KEPT_TIMES = 30.0, 20.0
#: Who answers.
SERVICE, STORE = "service", "store"


class Memory:
    """The latest answers about all nodes. Safe to use from several threads; ``clock``: seconds of a monotonic clock."""

    def __init__(self, store: Rows, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._answers: Answers | None = None
        self._made = self._kept_s = 0.0

    def latest(self) -> tuple[Answers, float]:
        """The answers, and how many seconds ago they were computed."""
        with self._lock:
            now = self._clock()
            if self._answers is None or now - self._made >= self._kept_s:
                self._answers = answers(self._store, datetime.now(UTC).replace(tzinfo=None))
                self._made, took = now, self._clock() - now
                self._kept_s = max(KEPT_S, KEPT_TIMES * took)
            return self._answers, now - self._made

    def of(self, node: str) -> tuple[NodeFitness, float] | None:
        """The answer about the node with this name in the whole store, and its age in seconds; None if there is none."""
        found, age = self.latest()
        one = found.nodes.get(node)
        return None if one is None else (one, age)


def memory_of(request: Request) -> Memory:
    found: Memory = request.app.state.fitness
    return found


def unheard(row: dict[str, Any]) -> NodeFitness:
    """The answer about a node that is not among the latest ones: it is new, or only lines that are no events name it."""
    reason = Reason(Fitness.DOUBTFUL, "nothing is concluded about it yet", "no event, no state, no job")
    return NodeFitness(row["name"], row["host"], row["cluster"], (reason,), runs_jobs=False)


def fitness_of(memory: Memory, row: dict[str, Any], by: str = SERVICE) -> dict[str, Any]:
    """The answer about a node of ``Reader.node`` as JSON."""
    found = memory.of(row["name"]) or (unheard(row), 0.0)
    return found[0].document(found[1], by)


@router.get("/nodes/{name}/fitness", tags=["nodes"])
def fitness(request: Request, read: Read, name: str) -> dict[str, Any]:
    """Whether a node is fit for a job, doubtful or unfit, with reasons; the gravest first."""
    return fitness_of(memory_of(request), read.node(name))


def from_store(read: Reader, name: str) -> dict[str, Any]:
    """The same answer without a service."""
    return fitness_of(Memory(read), read.node(name), STORE)
