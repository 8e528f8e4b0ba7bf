"""What slurm.conf says of nodes (``NodeName=``) and of controllers (``SlurmctldHost=``), and of their addresses and other names.

The one reader of these lines (settings named ``NodeName:LIST``, and ``CONTROLLERS``) for two questions: what a name in a line means
(collector/identity/hosts.py), and whose address sent a packet (correlator/site/senders.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parsers.hostlist import in_order

#: Settings with such a name define nodes; the list of nodes follows.
PREFIX = "NodeName:"
#: Settings that name controllers, and the setting with the address of one where its own has none.
CONTROLLERS: Mapping[str, str | None] = {
    "SlurmctldHost": None, "ControlMachine": "ControlAddr", "BackupController": "BackupAddr",
}  # fmt: skip
#: ``ctl``, ``ctl(10.0.0.1)`` or ``ctl (10.0.0.1)``; several are separated by commas or blanks.
_CONTROLLER = re.compile(r"([\w.-]+)\s*(?:\(\s*([^()\s]+)\s*\))?")
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


def controllers(setting: str, value: str) -> list[tuple[str, str | None]]:
    """(host, address) of each controller that a setting names, in order; None for an address that it does not give.

    >>> controllers("SlurmctldHost", "ctl1 (10.0.0.1)")
    [('ctl1', '10.0.0.1')]
    """
    return [(host, address or None) for host, address in _CONTROLLER.findall(value)] if setting in CONTROLLERS else []


def _paired(nodes: Sequence[str], lists: Sequence[str]) -> list[tuple[str, str]]:
    """Slurm reads the lists in parallel. One of another length says nothing."""
    others = (in_order(text.strip('"')) for text in lists)
    return [pair for some in others if len(some) == len(nodes) for pair in zip(nodes, some, strict=True)]
