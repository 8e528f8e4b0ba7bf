"""What a test measured, for a person: pytest prints it at the end of a run, also from parallel processes."""

from __future__ import annotations

from typing import Protocol

#: The property of a test's report that holds such a text.
PROPERTY = "measured"


class Measured(Protocol):
    """The fixture ``measured`` of tests/conftest.py."""

    def __call__(self, text: str) -> None:
        """Adds a text to the test's report."""
