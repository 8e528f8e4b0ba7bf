"""A batch for which there is no memory: its sender is asked to retry, and the operator is notified.

The same under a real limit of the process, where it is random what fails first:
tests/collector/test_service_exhausted.py.
"""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from collector import intake
from faultline.config import validate
from faultline.receiving import Front, Receiving
from faultline.serving import _Parts
from faultline.watching import Watch
from store import open_store


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    config = validate(
        {"data": str(tmp_path / "data"), "listen": "127.0.0.1:0", "syslog": [], "ingest": {"min_free_mb": 0}}, "test"
    )
    receiving = Receiving(config, listeners=False)
    front = Front(receiving, "the store is not open yet")
    made = _Parts(config, receiving, front, tmp_path / "note", "http://here", None)
    made.begin(open_store(config.data))
    yield made
    made.end()
    gc.unfreeze()


def send(client: TestClient) -> Any:
    return client.post("/api/v1/ingest", content=b"a line", headers={"content-type": "text/plain"})


@pytest.mark.long
def test_no_memory_for_a_batch_is_reported_everywhere_and_passes(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, receiving, is_out = TestClient(parts.front, base_url="http://localhost"), parts.receiving, threading.Event()
    real = intake.Intake.body

    async def body(self: intake.Intake, *arguments: Any) -> bytes:
        if is_out.is_set():
            raise MemoryError
        return await real(self, *arguments)

    monkeypatch.setattr(intake.Intake, "body", body)
    watch = Watch(receiving, lambda: parts.service)
    assert send(client).status_code == 200 and receiving.trouble() is None
    is_out.set()
    refused = send(client)
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    with capture_logs() as stated:
        watch.look()
    assert [line["reason"] for line in stated if line["event"] == "not all is taken in or stored"] == [intake.NO_MEMORY]
    ready = client.get("/readyz")
    assert ready.status_code == 503 and intake.NO_MEMORY in ready.text and int(ready.headers["retry-after"]) >= 1
    assert "\nfaultline_intake_ok 0" in client.get("/metrics").text
    assert client.get("/api/v1/sources").json()["intake"]["trouble"] == intake.NO_MEMORY
    assert intake.NO_MEMORY in client.get("/sources", headers={"accept": "text/html"}).text
    is_out.clear()
    assert send(client).status_code == 200
    monkeypatch.setattr(intake, "NO_MEMORY_S", 0.0)
    assert client.get("/readyz").status_code == 200 and "\nfaultline_intake_ok 1" in client.get("/metrics").text
