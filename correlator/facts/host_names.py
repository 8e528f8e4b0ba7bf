"""Which hosts of the cluster a user's line names: by their names, addresses, or names on another network.

A line proves nothing. What is asked here is only what its words mean, and whether such a host exists.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from correlator.facts.world import World
from correlator.site.senders import configured_nodes
from parsers.host_names import short_key

#: Names and addresses, without ports and paths.
_NAME = re.compile(r"(?:(?<=//)|(?<![\w./-]))[A-Za-z0-9][\w-]*(?:\.[\w-]+)*")
#: What sites add to a node's name for its interface on another network (gpu04-hsn, ib0-gpu04).
_NETWORK = re.compile(r"[a-z]{1,8}\d{0,2}")
#: The names of nodes differ by their last number.
_NUMBERED = re.compile(r"(?P<stem>.*?[a-z][a-z_-]*)\d+")
#: Where an error of the resolver has the name that it did not find: behind it, or before it.
_BEHIND = re.compile(
    r"(?:resolve host(?:name)?|failed to resolve|eai_again)[\s:'\"]*(?P<rest>[^\s'\"]+)", re.IGNORECASE
)
_BEFORE = re.compile(
    r"(?P<text>.*?)[\s:,([]*(?:errno -?\d+\W*)?(?:temporary failure in name resolution|name or service not known)",
    re.IGNORECASE,
)
#: With a port it is the name; otherwise the last word is.
_WITH_PORT = re.compile(rf"(?P<name>{_NAME.pattern}):\d+(?!\w)")
#: Names of domains, addresses.
_DOTTED = re.compile(r"\w\.\w")
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

    def not_found_in(self, text: str) -> str | None:
        """The name that an error of the resolver is about; None if it is about none that can be made out. What begins a line
        (srun's and torchrun's labels, a node's own name) is not it."""
        text = text[:_MOST_TEXT]
        if found := _BEHIND.search(text):
            name = _NAME.match(found["rest"].rpartition("//")[2])
            return name[0] if name else None
        if not (found := _BEFORE.match(text)):
            return None
        before = found["text"]
        if ports := list(_WITH_PORT.finditer(before)):
            return ports[-1]["name"]
        names = list(_NAME.finditer(before))
        return names[-1][0] if names and names[-1].end() >= len(before) - 1 else None

    def other_not_found_in(self, text: str, own: Collection[str]) -> str | None:
        """The host that a resolver did not find, if there is such a host and it is none of ``own``."""
        name = self.not_found_in(text)
        host = self._host_of(name) if name else None
        return None if host in own else host

    def misspelt_in(self, text: str, own: Collection[str] = ()) -> str | None:
        """The name that a resolver did not find, if it is made like those of the nodes of slurm.conf and is none of them; None
        if it is another, or if the text names another host (``own``: nodes of the run, which label its lines) or a domain.

        It may be misspelt, or a node of another cluster, or one that slurm.conf does not list.
        """
        name = self.not_found_in(text) if self._stems else None
        if not name or _DOTTED.search(text[:_MOST_TEXT]) or set(self.hosts_in(text)) - set(own):
            return None
        return name if any(map(self._is_like_a_node, _spellings(short_key(name)))) else None

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
