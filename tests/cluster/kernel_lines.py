"""The kernel's ring buffer is shared by all namespaces: each of its lines goes to the host that it is about."""

import contextlib
import json
import os
import re
import socket
import time

from spaces import CG_ROOT, NAME, RT, hdir, load

INJECTED = re.compile(rf"\[{CG_ROOT}:(\w+)\] (.*)")  # the tag that `kmsg HOST TEXT` puts before a line
OF_SWITCH = re.compile(rf".*\b[mf]{NAME}-(?:ctl\d?|gpu\d+)\b[):]")
OF_HOST = re.compile(rf"/{CG_ROOT}/(\w+)")
LONGEST_REPORT = 200  # lines of an OOM report, after which its end is not awaited


class KernelLines:
    """Hands lines of /dev/kmsg to hosts: to their dmesg.log and to the socket of their rsyslogd.

    A line belongs to the switch when it names one of its bridges, to a host when it
    names its cgroup, or carries the tag of an injected line. An OOM report is kept
    together and goes where the cgroup in it points. kmsg.jsonl keeps everything as it
    was read.
    """

    def __init__(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.raw = open(os.path.join(RT, "kmsg.jsonl"), "a", buffering=1)
        self.report = None  # lines of an OOM report whose end has not come

    def take(self, record):
        """Handles one record as the device gives it: ``prio,seq,microseconds,flags;text`` and continuation lines."""
        head, text = record.split(";", 1)
        text = text.split("\n", 1)[0]
        prio, seq, mono = (int(x) for x in head.split(",")[:3])
        stated = {"facility": prio >> 3, "severity": prio & 7, "seq": seq, "kmsg_us": mono, "text": text}
        self.raw.write(json.dumps({"read_at": round(time.time(), 6), **stated}) + "\n")
        if m := INJECTED.match(text):
            self.deliver(m[1], prio, mono, m[2])
        elif self.report is not None or "invoked oom-killer" in text:
            self.collect(prio, mono, text)
        elif OF_SWITCH.match(text):
            self.deliver("leaf01", prio, mono, text)
        elif m := OF_HOST.search(text):
            self.deliver(m[1], prio, mono, text)

    def collect(self, prio, mono, text):
        """Collects a line of an OOM report; the whole is delivered with its last."""
        report = self.report = [] if "invoked oom-killer" in text else self.report
        report.append((prio, mono, text))
        if "Killed process" in text or len(report) > LONGEST_REPORT:
            host = next((m[1] for *_, t in report if (m := re.search(rf"/{CG_ROOT}/(\w+)/", t))), None)
            for line in report if host else ():
                self.deliver(host, *line)
            self.report = None

    def deliver(self, host, prio, mono, text):
        h = load()["hosts"].get(host)
        if not h or not os.path.isdir(hdir(host, "var/log")):
            return  # not a host, or one that is still being made
        text = text.replace(f"/{CG_ROOT}/{host}", "")
        up = mono / 1e6 + h.get("boot_offset", 0)  # what this host's own dmesg would show
        line = f"[{int(up):5d}.{int(up % 1 * 1e6):06d}] {text}"
        with open(hdir(host, "var/log/dmesg.log"), "a") as f:
            f.write(line + "\n")
        with contextlib.suppress(OSError):  # the host is off
            self.sock.sendto(f"<{prio % 8}>kernel: {line}".encode(), hdir(host, "run/klog.sock"))


def run_kmsgd():
    """Reads /dev/kmsg for ever, from the present end on."""
    fd = os.open("/dev/kmsg", os.O_RDONLY)
    os.lseek(fd, 0, os.SEEK_END)
    lines = KernelLines()
    while True:
        try:
            record = os.read(fd, 8192)
        except BrokenPipeError:
            continue  # lines were overwritten before we read them
        lines.take(record.decode("utf-8", "replace"))
