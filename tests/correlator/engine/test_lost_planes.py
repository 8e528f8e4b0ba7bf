"""A port or a switch of one plane: it costs bandwidth in proportion to its share, not the run."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.evidence.weigh import Weigher
from correlator.incidents.incidents import gather
from tests.correlator.making import run
from tests.correlator.situations import EDGES, LINKS, down, judged, over_planes, said

LOST = down(0, "n1", "rdma0")


@pytest.mark.parametrize(
    ("lines", "more", "expected"),
    [
        (LOST, {}, ("infra.network", "link.outage", "n1")),
        (LOST, {"planes": 2, "pace": 4.2}, ("infra.network", "link.outage", "n1")),
        ([*LOST, *down(30, "n1", "rdma1")], {"pace": 4.2}, ("infra.network", "link.outage", "n1")),
        (LOST, {"pace": 4.2}, ("app.timeout", None, None)),
        (LOST, {"planes": 8}, ("app.timeout", None, None)),
        (LOST, {"planes": 1}, ("app.timeout", None, None)),
        ([e for i in range(1, 6) for e in down(i / 10, f"n{i}", "ib0")], {"links": LINKS}, ("infra.network", "switch.outage", "leaf-p1")),
        (down(0, "n1", "rdma0", 90), {}, ("app.timeout", None, None)),
        (down(0, "n1", "eth0"), {}, ("app.timeout", None, None)),
        (down(0, "n3", "rdma0"), {}, ("app.timeout", None, None)),
        (down(900, "n1", "rdma0"), {}, ("app.timeout", None, None)),
    ],
    ids=["one of four", "one of two", "two of four", "slower than one of four can cost", "slower than one of eight can cost", "nothing tells of planes", "a whole plane",
         "back while it stayed slow", "Slurm's own link", "a node of somebody else", "lost long after it became slow"],
)  # fmt: skip
def test_what_a_lost_plane_costs(lines: list[Any], more: dict[str, Any], expected: tuple[str, str | None, str | None]) -> None:  # fmt: skip
    assert said(judged(over_planes(lines, **more))["1"]) == expected


def test_others_that_kept_their_pace_speak_against_the_port() -> None:
    """Five other runs use the planes of this node as well, and none of them became slower."""
    others = [run(i, ("n1", f"n{i}"), -2000, 3000, "COMPLETED") for i in range(3, 8)]
    lone, beside = (judged(over_planes(LOST, others=o))["1"] for o in (None, others))
    assert lone.root is not None and beside.root is None and beside.category == "app.timeout"


def test_a_run_that_ended_in_time_was_slowed() -> None:
    where = over_planes(LOST)
    where.runs[0].state = "COMPLETED"
    where.facts[:] = [f for f in where.facts if not f.kind.startswith("run.")]
    (incident,) = gather(where, Weigher(where, EDGES), [])
    assert (incident.severity, incident.root.device, [r.key for r in incident.slowed]) == ("degraded", "rdma0", ["1"])
