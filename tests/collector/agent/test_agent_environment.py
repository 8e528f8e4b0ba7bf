"""What a step ran with, from its task prolog to the store: allow-listed, bounded, without secrets, and the user's word."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from made_host import Host, asked, tables
from test_agent_strangers import ALICE, MALLORY, env, owned, spools

from collector import hooks
from collector.agent import environment
from collector.agent.environment import ALLOWED, MOST, MOST_ALL, MOST_VALUE, allowed, kept, step_of

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")
RAN_WITH = {
    "SLURM_JOB_ID": "15", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "NCCL_IB_HCA": "mlx5_0", "HOME": "/home/alice",
    "UCX_NET_TOKEN": "c0ffee00c0ffee00", "OMPI_MCA_btl": "^openib", "NCCL_CONF_URL": "https://alice:hunter2@conf.example.org/x",
}  # fmt: skip
PROLOG = {"SLURM_JOB_ID": "15", "SLURM_JOB_UID": str(ALICE), "SLURM_JOB_RESTART_COUNT": "2"}


def documents(host: Host, kind: str) -> list[dict[str, object]]:
    return [row for row in asked(host.runner("hooks")) if row.get("document") == kind]


@needs_root
def test_a_step_of_ones_own_job_tells_what_it_ran_with(host: Host) -> None:
    root, tasks = spools(host)
    (root / "15.prolog.gpu01.6.1.hook").write_bytes(env("prolog", **PROLOG))
    owned(tasks / "15.taskprolog.gpu01.7.2.hook", env("taskprolog", **RAN_WITH), ALICE)
    (sent,) = documents(host, "task_environment")
    assert (
        "hunter2" not in json.dumps(sent) and "c0ffee" not in json.dumps(sent) and "/home/alice" not in json.dumps(sent)
    )
    rows = tables(sent)["environments"].to_dicts()
    assert {(row["job_id"], row["restarts"], row["step"], row["host"]) for row in rows} == {(15, 2, "0", "gpu01")}
    values = {row["name"]: row["value"] for row in rows}
    assert values["NCCL_IB_HCA"] == "mlx5_0" and values["OMPI_MCA_btl"] == "^openib"
    assert values["UCX_NET_TOKEN"] == "[redacted]" and "[redacted]" in values["NCCL_CONF_URL"]
    assert set(tables(sent)) == {"environments"}, "no table that says something about the cluster"


@needs_root
def test_a_job_that_ended_before_the_agent_looked_tells_it_too(host: Host) -> None:
    """Found on a real cluster: prolog, task prolog and epilog of a short job lie there together."""
    root, tasks = spools(host)
    for at, event in ((1, "prolog"), (4, "epilog")):
        (root / f"15.{event}.gpu01.6.{at}.hook").write_bytes(env(event, **PROLOG))
    owned(tasks / "15.taskprolog.gpu01.7.2.hook", env("taskprolog", **RAN_WITH), ALICE)
    owned(tasks / "15.taskprolog.gpu01.7.3.hook", env("taskprolog", **RAN_WITH | {"SLURM_STEP_ID": "1"}), MALLORY)
    (sent,) = documents(host, "task_environment")
    assert json.loads(str(sent["raw"]))["step"] == "0"


@needs_root
def test_owners_of_ended_jobs_are_forgotten_in_time(host: Host) -> None:
    root, _ = spools(host)
    for job in range(1, 100):
        for later, event in enumerate(("prolog", "epilog")):
            named = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(ALICE)}
            (root / f"{job}.{event}.gpu01.6.{2 * job + later}.hook").write_bytes(env(event, **named))
    runner = host.runner("hooks")
    assert asked(runner)
    known = runner.source
    while list(known.poll()):  # type: ignore[union-attr]  # it takes a hundred files at a time
        pass
    assert list(known._owners) == list(known._ended) == [str(job) for job in range(36, 100)]  # type: ignore[union-attr]


@needs_root
def test_nobody_tells_what_anothers_job_ran_with(host: Host) -> None:
    """Nor a job of which root's prolog said nothing: whose it is, only the file says."""
    root, tasks = spools(host)
    (root / "15.prolog.gpu01.6.1.hook").write_bytes(env("prolog", **PROLOG))
    owned(tasks / "15.taskprolog.gpu01.7.2.hook", env("taskprolog", **RAN_WITH), MALLORY)
    owned(tasks / "16.taskprolog.gpu01.7.3.hook", env("taskprolog", **RAN_WITH | {"SLURM_JOB_ID": "16"}), MALLORY)
    assert documents(host, "task_environment") == []


