"""Looks up the addresses of the controllers that slurm.conf names.

Slurm resolves these names on every node. Lines that arrive over syslog in a controller's name count only from its own
addresses (``correlator/site/senders.py``), and most configurations name it without one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address

import polars as pl
import structlog

from correlator.site.senders import controllers
from store.door import Door
from store.questions import settling
from store.tables import SETTINGS

log = structlog.get_logger()

EVERY_S = 600


def addresses_of(name: str) -> set[str]:
    """The addresses of a host by the system's resolver; none if it does not know the name. A loopback address is every
    program's of this machine, and no proof."""
    try:
        found = {str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()
    return {address for address in found if not ip_address(address).is_loopback}


class ControllerAddresses:
    """Stores what the resolver says; ``resolve`` can be replaced by tests."""

    def __init__(self, store: Door, resolve: Callable[[str], Iterable[str]] = addresses_of) -> None:
        self._store, self._resolve = store, resolve
        self._unknown: set[str] = set()

    def look(self) -> None:
        """Adds addresses that are not stored yet. An address once stored stays: lines of then came from there."""
        settings = self._store.ask(settling.settings_about_hosts())
        known = {(r["cluster"], r["name"], r["value"]) for r in self._store.ask(settling.known_addresses())}
        new = []
        for cluster in {r["cluster"] for r in settings}:
            for host in sorted(controllers(r for r in settings if r["cluster"] == cluster)):
                found = set(self._resolve(host))
                if not found and host not in self._unknown:
                    self._unknown.add(host)
                    log.warning("the address of a controller is not known", host=host, do="name it in relays if it sends syslog itself")  # fmt: skip
                new += [row for address in sorted(found) if (row := (cluster, address, host)) not in known]
        if new:
            columns = dict(zip(("cluster", "name", "value"), map(list, zip(*new, strict=True)), strict=True))
            about = (pl.lit(settling.ADDRESS).alias("scope"), pl.lit("resolver").alias("source"))
            rows = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)).with_columns(about)
            with self._store.write() as writer:
                writer.insert(SETTINGS, rows)
