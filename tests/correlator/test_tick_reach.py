"""A tick reads as far back as the causes of what it tells anew may lie, however long ago that is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from correlator.engine import conclude_cluster, correlate, result
from correlator.streaming import Ticker
from store import open_store
from tests.correlator.test_streaming import HOURS, benchmark, stored, with_settings

#: When the faults of these tests happen, seconds after the made day's midnight.
AT = 30_000.0


def unanswered_munge(day: Any) -> None:
    """munge dies; its node is deaf, is given up, comes back. Who is deaf is never told to be well again."""
    host = benchmark().NODES[7]
    for late, text in ((0.0, "Main process exited, code=killed, status=9/KILL"), (5.0, "Failed with result 'signal'.")):
        day.say(AT + late, host, "syslog", "sys.service_failed", f"munge.service: {text}", unit="munge.service")
    for late in (200.0, 350.0):
        day.say(AT + late, "ctl", "slurmctld", "slurm.node_error", f"error: slurm_receive_msgs: [[{host}]:6818] failed: Socket timed out on send/recv operation", nodes=[host])  # fmt: skip
    day._lifecycle(900, [host], AT - 300, AT + 450, "NODE_FAIL")
    day.say(AT + 450, "ctl", "slurmctld", "slurm.node_down", f"error: Nodes {host} not responding, setting DOWN", nodes=[host])  # fmt: skip
    day.say(AT + 600, "ctl", "slurmctld", "slurm.node_up", f"Node {host} now responding", nodes=[host])


def hanging_run(day: Any) -> None:
    """A link is lost, the run loses its peers, hangs, and is ended by its time limit hours later."""
    nodes = benchmark().NODES[20:22]
    day.link(nodes[0], "ib0", AT, 70.0)
    day.say(AT + 30, nodes[1], "job_stdout", "job.nccl_error", "NCCL WARN NET/IB : Got completion from peer with status=12 opcode=0 len=0 vendor err 129", job=901)  # fmt: skip
    day._lifecycle(901, nodes, AT - 600, AT + 9_000, "TIMEOUT")


@pytest.mark.parametrize("break_it", [unanswered_munge, hanging_run])
def test_every_tick_after_a_fault_says_what_a_full_pass_says_then(break_it: Callable[[Any], None]) -> None:
    partly = 0
    with open_store(None) as store:
        with_settings(store)
        day = benchmark().Day(4)
        day.fill(0, HOURS * 3600, 60, 300)
        before, day.logs, day.jobs = (day.logs, day.jobs), [], []
        break_it(day)
        logs, jobs = sorted(day.logs, key=lambda row: row["time"]), day.jobs
        day.logs, day.jobs = before
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        since = -AT
        for step in range(1_800, 9_400, 200):  # what was said in the first half hour comes at once
            low, high = (benchmark().START + timedelta(seconds=AT + s) for s in (since, step))
            day.logs = [row for row in logs if low < row["time"] <= high]
            day.jobs = [row for row in jobs if low < row["end"] <= high]
            since = step
            day.say(AT + step, benchmark().NODES[50], "syslog", "fabric.link_errors", "mlx5_0: symbol errors 3", ibdev="mlx5_0")  # fmt: skip
            day.store(store)
            partly += not ticker.tick().full
            ticked = stored(store)
            correlate(store)
            assert ticked == stored(store), f"{step} s after the fault"
        assert any(v["incident_id"] for k, v in result(store)["verdicts"].items() if k in ("900", "901")), (
            "the fault explains the run's end"
        )
    assert partly >= 20, "hardly a tick was partial: this test says little"


def test_a_stretch_without_a_line_of_slurmctld_knows_the_controllers() -> None:
    with open_store(None) as store:
        with_settings(store)
        day = benchmark().Day(4)
        day.fill(0, HOURS * 3600, 60, 300)
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        for at, host, source, full in ((20_000, "gpu-0050", "kernel", False), (20_300, "ctl-b", "slurmctld", True), (40_000, "gpu-0051", "kernel", False)):  # fmt: skip
            day.say(HOURS * 3600 + at, host, source, "sys.service_started", "Started Session 1 of User root.")
            day.store(store)
            assert ticker.tick().full == full, (
                f"{host}: a controller that nobody knew is looked at with all that it may explain"
            )
            now, whole = ticker._known["made"].controllers, conclude_cluster(store, "made", ticker._edges).controllers
            assert now == whole == frozenset({"ctl", "ctl-b"} if at > 20_000 else {"ctl"})
