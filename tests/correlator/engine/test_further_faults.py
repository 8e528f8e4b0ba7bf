"""Findings from a real mini cluster under other settings (tests/cluster/further.py), in the fewest lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.correlator.situations import conclude

SACCT = "JobID|User|UID|State|ExitCode|Submit|Start|End|NodeList|Partition|TimelimitRaw\n"
CONF = "ClusterName=c\nSlurmctldHost=ctl\nSlurmdTimeout=24\nMessageTimeout=10\nNodeName=gpu[01-04] CPUs=8\nPartitionName=gpu Nodes=ALL\n"
TOPOLOGY = "SwitchName=leaf01 Nodes=gpu[01-04]\n"


def told(tmp_path: Path, **files: str) -> dict[str, Any]:
    """The result of a log tree; each argument is the text of one of its files."""
    paths = {
        "slurmctld": "controller/slurmctld.log", "slurmd": "nodes/gpu03/slurmd.log", "sacct": "accounting/sacct.txt",
        "conf": "slurm.conf", "topology": "topology.conf", "node_syslog": "nodes/gpu02/syslog", "switch": "switches/leaf01/syslog",
        "log_server": "syslog.log", "node_events": "accounting/events.psv",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / paths[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return conclude(tmp_path)


@pytest.mark.parametrize(
    ("stamp", "word", "category"),
    [
        ("2026-11-22T19:11:{}", "WEXITSTATUS 1", "app.error"),
        ("2026-11-22T19:11:{}+00:00", "WTERMSIG 9", "app.error"),
        ("Nov 22 19:11:{}", "WEXITSTATUS 3", "app.error"),
        ("2026-11-22T19:11:{}", "WEXITSTATUS 0", None),
        ("2026-11-22T19:11:{}.001", "WEXITSTATUS 1", "app.error"),
    ],
)
def test_lines_of_one_second_are_read_in_their_order(
    tmp_path: Path, stamp: str, word: str, category: str | None
) -> None:
    """``WEXITSTATUS 1`` and ``done`` have one timestamp if a site logs whole seconds: the job failed all the same."""
    lines = ("sched: Allocate JobId=12 NodeList=gpu[01-02] #CPUs=4 Partition=gpu", f"_job_complete: JobId=12 {word}",
             "_job_complete: JobId=12 done")  # fmt: skip
    text = "".join(f"[{stamp.format(at)}] {line}\n" for at, line in zip(("01", "41", "41"), lines, strict=True))
    verdicts = told(tmp_path, slurmctld=text)["verdicts"]
    assert {k: v["category"] for k, v in verdicts.items()} == ({"12": category} if category else {})


LAUNCH = """\
[2026-11-22T19:04:20.507] [9.extern] error: unable to build slurm cgroup for ns freezer: Read-only file system
[2026-11-22T19:04:20.508] [9.extern] error: cannot create proctrack context for proctrack/cgroup
[2026-11-22T19:04:20.508] error: _forkexec_slurmstepd: slurmstepd failed to send return code got 0: No such process
"""
CANCELLED = """\
[2026-11-22T19:04:17.951] sched: Allocate JobId=9 NodeList=gpu03 #CPUs=1 Partition=gpu
[2026-11-22T19:04:20.518] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=9 uid 0
"""
BY_ROOT = "9|alice|20001|CANCELLED by 0|0:0|2026-11-22T19:04:17|2026-11-22T19:04:17|2026-11-22T19:04:20|gpu03|gpu|10\n"


@pytest.mark.parametrize(
    ("given_up", "category"),
    [
        (
            "[2026-11-22T19:04:20.517] Could not launch job 9 and not able to requeue it, cancelling job\n",
            "infra.node",
        ),
        ("", "user.cancel"),
    ],
)
def test_a_launch_that_slurmd_gives_up_is_cancelled_by_slurmd(tmp_path: Path, given_up: str, category: str) -> None:
    """slurmd cancels as root: neither an administrator nor a user did it."""
    found = told(tmp_path, slurmctld=CANCELLED, slurmd=LAUNCH + given_up, sacct=SACCT + BY_ROOT)
    verdict = found["verdicts"]["9"]
    assert verdict["category"] == category, verdict["summary"]
    assert "slurmd of gpu03" in verdict["summary"]  # its failed launch is evidence either way


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("job_time_limit: inactivity time limit reached for JobId=9", "unknown"),
        ("Time limit exhausted for JobId=9", "app.timeout"),
    ],
)
def test_a_launcher_that_fell_silent_is_no_time_limit(tmp_path: Path, line: str, category: str) -> None:
    """InactiveLimit ends what an srun or salloc started that no longer answers: accounting says TIMEOUT, too."""
    log = f"[2026-11-22T19:06:35.100] sched: Allocate JobId=9 NodeList=gpu[01-02] #CPUs=2 Partition=gpu\n[2026-11-22T19:07:34.200] {line}\n"
    row = "9|alice|20001|TIMEOUT|0:0|2026-11-22T19:06:35|2026-11-22T19:06:35|2026-11-22T19:07:34|gpu[01-02]|gpu|10\n"
    verdict = told(tmp_path, slurmctld=log, sacct=SACCT + row)["verdicts"]["9"]
    assert verdict["category"] == category, verdict["summary"]


def test_a_log_server_that_writes_whole_names_makes_no_second_switch(tmp_path: Path) -> None:
    """The switch's own log says leaf01, the log server leaf01.site.example: one link was lost, of one node."""
    domain = "site.example"
    port = "kernel: sw0: port 3(p-gpu02) entered {} state"
    nic = "kernel: igb 0000:01:00.0 eth0: igb: eth0 NIC Link is {}"
    begin, end = "2026-11-22T18:59:43", "2026-11-22T19:00:53"
    switch = f"{begin}.062+00:00 leaf01 {port.format('disabled')}\n{end}.059+00:00 leaf01 {port.format('forwarding')}\n"
    node = f"{begin}.063+00:00 gpu02 {nic.format('Down')}\n{end}.060+00:00 gpu02 {nic.format('Up')}\n"
    server = switch.replace("leaf01", f"leaf01.{domain}") + node.replace("gpu02", f"gpu02.{domain}")
    log = (
        "[2026-11-22T18:59:30.000] sched: Allocate JobId=1 NodeList=gpu[01-02] #CPUs=4 Partition=gpu\n"
        "[2026-11-22T19:00:19.100] Killing JobId=1 on failed node gpu02\n"
        "[2026-11-22T19:00:19.101] error: Nodes gpu02 not responding, setting DOWN\n"
    )
    row = "1|alice|20001|NODE_FAIL|0:0|2026-11-22T18:59:29|2026-11-22T18:59:30|2026-11-22T19:00:19|gpu[01-02]|gpu|10\n"
    found = told(
        tmp_path, slurmctld=log, sacct=SACCT + row, conf=CONF, topology=TOPOLOGY, node_syslog=node, switch=switch, log_server=server
    )  # fmt: skip
    (incident,) = found["incidents"]
    assert (incident["root_cause"]["host"], incident["root_cause"]["device"]) == ("gpu02", "eth0")
    assert {e["host"] for e in incident["events"] if str(e["host"]).startswith("leaf01")} == {"leaf01"}


