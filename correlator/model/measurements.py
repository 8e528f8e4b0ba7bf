"""Telemetry about GPUs, as values."""

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
