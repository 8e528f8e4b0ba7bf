"""For all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher, Type
from hypothesis import settings

from tests.examples import FUZZ
from web.access import passwords

# The duration of an example shows how busy the machine is, and nothing about the code. The examples are the same on
# every machine: a test is red because of a change, never by chance. `make fuzz` searches for new ones and prints how to
# repeat them.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("fuzz", deadline=None, max_examples=FUZZ or 1_000, print_blob=True)
settings.load_profile("fuzz" if FUZZ else "fixed")

# A password costs a tenth of a second of CPU and 64 MiB, on purpose, and tests hash hundreds. The cost of the product's
# hasher is tested in web/test_access_attempts.py, which reloads the module.
passwords.HASHER = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, type=Type.ID)


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """A command that writes a store makes its files private from then on; the next test represents another process."""
    before = os.umask(0o022)
    yield
    os.umask(before)
