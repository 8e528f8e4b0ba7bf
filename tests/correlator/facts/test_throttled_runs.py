"""Time limits that runs missed on nodes that were throttled by heat: the node's if the same program was quicker elsewhere,
left open if nothing compares them, the program's if it was not throttled for most of its time."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.facts.world import World
from correlator.model.nouns import Event, Run
from tests.correlator.making import T0, event, facts, run, world
from tests.correlator.situations import judged, said

COMMAND = "sbatch -J work -w {} -t 60 work.sh"


def job(number: int, node: str, lasted: float, state: str = "TIMEOUT", end: float = 3600.0, **row: Any) -> Run:
    more = {"user": "bob", "name": "work", "submit_line": COMMAND.format(node), "time_limit_s": 3600} | row
    return run(number, [node], end - lasted, end, state, **more)


def throttled(first: float = 60.0, last: float = 3540.0, host: str = "n2") -> list[Event]:
    """The kernel's line every five minutes, with the count of throttlings."""
    text = "CPU3: Package temperature above threshold, cpu clock throttled (total events = {})"
    times = [first + 300.0 * n for n in range(int((last - first) // 300.0) + 1)]
    return [event("kernel.thermal", at, host, text.format(n * 900 + 1), total_events=n * 900 + 1) for n, at in enumerate(times)]  # fmt: skip


def situation(*others: Run, heat: list[Event] | None = None, **more: Any) -> World:
    heat = throttled() if heat is None else heat
    return world(heat, [job(1, "n2", 3600.0), *others], **more)


def test_the_same_program_was_quicker_elsewhere() -> None:
    found = judged(situation(job(2, "n1", 1200.0, "COMPLETED")))["1"]
    assert said(found) == ("infra.node", "gpu.thermal", "n2")
    assert found.confidence <= 0.8 and any("job 2" in doubt for doubt in found.doubts)


#: What shows nothing about what the program needs.
NO_COMPARISON = {
    "nothing": [],
    "another user's": [job(2, "n1", 1200.0, "COMPLETED", user="carol")],
    "another command": [job(2, "n1", 1200.0, "COMPLETED", submit_line="sbatch -J work -t 60 work.sh small")],
    "another name": [job(2, "n1", 1200.0, "COMPLETED", name="short")],
    "it failed": [job(2, "n1", 1200.0, "FAILED")],
    "on the same node": [job(2, "n2", 1200.0, "COMPLETED", end=-10.0)],
    "long ago": [job(2, "n1", 1200.0, "COMPLETED", end=-90000.0)],
    "not much quicker": [job(2, "n1", 3000.0, "COMPLETED")],
    "one was quicker, another reached its limit": [job(2, "n1", 1200.0, "COMPLETED"), job(3, "n4", 3600.0)],
    "no command is known": [job(2, "n1", 1200.0, "COMPLETED", submit_line=None)],
}


@pytest.mark.parametrize("others", NO_COMPARISON.values(), ids=NO_COMPARISON)
def test_heat_for_most_of_its_time_leaves_it_open(others: list[Run]) -> None:
    found = judged(situation(*others))["1"]
    assert found.category == "unknown" and found.confidence <= 0.5
    assert "processors of n2 were throttled by heat for 98% of its time" in found.reason


def test_heat_for_a_part_of_its_time_changes_nothing() -> None:
    quicker = job(2, "n1", 1200.0, "COMPLETED")
    for heat in (throttled(60.0, 700.0), throttled(host="n3"), throttled(60.0, 100.0)):
        assert judged(situation(quicker, heat=heat))["1"].category == "app.timeout"


def test_a_moment_of_three_processors_is_no_hour_of_heat() -> None:
    once = [event("kernel.thermal", 60.0 + cpu / 100, "n2", f"CPU{cpu}: Package temperature above threshold (total events = 1)", total_events=1) for cpu in range(4)]  # fmt: skip
    short = job(1, "n2", 300.0, end=300.0, time_limit_s=300)
    assert judged(world(once, [short, job(2, "n1", 100.0, "COMPLETED", end=300.0)]))["1"].category == "app.timeout"


def test_the_pace_that_a_run_reports_decides() -> None:
    steady = [(T0 + 20.0 + 60.0 * n, 2.0) for n in range(59)]
    found = judged(situation(job(2, "n1", 1200.0, "COMPLETED"), progress={(1, 0): steady}))["1"]
    assert found.category == "app.timeout"


def test_processors_are_no_gpus() -> None:
    (heat,) = facts(situation(), "gpu.thermal")
    assert heat.attrs["processors"] and heat.end == pytest.approx(T0 + throttled()[-1].time - T0 + 300.0)
    gpu = event(
        "gpu.thermal",
        100.0,
        "n2",
        "GPU 00000000:9B:00.0: HW Thermal Slowdown active",
        source="syslog",
        pci="00000000:9B:00.0",
    )
    (both,) = facts(situation(heat=[*throttled(), gpu]), "gpu.thermal")
    assert not both.attrs.get("processors")
    verdict = judged(situation(job(2, "n1", 1200.0, "COMPLETED"), heat=[*throttled(), gpu]))["1"]
    assert verdict.category == "infra.gpu"
