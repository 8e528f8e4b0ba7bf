"""A real link flap sent over the wire, the controller's lines last: the incident appears by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Running

from parsers import documents
from parsers.recognise import recognise
from tests.measured import Measured

FLAP = Path(__file__).parents[1] / "captures" / "mgmt_flap_long"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data", syslog=()).start()
    yield running
    running.stop()


def records() -> Iterator[tuple[bool, dict[str, Any]]]:
    """(is it the controller's, record) for every file of the capture."""
    for path in sorted(FLAP.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        known = recognise(path, data[:65536], FLAP)
        place = path.relative_to(FLAP)
        stated = {"host": known.host, "path": str(place), "source": known.source, "job_id": known.job_id}
        text = data.decode("utf-8", "replace")
        controllers = path.name == "slurmctld.log" or place.parts[0] in ("slurm", "observed.jsonl")
        if known.kind in documents.REGISTRY:
            yield controllers and path.name != "config.txt", {**stated, "document": known.kind, "raw": text}
        elif known.kind == "lines" and text.strip():
            yield controllers, {**stated, "lines": text.rstrip("\n")}


def body(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps({k: v for k, v in row.items() if v is not None}) for row in rows).encode()


def impact(service: Running) -> list[dict[str, Any]]:
    return [i for i in service.get("/api/v1/incidents")[1]["incidents"] if i["severity"] == "impact"]


@pytest.mark.long
def test_the_incident_stands_seconds_after_the_controllers_line(service: Running, measured: Measured) -> None:
    found = list(records())
    assert (
        service.post(
            "/api/v1/ingest", body([r for controllers, r in found if not controllers]), idempotency_key="a/b/1/1"
        )[0]
        == 200
    )
    before = service.until("Logs | take 500", 150)
    assert before and not impact(service)
    begun = time.monotonic()
    assert (
        service.post("/api/v1/ingest", body([r for controllers, r in found if controllers]), idempotency_key="a/b/1/2")[
            0
        ]
        == 200
    )
    while not (there := impact(service)) and time.monotonic() < begun + 120:
        time.sleep(0.05)
    measured(f"incident {time.monotonic() - begun:.1f} s after the controller's lines were sent")
    assert [(i["root_cause"]["event"], i["root_cause"]["host"], [j["job_id"] for j in i["jobs"]]) for i in there] == [
        ("nic.link_down", "gpu02", ["15"])
    ]
    assert there[0]["detected_at"] is not None
    # The same batches once more change nothing.
    for number, wanted in ((1, False), (2, True)):
        status, answer = service.post(
            "/api/v1/ingest", body([r for c, r in found if c is wanted]), idempotency_key=f"a/b/1/{number}"
        )
        assert status == 200 and answer["duplicate"]
    assert service.get("/api/v1/sources")[1]["intake"]["quarantined"] == 0
