"""Protocols that are received: one file each, listed here.

A third party's receiver is an entry point of the group ``faultline.receivers`` that names a :class:`base.Receiver`.
"""

from __future__ import annotations

import importlib
from functools import lru_cache

from collector.receivers.base import Receiver
from parsers import plugins

_BUILT_IN = ("ndjson", "syslog", "otlp", "elasticsearch", "loki", "journal_upload", "prometheus")


@lru_cache(maxsize=1)
def all_receivers() -> dict[str, Receiver]:
    """Every receiver by its kind; the built-in ones cannot be replaced, since spooled batches name them."""
    found: dict[str, Receiver] = {}
    for _, other in plugins.loaded("faultline.receivers"):
        if isinstance(other, Receiver):
            found[other.kind] = other
    for name in _BUILT_IN:
        receiver: Receiver = importlib.import_module(f"collector.receivers.{name}").RECEIVER
        found[receiver.kind] = receiver
    return found
