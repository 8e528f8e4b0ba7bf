"""The receivers of network protocols: one file each, listed here.

A third party's receiver is an entry point of the group ``faultline.receivers`` that names a :class:`base.Receiver`.
"""

from __future__ import annotations

import importlib
from functools import lru_cache

from collector.receivers.base import Receiver
from parsers import extensions

GROUP = "faultline.receivers"

_BUILT_IN = ("ndjson", "syslog", "otlp", "elasticsearch", "loki", "journal_upload", "prometheus")


@lru_cache(maxsize=1)
def all_receivers() -> dict[str, Receiver]:
    """Every receiver by its kind; built-in ones cannot be replaced, since spooled batches name them."""
    built_in: list[Receiver] = [
        importlib.import_module(f"collector.receivers.{name}").RECEIVER for name in _BUILT_IN
    ]  # fmt: skip
    return extensions.named(GROUP, Receiver, built_in, by="kind")
