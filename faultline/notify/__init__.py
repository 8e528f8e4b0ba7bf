"""Telling people and programs of incidents and of sources that fell silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from faultline.notify import alertmanager, command, email, webhook
from faultline.notify.kind import Notifier
from faultline.notify.telling import Target, Telling

if TYPE_CHECKING:
    from faultline.config import Config
    from store.duckdb_store import DuckStore

GROUP = "faultline.notifiers"

#: The notifiers that come with Faultline. A new one is a module and a line here.
BUILT_IN = (webhook.NOTIFIER, alertmanager.NOTIFIER, command.NOTIFIER, email.NOTIFIER)


def notifiers() -> dict[str, Notifier]:
    """By name. A third party's cannot take the place of one of ours."""
    found = {notifier.name: notifier for notifier in BUILT_IN}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        notifier = point.load()
        found.setdefault(notifier.name, notifier)
    return found


def telling_of(config: Config, store: DuckStore, alerts: Callable[[], Sequence[tuple[str, str]]]) -> Telling:
    """The targets of a configuration."""
    known = notifiers()
    targets = [
        Target(
            one.name or one.kind, known[one.kind].sender(one.options), one.severity, one.least_confidence, one.sources
        )
        for one in config.notify
    ]
    return Telling(store, targets, config.pages, alerts)
