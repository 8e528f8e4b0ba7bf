"""What a report is: a name and a function that builds its sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queries.reports.model import Section
from queries.reports.reader import Reader


@dataclass(frozen=True)
class Report:
    """A kind of report. ``build`` reads through a ``Reader``, which knows the store and the period."""

    name: str
    title: str
    description: str
    build: Callable[[Reader], Sequence[Section]]
