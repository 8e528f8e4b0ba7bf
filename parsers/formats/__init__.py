"""How logs frame a line: one file per framing, tried in the order of :func:`all_formats`.

A third party's format is an entry point of the group ``faultline.formats`` that names a :class:`base.Format`; it is tried
before the built-in ones.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.metadata import entry_points

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

BUILT_IN: tuple[Format, ...] = (
    forwarded.COLOURED, forwarded.FLUENT, forwarded.TABBED, forwarded.ZONED, forwarded.LEVELLED, forwarded.KLOG,
    wrapped.CONTAINER, wrapped.LOGCLI, wrapped.PREFIXED, ip_link.MONITOR, slurm.FILE, syslog.LOGHOST, relayed.RELAYED, syslog.RFC5424, syslog.BARE_5424, jsonl.JSON, jsonl.LOGFMT, kernel.KMSG,
    job_output.EPOCH, journalctl.MONOTONIC, kernel.DMESG, kernel.DMESG_TIME, kernel.DMESG_ISO, kernel.DMESG_RAW_LEVELS,
    fabric.OPENSM, fabric.UFM, fabric.FABRICMANAGER, fabric.IBDIAGNET, syslog.OCTETS, nhc.NHC, storage.STORAGE, journalctl.FULL, journalctl.UNIX,
    journalctl.BETWEEN, devices.DEVICE, syslog.SPACED, syslog.ISO, syslog.BSD, syslog.DATED, slurm.SHORT, slurm.BARE, loghub.BLUE_GENE,
    loghub.HPC, devices.ODD, job_output.STAMPED, job_output.SHORT, job_output.MARKED, slurm.CLOCK, relayed.BEHIND, plain.REST, plain.PLAIN,
)  # fmt: skip


@lru_cache(maxsize=1)
def all_formats() -> tuple[Format, ...]:
    """Every format in the order in which it is tried; the last accepts anything."""
    others = []
    for point in entry_points(group="faultline.formats"):
        try:
            found = point.load()
        except Exception as error:  # a broken plug-in must not stop logs from being read
            logging.getLogger(__name__).warning("format %s of %s does not load: %s", point.name, point.value, error)
            continue
        if isinstance(found, Format):
            others.append(found)
    return (*others, *BUILT_IN)
