"""Glyphs and their meaning: shape is the class of an event, colour its source, fill and edge its severity.

The paths are the single copy: templates put them into the page as symbols, and the canvas reads them from there. All of
them fill a box of 12 by 12.
"""

from __future__ import annotations

GLYPHS = {
    "down": "M1 2.5h10L6 10.5z",
    "up": "M1 9.5h10L6 1.5z",
    "state": "M6 .8 11.2 6 6 11.2.8 6z",
    "kill": "M2.6 1 6 4.4 9.4 1 11 2.6 7.6 6 11 9.4 9.4 11 6 7.6 2.6 11 1 9.4 4.4 6 1 2.6z",
    "comm": "M6 .8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 6 .8zm0 1.8a3.4 3.4 0 0 1 1.9.6L3.2 7.9A3.4 3.4 0 0 1 6 2.6z"
    "m2.8 1.5A3.4 3.4 0 0 1 4.1 8.8z",
    "end": "M2 2h8v8H2zm1.7 1.7v4.6h4.6V3.7z",
    "start": "M2.5 1v10L10.5 6z",
    "info": "M6 3.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z",
    "gpu": "M2.5 2.5h7v7h-7zM4 0h1v2H4zm3 0h1v2H7zM4 10h1v2H4zm3 0h1v2H7z"
    "M0 4h2v1H0zm0 3h2v1H0zm10-3h2v1h-2zm0 3h2v1h-2z",
    "store": "M1.5 3C1.5.8 10.5.8 10.5 3v6c0 2.2-9 2.2-9 0zM3 3c1 .8 5 .8 6 0-1-.8-5-.8-6 0z",
    "boot": "M5.2 0h1.6v5.5H5.2zM3.2 2l.9 1.4a3.6 3.6 0 1 0 3.8 0L8.8 2A5.2 5.2 0 1 1 3.2 2z",
    "impact": "M3.6.5h4.8L11.5 3.6v4.8L8.4 11.5H3.6L.5 8.4V3.6z",
    "degraded": "M6 .8 11.6 11H.4z",
    "benign": "M6 .8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 6 .8zm0 1.6a3.6 3.6 0 1 1 0 7.2 3.6 3.6 0 0 1 0-7.2z",
    "check": "M4.6 10.2.8 6.4l1.5-1.5 2.3 2.3 5-5.6 1.6 1.4z",
    "action": "M6 .5 11.5 6 6 11.5 4.7 10.2 8 6.9H.5V5.1H8L4.7 1.8z",
    "doubt": "M6 .8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 6 .8zM5.2 8.6h1.6v1.5H5.2zM6 2.2c1.6 0 2.6.9 2.6 2.2 "
    "0 1.6-1.8 1.6-1.8 3.2H5.2c0-2.2 1.8-2.3 1.8-3.2 0-.5-.4-.8-1-.8-.7 0-1.1.5-1.1 1.2H3.4C3.4 3.1 4.4 2.2 6 2.2z",
}

#: What each glyph of the axis means, in the order of the legend.
LEGEND = (
    ("down", "down"), ("up", "up"), ("state", "state change"), ("kill", "kill"), ("comm", "lost contact"),
    ("start", "start"), ("end", "ended"), ("gpu", "GPU error"), ("store", "storage error"), ("boot", "boot"),
    ("info", "other"),
)  # fmt: skip

#: The end of an event's name decides first, then its family: "nic.link_down" -> down.
BY_NAME = {
    "link_down": "down", "port_down": "down", "fallen_off_bus": "down", "lost": "down", "link_flap": "down",
    "link_up": "up", "port_up": "up", "node_up": "up", "recovered": "up",
    "node_not_responding": "comm", "comm_error": "comm", "failover": "comm", "nccl_timeout": "comm",
    "nccl_error": "comm", "mpi_error": "comm",
    "job_node_fail": "kill", "job_failed": "kill", "job_cancelled": "kill", "job_timeout": "kill", "job_oom": "kill",
    "job_preempted": "kill", "oom_kill": "kill", "killed": "kill", "step_terminated": "kill", "panic": "kill",
    "kill_task_failed": "kill", "daemon_fatal": "kill", "service_failed": "kill", "segfault": "kill",
    "node_failure": "kill", "oom": "kill", "cancelled": "kill",
    "job_end": "end", "daemon_stop": "end", "step_end": "end",
    "job_start": "start", "step_start": "start", "daemon_start": "start", "service_started": "start",
    "job_submit": "start", "job_requeue": "start",
    "boot": "boot", "reboot": "boot", "node_reboot": "boot",
}  # fmt: skip


def glyph_of(event: str | None) -> str:
    """The glyph of an event type; an unknown one is a dot, never a wrong shape."""
    family, _, name = (event or "other").partition(".")
    if name in BY_NAME:
        return BY_NAME[name]
    if family == "gpu":
        return "gpu"
    if family == "storage":
        return "store"
    if name.startswith("node_") or family == "switch":
        return "state"
    return "info"
