"""Builds the notification targets of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from faultline.config import Config
from faultline.notify import GROUP, notifiers
from faultline.notify.dispatch import Dispatcher, Target
from parsers import extensions

if TYPE_CHECKING:
    from store.door import Door


def dispatcher_of(config: Config, store: Door, alerts: Callable[[], Sequence[tuple[str, str]]]) -> Dispatcher:
    """The dispatcher for the targets of a configuration."""
    known = notifiers()
    targets = [
        Target(
            one.name or one.kind,
            known[one.kind].sender(one.options),
            one.severity,
            one.least_confidence,
            one.sources,
            one.forgeries,
            brought_by=extensions.brought_by(GROUP, one.kind),
        )
        for one in config.notify
    ]
    return Dispatcher(store, targets, config.pages, alerts)
