"""For all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing about the code. The examples are the same on every
# machine: a test is red because of a change, never by chance. `make fuzz` looks for new ones and prints how to repeat them.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("fuzz" if os.environ.get("FAULTLINE_FUZZ") else "fixed")


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """A command that writes a store keeps its files to itself from then on; the next test stands for another process."""
    before = os.umask(0o022)
    yield
    os.umask(before)
