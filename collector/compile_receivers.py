"""Compiles the receivers' machine code, once per machine: ``python -m collector.compile_receivers``, half a minute.

Without it, the first OTLP sender waits for the compilation, in each worker that gets its batches.
"""

from __future__ import annotations

from collector.columnar import objects
from collector.receivers import ndjson, otlp
from collector.receivers.base import Decoded, Payload

#: The smallest request that exercises the whole path.
_RECORD = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'
#: Enough of a shipper's objects that they are parsed together.
_OBJECTS = b'{"message":"a","time":"2026-11-21T10:00:00Z","a":1}\n' * objects.FEWEST


def prepare() -> None:
    otlp.QUICK.wait()
    for form, body in (("json", _RECORD), ("protobuf", b"")):
        otlp.RECEIVER.decode(Payload(body, {"received": 1, "form": form}), Decoded())
    ndjson.RECEIVER.decode(Payload(_OBJECTS, {"received": 1, "form": "records"}), Decoded())
    ndjson.RECEIVER.decode(
        Payload(b"[" + _OBJECTS.replace(b"\n", b",") + b"{}]", {"received": 1, "form": "json"}), Decoded()
    )


if __name__ == "__main__":
    prepare()
