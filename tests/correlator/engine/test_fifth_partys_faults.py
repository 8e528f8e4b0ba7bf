"""Faults of a real cluster, mistakes and lies, whose truth a fifth party wrote before each run (tests/cluster/endings_fifth*.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.correlator.engine.test_liars import CAPTURES
from tests.correlator.engine.test_third_partys_faults import Found, assert_all_are_judged, each, found

ARCHIVES = sorted((CAPTURES / "fifth").glob("*.tar.xz"))
#: What stands in the first part of a row is not the truth: it is what is concluded today.
EXPECTED: dict[str, Found] = {
    "agent_takes_the_memory": Found({}, frozenset({("infra.node", "node.memory_pressure", "gpu03")})),
    "back_with_two_gpus": Found({}, frozenset({("infra.node", "node.reboot", "gpu04")})),
    "clock_of_the_controller_ahead": Found({}, frozenset({("infra.network", "nic.link_down", "gpu03"), ("infra.scheduler", "slurm.controller_restart", "ctl")})),
    "dependants_of_a_lost_job": Found({}, frozenset({("infra.node", "node.reboot", "gpu03")})),
    "epilog_kills_the_other_job": Found({}, frozenset()),
    "first_of_the_tree_hangs": Found({}, frozenset({("infra.node", "node.unresponsive", "gpu01")})),
    "group_conf_of_one_node_allows_less": Found({}, frozenset({("infra.node", "node.memory_limit", "gpu03")})),
    "gsp_timeout_until_the_limit": Found({"14": "wrong, nobody blamed"}, frozenset({("infra.gpu", "gpu.xid", "gpu02")})),
    "lines_by_names_of_outputs_and_programs": Found({}, frozenset()),
    "lockups_of_two_nodes": Found({}, frozenset({("infra.node", "node.panic", "gpu02"), ("infra.node", "node.panic", "gpu03")})),
    "loud_node_beside_lost_fabric": Found({}, frozenset({("infra.gpu", "gpu.xid", "gpu03"), ("infra.network", "nic.link_down", "gpu02"), ("infra.network", "nic.link_down", "gpu03")})),
    "munge_key_rotated_on_half": Found({}, frozenset({("infra.node", "node.munge_failure", "gpu03"), ("infra.node", "node.munge_failure", "gpu04")})),
    "neighbour_takes_all_processes": Found({}, frozenset()),
    "own_memory_beside_ecc": Found({}, frozenset({("infra.gpu", "gpu.xid", "gpu02")})),
    "processes_named_like_the_driver": Found({}, frozenset()),
    "prolog_fails_for_whole_nodes": Found({}, frozenset({("infra.scheduler", "slurm.prolog_failure", "gpu02")})),
    "rank_waits_for_its_data": Found({}, frozenset({("infra.network", "nic.link_down", "gpu02"), ("infra.storage", "storage.outage", "nas01")})),
    "refund_by_words_of_slurm": Found({}, frozenset({("infra.scheduler", "slurm.slurmd_crash", "gpu02"), ("infra.scheduler", "slurm.slurmd_crash", "gpu04")})),
    "requeued_from_a_sick_node": Found({"33": "unknown"}, frozenset({("infra.gpu", "gpu.xid", "gpu03")})),
    "slurmd_restarted_with_few_files": Found({}, frozenset({("infra.node", "node.environment", "gpu03")})),
    "storage_heals_before_own_bug": Found({}, frozenset({("infra.storage", "storage.outage", "nas01")})),
    "users_words_in_lines_of_root": Found({}, frozenset()),
}  # fmt: skip
#: A user's words in slurmd.log, and an administrator's reason that blames another GPU's run.
QUICK = {"lines_by_names_of_outputs_and_programs", "requeued_from_a_sick_node"}


@pytest.mark.parametrize("archive", each(ARCHIVES, QUICK))
def test_what_is_concluded_of_a_fifth_partys_faults(archive: Path) -> None:
    assert found(archive) == EXPECTED[archive.name.split(".")[0]]


def test_all_such_captures_are_judged() -> None:
    assert_all_are_judged(ARCHIVES, EXPECTED)
