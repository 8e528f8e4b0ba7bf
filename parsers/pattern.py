"""One entry of the catalogue as a value: which text means which event. ``patterns.py`` loads entries from files and
matches them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from parsers import speakers
from parsers.record import JOB_OUTPUT

BUILT_IN = Path(__file__).with_name("catalogue")


#: Names for groups of sources in ``sources``.
GROUPS = {
    "slurm": ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "slurmstepd", "sackd"),
    "job": (*JOB_OUTPUT, "job_output"),
}


@dataclass(frozen=True)
class Example:
    """A message that an entry must match, seen in a line of ``source``, giving at least ``entities``."""

    text: str
    entities: dict[str, Any] = field(default_factory=dict)
    source: str | None = None


@dataclass(frozen=True)
class Pattern:
    """One entry. ``order`` is its rank among all: smaller is tried first."""

    id: str
    event: str
    literals: tuple[str, ...]
    regexes: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None
    sources: frozenset[str]
    severity: str | None
    fixed: dict[str, Any]
    priority: int
    advice: str | None
    reference: str | None
    examples: tuple[Example, ...]
    counters: tuple[str, ...]
    tags: tuple[str, ...]
    file: str
    order: int = 0
    after: re.Pattern[str] | None = None

    @cached_property
    def of_site(self) -> bool:
        """Whether it is a site's own that lists its sources itself."""
        return bool(self.sources) and Path(self.file).parent != BUILT_IN

    @cached_property
    def anywhere(self) -> bool:
        """Whether it is a site's own, whose regex may match anywhere in a message."""
        return Path(self.file).parent != BUILT_IN

    @cached_property
    def of_job(self) -> bool:
        """Whether job output may mean it; otherwise such a line only claims it (parsers/authority.py)."""
        return speakers.may_speak("job", self.event) or not self.sources.isdisjoint(GROUPS["job"])

    @cached_property
    def claim(self) -> Pattern:
        """What a line means that claims what this says (parsers/authority.py): nothing, and which claim it is."""
        if self.event == "other":
            return self
        return replace(self, event="other", severity=None, tags=(speakers.CLAIMS + self.event,))

    def fits(self, source: str | None) -> bool:
        """Whether a line of ``source`` may mean this; a line of unknown source may have any."""
        return not self.sources or source is None or source in self.sources