def test_one_boot_in_several_lines_is_one_reboot(tmp_path: Path) -> None:
    """At level verbose slurmctld logs a boot twice when the node registers; two boots within minutes stay two."""
    boots = ((1795374469, 1795374400, "19:07:54"), (1795374649, 1795374600, "19:10:54"))
    log = "".join(
        f"[2026-11-22T{clock}] Node gpu04 rebooted 5 secs ago\n[2026-11-22T{clock}] Node gpu04 now responding\n"
        f"[2026-11-22T{clock}] validate_node_specs: Node gpu04 unexpectedly rebooted boot_time={boot} last response={last}\n"
        for boot, last, clock in boots
    )
    found = told(tmp_path, slurmctld=log, conf=CONF)
    assert [i["root_cause"]["event"] for i in found["incidents"]] == ["node.reboot"] * 2


def test_slurmd_shows_when_the_machine_had_gone_and_accounting_that_it_booted(tmp_path: Path) -> None:
    """Without slurmctld's log: the boot that accounting reports came after the node was given up, its death before."""
    events = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c|gpu03|2026-11-22T19:05:31|2026-11-22T19:05:52|DOWN*|Not responding|slurm(64030)\n"
        "c|gpu03|2026-11-22T19:05:52|Unknown|DOWN|Node unexpectedly rebooted|slurm(64030)\n"
    )
    slurmd = (
        "[2026-11-22T19:04:58.300] Launching batch job 7 for UID 20001\n"
        "[2026-11-22T19:05:52.900] slurmd version 22.05.8 started\n"
        "[2026-11-22T19:05:52.950] CPUs=8 Boards=1 Sockets=2 Cores=4 Threads=1 Memory=24105 TmpDisk=64 Uptime=5 CPUSpecList=(null)\n"
    )
    row = "7|alice|20001|NODE_FAIL|0:0|2026-11-22T19:04:57|2026-11-22T19:04:57|2026-11-22T19:05:31|gpu[03-04]|gpu|10\n"
    found = told(tmp_path, slurmd=slurmd, sacct=SACCT + row, conf=CONF, node_events=events)
    (incident,) = found["incidents"]
    assert (incident["root_cause"]["event"], incident["root_cause"]["host"]) == ("node.reboot", "gpu03")
    assert found["verdicts"]["7"]["incident_id"] == incident["id"]


