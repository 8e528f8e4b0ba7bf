"""A fault of a GPU that a run did not hold did not end it.

erin's job 45 fails on gx02 by its exit code, five seconds after a GPU of that node fell off the bus.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.gather.gpu_counts import gpus_of_nodes, nodes_with_slices
from correlator.live.ticker import Ticker
from store import open_store
from tests.correlator.attacked import _TREE, write
from tests.correlator.erins_job import RING, SACCT, XID, bobs_job, busy, concluded, of_erin, ring
from tests.correlator.rows import answer
from tests.line_parser import line_parser

CONF = "slurm.conf"
FELL_OFF = {RING: ring("10:19:55", XID)}
NO_GPU = "had no GPU"
HOOK = "nodes/gx02/15.prolog.gx02.45.env"


def counted(tree: dict[str, str] | None = None, **gpus: int) -> dict[str, str]:
    """The tree with the GPUs of jobs in accounting, by user; a job of anybody else has none."""
    header, *rows = {**_TREE, **(tree or {})}[SACCT].splitlines()
    lines = [header + "|AllocTRES"]
    for row in rows:
        count = gpus.get(row.split("|")[2], 0)
        lines.append(row + "|billing=1,cpu=1,mem=200M,node=1" + (f",gres/gpu={count}" if count else ""))
    return {**(tree or {}), SACCT: "\n".join(lines) + "\n"}


def configured(text: str) -> dict[str, str]:
    return {CONF: _TREE[CONF] + text}


COUNTED = configured("AccountingStorageTRES=gres/gpu,gres/gpu:h100\nGresTypes=gpu\n")


def held(numbers: str, minor: int, job: str = "45", more: str = "") -> dict[str, str]:
    """Root's hook gave a job these GPUs; nvidia-smi lists four, of which 3B is the second by its address, and its number."""
    env = f"SLURM_JOB_ID={job}\nSLURM_JOB_USER={'erin' if job == '45' else 'bob'}\nSLURM_JOB_GPUS={numbers}\nSLURM_JOB_NODELIST=gx02\nSLURM_SCRIPT_CONTEXT=prolog_slurmd\n{more}"
    others = iter(n for n in range(4) if n != minor)
    gpus = "".join(
        f"GPU 00000000:{bus}:00.0\n    Product Name                          : NVIDIA H100\n    Minor Number                          : {minor if bus == '3B' else next(others)}\n"
        for bus in ("1A", "3B", "5C", "7D")
    )  # fmt: skip
    head = "\n==============NVSMI LOG==============\n\nTimestamp                                 : Sat Feb 28 09:30:00 2026\n"
    listed = f"{head}Driver Version                            : 550.54.15\n\nAttached GPUs                             : 4\n{gpus}"
    return {HOOK.replace("45", job): env, "nodes/gx02/nvidia-smi.txt": listed}


def device(number: int) -> dict[str, str]:
    """The error of erin's program is about this device file."""
    error = "RuntimeError: CUDA error: no CUDA-capable device is detected"
    return {"jobs/45/stderr": f"{error} ([Errno 2] No such file or directory: '/dev/nvidia{number}')\n"}


def lost_a_gpu(tree: dict[str, str]) -> dict[str, Any]:
    """What is concluded when a GPU of gx02 falls off the bus. The line is one of the tree, which then is read once: nearly
    every test has a tree of its own."""
    return concluded({}, tree={**FELL_OFF, **tree})


class Case(NamedTuple):
    #: What is known of who had which GPU.
    kind: str
    tree: dict[str, str]
    #: Why the GPU is no cause; empty: it is one.
    why: str


