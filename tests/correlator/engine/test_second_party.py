"""Faults of a real cluster whose truth somebody wrote before each run who had not read the correlator
(tests/cluster/endings_second.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks.endings import judged
from tests.correlator.engine.test_liars import CAPTURES, unpacked

ARCHIVES = sorted((CAPTURES / "second").glob("*.tar.xz"))
#: Nothing else may be said of them than that nobody but their program is to blame, or that it is unknown.
MISSED = {
    ("boots_without_its_software", "55"): "a later run on the node was well, after its repair",
    ("boots_without_its_software", "56"): "a later run on the node was well, after its repair",
}
#: No log tells of the cause.
UNKNOWN = {
    ("cleanup_of_site_kills_wrong_job", "51"), ("fabric_address_lost", "46"), ("fabric_address_lost", "47"),
    ("gpu_lost_beside_wrong_number", "69"), ("one_of_four_dies", "36"), ("two_nodes_of_a_switch_lost", "33"),
}  # fmt: skip
QUICK = {"gpu_lost_beside_wrong_number", "hosts_file_of_old_network"}


@cache
def outcomes(archive: Path) -> dict[str, str]:
    """The outcome of each job's last run that has a verdict."""
    with unpacked(archive) as place:
        return {key.split("#")[0]: outcome for outcome, key, *_ in judged(place) if outcome != "without a verdict"}


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(p, id=p.name.split(".")[0], marks=() if p.name.split(".")[0] in QUICK else pytest.mark.long)
        for p in ARCHIVES
    ],
)
def test_the_verdicts_are_the_truth_of_a_second_party(archive: Path) -> None:
    name = archive.name.split(".")[0]
    found = {job: outcome for job, outcome in outcomes(archive).items() if outcome != "right"}
    expected = {job: "unknown" for of, job in UNKNOWN if of == name}
    expected |= {job: "wrong, nobody blamed" for of, job in MISSED if of == name}
    assert found == expected


def test_there_are_such_captures() -> None:
    assert len(ARCHIVES) == 18
