"""Faults of a real cluster, mistakes and lies, whose truth a sixth party wrote before each run (tests/cluster/endings_sixth*.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.correlator.engine.test_liars import CAPTURES
from tests.correlator.engine.test_third_partys_faults import Found, assert_all_are_judged, each, found

ARCHIVES = sorted((CAPTURES / "sixth").glob("*.tar.xz"))
#: What stands in the first part of a row is not the truth: it is what is concluded today.
EXPECTED: dict[str, Found] = {
    "card_comes_back_narrow": Found({"7": "unknown"}, frozenset({("infra.network", "nic.link_down", "gpu03")})),
    "controller_away_while_all_end": Found({}, frozenset({("infra.node", "node.reboot", "gpu04"), ("infra.scheduler", "slurm.controller_restart", "ctl")})),
    "controller_started_clean": Found({}, frozenset({("infra.scheduler", "slurm.controller_restart", "ctl")})),
    "coordinator_cancels_beside_flap": Found({}, frozenset({("infra.network", "nic.link_down", "gpu02")})),
    "deadline_missed_for_a_drained_node": Found({}, frozenset({("infra.storage", "storage.outage", "nas01")})),
    "dies_in_its_grace": Found({"12": "unknown"}, frozenset({("infra.network", "nic.link_down", "gpu02")})),
    "dressed_as_a_lost_node": Found({}, frozenset({("infra.node", "node.reboot", "gpu04")})),
    "inodes_used_up_by_agent": Found({"27": "wrong, nobody blamed"}, frozenset()),
    "job_of_a_rebooted_node_stays": Found({}, frozenset({("infra.node", "node.reboot", "gpu04"), ("infra.scheduler", "slurm.controller_restart", "ctl")})),
    "large_frames_lost": Found({"4": "wrong, nobody blamed"}, frozenset()),
    "lost_between_two_nodes_only": Found({}, frozenset()),
    "loud_minute_nobody_hurt": Found({}, frozenset({("infra.network", "nic.link_flap", "gpu02"), ("infra.node", "node.disk_error", "gpu04")})),
    "monitoring_forged_beside_real_check": Found({}, frozenset({("infra.network", "nic.link_down", "gpu03")})),
    "neighbour_writes_into_her_output": Found({}, frozenset({("infra.network", "nic.link_down", "gpu03")})),
    "own_shell_limits_beside_memory_neighbour": Found({}, frozenset()),
    "plugin_missing_on_one_node": Found({}, frozenset({("infra.node", "node.plugin_failure", "gpu03")})),
    "reservation_shortened_by_root": Found({}, frozenset()),
    "script_asks_a_broken_controller": Found({"19": "wrong, nobody blamed"}, frozenset({("infra.scheduler", "slurm.controller_restart", "ctl")})),
    "task_prologs_of_site_and_user": Found({"22": "unknown"}, frozenset()),
    "user_requeues_beside_drain": Found({}, frozenset()),
    "watchdog_after_suspension": Found({}, frozenset({("infra.network", "nic.link_down", "gpu02")})),
    "wrong_machine_rebooted": Found({}, frozenset({("infra.node", "node.maintenance", "gpu03"), ("infra.node", "node.reboot", "gpu02")})),
}  # fmt: skip
#: A node that cannot load Slurm's plugins, and rows of another job in a job's name.
QUICK = {"dressed_as_a_lost_node", "plugin_missing_on_one_node"}


@pytest.mark.parametrize("archive", each(ARCHIVES, QUICK))
def test_what_is_concluded_of_a_sixth_partys_faults(archive: Path) -> None:
    assert found(archive) == EXPECTED[archive.name.split(".")[0]]


def test_all_such_captures_are_judged() -> None:
    assert_all_are_judged(ARCHIVES, EXPECTED)
