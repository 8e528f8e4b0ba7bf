"""Slurm's host lists in queries: extensions of Faultline, not part of Kusto's language.

- ``expand_nodes("gx[01-03]")``: the hosts of a list as a dynamic array; an array of lists gives all their hosts, each
  once.
- ``nodeset(dynamic(["gx01", "gx02"]))``: hosts as one list, as Slurm writes it: ``gx[01-02]``.
"""

from __future__ import annotations

from typing import Any

from parsers.hostlist import expand, fold
from queries.kql.functions.declaration import Body, Function


def _expand(lists: Any) -> list[str]:
    texts = lists if isinstance(lists, list) else [lists]
    return list(dict.fromkeys(host for text in texts if isinstance(text, str) for host in expand(text)))


def _fold(hosts: Any) -> str:
    return fold(_expand(hosts))


FUNCTIONS = (
    Function(
        "expand_nodes",
        "The hosts of a Slurm host list, or of several, as an array, each once.",
        Body("D", "dynamic", _expand),
    ),
    Function("nodeset", "Hosts as one Slurm host list.", Body("D", "string", _fold)),
)
