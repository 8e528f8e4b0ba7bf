"""What memory one query may take, and what a process has to itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

from queries.kql.errors import KqlRuntimeError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: A process is ended at this part of the budget: between two looks it goes on taking.
STRIKE = 0.9


def memory_budget() -> int:
    """Bytes that one query may take: FAULTLINE_QUERY_MEMORY ("1GB" unless set)."""
    said = os.environ.get("FAULTLINE_QUERY_MEMORY", "1GB").strip().upper()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|[KMG]I?)B?", said)
    if not found:
        raise KqlRuntimeError(f"FAULTLINE_QUERY_MEMORY={said}: give a size such as 1GB or 512MB")
    return int(float(found[1]) * _UNITS[found[2]])


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


def private(pid: int | str) -> int:
    """Bytes that would come back if the process ended: pages, also swapped ones, that no other process maps; 0 when it is
    gone. The kernel walks all its pages for this: milliseconds for a gigabyte."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in told.splitlines() if line.startswith(("Private_", "Swap:")))
