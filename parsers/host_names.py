"""Names of hosts: which text is an address, and what a name is without its domain. The only place that says so.

Hosts are written in many ways: ``gpu01``, ``gpu01.cluster.example.org``, ``GPU01``, an address. Each caller asks one of
these questions and decides for itself whether case counts: DNS knows none, names of nodes have one.

A name is only text. Nothing here says who wrote it, nor that such a host exists: that is for whoever trusts it
(collector/senders.py for tokens and certificates, correlator/site for packets and files). So the rule never makes one name
of two hosts that may be different. What is no name with a domain stays whole: ``10.0.0.1`` and ``10.9.9.9`` are not both
``10``.

``store.functions.short_name`` is the same for SQL, and ``short_name_of`` for Polars; a test compares the three.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

import polars as pl

#: What has no domain to leave away, in the regular expressions of Python, RE2 and Rust: numbers and dots (no top-level
#: domain is a number: RFC 3696, 2), also with a port, and what has two colons, as IPv6 has. Damaged addresses as well.
WHOLE = r"^\.*[0-9][0-9.]*(?::[0-9]+)?$|:[^:]*:"
_WHOLE = re.compile(WHOLE.replace("$", r"\Z"))


def is_address(name: str) -> bool:
    """Is it an address of IPv4 or IPv6, complete and without a port?"""
    return _address(name) is not None


def is_loopback(name: str) -> bool:
    """Is it an address by which a machine reaches itself? A name such as ``localhost`` is none."""
    found = _address(name)
    return found is not None and found.is_loopback


@lru_cache(maxsize=65_536)
def short_name(name: str) -> str:
    """The name without its domain, in its own case. An address stays whole. What begins with a dot has none: "".

    >>> short_name("gpu01.cluster.example.org"), short_name("gpu01."), short_name("10.0.0.1"), short_name("fe80::1%eth0.7")
    ('gpu01', 'gpu01', '10.0.0.1', 'fe80::1%eth0.7')
    """
    return name if _WHOLE.search(name) else name.partition(".")[0]


def short_key(name: str) -> str:
    """The short name in lower case, to compare names of hosts by: DNS knows no case."""
    return short_name(name).lower()


def short_name_of(names: pl.Expr) -> pl.Expr:
    """``short_name`` of a column."""
    return pl.when(names.str.contains(WHOLE)).then(names).otherwise(names.str.extract(r"^([^.]*)"))


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None
