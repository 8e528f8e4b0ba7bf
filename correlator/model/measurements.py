"""Measurements as values: telemetry about GPUs, and what is asked about runs that reached their time limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Throttled:
    """A GPU throttled by heat in every sample from ``first`` to ``last``.

    ``before`` and ``after`` are the samples next to them.
    """

    host: str
    gpu: str
    first: float
    last: float
    before: float | None
    after: float | None
    samples: int


@dataclass(frozen=True)
class XidSeen:
    """An Xid that telemetry saw appear on a GPU between two samples."""

    host: str
    gpu: str
    code: int
    before: float
    seen: float


@dataclass(frozen=True)
class Output:
    """When the programs of a job wrote to its output (epoch seconds, ascending; the last line of each minute).

    ``stamps`` are of lines with a time. Lines without one had been read by the times in ``read_by``: they are not
    younger. ``undated``: a file ends with lines of which nothing gives the time.
    """

    stamps: tuple[float, ...] = ()
    read_by: tuple[float, ...] = ()
    undated: bool = False


@dataclass(frozen=True)
class Worked:
    """When the GPUs of a run worked, and when its nodes last moved data (epoch seconds; ``moved`` None: never, or not
    measured). ``since`` and ``until``: the first minute of work and the last one, ``pause`` the longest between two.
    ``measured``: the last sample. ``everywhere``: all nodes of the run are measured."""

    since: float
    until: float
    pause: float
    measured: float
    everywhere: bool
    moved: float | None = None


@dataclass(frozen=True)
class NewLimit:
    """A job's time limit was set to ``seconds`` at ``time``; ``uid`` asked for it, None if no line says who."""

    time: float
    seconds: float
    uid: str | None
