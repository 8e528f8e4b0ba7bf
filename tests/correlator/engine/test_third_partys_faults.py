"""Faults of a real cluster, mistakes and lies, whose truth a third party wrote before each run (tests/cluster/endings_third.py).

Beside the verdicts, the incidents that blame a node: a lie that ends no job can still blame one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.endings import outcome_of
from collector.ingest import Ingest
from correlator.engine import correlate, result
from store import open_store
from tests.correlator.engine.test_liars import CAPTURES, unpacked

ARCHIVES = sorted((CAPTURES / "third").glob("*.tar.xz"))
#: Below this, an incident blames nobody.
BLAMES = 0.5


class Found(NamedTuple):
    """``wrong``: by job, what is not the truth. ``blamed``: category, event and host of the incidents that blame a node."""

    wrong: dict[str, str]
    blamed: frozenset[tuple[str, str, str]]


EXPECTED: dict[str, Found] = {
    "duplicate_address_on_the_fabric": Found({}, frozenset()),
    "fabric_lost_and_nobody_logged": Found({}, frozenset()),
    "fabric_manager_dies": Found({}, frozenset({("infra.gpu", "node.environment", "gpu03")})),
    "gpu_lost_and_no_kernel_log": Found({}, frozenset()),
    "lines_by_a_health_log": Found({}, frozenset()),
    "lines_by_a_partitions_name": Found({}, frozenset()),
    "memory_of_a_gpu_beside_lost_power": Found({}, frozenset({
        ("infra.gpu", "gpu.xid", "gpu01"), ("infra.node", "node.reboot", "gpu04"), ("infra.node", "node.unresponsive", "gpu03"),
    })),
    "no_accounting_and_no_kernel_log": Found({}, frozenset({("infra.node", "node.unresponsive", "gpu03")})),
    "old_image_on_one_node": Found({}, frozenset({("infra.node", "node.environment", "gpu04")})),
    "output_under_anothers_number": Found({}, frozenset()),
    "own_illegal_access_on_two_nodes": Found({}, frozenset()),
    "own_other_job_holds_the_port": Found({}, frozenset()),
    "power_lost_and_controller_log_gone": Found({}, frozenset({("infra.node", "node.reboot", "gpu04")})),
    "preempted_beside_lost_power": Found({}, frozenset({("infra.node", "node.reboot", "gpu04")})),
    "programs_with_names_of_others": Found({}, frozenset()),
    "row_by_a_jobs_comment": Found({}, frozenset()),
    "shared_file_is_truncated": Found({}, frozenset()),
    "storage_errors_beside_dead_munge": Found({}, frozenset({
        ("infra.storage", "storage.outage", ""), ("infra.node", "node.unresponsive", "gpu04"),
    })),
    "throttled_node_misses_the_limit": Found({}, frozenset({("infra.node", "node.thermal", "gpu02")})),
    "wrong_interface_named": Found({}, frozenset({("infra.network", "nic.link_down", "gpu02")})),
}  # fmt: skip
#: The liars that once succeeded, and two faults that are true.
QUICK = {
    "programs_with_names_of_others",
    "output_under_anothers_number",
}


@cache
def found(archive: Path) -> Found:
    with unpacked(archive) as place, open_store(None) as store:
        Ingest(store).run([place])
        correlate(store)
        told, jobs = result(store), json.loads((place / "truth.json").read_text())["jobs"]
    wrong: dict[str, str] = {}
    for truth in jobs:
        job = truth | truth.get("corrected", {})
        for key, verdict in told["verdicts"].items():
            if key.split("#")[0] not in (
                str(job["id"]),
                job.get("note"),
            ):  # an array's element is noted as Slurm shows it
                continue
            outcome = outcome_of(job, verdict, (verdict.get("root_cause") or {}).get("host") or "")
            if outcome != "right" and verdict["category"] not in job.get("accept", ()):
                wrong[key] = outcome
    roots = ((i["category"], i["confidence"], i["root_cause"]) for i in told["incidents"])
    blamed = ((category, root["event"], root["host"] or "") for category, sure, root in roots if sure >= BLAMES)
    return Found(wrong, frozenset(blamed))


def assert_all_are_judged(archives: Iterable[Path], expected: Mapping[str, Found]) -> None:
    """Every archive has a row, and a row's jobs are in the truth of its archive."""
    assert {p.name.split(".")[0] for p in archives} == expected.keys()
    for archive in archives:
        with unpacked(archive) as place:
            jobs = {str(job["id"]).split("_")[0] for job in json.loads((place / "truth.json").read_text())["jobs"]}
        assert {key.split("_")[0].split("#")[0] for key in expected[archive.name.split(".")[0]].wrong} <= jobs


def each(archives: Iterable[Path], quick: Collection[str]) -> list[Any]:
    """A parameter for each archive; those that are not ``quick`` belong to the long tests."""
    names = {p: p.name.split(".")[0] for p in archives}
    return [pytest.param(p, id=name, marks=() if name in quick else pytest.mark.long) for p, name in names.items()]


@pytest.mark.parametrize("archive", each(ARCHIVES, QUICK))
def test_what_is_told_of_a_third_partys_faults(archive: Path) -> None:
    assert found(archive) == EXPECTED[archive.name.split(".")[0]]


def test_there_are_such_captures() -> None:
    assert {p.name.split(".")[0] for p in ARCHIVES} == EXPECTED.keys() and len(EXPECTED) == 20
