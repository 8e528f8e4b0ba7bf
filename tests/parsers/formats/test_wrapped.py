"""Lines inside lines, journalctl's forms, other languages, answers of log stores. All lines here are synthetic."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from parsers.documents import read
from parsers.recognise import recognise
from parsers.record import Origin
from tests.line_parser import line_parser

PARSER = line_parser()
ORIGIN = Origin(reference=datetime(2026, 12, 31))
DOWN = "mlx5_core 0000:9a:00.0 ens3np0: Link down"
SYSLOG = f"Feb 28 16:29:24 gx7 kernel: {DOWN}"
CUDA = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered"
AT, QUARTER = datetime(2026, 2, 28, 16, 29, 24), datetime(2026, 2, 28, 16, 29, 24, 250_000)
HOUR_BEFORE = datetime(2026, 2, 28, 15, 29, 24)
ZH = "nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"\ufeff{SYSLOG}", {"event": "nic.link_down", "host": "gx7", "source": "kernel", "time": AT, "message": DOWN}),
        (f"2026-02-28T16:29:24.250000001Z stderr F {CUDA}", {"event": "job.cuda_error", "source": "job_stdout", "time": QUARTER, "time_quality": "line", "rank": 3}),
        (f"2026-02-28T17:29:24+01:00 stdout P {SYSLOG}", {"event": "nic.link_down", "host": "gx7", "time": AT, "time_quality": "line"}),
        ("2026-02-28T16:29:24Z stdout F", {"event": "other", "message": "", "time": AT}),
        (f'2026-02-28T16:29:24Z {{file="m", host="lh"}} {SYSLOG}', {"format": "logcli", "event": "nic.link_down", "host": "gx7", "time": AT, "time_quality": "line", "message": DOWN}),
        ('2026-02-28T17:29:24+01:00 {instance="gx9:9080", job="x"} [2026-02-28T16:29:24.000] error: Nodes n1 not responding', {"event": "slurm.node_not_responding", "host": "gx9", "time": AT}),
        (f'2026-02-28T16:29:24Z {{node="gx9"}} kernel: {DOWN}', {"event": "nic.link_down", "host": "gx9"}),
        ("2026-02-28T16:29:24Z {} plain words", {"format": "logcli", "event": "other", "host": None, "message": "plain words", "time": AT}),
        *((prefix + json.dumps({"__REALTIME_TIMESTAMP": "1772296164250000", "_HOSTNAME": "gx7", "_TRANSPORT": "kernel", "MESSAGE": DOWN}),
           {"event": "nic.link_down", "host": "gx7", "time": QUARTER, "time_quality": "line", "source": "kernel"}) for prefix in ("\x1e", "data: ")),
        ("\0" * 40 + SYSLOG, {"event": "nic.link_down", "host": "gx7", "time": AT, "message": DOWN}),
        (f"2026-02-28T16:29:24.25Z {CUDA}", {"event": "job.cuda_error", "time": QUARTER, "host": None, "rank": 3}),
        (f"[pod/train-0/pytorch] {CUDA}", {"event": "job.cuda_error", "source": "job_stdout", "rank": 3}),
        ("[1,3]<stderr>:RuntimeError: CUDA error: misaligned address", {"event": "job.cuda_error", "rank": 3, "message": "RuntimeError: CUDA error: misaligned address"}),
        ("[1,3]<stdout>: loss 0.3", {"event": "other", "source": "job_stdout", "message": "loss 0.3"}),
        ("(Trainer pid=77, ip=10.0.0.1) torch.OutOfMemoryError: CUDA out of memory.", {"event": "job.oom", "source": "job_stdout"}),
        (f"Sat 2026-02-28 16:29:24 CET gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "time": HOUR_BEFORE, "time_quality": "line"}),
        ("Sa 2026-02-28 16:29:24.250000 UTC gx7 slurmd[811]: slurmd version 24.05.3 started", {"event": "slurm.daemon_start", "pid": 811, "time": QUARTER}),
        ("Sat 2026-02-28 16:29:24 XYZ gx7 sshd[8]: Server listening", {"event": "other", "host": "gx7", "time": AT, "time_quality": "inferred"}),
        (f"1772296164.250000 gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "time": QUARTER}),
        (f"[   12.345678] gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "message": DOWN, "uptime_s": 12.345678}),
        ("[   12.345678] gx7 slurmd[811]: slurmd version 24.05.3 started", {"event": "slurm.daemon_start", "source": "slurmd"}),
        ("[   12.345678] systemd[1]: Started x", {"format": "dmesg", "host": None, "message": "systemd[1]: Started x"}),
        ("-- Boot 0123456789abcdef0123456789abcdef --", {"format": "journalctl", "event": "other"}),
        (f"[Sa Mär  7 16:29:24 2026] {DOWN}", {"format": "dmesg", "message": DOWN, "time": datetime(2026, 3, 7, 16, 29, 24)}),
        (f"[sam. févr. 28 16:29:24 2026] {DOWN}", {"format": "dmesg", "message": DOWN, "time": AT}),
        (f"[六 2月 28 16:29:24 2026] {DOWN}", {"format": "dmesg", "message": DOWN, "time": AT}),
        (f"kern  :err   : [Sat Feb 28 16:29:24 2026] {DOWN}", {"format": "dmesg", "severity": "error", "message": DOWN, "time": AT}),
        (f"kern  :warn  : [Sat Foo 28 16:29:24 2026] {DOWN}", {"format": "dmesg", "message": DOWN, "time": None}),
        (f"[   12.345678] [   C7] {DOWN}", {"format": "dmesg", "message": DOWN, "uptime_s": 12.345678}),
        (f"Feb 28 16:29:24 gx7 kernel: [   12.345678] [T4411] {DOWN}", {"message": DOWN, "uptime_s": 12.345678}),
        ("Feb 28 16:29:24 gx7 slurmd [811]: slurmd version 24.05.3 started", {"event": "slurm.daemon_start", "source": "slurmd", "pid": 811, "host": "gx7"}),
        ("Feb 28 16:29:24 gx7 backup agent[811]: done", {"unit": "backup agent", "pid": 811, "message": "done"}),
        ("Feb 28 16:29:24 gx7 mmfs: [E] Remote host 10.2.0.13 in the cluster refused connection.", {"event": "storage.io_error", "source": "storage"}),
        ("11月 15 14:15:47 gx7 systemd[1]: " + ZH, {"event": "gpu.fabric_error", "host": "gx7", "time": datetime(2026, 11, 15, 14, 15, 47)}),
        (f"фев 28 16:29:24 gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "time": AT}),
        (json.dumps({"log": CUDA + "\n", "stream": "stderr", "time": "2026-02-28T16:29:24.250Z"}), {"event": "job.cuda_error", "rank": 3, "time": QUARTER, "message": CUDA}),
        (json.dumps({"_index": "s", "_source": {"@timestamp": "2026-02-28T16:29:24Z", "host": {"name": "gx7"}, "message": DOWN}}), {"event": "nic.link_down", "host": "gx7", "time": AT}),
        (json.dumps({"labels": {"host": "gx7"}, "line": DOWN, "timestamp": "2026-02-28T16:29:24Z"}), {"event": "nic.link_down", "host": "gx7", "time": AT}),
        (json.dumps({"message": SYSLOG}), {"event": "nic.link_down", "host": "gx7", "time": AT, "time_quality": "inferred"}),
        ("2026-02-28_17:29:24.250+0100: [E] Remote host 10.2.0.13 in the cluster refused connection.", {"event": "storage.io_error", "unit": "mmfs", "severity": "error", "time": QUARTER}),
        ("(1) Feb28 16:29:24 Worker4 [Connect] >> Connect failed: beegfs-storage st03", {"event": "storage.io_error", "unit": "beegfs", "time": AT}),
        # Output of forwarders and loggers in Go.
        (f'2026-02-28 17:29:24.250000000 +0100 kern.messages: {{"host":"gx7","ident":"kernel","message":"{DOWN}"}}',
         {"event": "nic.link_down", "host": "gx7", "source": "kernel", "time": QUARTER, "time_quality": "line", "message": DOWN}),
        (f'2026-02-28 17:29:24 +0100 kern: {{"host"=>"gx7", "pid"=>nil, "note"=>"a=>\\e[1m\\x9F", "message"=>"{DOWN}"}}',
         {"format": "fluent", "event": "nic.link_down", "host": "gx7", "time": AT, "message": DOWN}),
        (f'2026-02-28T17:29:24+01:00\tkern\t{{"host":"gx7","message":"{DOWN}"}}', {"event": "nic.link_down", "host": "gx7", "time": AT}),
        (f'[3] kern: [1772296164.250000001, {{"host"=>"gx7", "message"=>"{DOWN}"}}]', {"event": "nic.link_down", "host": "gx7", "time": QUARTER, "time_quality": "line"}),
        (f'[3] kern: [[1772296164.250000001, {{}}], {{"host"=>"gx7", "log"=>"{SYSLOG}"}}]', {"event": "nic.link_down", "host": "gx7", "source": "kernel", "time": QUARTER}),
        ('2026-02-28 17:29:24 +0100 app: {"msg": broken}', {"event": "other", "time": AT, "message": 'app: {"msg": broken}'}),
        (f"2026-02-28T16:29:24.250Z\tERROR\tnic/watch.go:12\t{DOWN}", {"format": "tabbed", "severity": "error", "source": None, "time": QUARTER, "message": f"nic/watch.go:12\t{DOWN}"}),
        (f"2026-02-28T16:29:24.250Z\tgx7\tkernel:\t{DOWN}", {"event": "nic.link_down", "host": "gx7", "source": "kernel", "time": QUARTER, "message": DOWN}),
        ("2026-02-28 16:29:24\tgx7\tslurmd[811]\tslurmd version 24.05.3 started", {"event": "slurm.daemon_start", "host": "gx7", "pid": 811, "time": AT, "time_quality": "inferred"}),
        ("E0228 16:29:24.250000    1834 nvml.go:12] Failed to initialize NVML: Driver/library version mismatch",
         {"format": "klog", "event": "gpu.driver_error", "source": "syslog", "severity": "error", "pid": 1834, "time": QUARTER}),
        # A zone's name is no host.
        (f"<3>Feb 28 17:29:24 CET gx7 kernel: {DOWN}",
         {"event": "nic.link_down", "host": "gx7", "source": "kernel", "severity": "error", "time": AT, "time_quality": "inferred", "message": DOWN}),
        (f"2026-02-28 17:29:24.250 CET gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "time": QUARTER, "time_quality": "line", "message": DOWN}),
        ("2026-02-28 17:29:24 +0100 gx7 slurmd[811]: slurmd version 24.05.3 started", {"event": "slurm.daemon_start", "host": "gx7", "pid": 811, "time": AT, "time_quality": "line"}),
        (f"2026-02-28T16:29:24 gx7 kernel:[12.345678] {DOWN}", {"event": "nic.link_down", "host": "gx7", "uptime_s": 12.345678, "time": AT, "time_quality": "inferred", "message": DOWN}),
        (f"\x1b[1;31m{SYSLOG}\x1b[0m", {"event": "nic.link_down", "host": "gx7", "source": "kernel", "time": AT, "message": DOWN}),
        ("\x1b[32m[   12.345678] \x1b[0m\x1b[33mmlx5_core 0000:9a:00.0 ens3np0\x1b[0m: Link down", {"format": "dmesg", "event": "nic.link_down", "message": DOWN}),
        (f"Feb 28 16:29:24 gx7 kern.err kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "source": "kernel", "severity": "error", "message": DOWN}),
        (f"[gx9] {SYSLOG}", {"event": "nic.link_down", "host": "gx7", "time": AT, "message": DOWN}),
        ("Feb 28 16:29:24 ctl slurmctld-blue[811]: slurmctld: error: Nodes n1 not responding", {"event": "slurm.node_not_responding", "source": "slurmctld", "pid": 811}),
        ("[prterun-gx7-811@1,3]<stderr>: RuntimeError: CUDA error: misaligned address", {"event": "job.cuda_error", "rank": 3, "source": "job_stdout"}),
        # Objects around objects, and times as numbers.
        *((json.dumps({"ts": moment, "ident": "kernel", "kubernetes": {"host": "gx7"}, "log": DOWN}),
         {"event": "nic.link_down", "host": "gx7", "source": "kernel", "time": QUARTER, "time_quality": "line"})
          for moment in (1772296164.25, 1772296164250, "1772296164250000000")),
        (json.dumps({"log": json.dumps({"level": "error", "host": "gx7", "msg": DOWN}) + "\n", "time": "2026-02-28T16:29:24.250Z"}),
         {"event": "nic.link_down", "host": "gx7", "severity": "error", "time": QUARTER, "message": DOWN}),
        (json.dumps({"line": json.dumps({"date": 1.5, "log": SYSLOG}), "labels": {"node": "gx9"}, "timestamp": "2026-02-28T16:29:24.250Z"}),
         {"event": "nic.link_down", "host": "gx7", "time": QUARTER, "message": DOWN}),
        (json.dumps({"streams": [{"stream": {"host": "gx7"}, "values": [["1772296164250000000", DOWN]]}]}), {"event": "nic.link_down", "host": "gx7", "time": QUARTER, "message": DOWN}),
        (json.dumps({"streams": [], "line": json.dumps([DOWN])}), {"format": "json", "message": json.dumps([DOWN])}),
        # Logged once more: by a relay, by imfile with a tag of its own, by a shipper that puts its time in front.
        (f"2026-02-28T16:29:24.250Z {SYSLOG}", {"event": "nic.link_down", "host": "gx7", "time": QUARTER, "time_quality": "line", "message": DOWN}),
        (f"2026-02-28T16:29:24.25Z lh messages: {SYSLOG}", {"format": "rfc3164", "host": "gx7", "unit": "kernel", "time": QUARTER, "message": DOWN}),
        (f"Feb 28 16:30:00 lh kernel: {SYSLOG}", {"event": "nic.link_down", "host": "gx7", "time": AT, "message": DOWN}),
        (f"<12>Feb 28 16:30:00 relay <6>{SYSLOG}", {"event": "nic.link_down", "host": "gx7", "severity": "info", "time": AT}),
        (f"Feb 28 16:30:00 relay 2026-02-28T17:29:24+01:00 gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "time": AT, "time_quality": "line"}),
        (
            "Feb 28 16:30:00 ctl slurmctld: [2026-02-28T16:29:24.250] error: Nodes gx[1-2] not responding, setting DOWN",
            {"event": "slurm.node_down", "host": "ctl", "severity": "error", "time": QUARTER, "nodes": ["gx1", "gx2"]},
        ),
        ("Feb 28 16:30:00 gx7 slurmd[9]: [2026-02-28T16:29:24.250] [77.0] done with step", {"event": "other", "source": "slurmstepd", "host": "gx7", "job_id": 77}),
        ("2026-02-28T16:29:24Z gx7 slurmd: [2026-02-28T17:29:24.250] error: Unable to register: x", {"source": "slurmd", "time": AT, "time_quality": "line"}),
        # After prefixes of grep, pdsh, compose, a mail and quotes.
        (f"/var/log/messages-20260301:17:{SYSLOG}", {"event": "nic.link_down", "host": "gx7", "time": AT, "message": DOWN}),
        (f"gx9: [   12.345678] {DOWN}", {"event": "nic.link_down", "host": "gx9", "source": "kernel", "message": DOWN, "uptime_s": 12.345678}),
        (f"gx9  | {SYSLOG}", {"event": "nic.link_down", "host": "gx7", "time": AT}),
        (f'"{SYSLOG}"', {"event": "nic.link_down", "message": DOWN}),
        (f"> {SYSLOG}", {"event": "nic.link_down", "message": DOWN}),
        (f"Sat Feb 28 16:29:24 2026 gx7 kernel: {DOWN}", {"event": "nic.link_down", "host": "gx7", "time": AT}),
        (f"1 2026-02-28T16:29:24Z gx7 kernel - - - {DOWN}", {"format": "rfc5424", "event": "nic.link_down", "host": "gx7", "time": AT, "facility": None}),
        ("2026-02-28T16:29:24,250+00:00 ctl slurmctld[9]: error: Nodes n1 not responding", {"event": "slurm.node_not_responding", "host": "ctl", "time": QUARTER}),
        (f'time="2026-02-28T16:29:24.25Z" level=warning host=gx7 msg="{DOWN}"', {"format": "logfmt", "event": "nic.link_down", "host": "gx7", "time": QUARTER, "message": DOWN}),
        ('level=error ts=2026-02-28T16:29:24Z msg="mount \\"a\\" failed" err="no such device"', {"format": "logfmt", "severity": "error", "message": 'mount "a" failed: no such device'}),
        (f"Sat Feb 28 16:29:24 2026[1,3]<stderr>:{CUDA}", {"event": "job.cuda_error", "rank": 3}),
        ("(raylet) (worker) node_manager.cc:88: System memory low at node 10.0.0.1, killing latest task", {"event": "job.oom", "source": "job_stdout"}),
        ("<189>77: sw1: 71: Feb 28 2026 16:29:24 UTC: %LINK-3-UPDOWN: Interface Gi1/0/2, changed state to down", {"event": "switch.port_down", "host": "sw1", "time": AT}),
        ("<189>77: 10.0.0.9 71: Feb 28 2026 16:29:24 UTC: %LINK-3-UPDOWN: Interface Gi1/0/2, changed state to down", {"event": "switch.port_down", "host": "10.0.0.9"}),
        ("<189>77: sw1: 71: 2y10w: %LINK-3-UPDOWN: Interface Gi1/0/2, changed state to down", {"event": "switch.port_down", "host": "sw1", "time": None}),
        ("28/02/2026 16:29:24 : epoch 5d7f : gw1 : ganesha.nfsd-3294[main] nfs_Start :THREAD :EVENT :started", {"event": "other", "unit": "ganesha.nfsd", "host": "gw1", "pid": 3294, "time": AT}),
    ],
)  # fmt: skip
def test_what_stands_around_a_line(line: str, expected: dict[str, Any]) -> None:
    row = PARSER.parse([line.encode()], ORIGIN).row(0, named=True)
    stated = {**json.loads(row["entities"] or "{}"), **row}
    assert {name: stated.get(name) for name in expected} == expected
    assert row["raw"] == line and "unparsed" not in (row["tags"] or [])


def test_a_container_s_lines_are_read_as_a_job_s_when_the_file_is() -> None:
    line = f"2026-02-28T16:29:24Z stdout F [2026-02-28T16:29:24.123] error: Nodes n1 not responding\n{SYSLOG}"
    rows = PARSER.parse([part.encode() for part in line.split("\n")], ORIGIN.but(source="job_stdout"))
    assert set(rows["source"]) == {"job_stdout"}


VERBOSE = """\
-- Journal begins at Mon 2026-01-05 08:00:01 CET. --
Sat 2026-02-28 17:29:24.250000 CET [s=0a;i=1;b=2b;m=c;t=64be5ad17b350;x=9]
    PRIORITY=4
    _HOSTNAME=gx7
    SYSLOG_IDENTIFIER=kernel
    MESSAGE=mlx5_core 0000:9a:00.0 ens3np0: Link down
