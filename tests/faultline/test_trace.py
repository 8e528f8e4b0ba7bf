"""``faultline trace LINE_ID``: one line's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from faultline.backends import Local, Remote
from faultline.failure import CommandError
from faultline.trace import about, show
from tests.correlator.rows import CAPTURES, concluded

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_requeue")


@pytest.fixture(scope="module")
def backend() -> Iterator[Local]:
    with concluded(FLAP) as store:
        yield Local(store)


def cause_of(backend: Local) -> dict[str, Any]:
    """The lost carrier of gpu04, as the incident cites it."""
    events = backend.result()["incidents"][0]["events"]
    found: dict[str, Any] = next(e for e in events if e["event"] == "nic.link_down" and e["host"] == "gpu04")
    return found


def test_an_event_and_each_copy_of_its_line_lead_to_what_cites_it(backend: Local) -> None:
    event = cause_of(backend)
    whole = about(backend, event["id"])
    assert whole["id"] == f"{event['source']}:{event['line']}" and whole["message"] == event["message"]
    assert whole["event"] == {"type": "nic.link_down", "id": event["id"]}
    assert [one["role"] for one in whole["incidents"]] == ["cause"]
    assert {one["job_id"] for one in whole["verdicts"]} == {"2"}
    for copy in event["also"]:
        other = about(backend, f"{copy['source']}:{copy['line']}")
        assert (other["event"], other["incidents"], other["verdicts"]) == (whole["event"], whole["incidents"], whole["verdicts"])  # fmt: skip


def test_its_times_its_writer_and_how_it_was_read(backend: Local) -> None:
    event = cause_of(backend)
    found = about(backend, event["id"])
    assert found["times"]["event"] == event["time"] and found["times"]["quality"] == event["time_quality"]
    assert found["from"]["host"] == "gpu04" and found["authority"]
    assert found["read"][0].startswith("format ") and "nic.link_down" in found["read"][1]


def test_a_line_that_nothing_cites_says_so(backend: Local, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = backend.query('Logs | where Event == "other" | take 1 | project File, Line', {}, 1).rows
    found = about(backend, f"{row[0]}:{row[1]}")
    assert found["event"] is None and found["incidents"] == found["verdicts"] == []
    show(backend, f"{row[0]}:{row[1]}", "text")
    assert "cited by   nothing" in capsys.readouterr().out


@pytest.mark.parametrize("name, why", [("nothing", "neither FILE:LINE nor"), ("/no/file:3", "no line 3 of /no/file is stored")])  # fmt: skip
def test_what_is_not_stored_is_named(backend: Local, name: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        about(backend, name)


def test_a_service_is_asked_for_the_line_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote("http://127.0.0.1:9")
    asked: list[str] = []

    def ask(path: str, body: object = None) -> bytes:
        asked.append(path)
        return json.dumps({"lines": [{"line": 6, "raw": "before"}, {"line": 7, "raw": "it"}]}).encode()

    monkeypatch.setattr(remote.service, "ask", ask)
    assert remote.line("nodes/a b/syslog", 7) == {"line": 7, "raw": "it"} and remote.line("f", 9) is None
    assert parse_qs(urlsplit(asked[0]).query)["file"] == ["nodes/a b/syslog"]
