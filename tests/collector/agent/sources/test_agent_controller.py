"""What only slurmctld's host knows: accounting, node states and who changed them, configuration, sdiag."""

from __future__ import annotations

import contextlib
import json
import time
from datetime import datetime
from pathlib import Path

import pytest
from made_host import NOW, Host, asked, tables, values

SACCT = """case "$1" in
--helpformat) echo "JobID JobIDRaw DBIndex Cluster User State ExitCode Submit Start End NodeList JobName";;
*) echo "$@" >> ROOT/asked; echo "JobID|JobIDRaw|DBIndex|Cluster|User|State|ExitCode|Submit|Start|End|NodeList|JobName"
cat ROOT/jobs;; esac"""


def test_accounting_shows_rows_that_are_new_or_changed(host: Host) -> None:
    program = host.program("sacct", SACCT.replace("ROOT", str(host.root)))
    job = "17|17|3|mini|alice|{}|0:0|2026-11-21T16:00:00|2026-11-21T16:00:01|{}|gpu[01-02]|ring\n"
    done = "16|16|2|mini|bob|COMPLETED|0:0|2026-11-21T15:00:00|2026-11-21T15:00:01|2026-11-21T15:10:01|gpu01|a|b\n"
    host.put("/jobs", done + job.format("RUNNING", "Unknown"))
    runner = host.runner("accounting", program=program)
    (first,) = asked(runner)
    assert sorted(r["state"] for r in tables(first)["jobs"].to_dicts()) == ["COMPLETED", "RUNNING"]
    host.wait(61)
    assert asked(runner) == []
    host.put("/jobs", done + job.format("NODE_FAIL", "2026-11-21T16:20:00"))
    host.wait(61)
    (changed,) = asked(runner)
    (row,) = tables(changed)["jobs"].to_dicts()
    assert (row["job_id"], row["state"], row["end"]) == (17, "NODE_FAIL", datetime(2026, 11, 21, 16, 20))
    looks = (host.root / "asked").read_text().splitlines()
    assert "--starttime=2026-11-19T16:30:00" in looks[0] and "--starttime=2026-11-21T16:15:00" in looks[1]
    assert "Restarts" not in looks[0], "a column that this sacct does not know is not asked for"


def test_accounting_goes_on_after_a_clock_that_was_ahead(host: Host) -> None:
    """Found by reading: it queried from tomorrow on, which sacct refuses, and left out a day once tomorrow came."""
    program = host.program("sacct", SACCT.replace("ROOT", str(host.root)))
    host.put("/jobs", "")
    list(host.runner("accounting", {"accounting": {"until": NOW + 86_400}}, program=program).poll())
    assert "--starttime=2026-11-21T16:15:00" in (host.root / "asked").read_text()


def test_the_job_completion_file_is_a_document(host: Host, tmp_path: Path) -> None:
    line = (
        "JobId={} UserId=alice(20001) GroupId=alice(20001) Name=ring JobState={} Partition=gpu TimeLimit=60 "
        "StartTime=2026-11-21T16:00:00 EndTime=2026-11-21T16:20:00 NodeList=gpu[01-02] NodeCnt=2 ExitCode=0:0\n"
    )
    path = host.put("/var/log/slurm/jobcomp.log", line.format(17, "NODE_FAIL") + line.format(18, "COMPLETED"))
    runner = host.runner("files", paths=["/var/log/slurm/*.log"])
    (first,) = asked(runner)
    assert [(r["job_id"], r["state"]) for r in tables(first)["jobs"].to_dicts()] == [
        (17, "NODE_FAIL"),
        (18, "COMPLETED"),
    ]
    with path.open("a") as stream:
        stream.write(line.format(19, "FAILED"))
    host.wait(1)
    (second,) = asked(runner)
    assert [(r["job_id"], r["state"]) for r in tables(second)["jobs"].to_dicts()] == [(19, "FAILED")]


NODE = (
    "NodeName={} Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPULoad={} State={} ThreadsPerCore=1 "
    "BootTime=2026-11-18T10:00:00 SlurmdStartTime=2026-11-21T10:00:00 {}\n"
)


