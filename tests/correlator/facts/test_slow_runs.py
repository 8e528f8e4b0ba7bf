"""Runs that lost their pace, and what slowed them: heat, a bad link, storage."""

from __future__ import annotations

import re

import pytest

from correlator.engine import conclude_world
from correlator.evidence.weigh import BaseRates
from correlator.facts.slow_runs import change
from correlator.gather.telemetry import STEP_TIME
from correlator.model.fact_index import by_kind
from correlator.model.measurements import Throttled
from correlator.site.first_seen import first_seen
from tests.correlator.making import T0, event, facts, run, world
from tests.correlator.situations import EDGES


def _points(*paces, every=120.0):
    return [(T0 + 20 + i * every, p) for i, p in enumerate(paces)]


@pytest.mark.parametrize(
    ("paces", "expected"),
    [
        ((2.0, 2.1, 2.0, 2.2, 2.0, 2.1), None),
        ((2.0, 2.1, 2.0, 4.4, 4.5, 4.6, 4.4), (3, 6)),
        ((2.0, 2.1, 2.0, 9.0, 2.0, 2.1), None),  # one checkpoint
        ((2.0, 2.1, 2.0, 4.4, 4.5, 4.6, 2.0, 2.1), (3, 5)),
        ((1.7, 4.3, 4.2, 4.1, 4.2), (1, 4)),  # slow since its second report
        ((1.7, 2.2, 2.2, 2.1, 2.2), None),  # too small a change to see from one report
        ((), None),
    ],
)
def test_the_stretch_of_slow_steps(paces, expected):
    assert change(_points(*paces)) == expected


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("iter 96 | loss 11.4 | iter_time 4.306s | lr 3e-4", 4.306),
        ("Step       54  wall/step 2.1896 s", 2.1896),
        (" iteration 100/ 5000 | elapsed time per iteration (ms): 2345.6 | learning rate", 2.3456),
        ("step_time: 812 ms", 0.812),
        ("100%|###| 30/30 [00:30<00:00,  1.25s/it]", 1.25),
        ("epoch 1: 4.00it/s", 0.25),
        ("loss 0.5 after 300 tokens", None),
    ],
)
def test_how_trainers_print_their_pace(line, seconds):
    found = None
    for pattern, factor, inverse in STEP_TIME:
        match = re.search(pattern, line)
        if match and found is None:
            found = factor / float(match[1]) if inverse else float(match[1]) * factor
    assert found == (None if seconds is None else pytest.approx(seconds))


def _slow_world(**more):
    job = run(5, ["n1", "n2"], 0, 3600, "TIMEOUT", time_limit_s=3600)
    pace = [(T0 + 20 + i * 120, 2.0 if i < 8 else 4.5) for i in range(29)]
    return world(more.pop("events", []), [job], progress={(5, 0): pace}, **more)


def test_a_throttled_gpu_slows_the_run_to_its_limit():
    hot = Throttled("n2", "00000000:9A:00.0", T0 + 1000, T0 + 3500, T0 + 700, None, 9)
    where = _slow_world(throttling=[hot])
    (heat,) = facts(where, "gpu.thermal")
    assert (heat.host, heat.device) == ("n2", "0000:9a:00")
    (slow,) = facts(where, "job.slow")
    assert slow.attrs["lasting"] and slow.attrs["ratio"] == pytest.approx(2.25)


def test_a_slowed_run_costs_the_time_it_waited_and_is_not_untouched() -> None:
    pace = [(T0 + 20 + i * 120, 2.0 if i < 8 else 4.0) for i in range(29)]
    heat = Throttled("n2", "00000000:9A:00.0", T0 + 1000, T0 + 3500, T0 + 700, None, 9)
    jobs = [run(5, ["n1", "n2"], 0, 3600, "COMPLETED", gpus=16), run(6, ["n1", "n2"], -50, 7200, "COMPLETED")]
    where = world([], jobs, progress={(5, 0): pace}, throttling=[heat])
    rates = BaseRates(by_kind(where.facts), first_seen(where.events, where.runs).values(), where.first)
    (document,) = conclude_world(where, EDGES, rates).result.incidents
    assert document["slowed_jobs"] == ["5"] and [j["job_id"] for j in document["unaffected_jobs"]] == ["6"]
    # Half of the time from the last quick report on: 16 GPUs waited.
    assert document["gpu_hours_lost"] == pytest.approx(16 * 0.5 * (3600 - 860) / 3600, rel=0.01)


def test_one_hot_core_is_every_days_noise():
    lines = [event("kernel.thermal", 300, "n2", "mce: CPU5: Core temperature above threshold, cpu clock throttled")]
    assert facts(_slow_world(events=lines), "gpu.thermal") == []


def test_several_hot_packages_are_a_hot_node():
    lines = [
        event(
            "kernel.thermal",
            300 + i * 400,
            "n2",
            f"mce: CPU{i}: Package temperature above threshold, cpu clock throttled",
        )
        for i in range(3)
    ]
    assert [f.host for f in facts(_slow_world(events=lines), "gpu.thermal")] == ["n2"]


def test_link_errors_need_more_than_one_warning():
    def warned(n, **more):
        return [
            event(
                "fabric.link_errors",
                900 + i * 200,
                "ctl",
                "Local Link integrity",
                source="opensm",
                ibdev="mlx5_1",
                peer_node="n1",
                **more,
            )
            for i in range(n)
        ]

    assert facts(_slow_world(events=warned(1)), "link.errors") == []
    (bad,) = facts(_slow_world(events=warned(4)), "link.errors")
    assert (bad.host, bad.device, bad.attrs["count"]) == ("n1", "mlx5_1", 4)
    assert facts(_slow_world(events=warned(4, error="5402")), "link.errors") == [], "the port answered no query"


def test_a_fan_that_failed_before_belongs_to_the_heat():
    fan = event("platform.alarm", -200, "n2", "Fan sensor Fan_SYS_3 Lower Critical going low", source="syslog")
    hot = Throttled("n2", "00000000:9A:00.0", T0 + 100, T0 + 900, T0 - 200, None, 9)
    (heat,) = facts(world([fan], [run(1, ["n2"], -900, 900)], throttling=[hot]), "gpu.thermal")
    assert heat.attrs["cooling"] == fan.message and fan in heat.events