@needs_root
def test_each_step_tells_it_once_and_a_job_so_many_times(host: Host) -> None:
    root, tasks = spools(host)
    (root / "15.prolog.gpu01.6.1.hook").write_bytes(env("prolog", **PROLOG))
    told = [
        {"SLURM_STEP_ID": "0"},
        {"SLURM_STEP_ID": "0", "NCCL_DEBUG": "INFO"},
        {"SLURM_STEP_ID": "4294967291"},
        {"SLURM_PROCID": "3"},
    ]
    told += [{"SLURM_STEP_ID": str(n)} for n in range(1, 60)] + [{"SLURM_STEP_ID": "../x"}]
    for number, more in enumerate(told):
        owned(tasks / f"15.taskprolog.gpu01.7.{100 + number}.hook", env("taskprolog", **RAN_WITH | more), ALICE)
    steps = [json.loads(str(row["raw"]))["step"] for row in documents(host, "task_environment")]
    assert steps[:3] == ["0", "batch", "1"] and len(steps) == len(set(steps)) == 32


def test_an_environment_is_bounded() -> None:
    many, cut = kept({f"NCCL_{n:04}": "x" for n in range(5000)})
    assert len(many) == MOST and cut == 5000 - MOST
    (long,), cut = kept({"NCCL_A": "x" * 100_000})[0].values(), 1
    assert len(long) == MOST_VALUE
    large, cut = kept({f"NCCL_{n}": "x" * 4000 for n in range(100)})
    assert sum(len(name) + len(value) for name, value in large.items()) <= MOST_ALL and cut == 100 - len(large)


def test_a_secret_is_found_before_its_value_is_cut() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkq\n" * 400 + "-----END PRIVATE KEY-----"
    found, _ = kept({"NCCL_KEY_FILE": key, "SLURM_JWT": "eyJ.x.y", "APPTAINER_DOCKER_PASSWORD": "swordfish"})
    assert "MIIE" not in str(found) and "swordfish" not in str(found) and "SLURM_JWT" not in found


def test_a_site_names_more(tmp_path: Path) -> None:
    (tmp_path / "environment.conf").write_text("# ours\nWANDB_MODE\nSITE_*\n")
    names = allowed(tmp_path / "environment.conf")
    found, _ = kept({"WANDB_MODE": "offline", "SITE_A": "1", "WANDB_MODES": "x", "HOME": "/"}, names)
    assert found == {"WANDB_MODE": "offline", "SITE_A": "1"} and allowed(tmp_path / "none") == ALLOWED


def test_hook_and_agent_keep_the_same_names() -> None:
    """The hook imports nothing, so that the list stands twice."""
    beginnings = {name.rstrip("*") + ("" if name.endswith("*") else "=") for name in ALLOWED} - {"SLURM_"}
    assert (
        beginnings == {name.decode() for name in hooks.ENVIRONMENT} and str(environment.SITE) == hooks.SITE_ENVIRONMENT
    )


@pytest.mark.parametrize(
    ("given", "step"),
    [({}, "batch"), ({"SLURM_STEP_ID": "7"}, "7"), ({"SLURM_STEPID": "3"}, "3"), ({"SLURM_STEP_ID": "4294967290"}, "interactive"),
     ({"SLURM_STEP_ID": "x"}, None), ({"SLURM_STEP_ID": "9" * 30}, None)],
)  # fmt: skip
def test_steps_have_slurms_names(given: dict[str, str], step: str | None) -> None:
    assert step_of(given) == step
