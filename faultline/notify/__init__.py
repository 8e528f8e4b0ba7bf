"""Telling people and programs of incidents and of sources that fell silent."""

from __future__ import annotations

from faultline.notify import alertmanager, command, email, webhook
from faultline.notify.kind import Notifier
from parsers import plugins

GROUP = "faultline.notifiers"

#: The notifiers that come with Faultline. A new one is a module and a line here.
BUILT_IN = (webhook.NOTIFIER, alertmanager.NOTIFIER, command.NOTIFIER, email.NOTIFIER)


def notifiers() -> dict[str, Notifier]:
    """By name. A third party's cannot take the place of one of ours."""
    found = {notifier.name: notifier for notifier in BUILT_IN}
    for point in plugins.installed(GROUP):
        notifier = point.load()
        found.setdefault(notifier.name, notifier)
    return found
