"""Slurm's compact host lists: ``gpu[01-04,09]`` <-> the hosts in it.

>>> expand("gpu[01-03],login1")
('gpu01', 'gpu02', 'gpu03', 'login1')
>>> fold(["gpu03", "gpu01", "gpu02"])
'gpu[01-03]'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, product

from ClusterShell.NodeSet import NodeSet, NodeSetException

#: Slurm's output for "no nodes".
_NOBODY = frozenset({"", "(null)", "null", "none", "none assigned", "n/a", "unknown", "(none)"})

#: A list with more hosts than any cluster has is damage (``gpu[0-99999999999]``), not a list.
MOST_HOSTS = 200_000
_LONGEST_LIST = 2_000_000


@lru_cache(maxsize=8192)
def expand(text: str) -> tuple[str, ...]:
    """The hosts of a host list in Slurm's order, each once.

    "(null)", "None assigned" and the empty text give (). Text that is not a host list is returned as one host: an
    unparsable name can still be searched for.
    """
    text = text.strip()
    if text.lower() in _NOBODY:
        return ()
    if "[" not in text and "," not in text:
        return (text,)
    if len(text) > _LONGEST_LIST or _claims_too_many(text):
        return (text,)
    try:
        # Like resolver=False: an "@group" of the reader's own machine must not leak into the answer.
        nodes = NodeSet(_neutral(text))
        if len(nodes) > MOST_HOSTS:
            return (text,)
        return tuple(str(node) for node in nodes) or (text,)
    except (NodeSetException, ValueError, OverflowError, IndexError):
        return (text,)


#: What stands between the commas of a list.
_PIECE = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")


@lru_cache(maxsize=8192)
def in_order(text: str) -> tuple[str, ...]:
    """The hosts of ``expand`` in the order in which they are written, as Slurm reads lists that run in parallel.

    >>> list(zip(in_order("n[3,1]"), in_order("10.0.0.[7,9]")))
    [('n3', '10.0.0.7'), ('n1', '10.0.0.9')]
    """
    hosts = expand(text)
    if len(hosts) < 2:  # and what is no list, or too long a one
        return hosts
    written = chain.from_iterable(map(_written, _PIECE.findall(text.strip())))
    found = tuple(islice(written, len(hosts) + 1))
    return found if len(found) == len(hosts) and set(found) == set(hosts) else hosts


def _written(piece: str) -> Iterator[str]:
    """``a[2,1]b`` -> a2b, a1b."""
    parts = re.split(r"\[([^\[\]]*)\]", piece)
    choices = [_numbers_of(part) if place % 2 else [part] for place, part in enumerate(parts)]
    return map("".join, product(*choices))


def _numbers_of(ranges: str) -> list[str]:
    found: list[str] = []
    for low, dash, high in (one.strip().partition("-") for one in ranges.split(",")):
        if not (low.isdigit() and (high.isdigit() or not dash)):
            return []
        found += (str(number).zfill(len(low)) for number in range(int(low), int(high or low) + 1))
    return found


#: Users write output: a list of numbers in it may be of any size.
MOST_NUMBERS = 4096
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def numbers(text: str) -> set[int]:
    """``0,2-3`` -> 0, 2, 3. A range has at most ``MOST_NUMBERS``; parts that are no numbers are left out."""
    found: set[int] = set()
    for match in filter(None, map(_NUMBERS.fullmatch, text.split(","))):
        first = int(match[1])
        found.update(range(first, min(int(match[2] or first), first + MOST_NUMBERS - 1) + 1))
    return found


def fold(hosts: Iterable[str]) -> str:
    """Hosts -> one compact list ("gpu[01-03]"); names ClusterShell cannot fold are joined with commas."""
    names = [name for name in hosts if name]
    if not names:
        return ""
    if len(names) == 1 and names[0].isalnum():
        return names[0]
    if plain := _fold_plain(names):
        return plain
    try:
        return str(NodeSet.fromlist([_neutral(name) for name in names]))
    except (NodeSetException, ValueError, OverflowError):
        return ",".join(sorted(set(names)))


#: The naming of nearly all clusters: one number, at the end.
_PLAIN = re.compile(r"([A-Za-z][A-Za-z_.-]*)([0-9]{1,18})")


def _fold_plain(names: list[str]) -> str | None:
    """ClusterShell's result for names that differ in one number of one width, in a tenth of its time; None for
    others."""
    first = _PLAIN.fullmatch(names[0])
    if first is None:
        return None
    prefix, width = first[1], len(first[2])
    begin, length = len(prefix), len(names[0])
    numbers = [name[begin:] for name in names if len(name) == length and name.startswith(prefix)]
    together = "".join(numbers)
    if len(numbers) < len(names) or not (together.isascii() and together.isdigit()):
        return None
    values = sorted(set(map(int, numbers)))
    ranges = []
    low = high = values[0]
    for value in [*values[1:], -1]:
        if value != high + 1:
            ranges.append(f"{low:0{width}}-{high:0{width}}" if high > low else f"{low:0{width}}")
            low = value
        high = value
    return f"{prefix}[{','.join(ranges)}]" if len(values) > 1 else f"{prefix}{ranges[0]}"


def _neutral(text: str) -> str:
    """Refuses ClusterShell syntax that Slurm does not have: groups (@), differences (!), intersections (&, ^)."""
    if any(sign in text for sign in "@!&^ %*"):
        raise ValueError(text)
    return text


def _claims_too_many(text: str) -> bool:
    """Whether a range alone exceeds MOST_HOSTS; it is refused before ClusterShell expands it."""
    for part in text.replace("[", ",").replace("]", ",").split(","):
        low, dash, high = part.partition("-")
        if dash and low.isdigit() and high.isdigit() and (len(high) > 12 or int(high) - int(low) > MOST_HOSTS):
            return True
    return False
