"""Where the arrows of a chain begin and end: at lines that tell of a fact at its time, else at marks of the facts themselves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from web.axis_ends import first_cause, hops_of, mark_of
from web.chain import chain_steps
from web.lags import lag_of

T0 = datetime(2026, 11, 21)


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).isoformat(timespec="microseconds") + "Z"


def step(cause: tuple[Any, ...], effect: tuple[Any, ...]) -> dict[str, Any]:
    """Each end: the fact's kind, its time, the line that represents it, its host and its run."""
    found: dict[str, Any] = {"lag_s": effect[1] - cause[1], "window_s": [-600.0, 600.0]}
    for end, (kind, time, line, host, run) in (("cause", cause), ("effect", effect)):
        found |= {end: line, f"{end}_fact": kind, f"{end}_time": at(time), f"{end}_pm_s": 0.5}
        found |= {f"{end}_host": host, f"{end}_device": None, f"{end}_run": run, f"{end}_says": ""}
    return found


def document(steps: list[dict[str, Any]], **lines: float) -> dict[str, Any]:
    return {
        "chain": steps,
        "events": [{"id": key, "time": at(time), "resolution_s": 0.001} for key, time in lines.items()],
    }


LINK, SLOW, DOWN = "link.outage", "job.slow", "node.down"


@pytest.mark.parametrize(
    ("steps", "lines", "expected"),
    [
        # Both have lines at their times.
        ([step((LINK, 0, "a", "n1", None), (DOWN, 60, "b", "ctl", None))], {"a": 0, "b": 60}, [("a", 0, "b", 60)]),
        # The end of a run is on its own lane, at the time of the line that reports it.
        ([step((LINK, 0, "a", "n1", None), ("run.failed", 4, "b", None, "7"))], {"a": 0, "b": 4.5}, [("a", 0, "run:7", 4.5)]),
        # Without that line, at accounting's second.
        ([step((LINK, 0, "a", "n1", None), ("run.failed", 4, None, None, "7"))], {"a": 0}, [("a", 0, "run:7", 4)]),
        # A measured fact has no line: it stands at the first moment it can have begun.
        ([step((LINK, 0, "a", "n1", None), (SLOW, 30, None, None, "7"))], {"a": 0}, [("a", 0, "fact", 29.5)]),
        # The boot that tells of a crash comes ten minutes after it: the crash is not drawn there.
        ([step(("node.panic", 0, "a", "n1", None), (DOWN, 60, "b", "ctl", None))], {"a": 650, "b": 60}, [("fact", -0.5, "b", 60)]),
        # Seen only after its effect had begun: it had begun by then.
        ([step((LINK, 12, "a", "n1", None), (SLOW, 0, None, None, "7"))], {"a": 12}, [("fact", -0.5, "fact", -0.5)]),
        # One line stands for a switch and for its first link.
        ([step(("switch.outage", 0, "a", "s1", None), (LINK, 0, "a", "n1", None))], {"a": 0}, [("fact", -0.5, "a", 0)]),
        # A chain of three: the middle is moved before its effect, and its cause before it.
        (
            [step((LINK, 5, "a", "n1", None), (SLOW, 6, None, None, "7")), step((SLOW, 6, None, None, "7"), ("run.timeout", 1, "c", None, "7"))],
            {"a": 5, "c": 1},
            [("fact", 1, "fact", 1), ("fact", 1, "run:7", 1)],
        ),
        # A document of an older version has lines only.
        ([{"cause": "a", "effect": "b", "lag_s": 1.0}], {"a": 0, "b": 1}, [("a", 0, "b", 1)]),
        ([{"cause": "a", "effect": None, "lag_s": 1.0}], {"a": 0}, []),
    ],
)  # fmt: skip
def test_ends(steps: list[dict[str, Any]], lines: dict[str, float], expected: list[tuple[Any, ...]]) -> None:
    def told(end: Any) -> tuple[str, float]:
        return end.id.partition("fact:")[1].rstrip(":") or end.id, (end.at - T0).total_seconds()

    found = [(*told(hop.cause), *told(hop.effect)) for hop in hops_of(document(steps, **lines))]
    assert [(a, pytest.approx(b), c, pytest.approx(d)) for a, b, c, d in expected] == found


def test_a_fact_has_one_mark_and_says_between_what() -> None:
    both = [step((LINK, 12, "a", "n1", None), (SLOW, 0, None, None, run)) for run in ("7", "8")]
    hops = hops_of(document(both, a=12))
    assert hops[0].cause is hops[1].cause and first_cause(hops) == hops[0].cause.at
    mark = mark_of(hops[0].cause, "link|n1", T0)
    assert (mark["between"], mark["quality"], mark["file"], mark["told_by"]) == ([-0.5, 12.5], "inferred", None, "a")


PANIC, FAILED = "node.reboot", "run.node_fail"


