"""The receivers of network protocols: one file each, listed here.

A third party's receiver is an entry point of the group ``faultline.receivers`` that names a :class:`base.Receiver`.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache

from collector.receivers.base import Receiver, Route
from parsers import extensions

GROUP = "faultline.receivers"

_BUILT_IN = ("ndjson", "syslog", "otlp", "elasticsearch", "loki", "journal_upload", "prometheus")


@lru_cache(maxsize=1)
def all_receivers() -> dict[str, Receiver]:
    """Every receiver by its kind; built-in ones cannot be replaced, since spooled batches name them."""
    built_in: list[Receiver] = [
        importlib.import_module(f"collector.receivers.{name}").RECEIVER for name in _BUILT_IN
    ]  # fmt: skip
    served = {route: receiver.kind for receiver in built_in for route in receiver.routes}

    def check(receiver: Receiver) -> None:
        for route in receiver.routes:
            if kind := next((kind for other, kind in served.items() if _overlap(route, other)), None):
                raise ValueError(f"its route {route.pattern!r} is served by the receiver {kind!r}")
        served.update(dict.fromkeys(receiver.routes, receiver.kind))

    return extensions.named(GROUP, Receiver, built_in, by="kind", check=check)


def _overlap(one: Route, other: Route) -> bool:
    """Do both serve a path? Known if one of the patterns is a plain path: most are."""
    if not {*one.methods} & {*other.methods}:
        return False
    return any(re.fullmatch(a.pattern, b.pattern) is not None for a, b in ((one, other), (other, one)))
