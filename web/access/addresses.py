"""Client addresses: in one spelling, as a set of networks, and as the range that one household or host has."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

#: A host has at least this much of IPv6 for itself and may use each address in it (RFC 6177, RFC 8981).
HOST_PREFIX = 64


def plain(address: str) -> str:
    """One spelling: a socket that listens on both families names an IPv4 address ``::ffff:10.0.0.1``."""
    found = _parsed(address)
    return str(found) if found is not None else address


def of_one(address: str) -> str:
    """What counts as one sender: an IPv4 address, the /64 of an IPv6 address, else the text itself."""
    found = _parsed(address)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((int(found) >> 64 << 64, HOST_PREFIX)))
    return str(found) if found is not None else address


def is_loopback(address: str) -> bool:
    """Is it an address of this machine only, or the name of one? No other name is resolved."""
    found = _parsed(address)
    return address.lower() == "localhost" if found is None else found.is_loopback


class Networks:
    """Addresses and networks, such as 10.0.0.1 and fd00::/8. Raises ``ValueError`` for invalid ones."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        for text in given:
            try:
                self._networks.append(ip_network(text))
            except ValueError as error:
                raise ValueError(f"{text!r} is no address and no network; write 10.0.0.1 or 10.0.0.0/8") from error

    def __contains__(self, address: object) -> bool:
        found = _parsed(address) if isinstance(address, str) else None
        return found is not None and any(found in network for network in self._networks)

    def __bool__(self) -> bool:
        return bool(self._networks)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
