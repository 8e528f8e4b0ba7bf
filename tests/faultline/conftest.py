"""For the tests of the service and of its commands."""

from __future__ import annotations

import pytest

from correlator.selftest import situations


@pytest.fixture(autouse=True)
def _edges_are_tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """``faultline check`` runs the tests that edges carry, seven seconds of CPU.

    They pass or fail in ``tests/correlator/selftest/test_edge_tests.py``, which also shows that ``check`` runs them and fails
    with them.
    """
    monkeypatch.setattr(situations, "outcomes_of_lines", lambda *_: iter(()))
