"""What nodes run otherwise than others supports what jobs of several users show there and elsewhere. Alone it blames nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from correlator.engine import conclude_cluster, load_edges
from correlator.facts.world import World
from parsers.record import frame
from store import open_store
from tests.correlator.facts.environment.test_environment import (
    MISMATCH,
    NO_DEVICE,
    NO_PATH,
    OWN_KEY,
    STALE,
    UNLISTED,
    Job,
    situation,
    verdict,
)
from tests.correlator.making import facts, world
from tests.correlator.situations import said

OLD, NEW = "550.54.14", "550.90.07"
ALL = [f"n{n}" for n in range(1, 9)]


def with_software(
    where: World, odd: Sequence[str], *, known: Sequence[str] = ALL, name: str = "nvidia_driver"
) -> World:
    """The same world, concluded with an inventory in which some nodes have another driver."""
    asked: list[Sequence[str]] = []

    def software(hosts: Sequence[str], moment: float) -> Mapping[str, Mapping[str, str]]:
        asked.append(hosts)
        return {host: {name: OLD if host in odd else NEW, "kernel": "5.15"} for host in hosts if host in known}

    found = world(where.events, where.runs, software=software)
    found.asked_about = asked  # type: ignore[attr-defined]
    return found


def well(*users: str, nodes: Sequence[str] = ("n1", "n2", "n4", "n5"), **more: Any) -> list[Job]:
    """Jobs that end well while others fail."""
    given = {"end": 30.0, "lasted": 40.0, **more}
    return [Job(user, node, **given) for user in users for node in nodes]


ON_ONE = (Job("alice", "n3", MISMATCH), Job("bob", "n3", MISMATCH, 2.0), *well("alice", "bob"))
#: They fail alike on three nodes, and go on elsewhere.
ON_THREE = tuple(Job(user, node, NO_DEVICE, float(n)) for n, (user, node) in enumerate((("alice", "n6"), ("bob", "n7"), ("carol", "n8"), ("bob", "n6"))))  # fmt: skip
SHARED = (*ON_THREE, *well("alice", "bob", "carol"))


def test_a_difference_of_the_node_is_said_and_makes_it_surer() -> None:
    plain, found = situation(*ON_ONE), with_software(situation(*ON_ONE), ["n3"])
    (fact,), (bare,) = facts(found, "node.environment"), facts(plain, "node.environment")
    assert fact.attrs["differs"] == f"n3 runs NVIDIA driver {OLD}, its 4 peers {NEW}"
    assert fact.attrs["counts"] == f"{bare.attrs['counts']}; {fact.attrs['differs']}"
    assert said(verdict(found)) == ("infra.node", "node.environment", "n3")
    assert bare.attrs["sure"] < fact.attrs["sure"] < bare.attrs["sure"] + 0.1


@pytest.mark.parametrize(
    "changed",
    [{"odd": []}, {"odd": ["n3", "n1"]}, {"odd": ["n3"], "known": ["n3", "n1", "n2"]}, {"odd": ["n3"], "known": ["n1", "n2", "n4", "n5"]}],
    ids=["none", "a peer has it too", "too few are known", "the node itself is not known"],
)  # fmt: skip
def test_what_is_no_difference_changes_nothing(changed: dict[str, Any]) -> None:
    (bare,) = facts(situation(*ON_ONE), "node.environment")
    (fact,) = facts(with_software(situation(*ON_ONE), **changed), "node.environment")
    assert fact.attrs == bare.attrs


def test_nodes_that_share_a_difference() -> None:
    assert facts(situation(*SHARED), "node.environment") == [], (
        "without an inventory these are several nodes, and none is at fault"
    )
    found = with_software(situation(*SHARED), ["n6", "n7", "n8"])
    (fact,) = facts(found, "node.environment")
    assert fact.host is None and fact.attrs["hosts"] == ["n6", "n7", "n8"]
    assert fact.attrs["differs"] == f"n[6-8] run NVIDIA driver {OLD}, their 4 peers {NEW}"
    for job in range(1, 5):
        assert said(verdict(found, job)) == ("infra.node", "node.environment", None)
        assert 0.5 < verdict(found, job).confidence <= 0.75


OTHERS = "alice", "bob", "carol"
#: What shares a difference and is no fault of these nodes.
DECOYS = {
    "a node without failures has it, and its jobs are well": ((*SHARED, *well("bob", nodes=["n1"])), ["n1", "n6", "n7", "n8"]),
    "one of the nodes lacks it": (SHARED, ["n6", "n7"]),
    "nobody is well elsewhere": (ON_THREE, ["n6", "n7", "n8"]),
    "one user only": ((*(Job("alice", n, NO_DEVICE) for n in ("n6", "n7", "n8")), *well("alice")), ["n6", "n7", "n8"]),
    "their jobs elsewhere are others": ((*ON_THREE, *well(*OTHERS, name="other")), ["n6", "n7", "n8"]),
    "their jobs elsewhere were over before": ((*ON_THREE, *well(*OTHERS, end=-600.0)), ["n6", "n7", "n8"]),
    "they mended it, and tried again elsewhere": ((*ON_THREE, *well(*OTHERS, end=300.0, lasted=200.0)), ["n6", "n7", "n8"]),
    "they fail elsewhere as well": ((*SHARED, *(Job(u, n, NO_DEVICE, 5.0) for u, n in zip(OTHERS, ("n1", "n2", "n4"), strict=True))), ["n6", "n7", "n8"]),
    "most jobs there are well": ((*SHARED, *well(*OTHERS, nodes=["n6", "n7", "n8"])), ["n6", "n7", "n8"]),
    "mistakes of their own": ((*(replace(job, error=OWN_KEY) for job in ON_THREE[:2]), *well(*OTHERS)), ["n6", "n7"]),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "odd"), DECOYS.values(), ids=DECOYS.keys())
def test_a_difference_alone_blames_nothing(jobs: tuple[Job, ...], odd: list[str]) -> None:
    assert facts(with_software(situation(*jobs), odd), "node.environment") == []


def test_a_difference_without_a_failure_is_not_even_asked_for() -> None:
    found = with_software(situation(*well("alice", "bob", nodes=ALL), Job("carol", "n3", STALE)), ["n3"])
    assert facts(found, "node.environment") == [] and found.asked_about == []  # type: ignore[attr-defined]


def test_paths_and_unlisted_errors_need_what_they_needed() -> None:
    """A symptom that is mostly a program's own, or known by its text only, is not made probable by a difference."""
    for error in (NO_PATH, UNLISTED):
        jobs = (*(replace(job, error=error) for job in ON_THREE[:2]), *well("alice", "bob"))
        assert facts(with_software(situation(*jobs), ["n6", "n7"]), "node.environment") == []


