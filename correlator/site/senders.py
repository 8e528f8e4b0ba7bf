"""Whose address it is, and which addresses may forward what others wrote.

A line over plain syslog shows who sent it only by its address. Slurm's configuration gives addresses of nodes and
controllers, the service looks up the controllers' names, and an agent's own connection shows its node's address.

The question here is who sent a line, and so what it may claim: the address is a connection's, not text of the line. What a
name in a line means is another question, asked when rows are stored (collector/identity/hosts.py, which says how the two
differ). Both read slurm.conf by ``parsers.node_definitions``. If two definitions share an address, its packets are the
later one's here: they come from one machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from parsers.node_definitions import CONTROLLERS, addresses, defined_nodes
from parsers.node_definitions import controllers as of_setting
from store.questions.settling import ADDRESS, ALIAS

#: The site's setting: addresses and small networks that forward lines of other hosts, a controller's included.
RELAYS_SETTING = "syslog.relays"
#: The site's setting: can users write to the syslog files of the nodes, with ``logger`` or to /dev/log?
USERS_SETTING = "syslog.users_can_write_syslog"
#: The site's setting: can users of the nodes send syslog packets to Faultline?
SENDING_SETTING = "syslog.users_can_send_syslog"
#: A network is listed address by address, since queries compare addresses as text.
MOST_RELAYS = 256


@dataclass(frozen=True)
class Senders:
    """``nodes``: the node of each address. ``controllers``: likewise of controllers, which may also forward lines.
    ``relays``: what these send counts for the host that it names. ``named``: the controllers of slurm.conf.
    ``users_write_syslog``: can users write to the syslog files of the nodes? ``users_send_syslog``: can they send packets?
    ``log_host_folders``: those where a host's own syslog files have lines of other hosts (gather/collected.py)."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    controllers: Mapping[str, str] = field(default_factory=dict)
    relays: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    users_write_syslog: bool = True
    users_send_syslog: bool = True
    log_host_folders: frozenset[str] = frozenset()

    def is_another(self, sender: str, host: str | None, *, of_controller: bool) -> bool:
        """Did ``sender`` write in the name of another host? ``of_controller``: ``host`` is known to be one, and lines in
        its name count only from its own addresses."""
        if sender in self.relays or self.controllers.get(sender) == host:
            return False
        node = self.nodes.get(sender)
        return of_controller if node is None else node != host

    def is_own(self, sender: str, host: str | None) -> bool:
        """Is ``sender`` known to be an address of ``host``?"""
        return host is not None and host in (self.nodes.get(sender), self.controllers.get(sender))

    def is_separate(self, sender: str, host: str | None, source: str | None) -> bool:
        """May a line be a copy only of lines from the same address? Otherwise whoever repeats a true line in another's
        name would take it over."""
        return self.is_another(sender, host, of_controller=source == "slurmctld" or host in self.named)

    def allowed(self, controllers: Iterable[str]) -> set[tuple[str, str]]:
        """(address, host) pairs whose lines count in a controller's name; those of ``relays`` count for each."""
        hosts = set(controllers)
        own = {(a, h) for a, h in (*self.nodes.items(), *self.controllers.items()) if h in hosts}
        return own | {(a, h) for a in self.relays for h in hosts}


#: No address is known.
NOBODY = Senders()


def senders(
    settings: Iterable[Mapping[str, Any]],
    overrides: Mapping[str, object] | None = None,
    agents: Mapping[str, str] | None = None,
) -> Senders:
    """By slurm.conf, Slurm's answers and what the service looked up. ``overrides``: the site's own settings; ``agents``:
    the host of each address from which an agent reports."""
    settings = list(settings)
    nodes = {**(agents or {}), **_of_nodes(settings)}
    write, send = (bool((overrides or {}).get(name, True)) for name in (USERS_SETTING, SENDING_SETTING))
    return Senders(nodes, _of_controllers(settings), relays(overrides), controllers(settings), write, send)


def controllers(settings: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The machines that slurm.conf names as controllers."""
    return frozenset(host for r in settings for host, _ in of_setting(str(r["name"] or ""), str(r["value"] or "")))


def configured_nodes(settings: Iterable[Mapping[str, Any]]) -> set[str]:
    """The compute nodes of slurm.conf."""
    return {node for row in settings for node in defined_nodes(str(row["name"] or ""))}


def relays(overrides: Mapping[str, object] | None) -> frozenset[str]:
    """The addresses of the site's relays. Raises ``ValueError`` for one that is none, and for too many."""
    given = (overrides or {}).get(RELAYS_SETTING) or ()
    if not isinstance(given, Iterable):
        raise ValueError("relays is a list of addresses")
    found: set[str] = set()
    for text in given:
        network = ip_network(str(text), strict=False)
        if network.num_addresses > MOST_RELAYS:
            raise ValueError(f"relays: {text} has more than {MOST_RELAYS} addresses; name those that forward lines")
        found.update(map(str, network))
    if len(found) > MOST_RELAYS:
        raise ValueError(f"relays: more than {MOST_RELAYS} addresses")
    return frozenset(found)


def addresses_of_agents(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The host of each address, by rows of ``address`` and ``host``. An address from which several hosts report is a
    proxy's."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        found[row["address"]].add(row["host"])
    return {address: next(iter(hosts)) for address, hosts in found.items() if len(hosts) == 1}


def _of_nodes(settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in settings:
        scope, name, value = str(row["scope"] or ""), str(row["name"] or ""), str(row["value"] or "")
        if scope.startswith("node:"):
            found[value] = scope[5:]
        elif scope == ALIAS:
            found[name] = value
        else:
            found.update((address, node) for node, address in addresses(name, value))
    return found


def _of_controllers(settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    values: dict[str, str] = {}
    for row in settings:
        name, value = str(row["name"] or ""), str(row["value"] or "")
        if row["scope"] == ADDRESS:
            found[name] = value
        elif named := of_setting(name, value):
            values[name] = named[0][0]
            found.update((address, host) for host, address in named if address)
        else:
            values.setdefault(name, value)
    for name, address in CONTROLLERS.items():
        if address is not None and name in values and values.get(address):
            found[values[address]] = values[name]
    return found
