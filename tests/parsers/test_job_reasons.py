"""Slurm's reasons for the state of a job: their names, and that every form of accounting keeps them."""

from __future__ import annotations

import pytest

from parsers.documents.fields import present
from parsers.job_reasons import JOB_REASONS, Meaning, meaning_of, reason_named


@pytest.mark.parametrize(("text", "name", "meaning"), [
    ("JobHoldMaxRequeue", "JobHoldMaxRequeue", Meaning.HELD), ("dependency", "Dependency", Meaning.WAITS),
    (" AssocGrpGRES ", "AssocGrpGRES", Meaning.LIMITED), ("QOSMaxCpuMinutesPerJobLimit", "QOSMaxCpuMinutesPerJobLimit", Meaning.LIMITED),
    ("DeadLine", "DeadLine", Meaning.ENDED), ("None", "None", Meaning.NONE), ("launch_failed_requeued_held", None, Meaning.NONE),
    (None, None, Meaning.NONE), ("", None, Meaning.NONE),
])  # fmt: skip
def test_what_a_reason_says(text: str | None, name: str | None, meaning: Meaning) -> None:
    assert (reason_named(text), meaning_of(text)) == (name, meaning)


def test_names_are_those_that_slurm_prints() -> None:
    """Slurm prints no limit of licences on a node, and calls one limit of a QOS as that of an association."""
    assert len({name.lower() for name in JOB_REASONS}) == len(JOB_REASONS) > 190
    assert all(name.isalpha() for name in JOB_REASONS)
    assert not {"AssocMaxLicensePerNode", "QOSMaxLicensePerNode", "QOSMaxBBMinutesPerJob"} & JOB_REASONS.keys()


def test_no_reason_is_taken_for_nothing() -> None:
    assert [name for name in JOB_REASONS if present(name) is None] == ["None"]
