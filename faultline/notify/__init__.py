"""Notifies people and programs of incidents and of sources that fell silent."""

from __future__ import annotations

from functools import cache

from faultline.notify import alertmanager, command, email, webhook
from faultline.notify.kind import Notifier
from parsers import extensions

GROUP = "faultline.notifiers"

#: The notifiers that come with Faultline. A new one is a module and a line here.
BUILT_IN = (webhook.NOTIFIER, alertmanager.NOTIFIER, command.NOTIFIER, email.NOTIFIER)


@cache
def notifiers() -> dict[str, Notifier]:
    """Notifiers by name. A third party's cannot replace a built-in one."""
    return extensions.named(GROUP, Notifier, BUILT_IN)
