"""Hashes of passwords: made and checked in their own threads, with a limit, so that pages stay responsive.

New ones are Argon2id. Hashes of earlier versions, by scrypt, are still accepted and reported as old.
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
#: RFC 9106, 4: the second recommended choice (64 MiB, 3 passes); one lane, because a login is to use one core. The
#: tests use a cheaper one.
HASHER = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=1, type=Type.ID)
#: The memory limit of scrypt; its cost is in each hash (32 MB for those of this program).
_SCRYPT_BYTES = 128 * 1024 * 1024
LEAST_CHARS, MOST_CHARS = 8, 1024
#: Per sender one password is checked at a time, and this many wait; this many wait in total, not counting known
#: browsers.
WAITING_OF_SENDER, WAITING = 16, 256
#: The delay before each password of a sender with many attempts, seconds.
SLOW_S = 1.0


class BusyError(Exception):
    """Too many passwords are waiting to be checked."""


def hashed_password(password: str) -> str:
    """The form in which the file keeps a password."""
    return HASHER.hash(password)


def is_old(kept: str) -> bool:
    """Should a password be hashed again, because of another function or a different cost than today's?"""
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
    """Queues password checks.

    One thread is for browsers that signed in before, one for all others, so attempts of the others do not delay the
    first. Used from one event loop.
    """

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
        """Runs ``check()`` in a thread. ``known``: a browser that signed in before."""
        async with self._known if known else self._others:
            return await asyncio.get_running_loop().run_in_executor(self._threads, check)


class _Line:
    """The waiting requests of one sender, and the active one."""

    def __init__(self, known: bool) -> None:
        self.known = known
        self.waiting = 0
        self.lock = asyncio.Lock()
