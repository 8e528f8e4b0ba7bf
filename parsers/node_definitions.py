"""What ``NodeName=`` of slurm.conf says of nodes and of their addresses and other names.

The one reader of these lines (settings named ``NodeName:LIST``) for two questions: what a name in a line means
(collector/identity/hosts.py), and whose address sent a packet (correlator/site/senders.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parsers.hostlist import in_order

#: Settings with such a name define nodes; the list of nodes follows.
PREFIX = "NodeName:"
_ADDRESS = re.compile(r"\bNodeAddr\s*=\s*(\S+)", re.IGNORECASE)
_OTHER_NAME = re.compile(r"\b(?:NodeAddr|NodeHostname)\s*=\s*(\S+)", re.IGNORECASE)


def defined_nodes(setting: str) -> tuple[str, ...]:
    """The nodes that a setting of this name defines, in the order in which they are written."""
    names = in_order(setting.removeprefix(PREFIX)) if setting.startswith(PREFIX) else ()
    return tuple(name for name in names if name.upper() != "DEFAULT")


def addresses(setting: str, value: str) -> list[tuple[str, str]]:
    """(node, ``NodeAddr``) of each node of a definition: an address, or a name that DNS knows."""
    return _paired(defined_nodes(setting), _ADDRESS.findall(value))


def other_names(setting: str, value: str) -> list[tuple[str, str]]:
    """(node, ``NodeAddr`` or ``NodeHostname``) of each node of a definition."""
    return _paired(defined_nodes(setting), _OTHER_NAME.findall(value))


def _paired(nodes: Sequence[str], lists: Sequence[str]) -> list[tuple[str, str]]:
    """Slurm reads the lists in parallel. One of another length says nothing."""
    others = (in_order(text.strip('"')) for text in lists)
    return [pair for some in others if len(some) == len(nodes) for pair in zip(nodes, some, strict=True)]
