"""BootTimes from Slurm: a tick concludes from them what a full pass does, and polls without news cost nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from parsers.record import frame
from store import open_store
from tests.correlator.field import at, booted, state

CLUSTER = "c"
NOW = datetime(2026, 3, 3, 11, tzinfo=UTC)


def line(seconds: float, host: str) -> dict[str, Any]:
    return {
        "time": at(seconds), "time_quality": "line", "cluster": CLUSTER, "host": host, "source": "kernel", "message": "EDAC MC: Ver: 3.0.0",
        "raw": f"{seconds} {host}", "event": "kernel.mce", "file": "f", "line": int(seconds) + 9000, "resolution_us": 1000,
    }  # fmt: skip


def lost() -> dict[str, Any]:
    return {
        "cluster": CLUSTER, "job_id": 7, "submit": at(-3601), "start": at(-3600), "end": at(0), "state": "NODE_FAIL", "node_list": "gpu01",
        "nodes": ["gpu01"], "exit_code": 0, "source": "sacct", "file": "s", "line": 1,
    }  # fmt: skip


def poll(*boots: float) -> dict[str, Any]:
    return {"boots": frame("boots", [{"cluster": CLUSTER, **booted(b)} for b in boots])}


def root(found: dict[str, Any]) -> Any:
    return (found["verdicts"]["7"]["root_cause"] or {}).get("event")


def test_a_boot_that_is_polled_later_is_taken_in() -> None:
    with open_store(None) as store:
        store.add(
            {
                "logs": frame("logs", [line(-7200 + 600 * n, "gpu02") for n in range(13)]),
                "jobs": frame("jobs", [lost()]),
                **poll(-864000),
            }
        )
        ticker = Ticker(store)
        ticker.tick(NOW)
        assert root(result(store)) is None, "somebody may have set it DOWN"
        store.add(poll(-30, -30.7))
        assert ticker.tick(NOW + timedelta(minutes=1)).worked
        reported = result(store)
        assert root(reported) == "node.reboot"
        correlate(store)
        whole = result(store)
        assert root(whole) == "node.reboot"
        assert {**reported, "incidents": [i["id"] for i in reported["incidents"]]}["incidents"] == [i["id"] for i in whole["incidents"]]  # fmt: skip
        store.add(poll(-30, -864000.4))
        assert not ticker.tick(NOW + timedelta(minutes=2)).provisional


def test_a_state_that_was_set_long_before_says_nothing_of_a_later_end() -> None:
    rows = [{"cluster": CLUSTER, **state("down", "replace psu2", "root(0)", when=-90000)}]
    with open_store(None) as store:
        store.add(
            {
                "logs": frame("logs", [line(-7200, "gpu02")]),
                "jobs": frame("jobs", [lost()]),
                "node_states": frame("node_states", rows),
            }
        )
        correlate(store)
        assert root(result(store)) is None, "somebody may have set it DOWN"
