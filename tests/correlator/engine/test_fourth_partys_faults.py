"""Faults of a real cluster, mistakes and lies, whose truth a fourth party wrote before each run (tests/cluster/endings_fourth.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.correlator.engine.test_liars import CAPTURES
from tests.correlator.engine.test_third_partys_faults import Found, assert_all_are_judged, each, found

ARCHIVES = sorted((CAPTURES / "fourth").glob("*.tar.xz"))
#: What stands in the first part of a row is not the truth: it is what is concluded today.
EXPECTED: dict[str, Found] = {
    "array_requeued_from_one_node": Found({}, frozenset({("infra.node", "node.reboot", "gpu04"), ("infra.node", "node.unresponsive", "gpu04")})),
    "cron_of_site_empties_tmp": Found({"39": "wrong, nobody blamed", "40": "wrong, nobody blamed"}, frozenset()),
    "daemons_lines_by_datagrams": Found({}, frozenset()),
    "device_assert_beside_lost_gpu": Found({}, frozenset({("infra.gpu", "gpu.xid", "gpu03")})),
    "drain_beside_own_bug_of_parts": Found({}, frozenset({("infra.network", "nic.link_down", "gpu03")})),
    "drained_by_prolog_beside_own_memory": Found({}, frozenset({("infra.scheduler", "slurm.prolog_failure", "gpu03")})),
    "fabric_of_a_node_with_a_late_clock": Found({}, frozenset({("infra.network", "nic.link_down", "gpu03")})),
    "failover_beside_lost_slurmd": Found({}, frozenset({("infra.node", "node.unresponsive", "gpu04"), ("infra.scheduler", "slurm.controller_restart", "ctl")})),
    "lines_by_a_working_folder": Found({}, frozenset()),
    "lost_node_sends_no_logs": Found({}, frozenset({("infra.node", "node.reboot", "gpu04")})),
    "names_of_one_node_wrong_beside_typo": Found({"64": "unknown"}, frozenset()),
    "own_bug_right_before_lost_power": Found({}, frozenset({("infra.node", "node.reboot", "gpu03")})),
    "own_limit_beside_slow_storage": Found({}, frozenset({("infra.storage", "storage.outage", "nas01")})),
    "receiver_of_a_module_fails": Found({}, frozenset({("infra.network", "nic.link_errors", "gpu03")})),
    "refund_by_a_made_up_timeout": Found({}, frozenset({("infra.network", "nic.link_down", "gpu03")})),
    "server_of_another_job_is_lost": Found({"11": "unknown", "12": "unknown"}, frozenset({("infra.node", "node.reboot", "gpu04")})),
    "slow_prolog_beside_missing_module": Found({}, frozenset({("infra.network", "nic.link_down", "gpu02")})),
    "slurmd_and_fabric_at_once": Found({}, frozenset({("infra.network", "nic.link_down", "gpu04"), ("infra.scheduler", "slurm.slurmd_crash", "gpu02")})),
}  # fmt: skip
#: The liar that once succeeded, and a takeover beside a true loss.
QUICK = {"lines_by_a_working_folder", "failover_beside_lost_slurmd"}


@pytest.mark.parametrize("archive", each(ARCHIVES, QUICK))
def test_what_is_concluded_of_a_fourth_partys_faults(archive: Path) -> None:
    assert found(archive) == EXPECTED[archive.name.split(".")[0]]


def test_all_such_captures_are_judged() -> None:
    assert_all_are_judged(ARCHIVES, EXPECTED)