@pytest.mark.parametrize(
    ("steps", "lines", "lag_s", "said", "counted", "allowed"),
    [
        # Lines at both ends: as the edge measured it.
        ([step((LINK, 0, "a", "n1", None), (DOWN, 60, "b", "ctl", None))], {"a": 0, "b": 60}, 60.0001, "+60.0 s", None, (-5.0, 5.0)),
        # slurmd registers 27 s after the boot, and the run ends 10 ms later: the arrow is 27 s long, and what is allowed begins there.
        ([step((PANIC, 0, "a", "n1", None), (FAILED, 27, "b", None, "7"))], {"a": 0, "b": 27}, 0.01, "+27.0 s", 26.99, (21.99, 31.99)),
        # Measured within a minute, and later than the effect: no lag below zero, since neither is known so well.
        ([step((LINK, 12, "a", "n1", None), (SLOW, 0, None, None, "7"))], {"a": 12}, -12.0, "up to 1.0 s", None, (-5.5, 17.5)),
    ],
)  # fmt: skip
def test_the_number_of_an_arrow_is_its_length(
    steps: list[dict[str, Any]], lines: dict[str, float], lag_s: float, said: str, counted: float | None, allowed: tuple[float, float]
) -> None:  # fmt: skip
    steps[0] |= {"lag_s": lag_s, "window_s": [-5.0, 5.0]}
    (hop,) = hops_of(document(steps, **lines))
    lag = lag_of(hop)
    after = [None if when is None else (when - T0).total_seconds() for when in (lag.counted_from, *(lag.allowed or ()))]
    assert lag.signed == said and after == [counted, *allowed]


def test_a_measured_cause_is_listed_before_the_lines_of_something_else() -> None:
    hot = step(("gpu.thermal", 12, "a", "n1", None), (SLOW, 0, None, None, "7")) | {
        "cause_says": "8 GPUs held back by heat"
    }
    told = document([hot], a=12)
    told["events"][0] |= {
        "role": "cause",
        "event": "kernel.thermal",
        "message": "CPU2: Core temperature above threshold",
    }
    first, second, third = chain_steps(told, {event["id"]: event for event in told["events"]})
    assert (first["event"]["event"], first["event"]["message"], first["n"]) == (
        "gpu.thermal",
        "8 GPUs held back by heat",
        1,
    )
    assert (
        first["mark"] == hops_of(told)[0].cause.id
        and second["event"]["event"] == "kernel.thermal"
        and third["step"] is hot
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_steps_are_listed_and_numbered_in_the_order_of_time(order: tuple[int, ...]) -> None:
    """A job's time limit was step 3, and that it had become slow half an hour before step 4."""
    steps = [
        step(("gpu.thermal", 0, "a", "n1", None), (SLOW, 60, None, None, "7")),
        step((SLOW, 60, None, None, "7"), ("run.timeout", 1800, "b", None, "7")),
        step(("gpu.thermal", 0, "a", "n1", None), (SLOW, 90, None, None, "8")),
    ]
    whole = document([steps[place] for place in order], a=0, b=1800)
    listed = chain_steps(whole, {event["id"]: event for event in whole["events"]})
    assert [item["step"] and item["step"]["effect_run"] for item in listed] == [None, "7", "8", "7"]
    assert [item["n"] for item in listed] == [1, 2, 3, 4] and listed[-1]["step"]["effect_fact"] == "run.timeout"


def test_an_effect_by_an_earlier_clock_stands_behind_its_cause() -> None:
    steps = [
        step((DOWN, 60, "b", "ctl", None), ("run.node_fail", 59.99, "c", None, "7")),
        step((LINK, 0, "a", "n1", None), (DOWN, 60, "b", "ctl", None)),
        {"cause": "a", "effect": None, "lag_s": 1.0, "edge": "old"},
    ]
    whole = document(steps, a=0, b=60, c=59.99)
    listed = chain_steps(whole, {event["id"]: event for event in whole["events"]})
    assert [(item["step"] or {}).get("effect_fact", (item["step"] or {}).get("edge")) for item in listed] == [
        None, DOWN, "run.node_fail", "old",
    ]  # fmt: skip


def test_an_inferred_cause_is_drawn_from_when_to_when_it_can_have_been() -> None:
    """A health check found a GPU lost ten minutes after its last sample; the mark said that it was lost within two seconds, 394 s before the job ended."""
    found = step(("gpu.xid", 0, None, "n1", None), ("run.failed", 392, "b", None, "7")) | {
        "cause_until": at(600),
        "lag_s": 29.0,
        "window_s": [-2.0, 60.0],
    }
    (hop,) = hops_of(document([found], b=392))
    mark = mark_of(hop.cause, "gpu|n1", T0)
    assert mark["between"] == [-0.5, 392.0] and mark["quality"] == "inferred", "no cause is later than its effect"
    lag = lag_of(hop)
    assert (lag.text, lag.counted_from) == ("up to 392 s", None)
    # Until when it can have begun is of no use where a line tells of its beginning.
    (hop,) = hops_of(document([found | {"cause": "a"}], a=0.1, b=392))
    assert hop.cause.line is not None and mark_of(hop.cause, "gpu|n1", T0)["between"] is None
