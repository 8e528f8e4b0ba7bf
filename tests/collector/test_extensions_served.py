"""A receiver and a page of a package that fail in a running service: answer, log and the list of sources name them once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from running import Running

MODULE = """
from fastapi import APIRouter
from collector.receivers.base import Answer, Batch, Receiver, Route
from web.rooms import Page

def accept(request):
    if not request.body:
        raise KeyError("no body")
    return Batch(request.body, Answer())

def decode(payload, into):
    raise KeyError("node")

HALL = Receiver("harbour.hall", "hall", decode, (Route(("POST",), "/hall", accept),))

router = APIRouter()

@router.get("/queues")
def queues():
    raise IndexError("no queue")

QUEUES = Page("queues", router)
"""
POINTS = """
[faultline.receivers]
gone = harbour:GONE
hall = harbour:HALL

[faultline.pages]
queues = harbour:QUEUES
"""


def test_the_service_names_whose_receiver_and_page_failed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harbour.py").write_text(MODULE, encoding="utf-8")
    info = tmp_path / "harbour_site-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbour-site\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    service = Running(tmp_path / "data", syslog=()).start()
    try:
        refused = service.request("POST", "/hall")
        taken = service.post("/hall", b"line", idempotency_key="one")
        page = service.request("GET", "/queues", headers={"accept": "application/json"})
        sources = service.get("/api/v1/sources")[1]
        until = time.monotonic() + 300
        while not sources["quarantine"] and time.monotonic() < until:
            time.sleep(0.1)
            sources = service.get("/api/v1/sources")[1]
    finally:
        service.stop()
    hall, queues = "receiver hall (harbour:HALL) of harbour-site", "page queues (harbour:QUEUES) of harbour-site"
    problem = json.loads(refused[1])
    assert (refused[0], refused[2]["content-type"]) == (500, "application/problem+json")
    assert problem["detail"] == f"KeyError in {hall}." and problem["do"]
    assert taken[0] == 200
    assert (page[0], json.loads(page[1])["detail"]) == (500, f"IndexError while answering, in {queues}.")
    (aside,) = sources["quarantine"]
    assert aside["kind"] == "harbour.hall" and aside["reason"] == f"{hall} raised KeyError: 'node'"
    gone = "receiver gone (harbour:GONE) of harbour-site: does not load: AttributeError"
    assert [text for text in sources["extensions"] if text.startswith(gone)]
    logged = service.log.read_text()
    assert logged.count(gone) == 1
    assert logged.count(f"{hall} raised KeyError: 'no body' in accept") == 1
    assert logged.count("IndexError: no queue") == 1 and f"page='{queues}'" in logged
    (line,) = (line for line in logged.splitlines() if "batch set aside" in line)
    assert "kind=harbour.hall" in line and f"replay='POST /api/v1/quarantine/{aside['id']}/replay'" in line
    assert (tmp_path / "data" / "quarantine" / f"{aside['id']}.batch").exists()
    assert f"file={tmp_path / 'data' / 'quarantine' / aside['id']}.batch" in line
