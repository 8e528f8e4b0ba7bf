"""What nodes run otherwise than others supports what jobs of several users show there and elsewhere. Alone it blames nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from correlator.engine import conclude_cluster, load_edges
from correlator.facts.world import World
from correlator.gather import software as gathered
from correlator.gather.software import Held
from parsers.record import frame
from store import open_store
from tests.correlator.facts.environment.test_environment import (
    FULL,
    MISMATCH,
    NO_DEVICE,
    NO_MEMORY,
    NO_PATH,
    OWN_KEY,
    SAME_FILE,
    STALE,
    TIMED_OUT,
    UNLISTED,
    Job,
    situation,
    verdict,
)
from tests.correlator.making import facts, world
from tests.correlator.situations import said

START = datetime(2026, 3, 1, 12)
OLD, NEW = "550.54.14", "550.90.07"
ALL = [f"n{n}" for n in range(1, 9)]


def with_software(
    where: World, odd: Sequence[str], *, known: Sequence[str] = ALL, name: str = "nvidia_driver"
) -> World:
    """The same world, concluded with an inventory in which some nodes have another driver."""
    asked: list[Sequence[str]] = []

    def software(hosts: Sequence[str], peers: Sequence[str], moment: float) -> Sequence[Held]:
        asked.append(peers)
        theirs = [host for host in peers if host in known]
        rows = []
        for version in (OLD, NEW):
            own = sum(host in known and (host in odd) == (version == OLD) for host in hosts)
            rows.append(
                Held(name, version, own, sum((host in odd) == (version == OLD) for host in theirs), len(theirs))
            )
        return [*rows, Held("kernel", "5.15", sum(host in known for host in hosts), len(theirs), len(theirs))]

    found = world(where.events, where.runs, software=software)
    found.asked_about = asked  # type: ignore[attr-defined]
    return found


def well(*users: str, nodes: Sequence[str] = ("n1", "n2", "n4", "n5"), **more: Any) -> list[Job]:
    """Jobs that end well while others fail."""
    given = {"end": 30.0, "lasted": 40.0, **more}
    return [Job(user, node, **given) for user in users for node in nodes]


NO_GPU = "RuntimeError: No CUDA GPUs are available"
ON_ONE = (Job("alice", "n3", NO_GPU), Job("bob", "n3", NO_GPU, 2.0), *well("alice", "bob"))
#: They fail alike on three nodes, and go on elsewhere.
ON_THREE = tuple(Job(user, node, MISMATCH, float(n)) for n, (user, node) in enumerate((("alice", "n6"), ("bob", "n7"), ("carol", "n8"), ("bob", "n6"))))  # fmt: skip
SHARED = (*ON_THREE, *well("alice", "bob", "carol"))


def test_a_difference_of_the_node_is_said_and_makes_it_surer() -> None:
    plain, found = situation(*ON_ONE), with_software(situation(*ON_ONE), ["n3"])
    (fact,), (bare,) = facts(found, "node.environment"), facts(plain, "node.environment")
    assert fact.attrs["differs"] == f"n3 runs NVIDIA driver {OLD}, its 4 peers {NEW}"
    assert fact.attrs["counts"] == f"{bare.attrs['counts']}; {fact.attrs['differs']}"
    assert said(verdict(found)) == ("infra.node", "node.environment", "n3")
    assert bare.attrs["sure"] < fact.attrs["sure"] < bare.attrs["sure"] + 0.1


def test_a_difference_makes_nothing_surer_than_its_symptom_allows() -> None:
    jobs = tuple(replace(job, error=MISMATCH) for job in ON_ONE[:2])
    more = tuple(Job(user, "n3", MISMATCH, 4.0) for user in ("carol", "dave"))
    (fact,) = facts(with_software(situation(*jobs, *more, *well("alice", "bob")), ["n3"]), "node.environment")
    assert fact.attrs["sure"] == 0.9 and fact.attrs["differs"]


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
    "one user only": ((*(Job("alice", n, MISMATCH) for n in ("n6", "n7", "n8")), *well("alice")), ["n6", "n7", "n8"]),
    "their jobs elsewhere are others": ((*ON_THREE, *well(*OTHERS, name="other")), ["n6", "n7", "n8"]),
    "their jobs elsewhere were over before": ((*ON_THREE, *well(*OTHERS, end=-600.0)), ["n6", "n7", "n8"]),
    "they mended it, and tried again elsewhere": ((*ON_THREE, *well(*OTHERS, end=300.0, lasted=200.0)), ["n6", "n7", "n8"]),
    "they fail elsewhere as well": ((*SHARED, *(Job(u, n, MISMATCH, 5.0) for u, n in zip(OTHERS, ("n1", "n2", "n4"), strict=True))), ["n6", "n7", "n8"]),
    "most jobs there are well": ((*SHARED, *well(*OTHERS, nodes=["n6", "n7", "n8"])), ["n6", "n7", "n8"]),
    # Another partition has other nodes, and its jobs are well there: nothing of the nodes that fail.
    "they are well in another partition": ((*ON_THREE, *well(*OTHERS, partition="old")), ["n6", "n7", "n8"]),
    "only others are well in theirs": ((*ON_THREE, *well(*OTHERS, nodes=["m1", "m2"], partition="old"), *well("dave", "erin")), ["n6", "n7", "n8"]),
    "nodes of two partitions": ((*(replace(job, partition="old") if job.node == "n6" else job for job in ON_THREE), *well(*OTHERS)), ["n6", "n7", "n8"]),
    "no partition is known": (tuple(replace(job, partition="") for job in SHARED), ["n6", "n7", "n8"]),
    "they fail in another partition as well": ((*SHARED, *(Job(u, n, MISMATCH, 5.0, partition="old") for u, n in zip(OTHERS, ("m1", "m2", "m4"), strict=True))), ["n6", "n7", "n8"]),
    "their jobs there are well in another partition": ((*SHARED, *well(*OTHERS, nodes=["n6", "n7", "n8"], partition="old")), ["n6", "n7", "n8"]),
    "mistakes of their own": ((*(replace(job, error=OWN_KEY) for job in ON_THREE[:2]), *well(*OTHERS)), ["n6", "n7"]),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "odd"), DECOYS.values(), ids=DECOYS.keys())
def test_a_difference_alone_blames_nothing(jobs: tuple[Job, ...], odd: list[str]) -> None:
    assert facts(with_software(situation(*jobs), odd), "node.environment") == []


def test_a_difference_without_a_failure_is_not_even_asked_for() -> None:
    found = with_software(situation(*well("alice", "bob", nodes=ALL), Job("carol", "n3", STALE)), ["n3"])
    assert facts(found, "node.environment") == [] and found.asked_about == []  # type: ignore[attr-defined]


#: What depends on what a user built, typed, or needs: it fits some kinds of nodes, and not others.
BUILT = [
    NO_PATH, UNLISTED, NO_DEVICE, NO_GPU, NO_MEMORY, FULL, "./solver: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./solver)",
    "ModuleNotFoundError: No module named 'flash_attn'", "bash: line 3: nvcc: command not found", SAME_FILE, TIMED_OUT,
    "./a.out: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory",
]  # fmt: skip


@pytest.mark.parametrize("error", BUILT)
def test_what_users_built_or_need_blames_no_nodes_that_share_a_difference(error: str) -> None:
    jobs = (*(replace(job, error=error) for job in ON_THREE), *well(*OTHERS))
    for name in ("os", "nvidia_driver"):
        found = with_software(situation(*jobs), ["n6", "n7", "n8"], name=name)
        assert facts(found, "node.environment") == [] and verdict(found).category != "infra.node"


def test_all_peers_of_the_partition_are_compared_and_no_others() -> None:
    """However many there are, and whatever their names: the one that has the same version may be the last of them."""
    many = [f"a{n:03}" for n in range(200)]
    peers = tuple(Job("dave", host, end=30.0, lasted=40.0) for host in [*many, "z1"])
    known = [*ALL, *many, "z1"]
    (fact,) = facts(with_software(situation(*ON_ONE, *peers), ["n3", "z1"], known=known), "node.environment")
    assert "differs" not in fact.attrs
    assert (
        facts(with_software(situation(*SHARED, *peers), ["n6", "n7", "n8", "z1"], known=known), "node.environment")
        == []
    )
    strangers = tuple(replace(job, partition="old") for job in peers)
    (fact,) = facts(with_software(situation(*ON_ONE, *strangers), ["n3"], known=known), "node.environment")
    assert fact.attrs["differs"] == f"n3 runs NVIDIA driver {OLD}, its 4 peers {NEW}"


def sample(host: str, version: str, hours: float, **more: str) -> dict[str, Any]:
    """A sample of an agent so long before ``START``."""
    labels = json.dumps({"name": "nvidia_driver", "version": version, **more})
    return {"cluster": "c", "host": host, "metric": "node_software_info", "value": 1.0, "labels": labels, "time": START - timedelta(hours=hours)}  # fmt: skip


def test_the_store_answers_with_few_rows_about_many_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"a{n:03}" for n in range(300)]
    metrics = [sample(host, NEW, 0.5) for host in many] + [
        sample("a299", OLD, 2.0),
        sample("a007", NEW, 0.5, name="bios"),
    ]
    metrics += [
        sample("n3", OLD, 0.5),
        *(sample("n3", f"28.{n}", 0.5, name="nic_firmware", device=f"mlx5_{n}") for n in (1, 2)),
    ]
    metrics += [sample(host, "28.1", 0.5, name="nic_firmware", device="mlx5_0") for host in many[:10]]
    metrics += [sample("z9", OLD, 0.5), {**sample("a001", OLD, 0.1), "cluster": "other"}]
    with open_store(None) as store:
        store.append({"metrics": frame("metrics", metrics)})
        moment = START.replace(tzinfo=UTC).timestamp()
        assert gathered.versions(store, "c", is_measured=True)(["n3"], many, moment) == [
            Held("nic_firmware", "28.1", 1, 10, 10), Held("nic_firmware", "28.2", 1, 0, 10),
            Held("nvidia_driver", OLD, 1, 0, 300), Held("nvidia_driver", NEW, 0, 300, 300),
        ]  # fmt: skip
        monkeypatch.setattr(gathered, "MOST_VERSIONS", 3)
        assert gathered.versions(store, "c", is_measured=True)(["n3"], many, moment) == (), (
            "what is cut off may be the same"
        )


def test_from_the_samples_of_the_agents() -> None:
    """Through the store: the agents' hourly samples, with a newer and an older version of the same node."""
    start = START
    metrics = [sample(f"n{n}", NEW, hours) for n in (1, 2, 4, 5) for hours in (0.5, 1.5)]
    metrics += [sample("n3", NEW, 2.5), sample("n3", OLD, 0.5), sample("n1", OLD, -4.0)]
    jobs, logs = [], []
    for number, job in enumerate(ON_ONE, 1):
        end = start + timedelta(seconds=job.end)
        failed = job.error is not None
        jobs.append({
            "cluster": "c", "job_id": number, "db_index": number, "user": job.user, "partition": job.partition, "name": job.name, "nodes": [job.node], "node_list": job.node, "source": "sacct",
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