@pytest.mark.parametrize(
    ("order", "event", "severity"), [("", "node.reboot", "impact"), ("reboot request queued for nodes gpu03", "node.maintenance", "benign")]
)  # fmt: skip
def test_a_boot_of_which_only_its_age_is_reported_reaches_back_to_the_last_line(
    tmp_path: Path, order: str, event: str, severity: str
) -> None:
    """With ReturnToService=2, slurmctld logs no more about a boot than "rebooted 5 secs ago".

    The machine had gone before that, and took its job with it, unless the reboot was ordered and its job was over.
    """
    ends = "_job_complete: JobId=7 WEXITSTATUS 0" if order else "Killing JobId=7 on failed node gpu03"
    lines = {
        "19:40:16": "sched: Allocate JobId=7 NodeList=gpu[03-04] #CPUs=4 Partition=gpu", "19:40:20": order, "19:40:45": ends,
        "19:40:46": "" if order else "error: Nodes gpu03 not responding, setting DOWN", "19:41:04": "Node gpu03 rebooted 5 secs ago",
    }  # fmt: skip
    log = "".join(f"[2026-11-22T{clock}] {line}\n" for clock, line in lines.items() if line)
    slurmd = "[2026-11-22T19:40:16] Launching batch job 7 for UID 20001\n[2026-11-22T19:41:04] slurmd version 22.05.8 started\n"
    found = told(tmp_path, slurmctld=log, slurmd=slurmd, conf=CONF)
    assert [(i["root_cause"]["event"], i["severity"]) for i in found["incidents"]] == [(event, severity)]
    assert set(found["verdicts"]) == (set() if order else {"7"})


def test_a_slurmd_that_cannot_start_again_is_away_from_its_stop_on(tmp_path: Path) -> None:
    """It waits 20 s for a device file before it gives up: with SlurmdTimeout=16 the node is given up 4 s after that."""
    slurmd = (
        "[2026-11-22T19:46:02] Launching batch job 5 for UID 20001\n"
        "[2026-11-22T19:46:12] Slurmd shutdown completing\n"
        "[2026-11-22T19:46:14] error: Waiting for gres.conf file /dev/nvidia3\n"
        "[2026-11-22T19:46:33] fatal: can't stat gres.conf file /dev/nvidia3: No such file or directory\n"
    )
    log = (
        "[2026-11-22T19:46:02] sched: Allocate JobId=5 NodeList=gpu[03-04] #CPUs=4 Partition=gpu\n"
        "[2026-11-22T19:46:37] Killing JobId=5 on failed node gpu03\n"
        "[2026-11-22T19:46:37] error: Nodes gpu03 not responding, setting DOWN\n"
    )
    conf = CONF.replace("SlurmdTimeout=24", "SlurmdTimeout=16")
    (incident,) = told(tmp_path, slurmctld=log, slurmd=slurmd, conf=conf)["incidents"]
    assert (incident["root_cause"]["event"], incident["root_cause"]["host"]) == ("slurm.slurmd_crash", "gpu03")


#: When alice's request came, how the script ended, its code in accounting, and whose doing that is.
SIGNALLED = (
    ("12:00:43.751", "143", "143:0", "user.cancel"),  # the script's own exit code
    ("12:00:43.751", "143", "15:0", "user.cancel"),  # as sacct of 22.05 truncates it
    ("12:00:20.000", "143", "143:0", "user.cancel"),  # it handled the signal for a while
    ("12:00:43.751", "1", "1:0", "app.error"),  # an error of its own
    ("12:00:43.751", "134", "134:0", "app.error"),  # SIGABRT is not sent on purpose
    ("12:00:01.000", "143", "143:0", "app.error"),  # long before: a signal for a checkpoint
)


def test_a_run_that_a_signal_of_its_user_ended_is_her_own(tmp_path: Path) -> None:
    lines, sacct = [], SACCT
    for job, (asked, ended, code, _) in enumerate(SIGNALLED, 23):
        lines += [
            f"11:59:59.994] _slurm_rpc_submit_batch_job: JobId={job} InitPrio=4294901739 usec=362",
            f"12:00:00.752] sched: Allocate JobId={job} NodeList=gpu02 #CPUs=1 Partition=gpu",
            f"{asked}] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={job} uid 20001",
            f"12:00:43.857] _job_complete: JobId={job} WEXITSTATUS {ended}",
            f"12:00:43.859] _job_complete: JobId={job} done",
        ]
        sacct += f"{job}|alice|20001|FAILED|{code}|2026-11-22T11:59:59|2026-11-22T12:00:00|2026-11-22T12:00:43|gpu02|gpu|10\n"
    slurmctld = "".join(f"[2026-11-22T{line}\n" for line in sorted(lines, key=lambda line: line[:12]))
    verdicts = told(tmp_path, slurmctld=slurmctld, sacct=sacct, conf=CONF)["verdicts"]
    assert {job: verdict["category"] for job, verdict in verdicts.items()} == {
        str(job): category for job, (*_, category) in enumerate(SIGNALLED, 23)
    }
    for verdict in verdicts.values():
        assert ("alice had a signal sent" in str(verdict)) == (verdict["category"] == "user.cancel")
