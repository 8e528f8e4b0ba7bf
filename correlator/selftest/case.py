"""One test of an edge: lines, jobs, and what must follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from correlator.model.nouns import Edge


@dataclass(frozen=True)
class Line:
    """A log line ``at`` seconds after the beginning. ``place``: the host, or for a job's output the job's number."""

    at: float
    place: str
    source: str
    text: str
    pid: str | None = None


@dataclass(frozen=True)
class Job:
    """A job's accounting; times in seconds after the beginning."""

    id: int
    nodes: str
    start: float
    end: float
    state: str
    exit_code: int | None = None
    signal: int | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cancelled_by: str | None = None


@dataclass(frozen=True)
class Case:
    """One test of an edge. ``number`` counts from 1; either ``lag`` or ``lines`` is given."""

    file: str
    edge: Edge
    number: int
    settings: Mapping[str, float]
    holds: bool
    lag: float | None = None
    lines: tuple[Line, ...] = ()
    jobs: tuple[Job, ...] = ()
    links: tuple[Mapping[str, str], ...] = ()
    why: str = ""

    @property
    def situation(self) -> str:
        """The content of a test without its expectations: tests with the same content share one conclusion."""
        return repr((self.lines, self.jobs, self.links, self.settings))

    def __str__(self) -> str:
        described = [f"lag {self.lag:g}s" if self.lag is not None else f"{len(self.lines)} lines"]
        return f"test {self.number} ({', '.join(described + [f'{n}={v:g}' for n, v in self.settings.items()])})"
