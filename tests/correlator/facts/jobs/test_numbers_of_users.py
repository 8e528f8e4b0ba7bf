"""Numbers that users write into a job's environment: no value stops a pass or changes another job's verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from correlator.engine import correlate
from correlator.facts.jobs.output import logged_timeout
from correlator.site.site import Site
from parsers.record import frame
from store import open_store
from tests.correlator.engine.test_captures import ROOT
from tests.correlator.making import event
from tests.correlator.rows import answer, rows_of

NAMES = ("NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "TORCH_DIST_TIMEOUT_SEC", "NCCL_NUM_PATHS")
HOSTILE = ("99999", "1e308", "inf", "-inf", "nan", "-5", "1" * 5000, "")


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_that_no_library_takes_is_not_used(value: str) -> None:
    site = Site("c", {}, {"7": dict.fromkeys(NAMES, value)})
    assert all(0 <= one.low <= one.high <= 604_800 for one in site.values_for("7").values())
    assert site.planes_of("7") == 1


def test_a_value_that_a_library_takes_is_used() -> None:
    site = Site("c", {}, {"7": dict(zip(NAMES, ("22", "3", "900", "4"), strict=True))})
    assert [site.values_for("7")[name].high for name in NAMES[:3]] == [22, 3, 900] and site.planes_of("7") == 4


@pytest.mark.parametrize("value", ["99999", "inf"])
def test_no_environment_stops_a_pass_or_changes_the_verdict_of_another_job(value: str) -> None:
    """Found by reading: two to the power of 99999 raised in every pass of the engine, for all jobs."""
    rows = rows_of(ROOT / "tests" / "captures" / "fabric_flap_decoy")
    alone = _verdicts(rows, {})
    (*_, forger) = sorted(alone)
    written = {
        "cluster": rows["jobs"]["cluster"][0],
        "scope": f"job:{forger}",
        "source": "job",
        "file": "env",
        "line": 1,
        "value": value,
    }
    among = _verdicts(rows, {"settings": frame("settings", [{**written, "name": name} for name in NAMES])})
    assert alone.keys() == among.keys() and len(alone) > 1
    for run, verdict in alone.items():
        assert among[run]["category"] == verdict["category"]
        assert run == forger or among[run]["confidence"] == verdict["confidence"]


def _verdicts(rows: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    with open_store(None) as store:
        store.add(rows)
        store.add(more)
        correlate(store)
        found: dict[str, Any] = json.loads(answer(store))["verdicts"]
        return found


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Timeout(ms)=600000", 600.0),
        ("Timeout(ms)=" + 400 * "9", None),
        ("Timeout(ms)=90000000000", None),
        ("nothing from gpu02 for 99999999 s", None),
        ("nothing from gpu02 for 30 s", 30.0),
    ],
)
def test_a_timeout_that_nobody_waits_for_does_not_reach_back_for_years(message: str, seconds: float | None) -> None:
    assert logged_timeout([event("job.nccl_timeout", 0.0, message=message, source="job_stderr", job_id=1)]) == seconds