CASES = {
    "no GPU, by slurm.conf's count": Case("none counted", counted(COUNTED), NO_GPU),
    "no GPU, where another's are counted": Case("none counted", counted(bob=4), NO_GPU),
    "one GPU": Case("one counted", counted(COUNTED, erin=1), ""),
    "accounting counts no GPU of anybody": Case("not counted", counted(), ""),
    "accounting counts no GPU before that": Case("not counted before that", counted(bobs_job("10:20:30", "10:40:00"), bob=4), ""),
    "jobs also get shares of GPUs": Case(
        "shares", counted(configured("AccountingStorageTRES=gres/gpu\nGresTypes=gpu,shard\n"), bob=4), ""
    ),
    "accounting tells nothing of resources": Case("no resources told", COUNTED, ""),
    "a GPU of another job": Case("the hook gave others", {**counted(COUNTED, erin=3), **held("0,2-3", 1)}, "had the GPUs 0,2-3"),
    "a GPU that another job had": Case(
        "another's hook gave it", {**counted(COUNTED, erin=1, bob=2), **held("0-1", 1, "42")}, "job 42 had the GPUs 0-1 of gx02, and this is 1"
    ),
    "perhaps a GPU that another job had": Case("another's hook may have given it", {**counted(COUNTED, erin=1, bob=2), **held("0-1", 2, "42")}, ""),
    "its own GPU": Case("the hook gave it", {**counted(COUNTED, erin=2), **held("0-1", 1)}, ""),
    "its own GPU by its address": Case("the hook gave it by its address", {**counted(COUNTED, erin=2), **held("0-1", 2)}, ""),
    "its own GPU by its device file": Case("the hook gave it by its device file", {**counted(COUNTED, erin=3), **held("0,2-3", 2)}, ""),
    "a device file that its node does not have": Case(
        "a device file of no GPU", {**counted(COUNTED, erin=1), CONF: COUNTED[CONF].replace("CPUs=8", "CPUs=8 Gres=gpu:h100:4"), **device(7)}, "about /dev/nvidia7, and gx02 has 4 GPUs"
    ),
    "a device file that its node may have": Case(
        "a device file", {**counted(COUNTED, erin=1), CONF: COUNTED[CONF].replace("CPUs=8", "CPUs=8 Gres=gpu:h100:4"), **device(3)}, ""
    ),
    "another GPU's device file": Case("another's device file", {**counted(COUNTED, erin=2), **held("0-1", 1), **device(0)}, "about /dev/nvidia0, and this is GPU 1"),
    "its own device file": Case("a device file", {**counted(COUNTED, erin=2), **held("0-1", 1), **device(1)}, ""),
    "its slice of a GPU, by the hook": Case("slices by the hook", {**counted(COUNTED, erin=1), **held("0", 1, more="CUDA_VISIBLE_DEVICES=MIG-5f2a\n")}, ""),
    "its slice of a GPU, by slurm.conf": Case("slices by slurm.conf", {**counted(COUNTED, erin=1), CONF: COUNTED[CONF].replace("CPUs=8", "CPUs=8 Gres=gpu:a100_1g.5gb:7"), **held("0", 1)}, ""),
    "another job's slices of GPUs": Case("another's slices", {**counted(COUNTED, erin=1, bob=2), **held("0-1", 1, "42", more="CUDA_VISIBLE_DEVICES=MIG-5f2a,MIG-71c0\n")}, ""),
    "its GPUs, but nobody knows which this one is": Case("the hook gave some", {**counted(COUNTED, erin=1), HOOK: held("0", 1)[HOOK]}, ""),
}  # fmt: skip


