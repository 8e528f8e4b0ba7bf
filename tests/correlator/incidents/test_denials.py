"""Lines that do not count, as doubts of a verdict."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from correlator.incidents.rivals import DENIALS, denials


@pytest.mark.parametrize(
    ("further", "last"),
    [(0, None), (1, "1 further line in the kernel's name does not count either"), (2, "2 further lines in the kernel's name do not count either")],
)  # fmt: skip
def test_further_lines_are_counted_in_english(further: int, last: str | None) -> None:
    event = SimpleNamespace(file="syslog", source="kernel", kind="pcie.aer")
    one = SimpleNamespace(event=event, claim="pcie.aer", why="anybody could write it")
    verdict: Any = SimpleNamespace(denied=[one] * (DENIALS + further))
    found = denials(verdict)
    assert len(found) == DENIALS + bool(further) and (last is None or found[-1] == last)
