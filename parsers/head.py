"""What the compiled readers learn about each line of a batch, before it becomes columns."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from parsers.compiled import part
from parsers.formats import base

SEVERITIES = (None, *base.SEVERITIES)
FACILITIES = (None, *base.FACILITIES)
QUALITIES = (None, "line", "inferred", "received")
WRITTEN, INFERRED, RECEIVED = 1, 2, 3
FORMATS = (
    None, "rfc3164", "rfc5424", "slurm", "opensm", "fabricmanager", "journald", "dmesg", "kmsg", "job_output", "plain"
)  # fmt: skip
RFC3164, RFC5424, SLURM_FILE, OPENSM, MANAGER, JOURNALD, DMESG, KMSG, OUTPUT, PLAIN = range(1, 11)
SYSTEMS = (None, "eos", "sonic", "junos", "nxos")
EOS, SONIC, JUNOS, NXOS = 1, 2, 3, 4
#: Programs that a header implies; those that lines name are numbered after them.
PROGRAMS = (None, "kernel", "opensm", "nv-fabricmanager", *base.SLURM)
KERNEL, OPENSM_DAEMON, FABRIC_MANAGER, SLURMSTEPD = 1, 2, 3, PROGRAMS.index("slurmstepd")

#: One line. Positions are offsets into the buffer; a text with negative length is null. Only lines with a ``format``
#: are taken. ``time`` and ``uptime`` are microseconds (below zero: no uptime); ``program`` is an index into PROGRAMS.
ROW = np.dtype([
    ("time", np.int64), ("uptime", np.int64), ("pid", np.int64), ("resolution", np.int32), ("message", np.int32),
    ("message_end", np.int32),    ("host", np.int32), ("host_length", np.int32), ("unit", np.int32), ("unit_length", np.int32),
    ("stamp", np.int32), ("stamp_length", np.int32), ("msgid", np.int32), ("msgid_length", np.int32),
    ("tag", np.int32), ("tag_length", np.int32), ("data", np.int32), ("data_length", np.int32),
    ("program", np.int32), ("priority", np.int16), ("format", np.uint8), ("quality", np.uint8),
    ("severity", np.uint8), ("system", np.uint8), ("zoned", np.uint8),
], align=True)  # fmt: skip
#: A line as compiled code sees it: one record of ROW, whose fields are attributes.
Row: TypeAlias = Any


@part
def clear(row: Row) -> None:
    """Resets the row: nothing is known, and the line is not taken."""
    row.time, row.uptime, row.pid, row.resolution, row.message, row.program = 0, -1, -1, 0, 0, 0
    row.message_end = 0
    row.host, row.unit, row.stamp, row.msgid, row.tag, row.data = 0, 0, 0, 0, 0, 0
    row.host_length = row.unit_length = row.stamp_length = row.msgid_length = row.tag_length = row.data_length = -1
    row.priority, row.format, row.quality, row.severity, row.system, row.zoned = -1, 0, 0, 0, 0, 0