@pytest.mark.one_of_each(kind=lambda name: (*CASES[name].kind.split()[:2], not CASES[name].why))
@pytest.mark.parametrize("name", CASES)
def test_whose_gpu_it_was(name: str) -> None:
    case = CASES[name]
    found = lost_a_gpu(case.tree)
    verdict = of_erin(found)
    if not case.why:
        assert (verdict["category"], verdict["root_cause"]["host"]) == ("infra.gpu", "gx02"), verdict
        return
    assert not verdict["category"].startswith("infra."), verdict
    (rival,) = (r for r in verdict["rivals"] if r["host"] == "gx02")
    assert case.why in rival["rejected"] and rival["cause"].startswith("gpu.xid (0000:3b:00")
    (incident,) = (i for i in found["incidents"] if i["root_cause"]["host"] == "gx02")
    assert incident["severity"] == "degraded" and not incident["jobs"], "the GPU failed, and hurt no job"


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({**counted(), CONF: ""}, "nothing tells whether job 45 had a GPU"),
        ({**counted(COUNTED, erin=1), **device(7)}, "is about /dev/nvidia7, and nothing tells which GPUs gx02 has"),
    ],
)
def test_without_the_source_that_would_tell_nothing_is_blamed(tree: dict[str, str], why: str) -> None:
    verdict = of_erin(lost_a_gpu(tree))
    assert verdict["category"] == "unknown" and why in verdict["summary"]


#: bob's job 42 fails on gx02 as erin's does; its own output tells why, tells nothing, or was not collected.
ONE_EACH, MUTE = counted(COUNTED, erin=1, bob=1), {"jobs/42/stderr": ""}


def test_of_two_jobs_that_may_have_held_the_gpu_none_is_said_to_have() -> None:
    verdicts = lost_a_gpu({**ONE_EACH, **MUTE})["verdicts"]
    assert [verdicts[job]["category"] for job in ("42", "45")] == ["unknown", "unknown"]
    assert "nothing tells whether job 45 held it or job 42" in verdicts["45"]["summary"]


def test_of_two_jobs_that_may_have_held_the_gpu_the_one_that_failed_first_probably_did() -> None:
    later = bobs_job("10:00:00", "10:20:35")
    verdict = of_erin(lost_a_gpu({**later, **counted({**COUNTED, **later}, erin=1, bob=1), **MUTE}))
    assert verdict["category"] == "infra.gpu" and 0.5 < verdict["confidence"] < 0.95
    assert any(doubt.startswith("Job 42 had GPUs of gx02 as well") for doubt in verdict["doubts"])


def test_who_had_more_gpus_probably_held_the_one_that_failed() -> None:
    verdicts = lost_a_gpu({**counted(COUNTED, erin=3, bob=1), **MUTE})["verdicts"]
    assert (verdicts["45"]["category"], verdicts["42"]["category"]) == ("infra.gpu", "unknown")
    assert 0.5 < verdicts["45"]["confidence"] <= 0.75


#: Shares of GPUs are given as well, so that a job without a count may have one.
SHARES = configured("AccountingStorageTRES=gres/gpu\nGresTypes=gpu,shard\n")
ALL_FOUR = {CONF: SHARES[CONF].replace("CPUs=8", "CPUs=8 Gres=gpu:h100:4,shard:16")}


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({**counted(ALL_FOUR, erin=4), **MUTE}, id="it had all of its node"),
        pytest.param(ONE_EACH, id="the other failed by its own error"),
        pytest.param({**counted(COUNTED, erin=1), **MUTE}, id="the other had none"),
        pytest.param({**ONE_EACH, **MUTE, "jobs/45/stderr": "2026-02-28 10:19:58,000 - ERROR - CUDA error: uncorrectable ECC error encountered\n"}, id="its own error is about a GPU"),
    ],
)  # fmt: skip
def test_a_job_that_did_not_hold_the_gpu_leaves_no_doubt(tree: dict[str, str]) -> None:
    verdict = of_erin(lost_a_gpu(tree))
    assert verdict["category"] == "infra.gpu" and not any("Job 42" in doubt for doubt in verdict["doubts"])


def test_the_programs_own_xid_needs_its_gpu_too() -> None:
    """Xid 31 is the program's fault: only that of a program with a GPU."""
    line = {RING: ring("10:19:55", "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault: ENGINE GRAPHICS")}
    with_gpu, without = (of_erin(concluded(line, tree=counted(COUNTED, erin=n))) for n in (1, 0))
    assert "Xid" in with_gpu["summary"] and "Xid" not in without["summary"]


