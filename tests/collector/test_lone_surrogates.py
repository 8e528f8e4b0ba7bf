"""A sender's JSON may hold half of a surrogate pair, in any field: U+FFFD, and the batch is stored."""

from __future__ import annotations

import json

import pytest
from receiver_requests import PARSER, ask, frames

from collector import decoding
from collector.decoding import Job
from collector.intake import Intake
from collector.segment_file import Position

HALF = "\ud800"
AT, NANOS = "2026-01-15T10:00:01Z", "1768471201000000000"
NAMED = {"key": HALF, "value": {"stringValue": HALF}}
LOG = {"timeUnixNano": NANOS, "severityText": HALF, "body": {"stringValue": HALF}, "attributes": [NAMED]}
RESOURCE = {"attributes": [{"key": "host.name", "value": {"stringValue": HALF}}]}
ACTION, DOCUMENT = {"create": {"_index": HALF}}, {"message": HALF, "host": {"name": HALF}, "@timestamp": AT}


@pytest.mark.parametrize(
    ("path", "records"),
    [
        ("/api/v1/ingest", [{"message": HALF, "host": HALF, "x": HALF, HALF: 1}]),
        ("/api/v1/ingest", [{"raw": HALF, "host": HALF, "tags": [HALF], "path": f"/x/{HALF}.log"}]),
        ("/api/v1/ingest", [{"host": "a", "agent": HALF, "stream": HALF, "blind": {"from": 0, "to": 0, "reason": HALF}}]),
        ("/api/v1/ingest", [{"host": "a", "status": {"a": HALF, "sources": [{"name": HALF}]}, "boot_id": HALF}]),
        ("/api/v1/ingest", [{"document": "node_polls", "host": "a", "lines": json.dumps({"t": AT, "node": "a", "state": HALF})}]),
        ("/api/v1/ingest", [{"host": "a", "raw": json.dumps({"message": HALF})}]),
        ("/api/v1/ingest", [{"MESSAGE": HALF, "__REALTIME_TIMESTAMP": "1768471201000000", "_HOSTNAME": HALF}]),
        ("/v1/logs", [{"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"logRecords": [LOG]}]}]}]),
        ("/loki/api/v1/push", [{"streams": [{"stream": {"host": HALF}, "values": [[NANOS, HALF, {"x": HALF}]]}]}]),
        ("/_bulk", [ACTION, DOCUMENT]),
    ],
)  # fmt: skip
def test_half_a_character_costs_no_batch(intake: Intake, path: str, records: list[object]) -> None:
    body = "".join(json.dumps(record) + "\n" for record in records).encode()
    kind = "application/json" if path in ("/v1/logs", "/loki/api/v1/push") else "application/x-ndjson"
    assert ask(intake, "POST", path, body, content_type=kind).status < 300
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
        for r in intake.spool.read(Position(0, 0), 1 << 40)
    ]
    outcome = decoding.work(jobs, PARSER)
    assert outcome.poison == []
    rows = [row for table in frames(outcome).values() for row in table.rows(named=True)]
    texts = [text for row in rows + outcome.blind + outcome.status for text in row.values() if isinstance(text, str)]
    # JSON in a column is read again, by pages and by KQL.
    assert any("\ufffd" in text or "\\ufffd" in text for text in texts)
    assert not any("\\ud8" in text for text in texts if not text.startswith('{"message"'))
