"""What a run's owner and operators read of a time in which the run was slower: the same sentence on its page and in the terminal.

Standard library only: the bare package shows it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sentence(slowed: Mapping[str, Any], start: str | None, end: str | None) -> str:
    """``slowed``: as ``web.slowdowns`` makes it; ``start`` and ``end`` in words for the reader.

    >>> sentence({"ratio": 2.44, "lasting": False, "cause": "a GPU was slowed by heat", "nodes": ["n7"]}, "09:00", "09:40 UTC")
    'Its steps took 2.4 times as long from 09:00 to 09:40 UTC, because a GPU was slowed by heat (n7).'
    """
    ratio = slowed.get("ratio")
    what = f"Its steps took {ratio:.1f} times as long" if ratio else "It was made slower"
    until = "until its end" if slowed.get("lasting") else f"to {end}"
    when = f" from {start} {until}" if start and end else ""
    nodes = f" ({', '.join(slowed['nodes'])})" if slowed.get("nodes") else ""
    return f"{what}{when}, because {slowed['cause']}{nodes}."