def test_a_drain_is_reported_with_its_author_and_load_is_no_news(host: Host) -> None:
    host.put("/nodes", NODE.format("gpu01", "0.1", "IDLE", "") + NODE.format("gpu02", "0.1", "IDLE", ""))
    host.put("/events", "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
             "mini|gpu02|2026-11-21T12:00:00|2026-11-21T12:30:00|DRAIN|bad cable|root(0)\n")  # fmt: skip
    scontrol, sacctmgr = (
        host.program("scontrol", f"cat {host.root}/nodes"),
        host.program("sacctmgr", f"cat {host.root}/events"),
    )
    runner = host.runner("nodes", scontrol=scontrol, sacctmgr=sacctmgr)
    states, ledger = asked(runner)
    assert {r["host"] for r in tables(states)["node_states"].to_dicts()} == {"gpu01", "gpu02"}
    (event,) = tables(ledger)["node_states"].to_dicts()
    assert (event["host"], event["reason"], event["actor"]) == ("gpu02", "bad cable", "root(0)")
    reason = "Reason=Kill task failed [root@2026-11-21T16:31:00]"
    host.put("/nodes", NODE.format("gpu01", "7.9", "IDLE", "") + NODE.format("gpu02", "0.1", "IDLE+DRAIN", reason))
    host.wait(16)
    (changed,) = asked(runner)
    (row,) = tables(changed)["node_states"].to_dicts()
    assert (row["host"], row["state"], row["actor"]) == ("gpu02", "idle+drain", "root")
    assert row["time"] == datetime(2026, 11, 21, 16, 31)


def test_slurm_conf_is_reported_when_it_changes_and_without_passwords(host: Host) -> None:
    text = "ClusterName=mini\nSlurmctldHost=ctl\nSlurmdTimeout=300\nJobCompPass=secret\nAccountingStoragePass=secret\n"
    host.put("/etc/slurm/slurm.conf", text)
    host.put("/etc/slurm/topology.conf", "SwitchName=leaf01 Nodes=gpu[01-02]\n")
    runner = host.runner("slurm_conf", scontrol=str(host.root / "none"))
    conf, topology = asked(runner)
    assert "secret" not in conf["raw"]
    settings = {r["name"]: r["value"] for r in tables(conf)["settings"].to_dicts()}
    assert settings["SlurmdTimeout"] == "300"
    assert tables(topology)["topology"].height == 2
    host.wait(301)
    assert asked(runner) == []
    assert (
        asked(host.runner("slurm_conf", json.loads(json.dumps(runner.positions)), scontrol=str(host.root / "none")))
        == []
    )


def test_sdiag_without_its_long_tail(host: Host) -> None:
    text = (
        "sdiag output at Sat Nov 21 16:30:00 2026 (1795278600)\\nServer thread count:  3\\nAgent queue size:     0\\n"
    )
    program = host.program(
        "sdiag", f'printf "{text}Remote Procedure Call statistics by message type\\n\\tREQUEST count:9\\n"'
    )
    (found,) = asked(host.runner("sdiag", program=program))
    assert 3.0 in values(found).values()
    assert "REQUEST" not in found["raw"]


def test_a_program_that_fails_is_a_status_with_its_complaint(host: Host) -> None:
    program = host.program("sdiag", "echo slurm_load_ctl_conf error: Unable to contact slurm controller >&2; exit 1")
    runner = host.runner("sdiag", program=program)
    assert list(runner.poll()) == []
    assert runner.status.state == "error" and "Unable to contact slurm controller" in runner.status.detail


@pytest.mark.parametrize(
    ("script", "says"), [("sleep 77 & sleep 77", "did not end"), ("exec cat /dev/zero", "printed more than")]
)
def test_a_program_that_does_not_stop_is_ended_with_all_that_it_started(script: str, says: str, host: Host) -> None:
    """Found by reading: a wrapper's children were left behind at every poll, and endless output filled the memory."""
    program = host.program("sdiag", f"echo $$ > {host.root}/pid\n{script}")
    with pytest.raises(OSError, match=says):
        host.context.run([program], 2.0)
    group = int((host.root / "pid").read_text())
    end = time.monotonic() + 120
    while time.monotonic() < end and _runs(group):
        time.sleep(0.02)
    assert not _runs(group)


def _runs(group: int) -> bool:
    """Is a process of that group alive?"""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False
