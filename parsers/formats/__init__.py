"""Framings of log lines: one file per framing, tried in the order of :func:`all_formats`.

A third party's format is an entry point of the group ``faultline.formats`` that names a :class:`base.Format`; it is
tried before the built-in ones.
"""

from __future__ import annotations

from parsers.formats import (
    devices,
    fabric,
    forwarded,
    ip_link,
    job_output,
    journalctl,
    jsonl,
    kernel,
    loghub,
    nhc,
    plain,
    relayed,
    slurm,
    storage,
    syslog,
    wrapped,
)
from parsers.formats.base import Format
from parsers.formats.registry import all_formats as all_formats
from parsers.formats.registry import installed_names as installed_names
from parsers.formats.registry import register

BUILT_IN: tuple[Format, ...] = (
    forwarded.COLOURED, forwarded.FLUENT, forwarded.TABBED, forwarded.ZONED, forwarded.LEVELLED, forwarded.KLOG,
    wrapped.CONTAINER, wrapped.LOGCLI, wrapped.PREFIXED, ip_link.MONITOR, slurm.FILE, syslog.LOGHOST, relayed.RELAYED, syslog.RFC5424, syslog.BARE_5424, jsonl.JSON, jsonl.LOGFMT, kernel.KMSG,
    job_output.EPOCH, journalctl.MONOTONIC, kernel.DMESG, kernel.DMESG_TIME, kernel.DMESG_ISO, kernel.DMESG_RAW_LEVELS,
    fabric.OPENSM, fabric.UFM, fabric.FABRICMANAGER, fabric.IBDIAGNET, syslog.OCTETS, nhc.NHC, storage.STORAGE, journalctl.FULL, journalctl.UNIX,
    journalctl.BETWEEN, devices.DEVICE, syslog.SPACED, syslog.ISO, syslog.BSD, syslog.DATED, slurm.SHORT, slurm.BARE, loghub.BLUE_GENE,
    loghub.HPC, devices.ODD, job_output.STAMPED, job_output.SHORT, job_output.MARKED, slurm.CLOCK, relayed.BEHIND, plain.REST, plain.PLAIN,
)  # fmt: skip
register(BUILT_IN)
