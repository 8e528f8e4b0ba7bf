"""What shippers, collectors, containers and loggers wrap around a line, with their own names. All lines are synthetic."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from parsers.engine import LineParser
from parsers.record import Origin

DOWN = "mlx5_core 0000:9a:00.0 ens3np0: Link down"
SYSLOG = f"Feb 28 16:29:24 gx7 kernel: {DOWN}"
TOLD = "XID 79 detected on GPU 3"
AT, NANOS = datetime(2026, 2, 28, 16, 29, 24), "1772296164000000000"
UTC = "2026-02-28T16:29:24Z"
LINK: dict[str, Any] = {"event": "nic.link_down", "host": "gx7", "time": AT}
XID: dict[str, Any] = {"event": "gpu.xid", "time": AT, "host": None}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"Timestamp": NANOS, "SeverityText": "ERROR", "Body": DOWN, "Resource": {"host.name": "gx7"}}, {**LINK, "severity": "error"}),
        ({"timeUnixNano": NANOS, "severityNumber": 13, "body": {"stringValue": DOWN}, "attributes": [{"key": "host.name", "value": {"stringValue": "gx7"}}]}, {**LINK, "severity": "warning"}),
        ({"time": 1772296164.0, "host": "gx7", "sourcetype": "syslog", "event": SYSLOG}, LINK),
        ({"version": "1.1", "host": "gx7", "short_message": DOWN, "timestamp": 1772296164.0, "level": 4, "_app": "kernel"}, {**LINK, "severity": "warning"}),
        ({"TimeGenerated": UTC, "Computer": "gx7", "ProcessName": "kernel", "SeverityLevel": "err", "SyslogMessage": DOWN}, {**LINK, "severity": "error", "source": "kernel"}),
        ({"timestamp": UTC, "severity": "ERROR", "jsonPayload": {"message": DOWN}, "labels": {"compute.googleapis.com/resource_name": "gx7"}}, LINK),
        ({"PROGRAM": "kernel", "PRIORITY": "warning", "MESSAGE": DOWN, "HOST": "gx7", "DATE": "Feb 28 16:29:24"}, {**LINK, "severity": "warning"}),
        ({"date": 1772296164.0, "PRIORITY": "3", "SYSLOG_IDENTIFIER": "kernel", "_HOSTNAME": "gx7", "MESSAGE": DOWN}, {**LINK, "severity": "error"}),
        ({"date": 1772296164.0, "priority": 3, "sequence": 7, "msg": DOWN}, {**LINK, "severity": "error", "host": None}),
        ({"@timestamp": UTC, "log.level": "error", "message": DOWN, "host.name": "gx7"}, {**LINK, "severity": "error"}),
        ({"level": 50, "time": 1772296164000, "hostname": "gx7", "msg": TOLD}, {**XID, "severity": "error", "host": "gx7"}),
        ({"event": "login", "user": "zoe"}, {"event": "other", "format": "json", "message": '{"event": "login", "user": "zoe"}'}),
        ({"request": {"host": "shop", "time": 0.2}, "status": 200}, {"event": "other", "host": None, "time": None}),
    ],
)  # fmt: skip
def test_objects(record: dict[str, Any], expected: dict[str, Any]) -> None:
    assert_read(json.dumps(record), expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"2026-02-28T16:29:24.000000Z [error    ] {TOLD} [mod]", {**XID, "severity": "error", "format": "levelled"}),
        (f"2026-02-28T16:29:24Z WARN gpu::mon: {TOLD}", {**XID, "severity": "warning"}),
        ("2026-02-28T16:29:24.5Z 8 [ERROR] [MY-012] cannot lock ./a", {"severity": "error", "host": None}),
        ("2026-02-28T16:29:24Z gx7 app: ERROR of a user", {"host": "gx7", "format": "rfc3164"}),
        (f"ERROR 02-28 16:29:24 [core.py:33] {TOLD}", {**XID, "severity": "error"}),
        (f"[2026-02-28 16:29:24] [   12.345678] {DOWN}", {**LINK, "host": None, "format": "dmesg"}),
        (f"[rank: 3] 2026-02-28 16:29:24,000 ERROR {TOLD}", {**XID, "severity": "error"}),
        (f"node-1  | 2026-02-28 16:29:24,000 ERROR {TOLD}", {**XID, "severity": "error"}),
        ("ctl-0 slurmctld [2026-02-28T16:29:24.000] error: Nodes gx7 not responding", {"event": "slurm.node_not_responding", "severity": "error", "time": AT}),
        (f"gx7: [Sat Feb 28 16:29:24 2026] {DOWN}", LINK),
        (f"gx7 | CHANGED | rc=0 >> {SYSLOG}", LINK),
        (f"1772296164.0 gx7 kernel: {DOWN}", LINK),
        (f"Sat Feb 28 16:29:24 2026 kern.err kernel: [ 7.012345] {DOWN}", {**LINK, "host": None, "severity": "error"}),
    ],
)  # fmt: skip
def test_fronts(line: str, expected: dict[str, Any]) -> None:
    assert_read(line, expected)


def assert_read(line: str, expected: dict[str, Any]) -> None:
    row = LineParser().parse([line.encode()], Origin(reference=datetime(2026, 12, 31))).row(0, named=True)
    assert {name: row[name] for name in expected} == expected
