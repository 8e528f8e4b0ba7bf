"""Protocols that are received: one file each, listed here.

A third party's receiver is an entry point of the group ``faultline.receivers`` that names a :class:`base.Receiver`.
"""

from __future__ import annotations

import importlib
import logging
from functools import lru_cache
from importlib.metadata import entry_points

from collector.receivers.base import Receiver

_BUILT_IN = ("ndjson", "syslog", "otlp", "elasticsearch", "loki", "journal_upload", "prometheus")


@lru_cache(maxsize=1)
def all_receivers() -> dict[str, Receiver]:
    """Every receiver by its kind; the built-in ones cannot be replaced, since spooled batches name them."""
    found: dict[str, Receiver] = {}
    for point in entry_points(group="faultline.receivers"):
        try:
            other = point.load()
        except Exception as error:  # a broken plug-in must not stop the others
            logging.getLogger(__name__).warning("receiver %s of %s does not load: %s", point.name, point.value, error)
            continue
        if isinstance(other, Receiver):
            found[other.kind] = other
    for name in _BUILT_IN:
        receiver: Receiver = importlib.import_module(f"collector.receivers.{name}").RECEIVER
        found[receiver.kind] = receiver
    return found
