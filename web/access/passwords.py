"""Hashes of passwords: made and compared, in threads of their own, so many at once that pages go on.

New ones are Argon2id; scrypt's, as this program made them before, still fit and are told as old.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from collector.priority import lower_priority

ARGON2, SCRYPT = "$argon2id$", "scrypt:"
#: RFC 9106, 4: the second recommended choice (64 MiB, 3 passes); one lane, since who signs in is to take one core.
#: The tests put a cheaper one in its place.
HASHER = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=1, type=Type.ID)
#: Memory that scrypt may take; its costs stand in each hash (32 MB with those that this program wrote).
_SCRYPT_BYTES = 128 * 1024 * 1024
LEAST_CHARS, MOST_CHARS = 8, 1024
#: Of one sender one password is looked at at a time, and so many wait; of all together so many, not counting known browsers.
WAITING_OF_SENDER, WAITING = 16, 256
#: A sender from which much was tried waits so long before each password, seconds.
SLOW_S = 1.0


class BusyError(Exception):
    """Too many passwords wait to be looked at."""


def hashed_password(password: str) -> str:
    """What the file keeps of a password."""
    return HASHER.hash(password)


def is_old(kept: str) -> bool:
    """Whether a password should be hashed anew: another function, or other costs than today's."""
    return not kept.startswith(ARGON2) or HASHER.check_needs_rehash(kept)


def password_fits(password: str, kept: str) -> bool:
    if kept.startswith(ARGON2):
        try:
            return HASHER.verify(kept, password)
        except (VerificationError, InvalidHashError):
            return False
    kind, *parts = kept.split(":")
    if f"{kind}:" != SCRYPT or len(parts) != 5:
        return False
    try:
        cost, block, parallel = (int(part) for part in parts[:3])
        salt, digest = (base64.b64decode(part) for part in parts[3:])
        made = hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_SCRYPT_BYTES, dklen=32)
    except ValueError:
        return False
    return hmac.compare_digest(made, digest)


class Turns:
    """Who is next to have a password looked at. One thread is for browsers that signed in before, one for all others: whatever
    these try, those get in. Used from one event loop."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="password", initializer=lower_priority)
        self._known, self._others = asyncio.Semaphore(1), asyncio.Semaphore(1)
        self._lines: dict[str, _Line] = {}
        self._sleep = sleep

    @asynccontextmanager
    async def turn(self, sender: str, slow: Callable[[], bool], *, known: bool = False) -> AsyncIterator[None]:
        """The turn of one sender, one at a time; ``known``: a browser that signed in before. Raises ``BusyError``."""
        line = self._lines.setdefault(sender, _Line(known))
        others = sum(one.waiting for one in self._lines.values() if not one.known)
        if line.waiting >= WAITING_OF_SENDER or (not known and others >= WAITING):
            self._leave(sender, line)
            raise BusyError
        line.waiting += 1
        try:
            async with line.lock:
                if slow():
                    await self._sleep(SLOW_S)
                yield
        finally:
            line.waiting -= 1
            self._leave(sender, line)

    def _leave(self, sender: str, line: _Line) -> None:
        if not line.waiting:
            self._lines.pop(sender, None)

    async def fits(self, check: Callable[[], bool], *, known: bool) -> bool:
        """``check()`` in a thread. ``known``: whether a browser asks in which somebody signed in before."""
        async with self._known if known else self._others:
            return await asyncio.get_running_loop().run_in_executor(self._threads, check)


class _Line:
    """Those of one sender that wait, and the one whose turn it is."""

    def __init__(self, known: bool) -> None:
        self.known = known
        self.waiting = 0
        self.lock = asyncio.Lock()
