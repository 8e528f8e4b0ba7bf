"""Accounting and Slurm's output: sacct, sacctmgr, scontrol, jobcomp, JSON. All data here is synthetic."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.documents import REGISTRY, read
from parsers.documents.fields import duration_s, gpus, job_id, local_time
from parsers.documents.jobcomp_json import is_record
from parsers.record import TABLES, Origin
from tests.examples import examples

ORIGIN = Origin(path="a/sacct.txt", cluster="c1", received=datetime(2026, 3, 1, 12))


def rows(kind: str, text: str | bytes, table: str, origin: Origin = ORIGIN) -> list[dict[str, Any]]:
    data = text.encode() if isinstance(text, str) else text
    return read(kind, data, origin).rows(table).to_dicts()


SACCT = """\
JobID|JobIDRaw|JobName|User|State|ExitCode|Submit|Start|End|NodeList|AllocTRES|TimelimitRaw|Restarts
7|7|ring|ann|CANCELLED by 1001|0:15|2026-03-01T10:00:00|2026-03-01T10:00:05|Unknown|n[1-2]|cpu=2,gres/gpu:h100=4,gres/gpu=4|60|1
7.batch|7.batch|batch||FAILED|1:0|2026-03-01T10:00:05|2026-03-01T10:00:05|2026-03-01T10:09:00|n1|||
120_4|131|array|bob|TIMEOUT|0:0|2026-03-01T10:00:00|None|Unknown|None assigned||Partition_Limit|0
"""


def test_sacct() -> None:
    first, second = rows("sacct", SACCT, "jobs")
    assert first["state"] == "CANCELLED" and first["cancelled_by"] == "1001"
    assert (first["exit_code"], first["exit_signal"]) == (0, 15)
    assert first["nodes"] == ["n1", "n2"] and first["gpus"] == 4
    assert first["time_limit_s"] == 3600 and first["restarts"] == 1
    assert first["start"] == datetime(2026, 3, 1, 10, 0, 5) and first["end"] is None
    assert (first["file"], first["line"], first["source"], first["cluster"]) == ("a/sacct.txt", 2, "sacct", "c1")
    assert (second["job_id"], second["array_job_id"], second["array_task_id"]) == (131, 120, 4)
    assert second["nodes"] is None and second["start"] is None and second["time_limit_s"] is None
    (step,) = rows("sacct", SACCT, "steps")
    assert (step["job_id"], step["step_id"], step["state"], step["nodes"]) == (7, "batch", "FAILED", ["n1"])


@pytest.mark.parametrize("text", [
    "JobID,State,NodeList,AllocTRES,ExitCode\n7,FAILED,n[1,3],cpu=2,gres/gpu=4,1:0\n",
    'JobID,State,NodeList,AllocTRES,ExitCode\n7,FAILED,"n[1,3]","cpu=2,gres/gpu=4",1:0\n',
    "ExitCode;AllocTRES;NodeList;State;JobID\n1:0;cpu=2,gres/gpu=4;n[1,3];FAILED;7\n",
    "JobID\tState\tNodeList\tAllocTRES\tExitCode\n7\tFAILED\tn[1,3]\tcpu=2,gres/gpu=4\t1:0\n",
])  # fmt: skip
def test_sacct_with_any_delimiter(text: str) -> None:
    (job,) = rows("sacct", text, "jobs")
    assert (job["job_id"], job["state"], job["nodes"], job["gpus"]) == (7, "FAILED", ["n1", "n3"], 4)
    assert (job["exit_code"], job["exit_signal"]) == (1, 0)


def test_sacct_in_its_own_columns_believes_nothing_that_was_cut_off() -> None:
    text = (
        "JobID           JobName      State        NodeList ExitCode \n"
        "------------ ---------- ---------- --------------- -------- \n"
        "7                 a job OUT_OF_ME+            n[1]    0:125 \n"
        "7.batch           batch     FAILED n[1-2,5,8,11,1+     0:125\n"
        "123456_1234+       ring    TIMEOUT              n1      0:0 \n"
    )
    (job,) = rows("sacct", text, "jobs")
    assert (job["name"], job["state"], job["nodes"], job["exit_signal"]) == ("a job", "OUT_OF_MEMORY", ["n1"], 125)
    (step,) = rows("sacct", text, "steps")
    assert (step["step_id"], step["state"], step["nodes"]) == ("batch", "FAILED", None)
    logs = rows("sacct", text, "logs")
    assert [row["raw"] for row in logs] == text.splitlines() and logs[-1]["tags"] == ["unparsed"]


@pytest.mark.parametrize("text", [
    "USER|JOBID|STATE|NODELIST\nann|7|RUNNING|n[1,3]\nbob|8|PENDING|\n",
    "JOBID,STATE,NODELIST\n7,RUNNING,n[1,3]\n8,PENDING,\n",
    "JOBID     NODELIST  STATE     \n7         n[1,3]    RUNNING   \n8                   PENDING   \n",
])  # fmt: skip
def test_squeue_with_other_columns(text: str) -> None:
    running, waiting = rows("squeue", text, "jobs")
    assert (running["job_id"], running["state"], running["nodes"]) == (7, "RUNNING", ["n1", "n3"])
    assert (waiting["job_id"], waiting["state"], waiting["nodes"]) == (8, "PENDING", None)


@pytest.mark.parametrize("text", [
    "HOSTNAMES STATE REASON\nn1 drained bad disk\n",
    "REASON              NODELIST  STATE     \nbad disk            n1        drained   \n",
    "NODELIST,STATE,REASON\nn1,drained,bad disk\n",
])  # fmt: skip
def test_sinfo_with_other_columns(text: str) -> None:
    (state,) = rows("sinfo", text, "node_states")
    assert (state["host"], state["state"], state["reason"]) == ("n1", "drained", "bad disk")


def test_scontrol_keeps_the_script_that_dd_prints() -> None:
    text = "JobId=7 JobName=a\n   JobState=FAILED\n   BatchScript=\n#!/bin/sh\n\nsrun x State=no\n\nJobId=8 JobName=b\n"
    assert [job["job_id"] for job in rows("scontrol_jobs", text, "jobs")] == [7, 8]
    logs = rows("scontrol_jobs", text, "logs")
    assert sorted(row["raw"] for row in logs) == sorted(text.splitlines()) and not any(row["tags"] for row in logs)


def test_every_line_of_sacct_is_kept() -> None:
    logs = rows("sacct", SACCT, "logs")
    assert [row["raw"] for row in logs] == SACCT.splitlines()
    assert [row["job_id"] for row in logs] == [None, 7, 7, 131]
    assert logs[2]["time"] == datetime(2026, 3, 1, 10, 9) and logs[2]["time_quality"] == "line"


def test_trailing_pipe_and_a_time_zone() -> None:
    text = "JobID|State|End|\n7|FAILED|2026-07-01T12:00:00|\n"
    (job,) = rows("sacct", text, "jobs", ORIGIN.but(timezone="Europe/Berlin"))
    assert job["end"] == datetime(2026, 7, 1, 10)


def test_a_row_that_does_not_fit_is_named_and_kept() -> None:
    parsed = read("sacct", b"JobID|State|End\n7|FAILED\n8|COMPLETED|2026-03-01T10:00:00\n", ORIGIN)
    assert parsed.rows("jobs")["job_id"].to_list() == [8]
    assert parsed.warnings == ["a/sacct.txt line 2: 2 fields, header has 3"]
    unparsed = parsed.rows("logs").filter(parsed.rows("logs")["format"] == "plain").to_dicts()
    assert [(row["raw"], row["tags"]) for row in unparsed] == [("7|FAILED", ["unparsed"])]


def test_line_breaks_and_delimiters_in_free_text() -> None:
    text = (
        "JobID|Comment|State|SubmitLine\n7|two\nlines|FAILED|sbatch a\n8|x|COMPLETED|sbatch --wrap 'a | b'\n"
        "9|x|FAILED|l1\nl2\n"
    )
    found = rows("sacct", text, "jobs")
    assert [(job["job_id"], job["submit_line"]) for job in found] == [
        (7, "sbatch a"), (8, "sbatch --wrap 'a | b'"), (9, "l1\nl2"),
    ]  # fmt: skip
    assert len(rows("sacct", text, "logs")) == 6


def test_undecodable_bytes_are_kept_exactly() -> None:
    data = b"JobID|JobName|State\n7|caf\xe9|FAILED\n"
    assert rows("sacct", data, "jobs")[0]["name"] == "caf\ufffd"
    assert rows("sacct", data, "logs")[1]["raw_bytes"] == b"7|caf\xe9|FAILED"


SAFE = st.text(st.characters(codec="utf-8", exclude_characters="|\n\r\ufeff\ufffd"), max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**9), SAFE), min_size=1, max_size=6))
def test_sacct_gives_back_what_was_written(jobs: list[tuple[int, str]]) -> None:
    text = "JobID|JobName|State\n" + "".join(f"{number}|{name}|FAILED\n" for number, name in jobs)
    assert [(row["job_id"], row["name"] or "") for row in rows("sacct", text, "jobs")] == jobs


@pytest.mark.parametrize(
    ("text", "raw", "expected"),
    [
        ("15", None, (15, None, None, None)), ("15.extern", None, (15, None, None, "extern")),
        ("120_4", "131", (131, 120, 4, None)), ("120_4", None, (None, 120, 4, None)),
        ("120_[5-9]", None, (120, 120, None, None)), ("120+1", None, (121, None, None, None)),
        ("120_4.0", "131.0", (131, 120, 4, "0")),
    ],
)  # fmt: skip
def test_job_ids(text: str, raw: str | None, expected: tuple[object, ...]) -> None:
    found = job_id(text, raw)
    assert found and (found.raw, found.array_job, found.array_task, found.step) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-00:00:00", 86400), ("00:10:00", 600), ("10:00", 600), ("10", 600), ("1-12", 129600), ("1-12:30", 131400),
     ("10:30", 630), ("1:00:00", 3600), ("1-0", 86400), ("2-0:0:5", 172805), ("x", None), (5000 * "9", None),
     ("UNLIMITED", None), ("Partition_Limit", None), ("", None)],
)  # fmt: skip
def test_durations(text: str, seconds: int | None) -> None:
    assert duration_s(text) == seconds


def test_values() -> None:
    assert gpus("gres/gpu=4,gres/gpu:h100=4") == 4 and gpus("gres/gpu:a=1,gres/gpu:b=2") == 3
    assert gpus("cpu=1,gres/gpumem=5") == 0 and gpus("") is None
    # The hour that occurs twice: the first.
    assert local_time("2026-10-25T02:30:00", "Europe/Berlin") == datetime(2026, 10, 25, 0, 30)
    assert local_time("1772359200") == datetime(2026, 3, 1, 10) and local_time("Unknown") is None
    assert local_time("2026-03-01T10:00:00", "No/Such") == datetime(2026, 3, 1, 10)


def test_node_events() -> None:
    text = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|\n"
        "c9||2026-03-01T09:00:00|Unknown||Cluster Registered TRES||\n"
        "c9|n2|2026-03-01T10:00:00|2026-03-01T10:05:00|DOWN*|Not responding|slurm(64030)|\n"
    )
    (event,) = rows("sacctmgr_events", text, "node_states")
    assert (event["host"], event["state"], event["actor"]) == ("n2", "down*", "slurm(64030)")
    assert event["until"] == datetime(2026, 3, 1, 10, 5) and event["cluster"] == "c9"
    assert len(rows("sacctmgr_events", text, "logs")) == 3


ONE_LINE_NODE = (
    "NodeName=n1 Arch=x86_64 CPUAlloc=0 OS=Linux 6.18 #1 SMP PREEMPT_DYNAMIC State=IDLE+DRAIN ThreadsPerCore=1 "
    "BootTime=2026-02-01T00:00:00 Reason=bad cable Port=7 [root@2026-03-01T10:00:00]\n"
)


@pytest.mark.parametrize("text", [ONE_LINE_NODE, ONE_LINE_NODE.replace(" State=", "\n   State=") + "\n"])
def test_nodes(text: str) -> None:
    (state,) = rows("scontrol_nodes", text, "node_states")
    assert (state["state"], state["reason"], state["actor"]) == ("idle+drain", "bad cable Port=7", "root")
    assert state["time"] == datetime(2026, 3, 1, 10)
    (boot,) = rows("scontrol_nodes", text, "boots")
    assert (boot["boot_time"], boot["error_us"]) == (datetime(2026, 2, 1), 1_000_000)


def test_a_job_name_cannot_pretend_to_be_fields() -> None:
    text = (
        "JobId=7 JobName=x JobState=COMPLETED UserId=ann(1001) GroupId=ann(1001) JobState=FAILED "
        "Reason=NonZeroExitCode Requeue=1 Restarts=2 ExitCode=3:0 TimeLimit=1-00:00:00 SubmitTime=2026-03-01T10:00:00 "
        "EndTime=2026-03-01T10:10:00 NodeList=n[1-2] StdOut=/home/ann/a b.out\n"
    )
    (job,) = rows("scontrol_jobs", text, "jobs")
    assert (job["state"], job["name"], job["uid"]) == ("FAILED", "x JobState=COMPLETED", 1001)
    assert (job["restarts"], job["requeue"], job["std_out"]) == (2, True, "/home/ann/a b.out")


def test_jobcomp() -> None:
    text = (
        "JobId=7 UserId=ann(1001) GroupId=ann(1001) Name=my job JobState=NODE_FAIL Partition=p TimeLimit=10 "
        "StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T10:01:00 NodeList=n[1-2] Tres=cpu=4,gres/gpu=4 Account= "
        "Cluster=c9 SubmitTime=2026-03-01T09:00:00 DerivedExitCode=0:0 ExitCode=0:0 \nbroken\n"
    )
    parsed = read("jobcomp", text.encode(), ORIGIN)
    (job,) = parsed.rows("jobs").to_dicts()
    assert (job["name"], job["state"], job["gpus"], job["time_limit_s"]) == ("my job", "NODE_FAIL", 4, 600)
    assert job["nodes"] == ["n1", "n2"] and parsed.warnings == ["a/sacct.txt line 2: no JobId="]


def test_a_heterogeneous_jobs_name_ends_before_its_components() -> None:
    text = "JobId=55 HetJobId=55 HetJobOffset=0 JobName=het\n   HetJobIdSet=55-56\n   UserId=ann(1001) JobState=FAILED TRES=node=1,cpu=2\n"
    (job,) = rows("scontrol_jobs", text, "jobs")
    assert (job["name"], job["uid"], job["tres"]) == ("het", 1001, "cpu=2,node=1")


def test_jobcomp_to_elasticsearch_and_kafka() -> None:
    """Kafka gets the same objects, and since 25.05 one of each start, which has no state."""
    ended = {
        "jobid": 7, "username": "ann", "user_id": 1001, "@start": "2026-03-01T10:00:00", "@end": "2026-03-01T10:01:00", "partition": "p",
        "nodes": "n[1-2]", "derived_ec": "0:0", "exit_code": "0:15", "state": "NODE_FAIL", "failed_node": "n2", "@submit": "2026-03-01T09:00:00",
        "time_limit": 600, "job_name": "a", "tres_alloc": "cpu=4,mem=800M,node=2,gres/gpu=4",
    }  # fmt: skip
    started = {
        name: ended[name] for name in ("jobid", "username", "user_id", "@start", "@submit", "partition", "nodes")
    }
    assert (
        is_record(ended) and is_record({**started, "@end": "Unknown"}) and not is_record({"jobid": 7, "@start": "now"})
    )
    text = json.dumps(started) + "\n" + json.dumps(ended)
    first, second = rows("jobcomp_json", text, "jobs")
    assert (first["state"], first["end"], first["nodes"]) == ("RUNNING", None, ["n1", "n2"])
    assert (second["state"], second["failed_node"], second["time_limit_s"]) == ("NODE_FAIL", "n2", 600)
    assert (second["tres"], second["gpus"]) == ("cpu=4,gres/gpu=4,mem=800M,node=2", 4)


@pytest.mark.parametrize(
    ("current", "exit_code"),
    [
        ("CANCELLED", {"status": "SIGNALED", "return_code": None, "signal": {"signal_id": 9, "name": "Killed"}}),
        (["CANCELLED"], {"status": ["SIGNALED"], "return_code": {"set": False, "infinite": False, "number": 0},
                         "signal": {"id": {"set": True, "infinite": False, "number": 9}, "name": "KILL"}}),
    ],
)  # fmt: skip
def test_sacct_json_in_both_shapes(current: object, exit_code: object) -> None:
    job = {
        "job_id": 7, "name": "a", "user": "ann", "nodes": "n[1-2]", "array": {"job_id": 0, "task_id": None},
        "state": {"current": current, "reason": "None"}, "exit_code": exit_code, "association": {"cluster": "c9"},
        "time": {"submission": 1772359200, "start": 1772359200, "end": 0, "limit": {"set": False, "infinite": True,
                 "number": 0}},
        "tres": {"allocated": [{"type": "gres", "name": name, "count": 8} for name in ("gpu", "gpu:b")]},
        "steps": [{"step": {"id": "7.batch", "name": "batch"}, "state": current, "exit_code": exit_code,
                   "time": {"start": 1772359200, "end": 1772359260}, "nodes": {"range": "n1"}}],
    }  # fmt: skip
    parsed = read("sacct_json", json.dumps({"jobs": [job]}).encode(), ORIGIN)
    (found,) = parsed.rows("jobs").to_dicts()
    assert (found["state"], found["exit_code"], found["exit_signal"], found["gpus"]) == ("CANCELLED", 0, 9, 8)
    assert found["end"] is None and found["time_limit_s"] is None and found["array_job_id"] is None
    (step,) = parsed.rows("steps").to_dicts()
    assert (step["step_id"], step["state"], step["nodes"]) == ("batch", "CANCELLED", ["n1"])


def test_partitions_and_pings_of_slurmrestd() -> None:
    part = {
        "name": "p",
        "nodes": {"configured": "n[1-4]"},
        "partition": {"state": ["UP"]},
        "maximums": {"time": {"set": True, "infinite": False, "number": 60}},
    }
    (setting,) = rows("rest_partitions", json.dumps({"partitions": [part]}), "settings")
    assert (setting["name"], setting["value"]) == ("PartitionName:p", "Nodes=n[1-4] State=UP MaxTime=60")
    ping = {"pings": [{"hostname": "ctl", "pinged": "DOWN", "latency": 9}], "meta": {"slurm": {"cluster": "c9"}}}
    found = rows("rest_ping", json.dumps(ping), "metrics")
    assert [(row["metric"], row["value"], row["host"], row["cluster"]) for row in found] == [
        ("slurmctld_ping_up", 0.0, "ctl", "c9"), ("slurmctld_ping_latency_us", 9.0, "ctl", "c9"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", sorted(REGISTRY))
@settings(max_examples=examples(7), deadline=None)
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_content_breaks_a_reader(kind: str, data: bytes) -> None:
    parsed = read(kind, data, ORIGIN)
    for name, frame in parsed.tables.items():
        assert dict(frame.schema) == {column: frame.schema[column] for column in TABLES[name]}


@pytest.mark.parametrize(
    ("resources", "numbers"),
    [
        ("gpu:h100:2(IDX:0-1)", "0-1"),
        ("gpu:3(IDX:0,2-3)", "0,2-3"),
        ("gpu:a100:1(IDX:0),gpu:v100:1(IDX:4),nic:1(IDX:2)", "0,4"),
        ("gpu(IDX:5)", "5"),
        ("gpu:a100_1g.5gb:2(IDX:3-4)", None),
        ("shard:h100:4(IDX:1)", None),
        ("", None),
    ],
)
def test_which_gpus_a_run_has(resources: str, numbers: str | None) -> None:
    """As slurmctld tells them; slices of GPUs have numbers of their own."""
    asked = {"job_id": 7, "job_state": "RUNNING", "nodes": "n1", "gres_detail": [resources] if resources else []}
    (same,) = rows("rest_jobs", json.dumps({"jobs": [asked]}), "jobs")
    assert same["gpu_index"] == numbers


@pytest.mark.parametrize(
    "comment", ["a GRES_IDX=gpu(IDX:0-7)", "a\n     Nodes=n1 CPU_IDs=0-7 Mem=0 GRES=gpu:8(IDX:0-7)"]
)
def test_no_comment_gives_a_job_gpus(comment: str) -> None:
    """Whose GPU failed is asked for the sake of others' jobs."""
    text = f"JobId=7 JobName=x\n   UserId=eve(1002) JobState=RUNNING\n   NodeList=n1\n   Comment={comment}\n"
    (job,) = rows("scontrol_jobs", text, "jobs")
    assert job.get("gpu_index") is None and not job["gpus"]
