"""What the lines of a batch mean, as one value that is passed between the steps that work it out."""

from __future__ import annotations

from typing import NamedTuple

from parsers.pattern import Pattern

#: Number of a line in its batch -> its tags.
Tags = dict[int, tuple[str, ...]]


class Events(NamedTuple):
    """What ``lines`` say: ``texts`` (entities as JSON) and numbers of jobs; line ``with_event[i]`` means ``entries[i]``."""

    lines: list[int]
    texts: list[str | None]
    jobs: list[int | None]
    with_event: list[int]
    entries: list[Pattern]
    tags: Tags
