"""Paths of the command line."""

from __future__ import annotations

from pathlib import Path

from faultline.failure import CommandError


def named_path(text: str) -> Path:
    """The path that was given. Raises ``CommandError`` for an empty one: it comes from a variable that is not set, and would
    be the current folder."""
    if not text:
        raise CommandError("an empty path was given; name a file or a folder, the current one is .")
    return Path(text)
