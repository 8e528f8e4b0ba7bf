"""Files are recognised by their content first, by their path second."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.documents import REGISTRY
from parsers.recognise import recognise

SHARED = Path(__file__).parents[4] / "shared" / "captures"

SYSLOG = b"2026-03-01T10:00:00.000001+00:00 n1 sshd[7]: Accepted publickey for ann\n" * 3
SLURMCTLD = b"[2026-03-01T10:00:00.000] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=2\n"
SLURMD = b"[2026-03-01T10:00:00.000] [7.batch] done with job\n"
IP_MONITOR = b"[2026-03-01T10:00:00.000001] 8: eth0@if2: <BROADCAST> mtu 1500 state DOWN\n    link/ether aa:bb\n"

DOCUMENTS = [
    ("x", b"JobID|JobName|State\n7|a|FAILED\n", "sacct"),
    ("x", b"Account|#JobIDRaw|#State\nml|#7|#FAILED\n", "sacct"),
    ("x", b"User;JobID;State\nann;7;FAILED\n", "sacct"),
    ("x", b"State,JobIDRaw,Start\nFAILED,7,Unknown\n", "sacct"),
    ("x", b"JobID           JobName      State \n------------ ---------- ---------- \n7  a FAILED\n", "sacct"),
    ("x", b"JOBID|STATE|NODELIST\n7|RUNNING|n1\n", "squeue"),
    ("x", b"USER     JOBID    ST  NODELIST(REASON)\nann      7        R   n1\n", "squeue"),
    ("x", b"HOSTNAMES STATE REASON\nn1 drained bad disk\n", "sinfo"),
    ("x", b"REASON               USER      TIMESTAMP           NODELIST\n", "sinfo"),
    ("x", b"JobId=7 HetJobId=7 HetJobOffset=0 JobName=a\n", "scontrol_jobs"),
    ("x", b"NodeName=n1\n   CoresPerSocket=4\n", "scontrol_nodes"),
    ("x", b"SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-4]\n", "topology_conf"),
    ("x", b"SwitchName=top \\\n  Switches=s[1-2]\n", "topology_conf"),
    ("x", b"__REALTIME_TIMESTAMP=1772296164123456\n_HOSTNAME=n1\nMESSAGE=x\n", "journal_export"),
    ("x", b"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n", "sacctmgr_events"),
    ("x", b'{"meta": {"plugin": {"type": "openapi\\/dbv0.0.38"}}, "jobs": [', "sacct_json"),
    ("x", b'{"jobs": [{"account": "ml", "accrue_time": 3, "job_state": ["FAILED"]', "rest_jobs"),
    ("x", b'{"nodes": [{"architecture": "x86_64", "name": "n1"', "rest_nodes"),
    ("x", b'{"partitions": [{"nodes": {"configured": "n[1-4]"}, "grace_time": 0, "name": "p"', "rest_partitions"),
    ("x", b'{"pings": [{"hostname": "ctl", "pinged": "UP", "latency": 9}], "errors": []}', "rest_ping"),
    ("x", b'[{"ifindex":1,"ifname":"lo","flags":["UP"]', "link_counters"),
    ("x", b'{"t": "2026-03-01T10:00:00", "node": "n1", "state": "idle"}\n', "node_polls"),
    ("x", b"JobId=7 UserId=ann(1001) GroupId=ann(1001) Name=a b JobState=FAILED Partition=p\n", "jobcomp"),
    ("x", b"JobId=7 JobName=a\n   UserId=ann(1001) GroupId=ann(1001)\n", "scontrol_jobs"),
    ("x", b"NodeName=n1 Arch=x86_64 CoresPerSocket=4\n   CPUAlloc=0\n", "scontrol_nodes"),
    ("x", b"Configuration data as of 2026-03-01T10:00:00\nKillWait                = 30 sec\n", "scontrol_config"),
    ("x", b"# site\nClusterName=c1\nSlurmctldHost=ctl\nSlurmdTimeout=300\n", "slurm_conf"),
    ("x", b"SwitchName=s1 Nodes=n[1-4]\nSwitchName=top Switches=s1\n", "topology_conf"),
    ("x", b"# HELP up Whether.\n# TYPE up gauge\nup 1\n", "prometheus"),
    ("x", b"node,nic,switch,port\nn1,eth0,tor1,Ethernet1\n", "links_csv"),
    ("x", b"SLURM_JOB_ID=7\nSLURM_SCRIPT_CONTEXT=epilog_slurmd\n", "hook_env"),
    ("x", b"faultline-hook/1\nFAULTLINE_EVENT=epilog\0SLURM_JOB_ID=7\0", "hook_spool"),
    ("x", b"   JOBID PARTITION     NAME     USER\n       7       p        a      ann\n", "squeue"),
    ("x", b"Sun Mar 01 10:00:00 2026\nNODELIST   NODES PARTITION  STATE\n", "sinfo"),
    ("x", b"****\nsdiag output at Sun Mar 01 10:00:00 2026\n", "sdiag"),
    ("x", b"PartitionName=p AllowGroups=ALL AllowAccounts=ALL\n", "slurm_conf"),
    ("x", b"AVAIL|HOSTNAMES|STATE|REASON |\nup|n3|idle|none |\n", "sinfo"),
    ("x.xml", b'<?xml version="1.0" ?>\n<!DOCTYPE x>\n<nvidia_smi_log>\n', "nvidia_smi_xml"),
    ("x", b"\n====NVSMI LOG====\n\nTimestamp : x\n", "nvidia_smi_q"),
    ("x", b"GPU 0: H (UUID: GPU-1a)\n\t Link 0: 25 GB/s\n", "nvidia_smi_nvlink"),
    (
        "x",
        b"timestamp, index, temperature.gpu, utilization.gpu [%]\n2026/03/01 10:00:00.1, 0, 4, 5 %\n",
        "nvidia_smi_csv",
    ),
    ("x", b"Successfully ran diagnostic for group.\n+----+\n| Diagnostic  | Result |\n", "dcgm_diag"),
    ("x", b"+---+\n| Health Monitor Report |\n", "dcgm_health"),
    ("x", b"#Entity   GPUTL\nID\nGPU 0  5\n", "dcgm_dmon"),
    ("x", b"NIC statistics:\n     rx_packets: 12\n", "ethtool_statistics"),
    ("x", b"/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:0\n", "sysfs_dump"),
    ("n1/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", b"0\n", "sysfs_file"),
    ("x", b"__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP=1\nMESSAGE=x\n\n", "journal_export"),
    ("jobs/7/env", b"SLURM_JOB_ID=7\nHOME=/home/ann\n", "job_env"),
]


@pytest.mark.parametrize(("path", "head", "kind"), DOCUMENTS, ids=[kind for _, _, kind in DOCUMENTS])
def test_documents_are_known_by_content(path: str, head: bytes, kind: str) -> None:
    answer = recognise(path, head)
    assert answer.kind == kind
    assert answer.reason
    assert kind in REGISTRY


@pytest.mark.parametrize(
    ("path", "head", "source", "host"),
    [
        ("logs/nodes/n1/syslog", SYSLOG, "syslog", "n1"),
        ("logs/nodes/n1/kern.log.1.gz", SYSLOG, "kernel", "n1"),
        ("logs/nodes/n1/slurmd.log", SLURMD, "slurmd", "n1"),
        ("logs/nodes/n1/dmesg", b"[    1.234567] Linux version\n", "dmesg", "n1"),
        ("logs/switches/leaf1/syslog", SYSLOG, "switch", "leaf1"),
        ("logs/controller/slurmctld.log.zst", SLURMCTLD, "slurmctld", "controller"),
        ("hosts/n1/ip-monitor.log", IP_MONITOR, "ip_monitor", "n1"),
        ("anything.txt", SLURMCTLD, "slurmctld", None),
        ("anything.txt", SLURMD, "slurmd", None),
        ("controller/x", b"Feb 04 15:18:51 000000 [8B7F6700] 0x02 -> state_mgr: light sweep\n", "opensm", "controller"),
        ("x", b"2026-03-01 10:00:00.1 [5] [110] WARNING [Hardware] IBPort x\n", "ufm", None),
        ("x", b"2026-03-01 10:00:00,123 - healthagent.gpu - INFO - x\n", "healthagent", None),
        ("x", b"- 1131566461 2005.11.09 n1 Nov 9 12:01:01 n1/n1 crond[9]: x\n", "loghub", None),
        ("out.txt", b"starting\nsrun: error: n1: task 0: Exited with exit code 1\n", "job_stdout", None),
        ("x", b"kern  :warn  : 2026-03-01T10:00:00,283302+00:00 NVRM: x\n", "dmesg", None),
        ("kmsg.jsonl", b'{"read_at": 1.0, "kmsg_us": 5, "text": "x"}\n', "kmsg_json", None),
        ("journal.json", b'{"__REALTIME_TIMESTAMP": "1", "MESSAGE": "x"}\n', "journald", None),
    ],
)
def test_lines(path: str, head: bytes, source: str, host: str | None) -> None:
    answer = recognise(path, head)
    assert (answer.kind, answer.source, answer.host) == ("lines", source, host)


@pytest.mark.parametrize(
    ("path", "kind", "artifact", "job", "restarts"),
    [
        ("t/jobs/7/stdout", "lines", "stdout", 7, 0),
        ("t/jobs/7/stderr.gz", "lines", "stderr", 7, 0),
        ("t/jobs/7/restart-2/stderr", "lines", "stderr", 7, 2),
        ("t/jobs/7/script.sh", "script", "script", 7, 0),
        ("t/jobs/ring-small-7.out", "lines", "stdout", 7, None),
        ("home/ann/slurm-7.out", "lines", "stdout", 7, None),
    ],
)
def test_files_of_a_job(path: str, kind: str, artifact: str, job: int, restarts: int | None) -> None:
    answer = recognise(path, b"JobID|State\nlooks like sacct, but a job printed it\n")
    assert (answer.kind, answer.artifact, answer.job_id, answer.restarts) == (kind, artifact, job, restarts)


@pytest.mark.parametrize(
    "head", [b"\x7fELF\x02\x01", b"PAR1\x15\x04", b"\x1f\x8b\x08\x00", bytes(range(256)) * 4, b"a\0b\0c\0" * 20]
)
def test_binary(head: bytes) -> None:
    answer = recognise("nodes/n1/syslog", head)
    assert answer.kind == "binary" and answer.reason


def test_a_hole_of_nulls_in_a_log_is_still_a_log() -> None:
    assert recognise("nodes/n1/syslog", SYSLOG + b"\0" * 4000 + SYSLOG).kind == "lines"


def test_answer_keys_are_never_read() -> None:
    answer = recognise("easy/truth.json", b'{"jobs": []}')
    assert answer.kind == "skip" and "never" in answer.reason


def test_folders_above_the_root_say_nothing() -> None:
    assert recognise("/data/hosts/old/nodes/n1/syslog", SYSLOG, Path("/data/hosts/old/nodes")).host == "n1"
    assert recognise("/nodes/backup/a/b/syslog", SYSLOG, Path("/nodes/backup/a/b")).host is None


@given(st.binary(max_size=400), st.sampled_from(["x", "jobs/7/stdout", "nodes/n1/syslog", "x.json"]))
def test_never_raises(head: bytes, path: str) -> None:
    assert recognise(path, head).kind


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/captures is not here")
def test_every_file_of_the_captures_is_known() -> None:
    unknown = []
    for path in SHARED.rglob("*"):
        if path.is_file():
            answer = recognise(path, path.read_bytes()[:65536], SHARED)
            if answer.kind == "lines" and answer.source is None and path.stat().st_size > 200:
                unknown.append(str(path))
    assert not unknown
