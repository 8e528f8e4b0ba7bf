"""What the set-up compiles is what batches need: no batch compiles anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parsers import engine

_SIGNATURES = """
import json
from collector import compile_receivers, decoding
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from parsers import engine
from parsers.compiled import FUNCTIONS

engine._use_all()
compile_receivers.prepare()
before = {made: set(made.dispatcher.signatures) for made in FUNCTIONS}
lines = ["Jan 15 10:00:01 a kernel: NVRM: Xid", "x", "[2026-01-15T10:00:01.123] error: x"] * 100
request = ExportLogsServiceRequest()
records = request.resource_logs.add().scope_logs.add()
for number, line in enumerate(lines):
    record = records.log_records.add(observed_time_unix_nano=1_795_000_000_000_000_000)
    record.body.string_value = line
    record.attributes.add(key="log.record.number").value.int_value = number
as_json = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": line}} for line in lines]}]}]}
payloads = {
    "otlp": [({"signal": "logs", "form": "protobuf"}, request.SerializeToString()), ({"signal": "logs", "form": "json"}, json.dumps(as_json).encode())],
    "ingest": [({"form": "json"}, json.dumps({"host": "a", "lines": "\\n".join(lines)}).encode())],
}
decoding.payload_of = lambda path, *rest: bodies[path]
parser = engine.LineParser()
for kind, forms in payloads.items():
    for meta, body in forms:
        bodies = {str(number): body for number in range(3)}
        about = {"kind": kind, "received": 1_795_000_000_000_000, "peer": "10.0.0.1", **meta}
        jobs = [decoding.Job(path, 0, len(body), 0, about) for path in bodies]
        for some in (jobs[:1], jobs):
            found = decoding.work(some, parser)
            assert not found.poison and found.lines == len(some) * len(lines), (kind, meta, found.poison, found.lines)
more = {made.__name__: made.dispatcher.signatures for made in FUNCTIONS if set(made.dispatcher.signatures) - before.get(made, set())}
print(len(before), sorted(more))
"""


@pytest.mark.long
def test_batches_need_nothing_that_the_set_up_has_not_compiled() -> None:
    """Otherwise the first batch of each worker on a new machine waits for the compiler, more than a second."""
    done = subprocess.run(
        [sys.executable, "-c", _SIGNATURES], cwd=Path(engine.__file__).parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    count, more = done.stdout.split(maxsplit=1)
    assert int(count) > 20
    assert more.strip() == "[]"
