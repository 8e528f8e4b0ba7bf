"""The output of commands goes through here: untrusted text cannot control the terminal. Imports little, since every
command starts here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from parsers.visible import visible


class Shown:
    """A text stream for people: characters of untrusted text that would affect the terminal are escaped."""

    def __init__(self, exact: Any) -> None:
        self.exact = exact

    def write(self, text: str) -> int:
        self.exact.write(visible(text))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Inside, all output goes through ``Shown``."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Shown(exact(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def exact(stream: Any) -> Any:
    """The underlying stream: for colours of our own, and for formats that programs read."""
    return stream.exact if isinstance(stream, Shown) else stream


def write_exact(text: str) -> None:
    """Writes output for programs, byte for byte; on a terminal it is escaped, since people read it."""
    (sys.stdout if sys.stdout.isatty() else exact(sys.stdout)).write(text)
