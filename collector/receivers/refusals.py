"""Why input is not accepted: the answer to a sender, a batch that is set aside, an address that cannot be used."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818  (an answer)
    """The request is answered with ``status`` and the reason; nothing is stored."""

    def __init__(self, status: int, text: str, do: str = "") -> None:
        super().__init__(text)
        self.status, self.text, self.do = status, text, do


def too_many(what: str, most: int) -> Refused:
    """The refusal of a body with more than ``most`` of ``what``."""
    return Refused(413, f"more than {most:,} {what}", "Send smaller batches.")


class Poison(ValueError):  # noqa: N818  (a property of a batch)
    """A payload that cannot be read at all: it is set aside whole."""


class ListenFailed(Exception):  # noqa: N818
    """An address cannot be listened on; the text gives the address, the reason and the cure."""
