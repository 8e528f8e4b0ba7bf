"""What reading and binding one query may cost: nodes, and time.

A function of the query is expanded at every call, so a text of 2,000 characters can stand for millions of nodes. The engine
is not asked before, and nothing else would stop it.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from queries.kql.errors import KqlBindError, QueryTimeout

#: The largest public query has some 6,000; a list of 5,000 values of ``in`` has 5,000.
MOST_NODES = 60_000
#: The clock is asked once in so many.
OFTEN = 64
_CURRENT = threading.local()


class Budget:
    """Around the compiling of one query in this thread; ``deadline`` is a moment of ``time.monotonic``."""

    def __init__(self, deadline: float | None = None, timeout_s: float | None = None) -> None:
        self.deadline, self.timeout_s = deadline, timeout_s
        self.nodes = self._looks = 0
        self._outer: Budget | None = None

    def __enter__(self) -> Budget:
        self._outer = getattr(_CURRENT, "budget", None)
        _CURRENT.budget = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _CURRENT.budget = self._outer

    def tick(self) -> None:
        """One node was bound. Raises ``KqlBindError`` and ``QueryTimeout``."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise KqlBindError(
                f"the query unfolds into more than {MOST_NODES} parts: a function is written out at each call; call it fewer "
                "times, or keep its answer in a table with materialize()"
            )
        self.look()

    def look(self) -> None:
        """Whether there is time left."""
        self._looks += 1
        if self.deadline is not None and self._looks % OFTEN == 0 and time.monotonic() >= self.deadline:
            raise QueryTimeout(f"the query took longer than {self.timeout_s or 0:g} s to read and was stopped")


def look() -> None:
    """Asks the budget of the query that this thread compiles, if there is one."""
    budget = getattr(_CURRENT, "budget", None)
    if budget is not None:
        budget.look()
