"""Each framing gives the content of its header. All lines here are synthetic."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from parsers.engine import LineParser
from parsers.entities import tidy
from parsers.formats.base import as_frame
from parsers.reasons import split_reason
from parsers.record import Origin
from parsers.xid import ACTIONS, described, sxids, tag_of, xids

PARSER = LineParser(header_entities=True)
ORIGIN = Origin(reference=datetime(2026, 6, 1))


def row(line: str | bytes, **changes: object) -> dict[str, Any]:
    data = line if isinstance(line, bytes) else line.encode()
    found: dict[str, Any] = PARSER.parse([data], ORIGIN.but(**changes)).row(0, named=True)
    return {**found, "entities": json.loads(found["entities"] or "{}")}


def at(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]


#: line, then what must be in its row; ``e_NAME`` is an entity.
LINES: list[tuple[str, dict[str, Any]]] = [
    # syslog in its wild forms
    ("<30>Feb 3 04:05:06 n1 app[7]: x", {"format": "rfc3164", "e_timestamp": "Feb 3 04:05:06", "facility": "daemon"}),
    ("<30> Feb 23 04:05:06.789 n1 app[7]: x", {"time": at(2026, 2, 23, 4, 5, 6, 789000), "e_timestamp": "Feb 23 04:05:06.789"}),
    ("<30>Feb 23 2025 04:05:06: %ASA-6-302014: gone", {"time": at(2025, 2, 23, 4, 5, 6), "unit": "%ASA-6-302014", "message": "gone"}),
    ("<30>Feb 23 04:05:06 2025 n1 app: x", {"time": at(2025, 2, 23, 4, 5, 6), "e_timestamp": "Feb 23 04:05:06 2025"}),
    ("<30>Feb 23 04:05:06 n1 10.0.0.9[77]: x", {"unit": None, "message": "10.0.0.9[77]: x"}),
    ("févr. 23 04:05:06 n1 app: x", {"time": at(2026, 2, 23, 4, 5, 6), "host": "n1"}),
    ("<30>1 2026-02-03T04:05:06.7Z n1 app proc-9 ID4 [a@1 b=\"c\"] \ufefftext", {
        "format": "rfc5424", "message": "text", "pid": None, "e_pid": "proc-9", "e_msgid": "ID4", "e_version": 1, "e_sd": {"a@1": {"b": "c"}}}),
    ("2026-02-03T04:05:06Z n1 app 9 ID4 [a@1 b=\"c\"] text", {"format": "rfc5424", "pid": 9, "e_msgid": "ID4", "e_sd": {"a@1": {"b": "c"}}}),
    ("49 <30>1 2026-02-03T04:05:06Z n1 app 9 - - text", {"format": "rfc5424", "message": "text", "host": "n1"}),
    ("<38>Feb 23 04:05:06 relay Message forwarded from n9: sshd[77]: x", {"host": "n9", "unit": "sshd", "pid": 77, "message": "x"}),
    ("<30>Feb 23 04:05:06 n1 CRON[77] (root) CMD", {"unit": "CRON", "pid": 77, "message": "(root) CMD"}),
    ("<30>Feb 23 04:05:06 CST 2025 n1 app[7]: x", {"time": at(2025, 2, 23, 4, 5, 6), "host": "n1", "unit": "app", "time_quality": "inferred"}),
    ("<30>Feb 30 04:05:06 n1 app: x", {"time": None, "tags": ["bad_time"], "host": "n1"}),
    ("<192>Feb 23 04:05:06 n1 app: x", {"format": "plain", "tags": ["malformed"]}),
    ("<30>9 2026-02-31T04:05:06Z n1 app", {"format": "plain", "tags": ["malformed"]}),
    ("Feb 23 04:05:06 n1 ifplugd(eth2)[7]: Link beat lost.", {"unit": "ifplugd(eth2)", "event": "nic.link_down", "e_port": "eth2"}),
    ("<27>Feb 23 04:05:06 n1 ifplugd(eth2)[7]: Link beat detected.", {"event": "nic.link_up", "e_port": "eth2", "e_pri": 27}),
    ("<30>Feb 23 04:05:06 n1 last message repeated 3 times", {"e_repeat": 3, "tags": ["repeat_marker"]}),
    # switches
    ("<28>Feb 23 04:05:06 re0.leaf1 rpd[7]: RPD_OSPF_NBRDOWN: OSPF neighbor 10.0.0.9 state changed", {
        "host": "re0.leaf1", "e_host_norm": "leaf1", "e_device_os": "junos", "e_protocol": "ospf", "event": "switch.protocol_change"}),
    ("<187>Feb 23 04:05:06 leaf2 AEST: %ETHPORT-5-IF_UP: Interface Ethernet1/9 is up", {"host": "leaf2", "e_device_os": "nxos", "event": "switch.port_up"}),
    ("<189>: 2026 Feb 23 04:05:06.125 UTC: %ETHPORT-5-IF_UP: Interface Ethernet1/9 is up", {"e_timestamp": "2026 Feb 23 04:05:06.125", "severity": "notice"}),
    ("Feb 23 04:05:06 10.2.0.9 371: core2: *Feb 23 04:05:05.912 CET: %LINK-3-UPDOWN: Interface Te1/0/1, changed state to down", {
        "host": "core2", "source": "switch", "unit": None, "e_device_os": "ios", "time": at(2026, 2, 23, 4, 5, 6), "event": "switch.port_down"}),
    ("*Feb 23 04:05:05.912: %LINK-3-UPDOWN: Interface Te1/0/1, changed state to up", {"source": "switch", "host": None, "severity": "error", "event": "switch.port_up"}),
    ("Feb 23 04:05:06 leaf2 %$ VDC-3 %$ %ETHPORT-5-IF_UP: Interface Ethernet1/9 is up", {"source": "switch", "host": "leaf2", "e_device_os": "nxos"}),
    ("Feb 23 04:05:06 core2 : %SYS-5-CONFIG_I: Configured from console by ops", {"source": "switch", "host": "core2", "severity": "notice", "event": "other"}),
    ("RP/0/RSP0/CPU0:Feb 23 04:05:06.125 : ifmgr[77]: %PKT_INFRA-LINK-3-UPDOWN : Interface TenGigE0/1/0/3, changed state to Down", {
        "source": "switch", "unit": "ifmgr", "pid": 77, "e_device_os": "iosxr", "event": "switch.port_down"}),
    ("<189>Feb 23 04:05:06 xr1 RP/0/RP0/CPU0:Feb 23 04:05:06.125 UTC: ifmgr[77]: %PKT_INFRA-LINK-3-UPDOWN : Interface TenGigE0/1/0/3, changed state to Down", {
        "source": "switch", "host": "xr1", "unit": "ifmgr", "pid": 77, "e_device_os": "iosxr", "event": "switch.port_down", "time": at(2026, 2, 23, 4, 5, 6, 125000)}),
    ("RP/0/RP0/CPU0:2026 Feb 23 04:05:06.125 UTC: ifmgr[77]: %PKT_INFRA-LINK-3-UPDOWN : Interface TenGigE0/1/0/3, changed state to Down", {
        "source": "switch", "e_device_os": "iosxr", "time": at(2026, 2, 23, 4, 5, 6, 125000), "time_quality": "line", "e_timestamp": "2026 Feb 23 04:05:06.125"}),
    ("Feb 23 2026 04:05:06 ce8 %%01IFNET/4/IF_STATE(l)[7]:Interface 100GE1/0/9 has turned into UP state.", {"source": "switch", "host": "ce8", "e_device_os": "huawei"}),
    ("Feb 23 04:05:06 s12 %%10IFNET/3/PHY_UPDOWN: Physical state on the interface FGE1/0/49 changed to up.", {"source": "switch", "e_device_os": "comware", "event": "switch.port_up"}),
    ("2026 Feb 23 04:05:06.125001 tor9 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet8 oper state set from up to down", {
        "time": at(2026, 2, 23, 4, 5, 6, 125001), "time_quality": "inferred", "host": "tor9", "severity": "notice", "e_device_os": "sonic", "event": "switch.port_down"}),
    # fabric
    ("2026-02-23 04:05:06.7 [45] [110] WARNING [Hardware] IBPort [default / Switch: leaf1 / 5] [dev_id: 9]: Symbol error counter delta threshold exceeded", {
        "format": "ufm", "source": "ufm", "severity": "warning", "event": "fabric.link_errors", "e_peer_node": "leaf1", "e_sw_port": "5"}),
    ("[Feb 23 04:05:06.123456 77 0x7f0011223344] error: x", {
        "format": "slurm", "pid": 77, "severity": "error", "message": "error: x", "time": at(2026, 2, 23, 4, 5, 6, 123456)}),
    # what jobs print
    ("[rank13]:[E223 04:05:06.987654321 ProcessGroupNCCL.cpp:6] [Rank 13] x", {
        "time": at(2026, 2, 23, 4, 5, 6, 987654), "time_quality": "inferred", "severity": "error", "e_rank": 13, "format": "job_output"}),
    ("[W1121 04:05:06.5 socket.cpp:6] x", {"time": at(2025, 11, 21, 4, 5, 6, 500000), "severity": "warning"}),
    ("W0223 04:05:06.987000 140 torch/run.py:7] x", {"time": at(2026, 2, 23, 4, 5, 6, 987000), "message": "140 torch/run.py:7] x"}),
    ("2026-02-23 04:05:06,123 - INFO - x", {"time": at(2026, 2, 23, 4, 5, 6, 123000), "severity": "info", "resolution_us": 1000}),
    ("2026-02-23 04:05:06,123 - a.b - ERROR - x", {"severity": "error", "unit": "a.b"}),
    ("[2026-02-23 04:05:06] n7:12:99 [3] NCCL WARN x", {"host": "n7", "pid": 12, "event": "job.nccl_error", "e_gpu": 3, "time": at(2026, 2, 23, 4, 5, 6)}),
    ("n7:12:99 [3] NCCL INFO Channel 00", {"host": "n7", "e_pid": 12, "e_gpu": 3, "event": "other"}),
    ("  5: [2026-02-23 04:05:06] x", {"e_rank": 5, "message": "x"}),
    ("[default3]:[rank11]: ValueError: x", {"e_rank": 11, "event": "job.exit_error"}),
    ("[default3]: step 5 done", {"e_local_rank": 3}),
    ("\x1b[31mERROR 02-23 04:05:06 [core.py:5] x\x1b[0m", {"time": at(2026, 2, 23, 4, 5, 6), "severity": "error", "message": "[core.py:5] x"}),
    (" 10%|# | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]\rRuntimeError: CUDA error: x", {"event": "job.cuda_error"}),
    ("[1771819506.250000] [n7:12 :0] ib.c:9  UCX  ERROR x", {"time": at(2026, 2, 23, 4, 5, 6, 250000), "host": "n7", "event": "job.mpi_error"}),
    ("2026-02-23 04:05:06,123 - healthagent.gpu - ERROR - x", {"source": "healthagent", "format": "stamped"}),
    # marks on odd times
    ("<30>1 2016-12-31T23:59:60Z n1 a - - - x", {"time": at(2017, 1, 1), "tags": ["leap_second"]}),
    ("<30>1 2031-01-01T00:00:00Z n1 a - - - x", {"time": at(2031, 1, 1), "tags": ["future"]}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "want"), LINES, ids=[line[:40] for line, _ in LINES])
def test_line(line: str, want: dict[str, Any]) -> None:
    found = row(line)
    got = {name: found["entities"].get(name[2:]) if name.startswith("e_") else found[name] for name in want}
    assert got == want
    assert found["raw"] == line


def test_what_a_job_prints_is_nothing_else() -> None:
    line = "[2026-02-03T04:05:06.123] error: Nodes n1 not responding"
    assert row(line)["source"] == "slurmctld"
    inside = row(line, source="job_stdout", job_id=7)
    assert (inside["source"], inside["event"], inside["job_id"]) == ("job_stdout", "other", 7)
    assert inside["time"] == at(2026, 2, 3, 4, 5, 6, 123000)


@pytest.mark.parametrize(
    ("line", "source", "format_name", "tags"),
    [
        ("", "slurmd", "continuation", ["multiline"]), ("  more of it", "syslog", "continuation", ["multiline"]), ("Message payload: x", "fabricmanager", "continuation", ["multiline"]),
        ("nothing known", "syslog", "plain", ["unparsed"]), ("nothing known", None, "plain", ["unparsed"]), ("epoch 3 done", "job_stdout", "job_output", []),
    ],
)  # fmt: skip
def test_lines_without_a_header(line: str, source: str | None, format_name: str, tags: list[str]) -> None:
    found = row(line, source=source)
    assert (found["format"], found["tags"], found["raw"], found["message"]) == (format_name, tags, line, line)


def test_a_wall_clock_time_that_came_twice_is_marked() -> None:
    zone: dict[str, Any] = {"timezone": "Europe/Berlin", "timezone_known": True, "reference": datetime(2026, 11, 1)}
    twice = row("[2026-10-25T02:30:00.000] error: x", **zone)
    assert (twice["time"], twice["tags"]) == (at(2026, 10, 25, 0, 30), ["dst_fold"])
    assert row("[2026-10-25T03:30:00.000] error: x", **zone)["tags"] == []
    assert row("<30>1 2026-10-25T02:30:00+01:00 n1 a - - - x", **zone)["tags"] == []


def test_every_xid_has_a_class_and_what_to_do() -> None:
    table = xids()
    assert set(table) == set(range(1, 173)) and {one.kind for one in table.values()} == {
        "application",
        "memory",
        "bus",
        "fabric",
        "firmware",
        "consequence",
        "directive",
    }
    assert all(one.action in ACTIONS for one in table.values() if one.action) and all(
        one.text for one in table.values()
    )
    assert (table[79].kind, table[79].advice) == ("bus", "reboot the node") and table[45].kind == "consequence"
    assert described(31) == {"xid_class": "application", "xid_action": "RESTART_APP"} and described(9999) == {}
    assert (tag_of(94), tag_of(149), tag_of(9999), tag_of(13)) == ("gpu.ecc", "gpu.nvlink", "unknown_code", None)
    assert sxids()[20034] == "fatal"


def test_an_xid_line_says_what_to_do() -> None:
    found = row("NVRM: Xid (PCI:0000:5e:00): 48, pid=7, name=py, DBE")
    assert found["entities"]["xid_class"] == "memory" and found["tags"] == ["unparsed", "gpu.ecc"][::-1]
    assert found["entities"]["xid_action"] == "WORKFLOW_XID_48"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("NHC: check_gpu_count: 7 of 8", {"owner": "nhc", "check": "check_gpu_count", "component": "gpu", "detail": "7 of 8"}),
        ("Not responding", {"owner": "slurm", "component": "node", "detail": "Not responding"}),
        ("Kill task failed", {"owner": "slurm", "component": "process", "detail": "Kill task failed"}),
        ("[HC] ib_link: mlx5_3 down", {"owner": "healthcheck", "check": "ib_link", "component": "network", "detail": "mlx5_3 down"}),
        ("(Code:InsufficientCapacity)Failure when resuming nodes", {
            "owner": "parallelcluster", "check": "InsufficientCapacity", "component": "node", "detail": "Failure when resuming nodes"}),
        ("ann: swap the cable", {"owner": "admin", "detail": "ann: swap the cable"}),
        ("Healthcheck failures", {"owner": "healthcheck"}),
    ],
)  # fmt: skip
def test_reasons(text: str, parts: dict[str, str]) -> None:
    assert split_reason(text) == parts
    assert tidy({"drain_reason": text}) == {
        "reason": text,
        **{f"reason_{name}": value for name, value in parts.items()},
    }


def test_memory_kills_belong_to_their_job() -> None:
    for folder in (
        "/slurm/uid_7/job_33/step_0/task_0",
        "/system.slice/slurmstepd.scope/job_33/step_0/user/task_0",
        "/slurm_n1/uid_7/job_33/step_0",
    ):
        found = row(
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={folder},task_memcg={folder},task=py,pid=9,uid=7",
            source="kernel",
        )
        assert (found["event"], found["job_id"], found["entities"]["step_id"]) == ("kernel.oom_kill", 33, "0")


def test_a_reader_of_lines_may_give_the_time_itself() -> None:
    zone = timezone(timedelta(hours=1))
    rows: list[dict[str, Any]] = [
        {"i": 0, "time": datetime(2026, 2, 28, 17, tzinfo=zone)},
        {"i": 1, "time": datetime(2026, 2, 28, 16)},
        {"i": 2, "time": 1772294400000000},
        {"i": 3, "time": datetime(2026, 2, 28, 16), "quality": "inferred"},
        {"i": 4},
    ]
    each = [as_frame([one], ORIGIN).row(0, named=True) for one in rows]
    assert [one["time"] for one in each] == [*[at(2026, 2, 28, 16)] * 4, None]
    assert [one["quality"] for one in each] == ["line", "line", "line", "inferred", None]
