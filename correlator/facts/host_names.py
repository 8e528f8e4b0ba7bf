"""Which hosts of the cluster a user's line names: by their names, addresses, or names on another network.

A line proves nothing. What is asked here is only what its words mean, and whether such a host exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from correlator.facts.world import World
from correlator.site.senders import configured_nodes
from parsers.host_names import short_key

#: Names and addresses, without ports and paths.
_NAME = re.compile(r"(?:(?<=//)|(?<![\w./-]))[A-Za-z0-9][\w-]*(?:\.[\w-]+)*")
#: What sites add to a node's name for its interface on another network (gpu04-hsn, ib0-gpu04).
_NETWORK = re.compile(r"[a-z]{1,8}\d{0,2}")
#: The names of nodes differ by their last number.
_NUMBERED = re.compile(r"(?P<stem>.*?[a-z][a-z_-]*)\d+")
#: Users write lines, as long as they like.
_MOST_TEXT = 400


class HostNames:
    """The names of a cluster. ``configured``: its compute nodes, ``seen``: other hosts that are known; ``addresses``: the
    host of each address."""

    def __init__(self, configured: Iterable[str], seen: Iterable[str], addresses: Mapping[str, str]) -> None:
        nodes = set(configured)
        self._names = {short_key(host): host for host in sorted({*nodes, *seen})}
        self._stems = {match["stem"] for name in nodes if (match := _NUMBERED.fullmatch(short_key(name)))}
        self._addresses = addresses

    def hosts_in(self, text: str) -> list[str]:
        """The hosts that a text names, in order."""
        found = (self._host_of(match[0]) for match in _NAME.finditer(text[:_MOST_TEXT]))
        return list(dict.fromkeys(host for host in found if host))

    def misspelt_in(self, text: str) -> str | None:
        """A name that is made like those of the nodes of slurm.conf, where the text names none that exists; None if there is
        no such name. No host has it, so no node could find it."""
        if not self._stems or self.hosts_in(text):
            return None
        names = [match[0] for match in _NAME.finditer(text[:_MOST_TEXT]) if "." not in match[0]]
        return next((name for name in names if any(map(self._is_like_a_node, _spellings(short_key(name))))), None)

    def _is_like_a_node(self, name: str) -> bool:
        match = _NUMBERED.fullmatch(name)
        return match is not None and match["stem"] in self._stems

    def _host_of(self, text: str) -> str | None:
        if (host := self._addresses.get(text)) is not None:
            return host
        return next((self._names[key] for key in _spellings(short_key(text)) if key in self._names), None)


def host_names(world: World) -> HostNames:
    """The names of a world's cluster."""
    nodes = configured_nodes(world.inventory.settings) if world.inventory else set()
    addresses = world.believed.senders.nodes if world.believed else {}
    return HostNames(nodes, {*world.site.hosts, *world.reporting_hosts, *world.runs_on}, addresses)


def _spellings(name: str) -> Iterator[str]:
    """A name, and what it is without a word for a network before or after it."""
    yield name
    first, _, rest = name.partition("-")
    before, _, last = name.rpartition("-")
    if before and _NETWORK.fullmatch(last):
        yield before
    if rest and _NETWORK.fullmatch(first):
        yield rest
