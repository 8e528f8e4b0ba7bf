"""A lemon is a node on which one kind of fault recurs more often than chance explains."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.incidents.lemons import counts, risk, suspects, tail


def incident(host: str, job: int, event: str = "gpu.xid", severity: str = "impact") -> dict[str, Any]:
    return {"id": f"I-{host}-{job}", "root_cause": {"event": event, "host": host}, "severity": severity,
            "jobs": [{"job_id": str(job)}], "hosts": [host]}  # fmt: skip


ORDINARY = [incident(f"n{i}", 100 + i) for i in range(4)]


@pytest.mark.parametrize(
    ("found", "nodes", "named"),
    [
        pytest.param([incident("n9", j) for j in (1, 2, 3)], 32, ["n9"], id="three of one kind on one node"),
        pytest.param([incident("n9", j) for j in (1, 2)], 32, [], id="two may be bad luck"),
        pytest.param([incident("n9", j) for j in (1, 2, 3)], 4, [], id="a handful of nodes proves nothing"),
        pytest.param([incident("n9", 1) for _ in range(5)], 32, [], id="one job that failed five times is one"),
        pytest.param([incident("n9", j, "app.error") for j in (1, 2, 3)], 32, [], id="people's own faults"),
        pytest.param([incident("n9", j, severity="benign") for j in (1, 2, 3)], 32, [], id="nobody was hurt"),
        pytest.param([incident("n9", 1), incident("n9", 2, "nic.link_down"), incident("n9", 3, "node.panic")], 32, [], id="three unrelated troubles"),
        pytest.param([incident(f"n{i}", j * 40 + i) for i in range(20) for j in (1, 2, 3)], 20, [], id="where all have three, three is ordinary"),
    ],
)  # fmt: skip
def test_who_is_named(found: list[dict[str, Any]], nodes: int, named: list[str]) -> None:
    assert suspects([*ORDINARY, *found], nodes) == named


def test_the_tail_is_a_probability_that_falls() -> None:
    values = [tail(n, 4, 30) for n in range(8)]
    assert values[0] == 1.0 and all(a > b > 0 for a, b in zip(values, values[1:], strict=False))  # noqa: RUF007
    # With much history about ordinary nodes it is Poisson's: 1 - e^-0.1 (1 + 0.1) = 0.00468
    assert tail(2, 100_000, 1_000_000) == pytest.approx(0.00468, rel=0.01)


def test_risk_shows_why() -> None:
    (row,) = risk([*ORDINARY, *(incident("n9", j) for j in (1, 2, 3))], 32)["n9"]
    assert (row["incidents"], row["lemon"]) == (3, True)
    assert row["expected"] == pytest.approx(4.5 / 31, abs=1e-3) and row["probability"] < 1e-3
    assert counts(ORDINARY) == {(f"n{i}", "gpu"): 1 for i in range(4)}
