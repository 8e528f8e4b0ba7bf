"""The meaning of a batch's lines, as one value that is passed between the steps that compute it."""

from __future__ import annotations

from typing import NamedTuple

from parsers.pattern import Pattern

#: Index of a line in its batch -> its tags.
Tags = dict[int, tuple[str, ...]]


class Events(NamedTuple):
    """The meaning of ``lines``: ``texts`` (entities as JSON) and job IDs; line ``with_event[i]`` means
    ``entries[i]``."""

    lines: list[int]
    texts: list[str | None]
    jobs: list[int | None]
    with_event: list[int]
    entries: list[Pattern]
    tags: Tags
