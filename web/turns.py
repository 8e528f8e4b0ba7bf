"""Whose query runs next: a few at once, the others in a queue that takes one from each client in turn.

Queries run in threads of their own, so that however many wait, receivers and pages keep theirs. A client that goes away
takes its query with it, whether it waits or runs.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

#: DuckDB itself uses every core for one query; more at once than this only take memory from each other and ingest.
AT_ONCE = max(2, (os.cpu_count() or 2) // 2)
#: Beyond so many, a client is told to come back later.
MOST_WAITING = 100
#: How often a running query's client is looked after.
LOOK_S = 0.1

Answer = TypeVar("Answer")


class TooManyWaitingError(Exception):
    """The queue is full."""


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Turns:
    """A fair queue; used from one event loop."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self.running = 0
        self.at_once, self.most_waiting = at_once, most_waiting
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="query")

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    @asynccontextmanager
    async def turn(self, client: str, timeout_s: float) -> AsyncIterator[None]:
        """One of the places. Raises ``TooManyWaitingError``, or ``TimeoutError`` when none came free in time."""
        if self.running < self.at_once:
            self.running += 1
        else:
            await self._wait(client, timeout_s)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str, timeout_s: float) -> None:
        if self.waiting >= self.most_waiting:
            raise TooManyWaitingError
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(place)
        try:
            async with asyncio.timeout(timeout_s):
                await place
        except BaseException:
            if place.done() and not place.cancelled():
                self._pass_on()  # it came in the same moment
            else:
                self._leave(client, place)
            raise

    def _leave(self, client: str, place: asyncio.Future[None]) -> None:
        queue = self._waiting.get(client)
        if queue and place in queue:
            queue.remove(place)
        if queue is not None and not queue:
            del self._waiting[client]

    def _pass_on(self) -> None:
        """Gives a place that came free to the client that has waited longest for its turn."""
        while self._waiting:
            client, queue = next(iter(self._waiting.items()))
            place = queue.popleft()
            self._waiting.move_to_end(client)
            if not queue:
                del self._waiting[client]
            if not place.done():
                place.set_result(None)
                return
        self.running -= 1

    async def run(
        self, work: Callable[[], Answer], stop: Callable[[], None], gone: Callable[[], Awaitable[bool]]
    ) -> Answer:
        """``work()`` in a thread; ``stop()`` when ``gone()`` says that the client is. Raises ``ClientGoneError``."""
        task = asyncio.get_running_loop().run_in_executor(self._threads, work)
        left = False
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if not left and await gone():
                    left = True
                if left:
                    stop()  # again and again: between two statements there is nothing to stop
        except asyncio.CancelledError:
            stop()
            raise
        if left:
            task.exception()  # seen
            raise ClientGoneError
        return task.result()
