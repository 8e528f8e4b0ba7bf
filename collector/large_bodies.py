"""Reads large bodies in threads, because parsing one takes seconds and the event loop answers everybody else meanwhile.

What a body costs is shown by its unpacked size: a few kilobytes may unpack to 64 MiB. Small ones are read at once, which
is faster than a thread. Each sender has one large body read at a time, so that one sender does not use all threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

from collector.receivers.base import Request
from collector.receivers.refusals import Refused
from collector.receivers.unpacking import states_more, unpack
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
        self._places = asyncio.Semaphore(THREADS)

    async def read(
        self,
        request: Request,
        work: Callable[[Request], Found],
        size: Callable[[bytes], int] = len,
        *,
        is_accepted: bool = False,
    ) -> Found:
        """``work(request)``, in a thread if the body is large. Raises what it raises, and ``SpoolFull``.

        ``size``: bytes that ``work`` makes of the unpacked body. ``is_accepted``: the body is on disk, and waits however
        many wait already.
        """
        small, encoding = None, request.headers.get("content-encoding")
        if not states_more(request.body, encoding, MOST_AT_ONCE):  # else it would be unpacked here, and once more there
            with suppress(Refused):  # too large, or its data is invalid: reading all of it shows which
                small = unpack(request.body, encoding, MOST_AT_ONCE)
        if small is not None and size(small) <= MOST_AT_ONCE:
            return work(replace(request, unpacked=small))
        async with self._turn(request.peer, len(request.body), is_accepted):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, request)

    @asynccontextmanager
    async def unpacked(self, body: bytes, encoding: str, sender: str | None) -> AsyncIterator[bytes]:
        """An unpacked body, which may be held until the end of the context. Raises ``Refused`` and ``SpoolFull``."""
        async with self._turn(sender, len(body)):
            yield await asyncio.get_running_loop().run_in_executor(self._threads, unpack, body, encoding)

    @asynccontextmanager
    async def _turn(self, peer: str | None, size: int, is_accepted: bool = False) -> AsyncIterator[None]:
        """One of the places in which a body may be held unpacked; each sender has one at a time."""
        sender = peer or ""
        if self._waiting[sender] + size > MOST_WAITING and not is_accepted:
            raise SpoolFull(_BUSY, 1.0)
        self._waiting[sender] += size
        try:
            async with self._turns.setdefault(sender, asyncio.Lock()), self._places:
                yield
        finally:
            self._waiting[sender] -= size
            if not self._waiting[sender]:
                del self._waiting[sender]
