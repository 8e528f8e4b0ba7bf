"""A tick reads as far back as the causes of what it publishes again may be, however long ago that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from correlator.engine import conclude_cluster, correlate, result
from correlator.live.ticker import Ticker
from store import open_store
from store.door import Door
from tests.correlator.live.test_streaming import HOURS, benchmark, stored, with_settings

#: When the faults of these tests happen, seconds after the simulated day's midnight.
AT = 30_000.0


def unanswered_munge(day: Any) -> None:
    """munge dies; its node is deaf, is given up, comes back. No line ends the deafness."""
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


def waiting_run(day: Any) -> None:
    """A file server stops answering, the run waits for it in silence, and is ended by its time limit hours later."""
    nodes = benchmark().NODES[30:32]
    day.say(AT + 30, nodes[0], "kernel", "storage.nfs_error", "nfs: server nas1 not responding, still trying", nfs_server="nas1")  # fmt: skip
    day._lifecycle(901, nodes, AT - 600, AT + 8_000, "TIMEOUT")
    day.say(AT + 8_900, nodes[0], "kernel", "storage.recovered", "nfs: server nas1 OK", nfs_server="nas1")


def as_told(store: Door, break_it: Callable[[Any], None], since: float, steps: Iterable[float]) -> Iterator[bool]:
    """A day of which the service knows everything but the fault; each of ``steps`` then delivers part of it.

    ``steps`` are seconds after ``AT``; a job record comes ``late`` seconds after its end. Each tick must have the
    result of a full pass. Returns for each whether it was partial.
    """
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
    for step in steps:
        low, high = (benchmark().START + timedelta(seconds=AT + s) for s in (since, step))
        day.logs = [row for row in logs if low < row["time"] <= high]
        day.jobs = [{k: v for k, v in row.items() if k != "late"} for row in jobs
                    if low < row["end"] + timedelta(seconds=row.get("late", 0.0)) <= high]  # fmt: skip
        since = step
        day.say(AT + step, benchmark().NODES[50], "syslog", "fabric.link_errors", "mlx5_0: symbol errors 3", ibdev="mlx5_0")  # fmt: skip
        day.store(store)
        partial = not ticker.tick().full
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store), f"{step} s after the fault"
        yield partial


@pytest.mark.long
@pytest.mark.parametrize("break_it", [unanswered_munge, hanging_run, waiting_run])
def test_every_tick_after_a_fault_says_what_a_full_pass_says_then(break_it: Callable[[Any], None]) -> None:
    partly = 0
    with open_store(None) as store:
        # Lines of the first half hour come at once.
        for partial in as_told(store, break_it, -AT, range(1_800, 9_400, 720)):
            partly += partial
        assert any(v["incident_id"] for k, v in result(store)["verdicts"].items() if k in ("900", "901")), (
            "the fault explains the run's end"
        )
    assert partly >= 6, "hardly a tick was partial: this test says little"


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
            now, whole = ticker._known["made"].memory.basis, conclude_cluster(store, "made", ticker._rules).basis
            assert now.controllers == whole.controllers == frozenset({"ctl", "ctl-b"} if at > 20_000 else {"ctl"})


def shared_rail(day: Any) -> None:
    """A node's rail is lost for a minute.

    Of five runs on it one loses its peers, three go on for hours, one is unknown until accounting reports its end, and
    one that seemed to go on is reported late to have ended before.
    """
    nodes = benchmark().NODES
    day.link(nodes[20], "ib0", AT, 70.0)
    day.say(AT + 40, nodes[21], "job_stdout", "job.nccl_error", "NCCL WARN NET/IB : Got completion from peer with status=12 opcode=0 len=0 vendor err 129", job=901)  # fmt: skip
    day._lifecycle(901, [nodes[20], nodes[21]], AT - 600, AT + 42, "FAILED")
    day.logs = [row for row in day.logs if row["event"] != "job.exit_error"]  # it logs no error of its own
    for job, end in ((902, 2_500.0), (903, 3_100.0), (904, 3_700.0), (905, 4_300.0), (906, 20.0)):
        lines = len(day.logs)
        day._lifecycle(job, [nodes[20], nodes[job - 880]], AT - 900.4, AT + end, "COMPLETED")
        if job == 905:
            del day.logs[lines:]
        if job == 906:
            del day.logs[-1]
            day.jobs[-1]["late"] = 5_000.0


@pytest.mark.long
def test_what_becomes_known_of_others_later_changes_what_was_stated() -> None:
    reported: list[tuple[float, int | None]] = []
    with open_store(None) as store:
        steps = (43.0, 50.0, 80.0, 103.0, 160.0, 900.0, 2_000.0, 2_600.0, 3_200.0, 3_800.0, 4_400.0, 5_100.0)
        partly = 0
        for step, partial in zip(steps, as_told(store, shared_rail, -2_000.0, steps), strict=True):
            partly += partial
            chain = result(store)["verdicts"]["901"]["chain"]
            reported.append((step, next((s["others"]["spared_count"] for s in chain if s["others"]), None)))
    assert partly >= 8
    survivors = dict(reported)
    assert (survivors[50.0], survivors[160.0], survivors[4_400.0], survivors[5_100.0]) == (None, 4, 5, 4), reported


def answered_long_before(day: Any) -> None:
    """A file server does not answer for a minute; hours later a run of that node is ended by its time limit."""
    nodes = benchmark().NODES[30:32]
    day.say(AT + 30, nodes[0], "kernel", "storage.nfs_error", "nfs: server nas1 not responding, still trying", nfs_server="nas1")  # fmt: skip
    day.say(AT + 90, nodes[0], "kernel", "storage.recovered", "nfs: server nas1 OK", nfs_server="nas1")
    day._lifecycle(901, nodes, AT - 600, AT + 14_000, "TIMEOUT")


def answered_too_late(day: Any) -> None:
    """A run waits for a file server most of its time, and is ended by its time limit soon after the server is back."""
    nodes = benchmark().NODES[30:32]
    day.say(AT + 30, nodes[0], "kernel", "storage.nfs_error", "nfs: server nas1 not responding, still trying", nfs_server="nas1")  # fmt: skip
    day.say(AT + 12_800, nodes[0], "kernel", "storage.recovered", "nfs: server nas1 OK", nfs_server="nas1")
    day._lifecycle(901, nodes, AT - 600, AT + 14_000, "TIMEOUT")


@pytest.mark.parametrize(
    ("break_it", "blamed"),
    [pytest.param(answered_long_before, False, marks=pytest.mark.long), (answered_too_late, True)],
)
def test_a_tick_weighs_an_outage_of_hours_before_a_time_limit(break_it: Callable[[Any], None], blamed: bool) -> None:
    with open_store(None) as store:
        assert all(as_told(store, break_it, -AT, (1_800.0, 7_000.0, 14_100.0, 14_300.0))), "a full pass proves nothing"
        verdict = result(store)["verdicts"]["901"]
    outages = [r for r in verdict["rivals"] if r["cause"].startswith("storage.outage")]
    assert (bool(verdict["root_cause"]), len(outages)) == (blamed, int(not blamed)), verdict
