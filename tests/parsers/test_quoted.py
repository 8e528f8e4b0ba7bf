"""A daemon that repeats a user's text does not state it: every text of the catalogue in every place where one may be."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime

import pytest

from parsers.engine import LineParser
from parsers.patterns import load
from parsers.record import Origin
from tests.measured import Measured

HEAD = "Feb 28 16:29:24 n1 "
#: Places of a user's text (``@``): a line, the source of its file, and what the line itself may mean besides "other".
CARRIERS: list[tuple[str, str | None, tuple[str, ...]]] = [
    *((f"{HEAD}kernel: [77.5] {text}", "kernel", own) for text, own in (
        ("evil[42]: segfault at 0 ip 0000 sp 0000 error 4 in @[401000+1000]", ("kernel.segfault",)),
        ("traps: evil[42] trap divide error ip:40 sp:7f error:0 in @[400000+1000]", ("kernel.segfault",)),
        ("process 'evil' launched '@' with NULL argv: empty string added", ()),
        ("process '@' launched '/bin/sh' with NULL argv: empty string added", ()),
        ("warning: `@' uses 32-bit capabilities (legacy support in use)", ()),
        ("audit: type=1701 audit(1790000000.1:42): auid=1001 uid=1001 pid=42 comm=\"@\" exe=\"/tmp/a\" sig=11 res=1", ()),
        ("audit: type=1400 audit(1790000000.1:42): apparmor=\"DENIED\" operation=\"open\" name=\"@\" pid=42 comm=\"a\"", ()),
        ("nfs: Unknown parameter '@'", ()),
        ("EXT4-fs (sda1): Unrecognized mount option \"@\" or missing value", ()),
    )),
    *((f"{HEAD}{program}: {text}", None, ()) for program, text in (
        ("sshd[9]", "Invalid user @ from 10.0.0.9 port 4242"), ("sshd[9]", "Failed password for invalid user @ from 10.0.0.9 port 1 ssh2"),
        ("sshd[9]", "@"), ("sshd[9]", "pam_unix(sshd:auth): authentication failure; logname= uid=0 user=@"),
        ("sudo", "   ann : TTY=pts/1 ; PWD=/home/ann ; USER=root ; COMMAND=/bin/echo @"), ("sudo", "   ann : command not allowed ; COMMAND=@"),
        ("CRON[9]", "(ann) CMD (@)"), ("CRON[9]", "(ann) MAIL (@)"), ("crond[9]", "@"), ("cron[9]", "(ann) ERROR (@)"),
        ("audit[9]", "USER_CMD pid=9 uid=1001 cmd=\"@\" exe=\"/usr/bin/sudo\""), ("audit", "@"), ("dbus-daemon[9]", "[system] Activating service name='@'"),
        ("systemd-logind[9]", "New session 41 of user @."), ("systemd-coredump[9]", "Process 42 (@) of user 1001 dumped core."),
        ("systemd-coredump[9]", "@"), ("systemd[4242]", "@"), ("systemd[4242]", "Failed to start @."), ("systemd[4242]", "Started @."), ("systemd[1]", "Started @."),
        ("mallory", "@"), ("ann[77]", "@"),
        ("dockerd[9]", "time=\"x\" level=error msg=\"container @ died\""), ("containerd[9]", "@"), ("dockerd[9]", "@"),
        ("sssd[9]", "user @ not found"), ("automount[9]", "key \"@\" not found in map source(s)."), ("rsyslogd", "message repeated 3 times: [ @]"),
        ("kernel", "message repeated 3 times: [ evil: @]"), ("login[9]", "FAILED LOGIN 1 FROM tty1 FOR @, Authentication failure"), ("polkitd[9]", "Registered Agent for @"), ("mallory", "x#012@"),
    )),
    *((f"[2026-02-28T16:29:24.123] {text}", "slurmctld", own) for text, own in (
        ("sched: update_job: setting name to @ for JobId=9002", ()), ("_update_job: setting comment to @ for JobId=9002", ()),
        ("sched: update_job: setting partition to @ for JobId=9002", ()), ("_job_create: invalid partition specified: @", ()),
        ("_slurm_rpc_submit_batch_job: JobId=9002 InitPrio=1 usec=2 comment=@", ("slurm.job_submit", "slurm.job_start")),
        ("error: Job specified an unknown license \"@\"", ()), ("sched: JobId=9002 admin_comment \"@\"", ()),
    )),
    *((f"[2026-02-28T16:29:24.123] {text}", "slurmd", own) for text, own in (
        ("[9002.0] error: execve(): @: No such file or directory", ("slurm.node_error",)),
        ("[9002.0] error: couldn't chdir to `@': No such file or directory: going to /tmp instead", ("slurm.node_error", "slurm.job_failed")),
        ("[9002.0] error: Could not open stdout file @: Permission denied", ("slurm.node_error",)),
        ("[9002.batch] task name '@'", ()), ("launch task StepId=9002.0 request from UID:1001 name \"@\"", ("slurm.step_start",)),
    )),
]  # fmt: skip
#: Process names are at the very head: 15 letters, some of which are a whole message.
SHORT = ("eth0: Link down", "ib0: Link down", "Kernel panic", "hsn0: link down")
NAMES = (
    "@[42]: segfault at 0 ip 0000 sp 0000 error 4 in a[401000+1000]", "@ (4242): Using mlock ulimits for SHM_HUGETLB is deprecated",
    "@ invoked oom-killer: gfp_mask=0xcc0, order=0", "traps: @[42] general protection fault ip:40 sp:7f error:0", "@: page allocation failure: order:4",
    "INFO: task @:42 blocked for more than 120 seconds.", "Memory cgroup out of memory: Killed process 42 (@) total-vm:1kB, anon-rss:1kB",
    "CPU: 3 PID: 42 Comm: @ Not tainted 6.1.0", "@/42: potentially unexpected fatal signal 11.", "NVRM: nothing, pid=42, name=@, Ch 1",
)  # fmt: skip
OWN_OF_NAMES = {"kernel.segfault", "kernel.oom_kill", "kernel.hung_task", "kernel.memory", "other"}


def texts() -> list[tuple[str, str]]:
    """(event, text) of every example of the catalogue that is an event."""
    return [
        (entry.event, example.text)
        for entry in load().entries if entry.event != "other"
        for example in entry.examples if "\n" not in example.text
    ]  # fmt: skip


@pytest.mark.long
def test_no_text_of_the_catalogue_is_logged_out_of_a_quotation(measured: Measured) -> None:
    parser, received = LineParser(), []
    tried: Counter[str] = Counter()
    for source in ("kernel", None, "slurmctld", "slurmd"):
        cases = [
            (own, event, line.replace("@", text), line)
            for line, of, own in CARRIERS if of == source
            for event, text in texts()
        ]  # fmt: skip
        rows = parser.parse(
            [line.encode() for _, _, line, _ in cases], Origin(source=source, reference=datetime(2026, 6, 1))
        )
        for (own, event, line, carrier), got, job in zip(cases, rows["event"], rows["job_id"], strict=True):
            tried[event.split(".")[0]] += 1
            if event.startswith("switch.") and got.startswith("switch."):
                continue  # the writer must be a switch: correlator/gather/standing.py
            if got not in ("other", *own) or job not in (None, 9002):
                received.append((carrier, event, got, job, line))
    measured(
        f"{len(CARRIERS)} carriers x {len(texts())} texts = {sum(tried.values())} lines, {len(received)} heard: {dict(tried)}"
    )
    assert received == []


def test_a_program_named_like_a_message_says_nothing() -> None:
    lines = [f"{HEAD}kernel: [77.5] {name.replace('@', text)}" for name in NAMES for text in SHORT]
    rows = LineParser().parse(
        [line.encode() for line in lines], Origin(source="kernel", reference=datetime(2026, 6, 1))
    )
    assert [(got, line) for got, line in zip(rows["event"], lines, strict=True) if got not in OWN_OF_NAMES] == []
    stated = json.loads(rows["entities"][0])
    assert stated["process"] == "eth0: Link down"  # its process name is kept


@pytest.mark.parametrize(
    ("line", "source", "event"),
    [
        (HEAD + "kernel: [7.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "kernel", "gpu.xid"),
        (HEAD + "kernel: mlx5_core 0000:17:00.0 eth0: Link down", "kernel", "nic.link_down"),
        (HEAD + "systemd[1]: slurmd.service: Main process exited, code=killed, status=9/KILL", None, "sys.service_failed"),
        ("[2026-02-28T16:29:24.123] error: Nodes gpu70 not responding, setting DOWN", "slurmctld", "slurm.node_down"),
        ("[2026-02-28T16:29:24.123] Killing JobId=9001 on failed node gpu70", "slurmctld", "slurm.job_node_fail"),
    ],
)  # fmt: skip
def test_who_speaks_for_himself_is_logged(line: str, source: str | None, event: str) -> None:
    rows = LineParser().parse([line.encode()], Origin(source=source, reference=datetime(2026, 6, 1)))
    assert rows["event"].to_list() == [event]
