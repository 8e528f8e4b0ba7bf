"""What a run ran with on its page and in the API, and what differs from the last run that ended well."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from faultline import why_remote, why_text
from faultline.remote import Service
from store.questions.software import METRIC
from web.app import create_app
from web.job_environment import MOST_CHANGES, differences, sentence
from web.job_software import changes

START = datetime.fromisoformat("2026-11-21T08:00:00")


def ran(store: fixture.FakeStore, job: int, hours: float, state: str, attempt: int = 0, **more: Any) -> None:
    start = START + timedelta(hours=hours)
    row = {
        "run_key": f"{job}#{attempt}" if attempt else str(job), "cluster": "mini", "job_id": job, "attempt": attempt, "state": state,
        "nodes": ["gpu01"], "start": start, "submit": start, "end": start + timedelta(hours=0.5), "user": "alice", "name": "fit", **more,
    }  # fmt: skip
    fixture.insert(store.con, "model.runs", row)


def with_environment(store: fixture.FakeStore, job: int, attempt: int = 0, step: str = "0", **variables: str) -> None:
    for name, value in variables.items():
        fixture.insert(store.con, "raw.environments", {
            "cluster": "mini", "job_id": job, "restarts": attempt, "step": step, "host": "gpu01", "name": name, "value": value, "seen_at": START,
        })  # fmt: skip


def asked(store: fixture.FakeStore, key: str) -> Any:
    return TestClient(create_app(store)).get(f"/api/v1/jobs/{key}").json()["environment"]


def page(store: fixture.FakeStore, key: str) -> str:
    return TestClient(create_app(store)).get(f"/jobs/{key}").text


def test_page_and_api_show_what_each_attempt_ran_with_as_the_users_word() -> None:
    store = fixture.build()
    ran(store, 901, 0, "NODE_FAIL")
    ran(store, 901, 1, "FAILED", attempt=1)
    with_environment(store, 901, NCCL_IB_HCA="mlx5_0")
    with_environment(store, 901, attempt=1, NCCL_IB_HCA="mlx5_7")
    with_environment(store, 901, attempt=1, step="batch", LOADEDMODULES="<b>gcc")
    assert asked(store, "901") == {"source": "user", "steps": {"0": {"NCCL_IB_HCA": "mlx5_0"}}, "since_last_good": None}
    assert asked(store, "901%231")["steps"] == {"0": {"NCCL_IB_HCA": "mlx5_7"}, "batch": {"LOADEDMODULES": "<b>gcc"}}
    text = page(store, "901%231")
    assert "mlx5_7" in text and "mlx5_0" not in text and "&lt;b&gt;gcc" in text and "as the user set it" in text
    assert "What differs" not in text


def test_it_is_compared_with_the_last_run_of_this_user_and_name_that_ended_well() -> None:
    store = fixture.build()
    ran(store, 801, -9, "COMPLETED")
    ran(store, 802, -5, "COMPLETED")
    for job, hours, more in (
        (803, -4, {"state": "FAILED"}),
        (804, -3, {"user": "bob"}),
        (805, -2, {"name": "other"}),
        (806, 5, {}),
    ):
        ran(store, job, hours, **{"state": "COMPLETED", **more})  # type: ignore[arg-type]
    ran(store, 807, -1, "COMPLETED")  # of which nothing was kept
    ran(store, 901, 0, "FAILED")
    for job in (801, 803, 804, 805, 806):
        with_environment(store, job, NCCL_IB_HCA="mlx5_9")
    with_environment(store, 802, NCCL_IB_HCA="mlx5_0", UCX_TLS="rc", SLURM_JOB_ID="802", OMPI_MCA_pml="ucx")
    with_environment(store, 901, NCCL_IB_HCA="mlx5_2", SLURM_JOB_ID="901", OMPI_MCA_pml="ucx", NCCL_DEBUG="INFO")
    said = asked(store, "901")["since_last_good"]
    assert said["run"] == "802" and said["more"] == 0 and said["sentences"] == [
        "NCCL_DEBUG is set now: INFO", "NCCL_IB_HCA changed: mlx5_0 -> mlx5_2", "UCX_TLS is not set any more; it was rc",
    ]  # fmt: skip
    text = page(store, "901")
    assert "NCCL_IB_HCA changed: mlx5_0 -&gt; mlx5_2" in text and "Context, no cause" in text


def booted(store: fixture.FakeStore, host: str, hours: float, version: str, authority: str = "kernel") -> None:
    fixture.insert(store.con, "model.events", {
        "event_id": f"e-{host}-{version}", "time": START + timedelta(hours=hours), "cluster": "mini", "host": host, "source": "kernel",
        "event": "kernel.boot", "entities": json.dumps({"version": version}), "authority": authority, "layer": "kernel",
    })  # fmt: skip


def test_kernels_that_no_node_of_the_other_run_had_are_named() -> None:
    store = fixture.build()
    ran(store, 802, -5, "COMPLETED", nodes=["gpu01", "gpu02"])
    ran(store, 901, 0, "FAILED", nodes=["gpu01", "gpu02", "gpu03"])
    for job in (802, 901):
        with_environment(store, job, NCCL_A="x")
    for host in ("gpu01", "gpu02"):
        booted(store, host, -9, "6.1.0-18")
    booted(store, "gpu01", -2, "6.1.0-20", authority="local")  # any user could have written that
    assert asked(store, "901")["since_last_good"] is None
    booted(store, "gpu02", -2, "6.1.0-20")
    booted(store, "gpu03", -2, "6.1.0-20")
    booted(store, "gpu01", 2, "6.1.0-21")
    assert asked(store, "901")["since_last_good"]["nodes"] == ["kernel 6.1.0-18 -> 6.1.0-20 on 2 of 3 nodes"]
    assert "kernel 6.1.0-18 -&gt; 6.1.0-20 on 2 of 3 nodes" in page(store, "901")


def test_nothing_is_said_where_nothing_differs_or_is_known() -> None:
    store = fixture.build()
    ran(store, 802, -5, "COMPLETED")
    ran(store, 901, 0, "FAILED")
    ran(store, 902, 0, "FAILED", name=None)
    ran(store, 903, 0, "FAILED", user=None)
    for job in (802, 901, 902, 903):
        with_environment(store, job, NCCL_IB_HCA="mlx5_0" if job < 902 else "mlx5_2", CUDA_HOME=f"/scratch/{job}/cuda")
    for key in ("901", "902", "903", "802"):
        assert asked(store, key)["since_last_good"] is None and "What differs" not in page(store, key)
    ran(store, 904, 0, "FAILED")
    assert asked(store, "904") is None


@pytest.mark.parametrize(
    "name",
    ["SLURM_JOB_ID", "SLURM_NODELIST", "SLURM_PROCID", "SLURMD_NODENAME", "SLURM_TASK_PID", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
     "PMIX_RANK", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"],
)  # fmt: skip
def test_what_differs_from_run_to_run_by_itself_is_no_difference(name: str) -> None:
    assert differences({"0": {name: "a"}}, {"0": {name: "b"}}, 1, 2) == []


@pytest.mark.parametrize(
    "name", ["OMPI_MCA_btl", "SLURM_CPUS_PER_TASK", "SLURM_CONTAINER", "NCCL_DEBUG", "LOADEDMODULES", "CONDA_PREFIX"]
)
def test_what_a_user_chooses_is_one(name: str) -> None:
    (found,) = differences({"0": {name: "a"}}, {"0": {name: "b"}, "1": {name: "c"}}, 1, 2)
    assert sentence(found) == f"{name} changed: a -> b"


def test_many_differences_are_counted() -> None:
    store = fixture.build()
    ran(store, 802, -5, "COMPLETED")
    ran(store, 901, 0, "FAILED")
    with_environment(store, 802, NCCL_A="x")
    with_environment(store, 901, NCCL_A="x", **{f"NCCL_B{n:02}": "y" for n in range(MOST_CHANGES + 5)})
    said = asked(store, "901")["since_last_good"]
    assert len(said["changes"]) == MOST_CHANGES and said["more"] == 5


def test_why_lists_the_differences_as_context(capsys: pytest.CaptureFixture[str]) -> None:
    store = fixture.build()
    client = TestClient(create_app(store))

    class Asked(Service):
        def ask(self, path: str, body: dict[str, Any] | None = None) -> bytes:
            return client.get(path).content

    class Plain:
        columns = None

        def line(self, *parts: tuple[str, str]) -> None:
            print("".join(text for text, _ in parts))

    run = client.get("/api/v1/jobs/15").json()
    begun = datetime.fromisoformat(run["start"]).replace(tzinfo=None)
    ran(
        store,
        802,
        (begun - START).total_seconds() / 3600 - 9,
        "COMPLETED",
        user=run["user"],
        name=run["name"],
        cluster=run["cluster"],
    )
    with_environment(store, 15, UCX_TLS="tcp")
    assert why_remote.explain(Asked("http://there"), "15", "json", Plain()) == 0
    assert "since_last_good" not in json.loads(capsys.readouterr().out)
    with_environment(store, 802, UCX_TLS="rc")
    assert why_remote.explain(Asked("http://there"), "15", "json", Plain()) == 0
    differs = json.loads(capsys.readouterr().out)["since_last_good"]
    assert (differs["run"], differs["sentences"]) == ("802", ["UCX_TLS changed: rc -> tcp"])
    said = dict.fromkeys(("headline", "summary", "category", "change_my_mind"), "x") | {
        "confidence": 0.5,
        "final": True,
    }
    verdict = {**said, **{name: [] for name in ("advice", "evidence", "chain", "grounds", "rivals", "doubts")}}
    why_text.why(Plain(), "15", verdict, None, differs)
    text = capsys.readouterr().out
    assert "Otherwise than in 802, the last run of this name that ended well (context, no cause)" in text
    assert "  - UCX_TLS changed: rc -> tcp" in text
    why_text.why(Plain(), "15", verdict, None)
    assert "Otherwise than" not in capsys.readouterr().out


def has(
    store: fixture.FakeStore, hours: float, hosts: Sequence[str], name: str, version: str, device: str | None = None
) -> None:
    labels = {"name": name, "version": version} | ({"device": device} if device else {})
    for host in hosts:
        fixture.insert(store.con, "raw.metrics", {
            "time": START + timedelta(hours=hours), "cluster": "mini", "host": host, "metric": METRIC, "value": 1.0, "device": device,
            "labels": json.dumps(labels),
        })  # fmt: skip


def test_what_the_nodes_ran_is_compared_with_the_last_good_run() -> None:
    store = fixture.build()
    nodes = ["gpu01", "gpu02", "gpu03"]
    root = {"event": "gpu.xid", "code": "79", "host": "gpu03", "device": None}
    document = {"category": "infra.gpu", "root_cause": root, "evidence": [], "rivals": [], "doubts": [], "grounds": []}
    ran(store, 802, -5, "COMPLETED", nodes=nodes)
    ran(store, 901, 0, "NODE_FAIL", nodes=nodes, document=json.dumps(document))
    has(store, -6, nodes, "nvidia_driver", "570.86.15")
    has(store, -6, nodes, "nic_firmware", "28.39.1002", "mlx5_0")
    has(store, -1, ["gpu02", "gpu03"], "nvidia_driver", "575.12.03")
    has(store, 1, ["gpu01"], "nvidia_driver", "580.1.1")  # after it had begun
    found = TestClient(create_app(store)).get("/api/v1/jobs/901").json()["software"]
    assert [(one["called"], one["version"], one["nodes"]) for one in found["at_start"]] == [
        ("NIC firmware", "28.39.1002", "gpu[01-03]"), ("NVIDIA driver", "575.12.03", "gpu[02-03]"), ("NVIDIA driver", "570.86.15", "gpu01"),
    ]  # fmt: skip
    said = "NVIDIA driver 570.86.15 -> 575.12.03 on 2 of 3 nodes (gpu[02-03]): it fits what broke"
    assert (found["since_last_good"]["run"], found["since_last_good"]["sentences"]) == ("802", [said])
    assert "570.86.15 -&gt; 575.12.03 on 2 of 3 nodes" in page(store, "901")
    assert TestClient(create_app(store)).get("/api/v1/jobs/802").json()["software"]["since_last_good"] is None


def test_a_change_elsewhere_or_of_another_kind_does_not_fit() -> None:
    before, after = {"a": {"kernel": "1", "bios": "1"}}, {"a": {"kernel": "2", "bios": "2"}, "b": {"kernel": "2"}}
    link = {"root_cause": {"event": "nic.link_flap", "host": "a"}}
    assert {one["name"]: one["fits"] for one in changes(before, after, link)} == {"kernel": True, "bios": False}
    assert not any(
        one["fits"] for one in changes(before, after, {"root_cause": {"event": "nic.link_flap", "host": "c"}})
    )
    assert changes({"a": {"bios": "1"}}, {"a": {"kernel": "2"}}) == [], "nothing is known of what it was"