Sat 2026-02-28 17:29:25.250000 CET [s=0a;i=2;b=2b;m=d;t=64be5ad26f590;x=9]
    _HOSTNAME=gx7
    SYSLOG_IDENTIFIER=app
    MESSAGE=first
            second
"""
LOKI = {"status": "success", "data": {"resultType": "streams", "result": [
    {"stream": {"host": "gx7"}, "values": [["1772296164250000000", SYSLOG], ["1772296164250000000", DOWN]]}]}}  # fmt: skip
HITS = {"took": 1, "hits": {"total": {"value": 1}, "hits": [
    {"_index": "s", "_source": {"@timestamp": "2026-02-28T16:29:24.250Z", "host": "gx7", "message": DOWN}}]}}  # fmt: skip


@pytest.mark.parametrize("text", [json.dumps(LOKI), json.dumps(HITS, indent=1)])
def test_answers_of_log_stores(text: str) -> None:
    assert recognise("answer.json", text.encode()).kind == "log_search"
    rows = read("log_search", text.encode(), ORIGIN).rows("logs").to_dicts()
    assert {(row["event"], row["host"], row["time"]) for row in rows} == {("nic.link_down", "gx7", QUARTER)}


def test_journalctl_verbose() -> None:
    assert recognise("j.log", VERBOSE.encode()).kind == "journal_verbose"
    first, second = read("journal_verbose", VERBOSE.encode(), ORIGIN).rows("logs").to_dicts()
    micros = int("64be5ad17b350", 16)
    assert (first["event"], first["host"], first["source"], first["line"]) == ("nic.link_down", "gx7", "kernel", 2)
    assert (first["time"] - datetime(1970, 1, 1)).total_seconds() * 1_000_000 == pytest.approx(micros)
    assert second["message"] == "first\nsecond" and second["raw"].endswith("            second")


@pytest.mark.parametrize(
    "prefix", ["\ufeff", "(raylet) ", "\0\ufeff", "2026-02-28T16:29:24Z stdout F ", "Jan  1 10:00:00 n1 x: "]
)
@pytest.mark.parametrize("others", [pytest.param(0, marks=pytest.mark.long), 600])
def test_a_line_of_a_thousand_prefixes_is_kept(prefix: str, others: int) -> None:
    lines = [prefix * 1_500 + "x", *[prefix + "x"] * others]
    rows = PARSER.parse([line.encode() for line in lines], ORIGIN)
    assert rows["raw"].to_list() == lines
    assert rows["event"].unique().to_list() == ["other"]
