"""A record's attributes may have any name: none of them is taken for what only Faultline or a line itself shows."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import polars as pl
import pytest

from collector.decoding import _rows
from collector.identity import boots
from collector.receivers import otlp
from collector.receivers.base import Decoded, Payload
from correlator.engine import correlate
from parsers.record import frame
from store import open_store
from tests.line_parser import line_parser

RECEIVED = 1_795_255_200_000_000
LINES = (
    "<4>Nov 21 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus.",
    "<4>Nov 21 10:00:01 n1 kernel: [  100.000100] mlx5_core 0000:17:00.0 hsn0: Link down",
)
ODD = [
    {"stringValue": "3 days"},
    {"arrayValue": {"values": [{"intValue": "1"}]}},
    {"boolValue": True},
    {"doubleValue": 1e300},
]


def received(attributes: dict[str, Any]) -> pl.DataFrame:
    records = [
        {"timeUnixNano": str(RECEIVED * 1000), "body": {"stringValue": line}, "attributes": [{"key": k, "value": v} for k, v in attributes.items()]}
        for line in LINES
    ]  # fmt: skip
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": "n1"}}]}
    body = json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}).encode()
    into = Decoded()
    meta = {"received": RECEIVED, "peer": "10.0.0.1", "form": "json", "signal": "logs"}
    otlp.RECEIVER.decode(Payload(body, meta), into)
    return pl.concat([rows for group in into.groups.values() for rows in _rows(group, line_parser())])


@pytest.mark.parametrize("value", ODD, ids=lambda value: next(iter(value)))
def test_an_attribute_with_the_name_of_an_uptime_is_none(value: dict[str, Any]) -> None:
    rows = received({"uptime_s": value, "rank": {"intValue": "7"}})
    first, second = (json.loads(text) for text in rows["entities"])
    assert "uptime_s" not in first and second["uptime_s"] == 100.0001
    assert all("given_uptime_s" in one and one["rank"] == 7 for one in (first, second))


def test_nobody_says_by_an_attribute_who_sent_a_line() -> None:
    rows = received({"sender": {"stringValue": "10.0.0.99"}})
    entities = [json.loads(text) for text in rows["entities"]]
    assert all("sender" not in one and one["given_sender"] == "10.0.0.99" for one in entities)


@pytest.mark.parametrize("timed", [True, False])
def test_a_store_that_has_such_lines_is_settled_and_concluded(timed: bool) -> None:
    """An earlier version took them for an uptime: then no round of the service came to an end."""
    at = {"time": datetime(2026, 11, 21, 10), "time_quality": "line"} if timed else {}
    words = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    given = {
        "host": "n1",
        "source": "kernel",
        "format": "rfc3164",
        "event": "gpu.xid",
        "message": words,
        "raw": words,
        "line": 1,
    }
    logs = [
        {**given, "file": "syslog", "entities": '{"uptime_s": "3 days", "xid": 79}', **at},
        {**given, "file": "dmesg", "format": "dmesg", "entities": '{"uptime_s": 10.5, "xid": 79}'},
    ]
    boot = {"host": "n1", "boot_time": datetime(2026, 11, 21, 9), "error_us": 1, "source": "scontrol_node"}
    with open_store(None) as store:
        store.add({"logs": frame("logs", logs), "boots": frame("boots", [boot])})
        boots.settle(store)
        correlate(store)
        found = store.rows("SELECT time FROM raw.log_view WHERE file = 'dmesg'")
        assert found == [{"time": datetime(2026, 11, 21, 9, 0, 10, 500_000)}]
