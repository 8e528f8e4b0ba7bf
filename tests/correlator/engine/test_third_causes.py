"""Faults of a real cluster by a third party (tests/cluster/endings_third.py) whose cause was missed at first."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.endings import judged
from tests.correlator.engine.test_liars import CAPTURES, unpacked

#: By capture and job: the category of the verdict, and the node to blame.
TRUE: dict[str, Mapping[str, tuple[str, str]]] = {
    "throttled_node_misses_the_limit": {"40": ("infra.node", "gpu02")},
    "shared_file_is_truncated": {"4": ("unknown", ""), "5": ("unknown", "")},
    "storage_errors_beside_dead_munge": {
        "25": ("infra.node", "gpu04"), "26": ("app.error", ""), "28": ("infra.storage", ""), "29": ("infra.storage", ""),
    },
    "wrong_interface_named": {"4": ("app.error", "")},
    "fabric_manager_dies": {"10": ("infra.gpu", "gpu03"), "12": ("infra.gpu", "gpu03"), "15": ("app.oom", "")},
}  # fmt: skip
QUICK = "throttled_node_misses_the_limit"


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == QUICK else pytest.mark.long) for n in TRUE])
def test_the_cause_is_found_or_left_open(name: str) -> None:
    with unpacked(CAPTURES / "third" / f"{name}.tar.xz") as place:
        found = {key: (category, host) for _, key, _, _, category, _, host, _ in judged(place) if category}
    assert found == TRUE[name]
