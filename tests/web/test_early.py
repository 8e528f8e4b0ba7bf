"""Pages that are sent in two parts: the same page, the first part before the content is asked for, errors still told."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient

from web import pages
from web.early import MARK

OPENED = {"accept": "text/html", "upgrade-insecure-requests": "1"}
PATHS = ("/incidents/I1", "/fleet", "/fleet?measure=flaps&theme=dark&zone=Europe/Berlin")


@pytest.mark.parametrize("path", PATHS)
def test_a_browser_gets_the_page_that_a_program_gets(client: TestClient, path: str) -> None:
    whole, parts = client.get(path), client.get(path, headers=OPENED)
    assert whole.text.count(MARK) == 1
    assert parts.text == whole.text.replace(MARK, "")
    assert "content-length" in whole.headers and "content-length" not in parts.headers
    assert parts.headers["content-security-policy"] == whole.headers["content-security-policy"]


def test_the_first_part_leaves_before_the_store_is_asked_for_the_content(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    history = pages.triage.history
    monkeypatch.setattr(pages.triage, "history", lambda *given: (happened.append("asked"), history(*given))[1])

    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()  # the client stays
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            happened.append(message["body"].decode())

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": PATHS[0], "raw_path": PATHS[0].encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "server": ("testserver", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"testserver"), (b"accept", b"text/html"), (b"sec-fetch-mode", b"navigate")],
    }  # fmt: skip
    client.portal.call(client.app, scope, receive, send)
    first, asked, rest = happened
    assert asked == "asked" and "<main" in rest
    assert (
        first.index("/api/v1/axis/") < first.index(".css") < first.index('<header class="top"') and "<main" not in first
    )


def test_a_page_that_fails_after_its_first_part_says_so_and_is_counted(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(pages.triage, "history", broken)
    counted = 'faultline_http_requests_total{route="/incidents/{incident_id}",status="500"}'
    before = counted in client.get("/metrics").text
    assert not before
    found = client.get(PATHS[0], headers=OPENED)
    assert (
        found.text.count("<main") == 1
        and "RuntimeError while answering" in found.text
        and found.text.rstrip().endswith("</html>")
    )
    assert f"{counted} 1.0" in client.get("/metrics").text
    assert client.get(PATHS[0], headers={"accept": "text/html"}).status_code == 500


@pytest.mark.parametrize(
    "path, status", [("/incidents/I-none", 404), ("/fleet?incident=I-none", 404), ("/fleet?at=yesterday-ish", 400), ("/fleet?measure=x", 422)]
)  # fmt: skip
def test_what_can_be_known_before_keeps_its_status(client: TestClient, path: str, status: int) -> None:
    assert client.get(path, headers=OPENED).status_code == status
