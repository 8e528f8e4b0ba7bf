"""Whose address sent an event over syslog, as far as the store knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import polars as pl

from correlator.model.nouns import Event
from correlator.site.senders import Senders, addresses_of_agents, senders
from store.door import Asks
from store.errors import NoSuchTable
from store.questions import intake


def read_senders(
    store: Asks,
    cluster: str | None,
    lines: pl.DataFrame,
    settings: Iterable[Mapping[str, Any]],
    overrides: Mapping[str, object] | None,
) -> Senders:
    """The known addresses. Those of agents are only read if one of ``lines`` came over syslog."""
    is_needed = bool(lines["entities"].str.contains('"sender"', literal=True).any())
    return senders(settings, overrides, _agents(store, cluster) if is_needed else {})


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
