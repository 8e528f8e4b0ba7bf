"""The fair queue of queries: a few run at once, and the others are taken from each client in turn.

A client is a user if people sign in, else an address. No client ever holds all places, so that another client's next
query can always run. Queries run in their own threads, so however many wait, receivers and pages keep theirs. If a
client disconnects, its query is cancelled, whether it waits or runs.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

#: DuckDB itself uses every core for one query; more at once than this only take memory from each other and ingest.
AT_ONCE = max(3, (os.cpu_count() or 2) // 2)
#: Beyond this many waiting queries, a client gets the answer to come back later.
MOST_WAITING = 100
#: The share of these that one client may have.
SHARE = 4
#: How often a running query's client is checked.
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
        #: The number of places that one client may hold, and the number of its waiting queries.
        self.each, self.each_waiting = max(1, at_once - 1), max(1, most_waiting // SHARE)
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="query")

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    @asynccontextmanager
    async def turn(
        self, client: str, timeout_s: float, gone: Callable[[], Awaitable[bool]] | None = None
    ) -> AsyncIterator[None]:
        """One of the places. Raises ``TooManyWaitingError``, ``TimeoutError`` and ``ClientGoneError``.

        The second is raised if no place became free in time, the third if ``gone()`` returned true before that.
        """
        if self.running < self.at_once and self._held[client] < self.each:
            self.running += 1
            self._held[client] += 1
        else:
            await self._wait(client, timeout_s, gone)
        try:
            yield
        finally:
            self._give_back(client)

    async def _wait(self, client: str, timeout_s: float, gone: Callable[[], Awaitable[bool]] | None) -> None:
        if self.waiting >= self.most_waiting or len(self._waiting.get(client, ())) >= self.each_waiting:
            raise TooManyWaitingError
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(place)
        try:
            async with asyncio.timeout(timeout_s):
                while not (await asyncio.wait({place}, timeout=LOOK_S))[0]:
                    if gone is not None and await gone():
                        raise ClientGoneError
        except BaseException:
            if place.done() and not place.cancelled():
                self._give_back(client)  # it arrived at the same moment
            else:
                self._leave(client, place)
            raise

    def _leave(self, client: str, place: asyncio.Future[None]) -> None:
        queue = self._waiting.get(client)
        if queue and place in queue:
            queue.remove(place)
        if queue is not None and not queue:
            del self._waiting[client]

    def _give_back(self, client: str) -> None:
        self.running -= 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        self._pass_on()

    def _pass_on(self) -> None:
        """Gives free places to the clients that have waited longest for their turn and hold few enough."""
        while self.running < self.at_once:
            client = next((name for name in self._waiting if self._held[name] < self.each), None)
            if client is None:
                return
            queue = self._waiting[client]
            place = queue.popleft()
            self._waiting.move_to_end(client)
            if not queue:
                del self._waiting[client]
            if not place.done():
                self.running += 1
                self._held[client] += 1
                place.set_result(None)

    async def run(
        self, work: Callable[[], Answer], stop: Callable[[], None], gone: Callable[[], Awaitable[bool]]
    ) -> Answer:
        """Runs ``work()`` in a thread, and ``stop()`` if ``gone()`` returns true. Raises ``ClientGoneError``."""
        task = asyncio.get_running_loop().run_in_executor(self._threads, work)
        left = False
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if not left and await gone():
                    left = True
                if left:
                    stop()  # repeatedly: between two statements there is nothing to stop
        except asyncio.CancelledError:
            stop()
            raise
        if left:
            task.exception()  # retrieved
            raise ClientGoneError
        return task.result()
