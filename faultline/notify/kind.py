"""Defines notifiers. A new one is a file that defines ``NOTIFIER`` and a line in ``faultline.notify``; a third party's
uses the entry point group ``faultline.notifiers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from faultline.notify.message import Message

#: A receiver that does not answer within this many seconds has not been notified.
TIMEOUT_S = 10.0

Send = Callable[[Message], None]


class OptionError(ValueError):
    """An option is missing, unknown or invalid; the text names it."""


@dataclass(frozen=True)
class Notifier:
    """``make(options)`` validates the options (``OptionError``) and returns a function that sends one message: it
    returns once the message is accepted, and raises anything otherwise. ``options``: name -> default; None marks a
    required one."""

    name: str
    what: str
    options: Mapping[str, Any]
    make: Callable[[Mapping[str, Any]], Send]

    def sender(self, given: Mapping[str, Any]) -> Send:
        """Raises ``OptionError``."""
        for name, value in given.items():
            if name not in self.options:
                raise OptionError(f"options.{name}: unknown; {self.name} knows {', '.join(self.options)}")
            default = self.options[name]
            if default is not None and type(value) is not type(default):
                raise OptionError(f"options.{name}: must be a {type(default).__name__}, such as {default!r}")
        for name, default in self.options.items():
            if default is None and not given.get(name):
                raise OptionError(f"options.{name}: missing")
        return self.make({**self.options, **given})
