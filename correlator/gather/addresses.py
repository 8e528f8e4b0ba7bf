"""Whose address sent an event over syslog, as far as the store knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from correlator.model.nouns import Event
from correlator.site.open_lines import owner_of
from correlator.site.senders import Senders, addresses_of_agents, configured_nodes, senders
from parsers.host_names import short_key
from store.door import Asks
from store.errors import NoSuchTable
from store.questions import intake


def read_senders(
    store: Asks,
    cluster: str | None,
    lines: pl.DataFrame,
    settings: Iterable[Mapping[str, Any]],
    overrides: Mapping[str, object] | None,
    log_host_folders: frozenset[str] = frozenset(),
) -> Senders:
    """The known addresses. Those of agents are only read if one of ``lines`` came over syslog."""
    is_needed = bool(lines["entities"].str.contains('"sender"', literal=True).any())
    found = senders(settings, overrides, _agents(store, cluster) if is_needed else {})
    return replace(found, log_host_folders=log_host_folders)


def of_log_hosts(
    folders: Collection[str], nodes: Collection[str], settings: Iterable[Mapping[str, Any]]
) -> frozenset[str]:
    """Those of ``folders`` that belong to hosts on which no jobs run. In a node's syslog a user's message with a line end
    in it can look like a line of another host; so that shows no log host."""
    if not folders:
        return frozenset()
    computing = {short_key(node) for node in (*nodes, *configured_nodes(settings))}
    return frozenset(folder for folder in folders if owner_of(f"{folder}/") not in computing)


def are_of_agents(store: Asks, cluster: str | None, events: Iterable[Event], known: Senders) -> bool:
    """Did an address that ``known`` lacks send one of ``events``, and does an agent report from there?"""
    sent = {str(e.entities["sender"]) for e in events if "sender" in e.entities}
    new = {address for address in sent if address not in known.nodes and address not in known.relays}
    if not new:
        return False
    return bool(_agents(store, cluster, sorted(new)))


def _agents(store: Asks, cluster: str | None, addresses: Collection[str] | None = None) -> dict[str, str]:
    try:
        return addresses_of_agents(store.ask(intake.agents(cluster, addresses)))
    except NoSuchTable:  # a store that was only ever loaded from files
        return {}
