"""Slurm's compact host lists: ``gpu[01-04,09]`` <-> the hosts in it.

>>> expand("gpu[01-03],login1")
('gpu01', 'gpu02', 'gpu03', 'login1')
>>> fold(["gpu03", "gpu01", "gpu02"])
'gpu[01-03]'
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ClusterShell.NodeSet import NodeSet, NodeSetException

#: What Slurm prints where there are no nodes.
_NOBODY = frozenset({"", "(null)", "null", "none", "none assigned", "n/a", "unknown", "(none)"})

#: A list of more hosts than any cluster has is damage (``gpu[0-99999999999]``), not a list.
MOST_HOSTS = 200_000
_LONGEST_LIST = 2_000_000


@lru_cache(maxsize=8192)
def expand(text: str) -> tuple[str, ...]:
    """The hosts of a host list in Slurm's order, each once.

    "(null)", "None assigned" and the empty text give (). Text that is no host list is returned as one host: a name
    we cannot read is still a name that can be searched for.
    """
    text = text.strip()
    if text.lower() in _NOBODY:
        return ()
    if "[" not in text and "," not in text:
        return (text,)
    if len(text) > _LONGEST_LIST or _claims_too_many(text):
        return (text,)
    try:
        # resolver=False-like behaviour: an "@group" of the reader's own machine must not leak into the answer.
        nodes = NodeSet(_neutral(text))
        if len(nodes) > MOST_HOSTS:
            return (text,)
        return tuple(str(node) for node in nodes) or (text,)
    except (NodeSetException, ValueError, OverflowError, IndexError):
        return (text,)


def fold(hosts: Iterable[str]) -> str:
    """Hosts -> one compact list ("gpu[01-03]"); names ClusterShell cannot fold are joined with commas."""
    names = [name for name in hosts if name]
    if not names:
        return ""
    try:
        return str(NodeSet.fromlist([_neutral(name) for name in names]))
    except (NodeSetException, ValueError, OverflowError):
        return ",".join(sorted(set(names)))


def _neutral(text: str) -> str:
    """Refuses what is syntax for ClusterShell but not for Slurm: groups (@), differences (!), intersections (&, ^)."""
    if any(sign in text for sign in "@!&^ %*"):
        raise ValueError(text)
    return text


def _claims_too_many(text: str) -> bool:
    """A range whose size alone exceeds MOST_HOSTS is refused before ClusterShell unfolds it."""
    for part in text.replace("[", ",").replace("]", ",").split(","):
        low, dash, high = part.partition("-")
        if dash and low.isdigit() and high.isdigit() and (len(high) > 12 or int(high) - int(low) > MOST_HOSTS):
            return True
    return False
