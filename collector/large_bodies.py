"""Reads large bodies in threads, because parsing one takes seconds and the event loop answers everybody else meanwhile.

What a body costs is shown by its unpacked size: a few kilobytes may unpack to 64 MiB. Small ones are read at once, which
is faster than a thread. Each sender has one large body read at a time, so that one sender does not use all threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

from collector.receivers.base import Refused, Request, unpack
from collector.spool import SpoolFull

#: Bytes of an unpacked body that is read at once: some 50 ms for the dearest content.
MOST_AT_ONCE = 256 * 1024
#: Bytes, as sent, of one sender's large bodies that are read or wait for it.
MOST_WAITING = 64 * 1024 * 1024
#: Large bodies that are read at the same time.
THREADS = 4
_BUSY = "larger batches of this sender are still being read"

Found = TypeVar("Found")


class LargeBodies:
    """The threads of one service; used from one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="large body")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()

    async def read(self, request: Request, work: Callable[[Request], Found]) -> Found:
        """``work(request)``, in a thread if the body is large. Raises what it raises, and ``SpoolFull``."""
        try:
            small = unpack(request.body, request.headers.get("content-encoding"), MOST_AT_ONCE)
        except Refused:  # too large, or its data is invalid: reading all of it shows which
            return await self._in_turn(request, lambda: work(request))
        return work(replace(request, unpacked=small))

    async def _in_turn(self, request: Request, work: Callable[[], Found]) -> Found:
        sender, size = request.peer or "", len(request.body)
        if self._waiting[sender] + size > MOST_WAITING:
            raise SpoolFull(_BUSY, 1.0)
        self._waiting[sender] += size
        try:
            async with self._turns.setdefault(sender, asyncio.Lock()):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting[sender] -= size
            if not self._waiting[sender]:
                del self._waiting[sender]
