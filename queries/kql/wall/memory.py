"""The memory limit of one query, how its two halves share it, and the memory used by a process."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from queries.kql.errors import KqlRuntimeError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: A statement beside the store is interrupted at this fraction of its share: between two checks it goes on allocating.
STRIKE = 0.8
#: The reserve in the budget: for pages that a forked process shares until it writes to them, and for what two checks
#: miss.
SPARE = 0.1
#: With less, not even the engine of a forked process could start.
LEAST = 256 * 10**6
#: The engine needs about this much for each of its threads (its own advice); stacks of threads are reserved, hardly
#: used.
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
    """How a statement behind the wall divides its budget, in bytes. The shares add up to ``1 - SPARE`` of it.

    ``answer`` is held by the service until the answer is whole, ``near`` is for the steps beside the store, and ``far``
    is the kernel's limit for the forked process beyond what it had when forked.
    """

    answer: int
    near: int
    far: int

    @classmethod
    def of(cls, memory: int, most_bytes: int | None, is_near_growing: bool) -> Shares:
        """``most_bytes``: the limit of the answer, if any.

        ``is_near_growing``: whether the steps beside the store keep rows, as groups and sorts do; a filter keeps none.
        """
        answer = min(memory // 8, most_bytes or memory // 8)
        near = memory // 3 if is_near_growing else 0
        return cls(answer, near, int((1 - SPARE) * memory) - answer - near)

    @property
    def engine(self) -> int:
        """What the engine in the forked process may hold before it writes to disk.

        Its allocator reserves more than it uses (200 MB more in a sort), and uncounted memory (rows in transit, bodies
        in Python) comes on top.
        """
        return self.far // 2

    @property
    def threads(self) -> int:
        return max(1, min(os.cpu_count() or 1, self.far // THREAD_BYTES))

    @property
    def limit(self) -> int:
        """The kernel's limit: the share, plus stacks, which count as used when a thread starts."""
        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
        return self.far + self.threads * (STACK_BYTES if soft == resource.RLIM_INFINITY else soft)


def too_much(memory: int) -> str:
    return f"the query needs more memory than it may use ({memory / 1e9:.2g} GB); narrow the time range, or ask for fewer columns"


def anonymous(pid: int | str = "self") -> int:
    """Resident bytes of a process that no file backs, including those shared with its parent; 0 if it is gone.

    One short read.
    """
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE
