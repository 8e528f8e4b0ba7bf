"""What a stretch of time needs of the store: the rows of that stretch."""

from __future__ import annotations

from correlator.model.moments import moment_of
from store.questions.source import Source


def since(moment: float) -> Source:
    """Rows from a moment on (epoch seconds): log lines and samples before it are not there, nor are those without a time."""
    return Source(moment_of(moment))
