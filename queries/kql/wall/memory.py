"""What memory one query may take, how its two parts share it, and what a process has taken."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from queries.kql.errors import KqlRuntimeError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: A statement beside the store is interrupted at this part of its share: between two looks it goes on taking.
STRIKE = 0.8
#: What may be left of the budget: pages that a forked process shares until it writes to them, and what two looks miss.
SPARE = 0.1
#: With less not even the engine of a forked process could start.
LEAST = 256 * 10**6
#: The engine needs about so much for each of its threads (its own advice); stacks of threads are reserved, hardly used.
THREAD_BYTES = 125 * 10**6
STACK_BYTES = 8 * 2**20


def memory_budget() -> int:
    """Bytes that one query may take: FAULTLINE_QUERY_MEMORY ("1GB" unless set)."""
    setting = os.environ.get("FAULTLINE_QUERY_MEMORY", "1GB").strip().upper()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|[KMG]I?)B?", setting)
    if not found:
        raise KqlRuntimeError(f"FAULTLINE_QUERY_MEMORY={setting}: give a size such as 1GB or 512MB")
    budget = int(float(found[1]) * _UNITS[found[2]])
    if budget < LEAST:
        raise KqlRuntimeError(f"FAULTLINE_QUERY_MEMORY={setting}: a query needs at least {LEAST // 10**6} MB")
    return budget


@dataclass(frozen=True, slots=True)
class Shares:
    """How a statement behind the wall divides its budget, in bytes. They add up to ``1 - SPARE`` of it.

    ``answer`` is held by the service until the answer is whole, ``near`` is what the steps beside the store may take, and
    ``far`` is what the kernel lets the forked process have on top of what it was forked with.
    """

    answer: int
    near: int
    far: int

    @classmethod
    def of(cls, memory: int, most_bytes: int | None, is_near_growing: bool) -> Shares:
        """``most_bytes``: of the answer, if they are limited. ``is_near_growing``: whether the steps beside the store keep
        rows, as groups and sorts do; a filter keeps none."""
        answer = min(memory // 8, most_bytes or memory // 8)
        near = memory // 3 if is_near_growing else 0
        return cls(answer, near, int((1 - SPARE) * memory) - answer - near)

    @property
    def engine(self) -> int:
        """What the engine in the forked process may hold before it writes to disk. Its allocator reserves more than it
        uses (200 MB more in a sort), and what it does not count (rows on their way, bodies in Python) comes on top."""
        return self.far // 2

    @property
    def threads(self) -> int:
        return max(1, min(os.cpu_count() or 1, self.far // THREAD_BYTES))

    @property
    def limit(self) -> int:
        """For the kernel: the share, and stacks, which count as used when a thread starts."""
        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
        return self.far + self.threads * (STACK_BYTES if soft == resource.RLIM_INFINITY else soft)


def too_much(memory: int) -> str:
    return f"the query needs more memory than it may use ({memory / 1e9:.2g} GB); narrow the time range, or ask for fewer columns"


def anonymous(pid: int | str = "self") -> int:
    """Resident bytes of a process that are no file's, those shared with the process it was forked from among them; 0 when
    it is gone. One short read."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE
