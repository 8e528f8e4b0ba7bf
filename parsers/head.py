"""What readers by position find out about each line of a batch, before it becomes columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsers.formats import base
from parsers.lines import Array

SEVERITIES = (None, *base.SEVERITIES)
FACILITIES = (None, *base.FACILITIES)
QUALITIES = (None, "line", "inferred", "received")
FORMATS = (None, "rfc3164", "rfc5424", "slurm", "dmesg", "kmsg", "opensm", "fabricmanager")
RFC3164, RFC5424, SLURM_FILE, DMESG, KMSG, OPENSM, FABRIC = 1, 2, 3, 4, 5, 6, 7
SYSTEMS = (None, "eos", "sonic", "junos", "nxos")
EOS, SONIC, JUNOS, NXOS = 1, 2, 3, 4


@dataclass
class Head:
    """What is known of each line; only lines with a ``format`` are taken. Lengths below zero are nulls."""

    format: Array
    time: Array
    quality: Array
    resolution: Array
    priority: Array
    host: Array
    host_length: Array
    unit: Array
    unit_length: Array
    pid: Array
    message: Array
    stamp: Array
    stamp_length: Array
    msgid: Array
    msgid_length: Array
    tag: Array
    tag_length: Array
    data: Array
    data_length: Array
    uptime: Array
    severity: Array
    system: Array

    @classmethod
    def of(cls, lines: int) -> Head:
        def places() -> Array:
            return np.zeros(lines, np.int64)

        def lengths() -> Array:
            return np.full(lines, -1, np.int64)

        return cls(
            np.zeros(lines, np.uint8), places(), np.zeros(lines, np.uint8), places(), np.full(lines, -1, np.int16),
            places(), lengths(), places(), lengths(), lengths(), places(), places(), lengths(), places(), lengths(),
            places(), lengths(), places(), lengths(), np.full(lines, np.nan), np.zeros(lines, np.uint8), np.zeros(lines, np.uint8),
        )  # fmt: skip

    def clear(self, rows: Array) -> None:
        """Forgets what lines that were not taken seemed to say."""
        empty = Head.of(1)
        for name in vars(self):
            getattr(self, name)[rows] = getattr(empty, name)[0]
