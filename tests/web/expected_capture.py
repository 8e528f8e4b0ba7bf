"""The right answer for the capture, by a person who knew the injected fault: events, chain, rivals, advice, spans."""

from __future__ import annotations

#: id, file, line, layer, event, severity, device, job, role.
EVENTS = (
    ("e1", "hosts/leaf01/syslog", 1, "switch", "switch.port_down", "warning", "m-gpu02", None, "cause"),
    ("e2", "hosts/gpu02/syslog", 2, "link", "nic.link_down", "error", "eth0", None, "cause"),
    ("e3", "hosts/ctl/slurmctld.log", 8, "slurmctld", "slurm.node_down", "error", "gpu02", None, "effect"),
    ("e4", "hosts/ctl/slurmctld.log", 7, "job", "slurm.job_node_fail", "error", "", 15, "effect"),
    ("e5", "hosts/gpu01/slurmd.log", 9, "slurmd", "slurm.job_node_fail", "error", "", 15, "symptom"),
    ("e6", "hosts/gpu02/slurmd.log", 6, "slurmd", "slurm.comm_error", "error", "", 15, "symptom"),
    ("e7", "hosts/leaf01/syslog", 2, "switch", "switch.port_up", "info", "m-gpu02", None, "recovery"),
    ("e8", "hosts/gpu02/syslog", 4, "link", "nic.link_up", "info", "eth0", None, "recovery"),
    ("e9", "hosts/ctl/slurmctld.log", 14, "slurmctld", "slurm.node_up", "info", "gpu02", None, "recovery"),
    ("c1", "hosts/ctl/slurmctld.log", 3, "slurmctld", "slurm.job_start", "info", "", 15, "context"),
    ("c2", "hosts/ctl/slurmctld.log", 4, "slurmctld", "slurm.job_start", "info", "", 16, "context"),
    ("c3", "hosts/gpu01/slurmd.log", 3, "slurmd", "slurm.job_start", "info", "", 15, "context"),
    ("c4", "hosts/gpu02/slurmd.log", 3, "slurmd", "slurm.step_start", "info", "", 15, "context"),
    ("c5", "hosts/ctl/slurmctld.log", 10, "slurmctld", "slurm.job_end", "info", "", 16, "context"),
    ("c6", "hosts/gpu01/slurmd.log", 13, "slurmd", "slurm.comm_error", "error", "", 15, "context"),
    ("c7", "hosts/gpu02/slurmd.log", 7, "slurmd", "slurm.step_end", "info", "", 15, "context"),
    ("c8", "hosts/ctl/slurmctld.log", 12, "slurmctld", "slurm.node_error", "error", "gpu02", 15, "context"),
)
ALSO = {"e3": [{"source": "hosts/ctl/syslog", "line": 3}], "e5": [{"source": "hosts/gpu01/syslog", "line": 2}]}
CHAIN = (
    (
        3,
        "e2",
        "e3",
        "E03",
        34.973,
        [16, 50],
        "SlurmdTimeout=24, MessageTimeout=10",
        "Without an answer slurmctld gives a node up after ⅔ to 5⁄3 of SlurmdTimeout, plus MessageTimeout.",
    ),
    (4, "e3", "e4", "E04", -0.001, [0, 2], "same transaction", "Slurm writes the kill one line before the DOWN."),
    (5, "e3", "e5", "E05", 0.003, [0, 10], "KillWait=5", "Symptom on an innocent peer, not a cause."),
    (6, "e2", "e6", "E07", 44.343, [2, 70], "TCPTimeout=2", "gpu02 was alive and cut off."),
    (7, "e8", "e9", "E12", 87.58, [0, 160], "20 pings of 8 s", "A DOWN node is asked once in 20 pings of 8 s."),
)
TITLE = (
    "eth0 of gpu02 lost its link for 60.0 s. Slurm set gpu02 DOWN after 35.0 s, which ended job 15 as NODE_FAIL. "
    "Job 16 was untouched."
)
GROUNDS = [
    "Both ends of the link saw it, 0.2 ms apart.",
    "5 of 5 lags are inside their windows.",
    "No rival cause has evidence.",
]
DOUBTS = [
    "gpu02's lines from 00:30:17 to 00:31:18 arrived up to 60.4 s late; until then the cause was not visible.",
    "Whether switch or card saw the loss first is not known: clocks agree to ±0.9 ms, the lines are 0.2 ms apart.",
]
RIVALS = (
    ("slurmd crash", "gpu02", "No start line; step daemon 15.0, started before the outage, still wrote at 00:31:18."),
    ("Reboot or panic", "gpu02", "Kernel uptime runs on: 260450 s at link down, 260510 s at link up."),
    ("munge or clock", "gpu02", "No authentication line in 15 slurmctld lines; gpu02's clock within ±0.6 ms."),
    ("Data fabric (hsn)", "gpu02", "Rank 0 of job 15 kept stepping over hsn until 00:30:49, 31.6 s into the outage."),
    ("Administrator", "gpu02", "Reason “Not responding” was set by slurm, not by a person; no update_node line."),
    ("slurmctld restart", "ctl", "Same pid 137 from 00:30:52 to 00:32:45."),
)
ADVICE = [
    {
        "text": "Drain gpu02 when idle and change the eth0 cable. Fifth link loss on this port in under 2 minutes.",
        "command": "scontrol update NodeName=gpu02 State=DRAIN Reason='eth0 flaps, cable'",
    },
    {
        "text": "Tell alice to submit again. Her code was fine; --no-requeue kept Slurm from restarting the job.",
        "command": None,
    },
    {
        "text": "Try SlurmdTimeout of 120 s. A node cannot go DOWN before 80 s then; this outage would have passed.",
        "command": None,
    },
]
SPANS = (
    (
        "leaf01 m-gpu02",
        "switch",
        "leaf01",
        "m-gpu02",
        "00:30:17.735336",
        "00:31:17.743097",
        "disabled",
        "port disabled, 60.0 s",
    ),
    ("gpu02 eth0", "link", "gpu02", "eth0", "00:30:17.735551", "00:31:17.746737", "no_carrier", "no carrier, 60.0 s"),
    (
        "gpu02 kernel",
        "kernel",
        "gpu02",
        "",
        "00:30:17.735551",
        "00:31:18.146506",
        "late",
        "gpu02 syslog silent; came 60.4 s late",
    ),
    ("gpu02 slurmd", "slurmd", "gpu02", "", "00:30:17.735551", "00:31:18.146506", "late", "late by up to 60.4 s"),
)
