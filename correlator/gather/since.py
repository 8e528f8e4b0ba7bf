"""Selects the rows of a time window."""

from __future__ import annotations

from correlator.model.moments import moment_of
from store.questions.source import Source


def since(moment: float) -> Source:
    """Rows from a moment (epoch seconds) on, without earlier log lines and samples and without those that have no time."""
    return Source(moment_of(moment))