def test_from_the_samples_of_the_agents() -> None:
    """Through the store: the agents' hourly samples, with a newer and an older version of the same node."""
    start = datetime(2026, 3, 1, 12, tzinfo=UTC).replace(tzinfo=None)

    def sample(host: str, version: str, hours: float) -> dict[str, Any]:
        labels = json.dumps({"name": "nvidia_driver", "version": version})
        return {"cluster": "c", "host": host, "metric": "node_software_info", "value": 1.0, "labels": labels, "time": start - timedelta(hours=hours)}  # fmt: skip

    metrics = [sample(f"n{n}", NEW, hours) for n in (1, 2, 4, 5) for hours in (0.5, 1.5)]
    metrics += [sample("n3", NEW, 2.5), sample("n3", OLD, 0.5), sample("n1", OLD, -4.0)]
    jobs, logs = [], []
    for number, job in enumerate(ON_ONE, 1):
        end = start + timedelta(seconds=job.end)
        failed = job.error is not None
        jobs.append({
            "cluster": "c", "job_id": number, "db_index": number, "user": job.user, "name": job.name, "nodes": [job.node], "node_list": job.node, "source": "sacct",
            "state": "FAILED" if failed else "COMPLETED", "exit_code": int(failed), "start": end - timedelta(seconds=job.lasted), "end": end,
        })  # fmt: skip
        if failed:
            logs.append({
                "cluster": "c", "time": end - timedelta(seconds=1), "job_id": number, "source": "job_stderr", "event": "job.environment_error",
                "message": job.error, "raw": job.error, "file": f"{number}.err", "line": 1, "format": "job_output", "time_quality": "line", "resolution_us": 1000,
            })  # fmt: skip
    with open_store(None) as store:
        store.append({"jobs": frame("jobs", jobs), "logs": frame("logs", logs), "metrics": frame("metrics", metrics)})
        found = conclude_cluster(store, "c", load_edges()).result
    assert f"n3 runs NVIDIA driver {OLD}, its 4 peers {NEW}" in found.verdicts["1"]["summary"]
    assert f"n3 runs NVIDIA driver {OLD}, its 4 peers {NEW}" in found.verdicts["1"]["grounds"]
    assert found.verdicts["1"]["root_cause"]["host"] == "n3"