def test_what_befalls_the_whole_node_hurts_runs_without_gpus() -> None:
    """The GPU falls off the bus, and the machine with it: erin's job, which had no GPU, ends with its node."""
    tree = counted(COUNTED)
    tree[SACCT] = tree[SACCT].replace("|erin|1005|train|FAILED|1:0|", "|erin|1005|train|NODE_FAIL|0:0|")
    booted = ring("10:19:40", "Linux version 6.1.0-18-amd64 (builder@host) (gcc-12) #1 SMP")
    lost = "[2026-02-28T10:20:00.100] error: Nodes gx02 not responding, setting DOWN\n[2026-02-28T10:20:00.101] Killing JobId=45 on failed node gx02\n"
    found = concluded({RING: ring("10:18:30", XID) + booted, "controller/slurmctld.log": lost}, tree=tree)
    verdict: dict[str, Any] = of_erin(found)
    assert verdict["category"].startswith("infra.") and verdict["root_cause"]["host"] == "gx02", verdict


@pytest.mark.long
def test_accounting_that_counts_gpus_becomes_known_later() -> None:
    """Ticks judge erin's job while nobody's GPUs are known, and again when accounting gives bob's."""
    tree = {**counted(), **FELL_OFF}
    tree[SACCT] = "".join(row for row in tree[SACCT].splitlines(keepends=True) if not row.startswith("42|"))
    later = counted(bob=4)[SACCT].splitlines()
    row = next(line for line in later if line.startswith("42|"))
    with TemporaryDirectory() as folder, open_store(None) as store:
        root = Path(folder)
        write(root, {**_TREE, **tree, "nodes/gx04/kmsg.log": busy(lambda h, m: f"[{3600 * h + 60 * m}.000100] ")})
        reader = Ingest(store, parser=line_parser())
        reader.run([root])
        ticker = Ticker(store)
        ticker.tick()
        assert of_erin(result(store))["category"] == "infra.gpu"
        (root / "accounting/later.txt").write_text(f"{later[0]}\n{row}\n", encoding="utf-8")
        reader.run([root])
        assert not ticker.tick().full, "this test is about a tick that looks at a part"
        ticked = answer(store)
        assert not of_erin(result(store))["category"].startswith("infra.")
        correlate(store)
        assert ticked == answer(store)


@pytest.mark.parametrize(("count", "category"), [(0, "app.error"), (1, "unknown")])
def test_a_program_that_asked_for_no_gpu_finds_none(count: int, category: str) -> None:
    """With a GPU, the same words mean that it broke."""
    printed = {"jobs/45/stderr": "2026-02-28 10:19:58,000 - ERROR - CUDA error: no CUDA-capable device is detected\n"}
    assert of_erin(concluded(printed, tree=counted(COUNTED, erin=count)))["category"] == category


GRES = {
    "gpu:h100:4": (4, False), "gpu:3090:2": (2, False), "gpu:8": (8, False), "gpu:h100:no_consume:4(S:0-1),shard:16": (4, False),
    "gpu:a100_1g.5gb:7": (None, True), "gpu:a100_1g.10gb+me:1,gpu:a100:3": (None, True), "gpu:a100_3g.20gb": (None, True),
    "gpu:a100_1g.5gb:no_consume:7": (None, True), "craynetwork:4": (None, False),
}  # fmt: skip


def test_the_gpus_and_slices_of_slurm_conf() -> None:
    found = {}
    for gres in GRES:
        settings = [{"name": "NodeName:gx[01-02]", "value": f"CPUs=8 Gres={gres} State=UNKNOWN", "scope": "cluster"}]
        found[gres] = gpus_of_nodes(settings).get("gx02"), "gx02" in nodes_with_slices(settings)
    assert found == GRES
