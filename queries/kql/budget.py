"""What parsing and binding one query may cost: nodes, and time.

A function of the query is expanded at every call, so a text of 2,000 characters can mean millions of nodes. The engine
is not involved before, and nothing else would stop it.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from queries.kql.errors import KqlBindError, KqlRuntimeError, QueryTimeout

#: The largest public query has some 6,000; a list of 5,000 values of ``in`` has 5,000.
MOST_NODES = 60_000
#: Seconds of this thread's CPU time, whatever the query's own limit: parsing and binding run in the service, where all
#: requests wait for the interpreter. A list of 10,000 values takes three.
MOST_CPU_S = 4.0
#: The clock is read once per this many nodes.
OFTEN = 64
#: A thread's CPU time is no longer than the time that has passed, and costs a call of the kernel: it is read only once
#: this many seconds have passed. Most queries take less, and never read it.
UNTIMED_S = 0.1
_CURRENT = threading.local()


class Budget:
    """A context for compiling one query in this thread; ``deadline`` is a moment of ``time.monotonic``. Setting
    ``stopped`` cancels it."""

    def __init__(
        self, deadline: float | None = None, timeout_s: float | None = None, stopped: threading.Event | None = None
    ) -> None:
        self.deadline, self.timeout_s, self.stopped = deadline, timeout_s, stopped
        self.nodes = 0
        self.left = OFTEN
        self._timed_from = time.monotonic() + min(UNTIMED_S, MOST_CPU_S)
        self._until: float | None = None
        self._outer: Budget | None = None

    def __enter__(self) -> Budget:
        self._outer = getattr(_CURRENT, "budget", None)
        _CURRENT.budget = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _CURRENT.budget = self._outer

    def tick(self, nodes: int = 1) -> None:
        """Counts bound nodes, or written columns. Raises like ``check``, and for too many nodes ``KqlBindError``."""
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            raise KqlBindError(
                f"the query unfolds into more than {MOST_NODES} parts: a function is written out at each call; call it fewer "
                "times, or keep its answer in a table with materialize()"
            )
        self.left -= 1
        if self.left <= 0:
            self.check()

    def check(self) -> None:
        """Checks whether there is time left. Raises ``KqlBindError``, ``QueryTimeout``, and ``KqlRuntimeError`` if it was
        cancelled."""
        self.left = OFTEN
        if self.stopped is not None and self.stopped.is_set():
            raise KqlRuntimeError("the query was cancelled")
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            raise QueryTimeout(f"the query took longer than {self.timeout_s or 0:g} s to read and was stopped")
        if now < self._timed_from:
            return
        used = time.thread_time()
        if self._until is None:
            self._until = used + MOST_CPU_S - min(UNTIMED_S, MOST_CPU_S)
        if used >= self._until:
            raise KqlBindError(
                f"the query takes more than {MOST_CPU_S:g} s to read; make it shorter, or put long lists into a parameter"
            )


def look() -> None:
    """Checks the budget of the query that this thread compiles, if there is one."""
    budget = getattr(_CURRENT, "budget", None)
    if budget is not None:
        budget.left -= 1
        if budget.left <= 0:
            budget.check()


def tick(nodes: int) -> None:
    """Counts against the budget of the query that this thread compiles, if there is one."""
    budget = getattr(_CURRENT, "budget", None)
    if budget is not None:
        budget.tick(nodes)
