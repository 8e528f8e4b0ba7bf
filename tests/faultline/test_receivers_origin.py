"""Pages of other sites cannot send lines: every receiver's path, every method, and DNS rebinding to our address."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from collector.receivers import all_receivers
from faultline.config import Config
from faultline.receiving import Front, Receiving

PATHS = ["/api/v1/ingest", "/_bulk", "/loki/api/v1/push", "/v1/logs", "/upload", "/"]
METHODS = ["POST", "PUT", "GET", "HEAD", "OPTIONS"]
FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:8514"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:9999"},
]


@pytest.fixture
def receiving(tmp_path: Path) -> Any:
    made = Receiving(Config(data=tmp_path, ingest={"min_free_mb": 0}), listeners=False)  # type: ignore[arg-type]
    yield made
    made.close()


def ask(front: Front, method: str, path: str, headers: dict[str, str], body: bytes = b"a line") -> int:
    reported: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        reported.append(message)

    given = {"Host": "localhost:8514", "Content-Type": "text/plain", **headers}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "scheme": "http", "server": ("127.0.0.1", 8514), "client": ("127.0.0.1", 4), "http_version": "1.1",
    }  # fmt: skip
    asyncio.run(front(scope, receive, send))
    return int(reported[0]["status"])


def test_no_receiver_takes_anything_from_a_page_of_another_site(receiving: Receiving) -> None:
    front = Front(receiving, "no store yet")
    receivers = [path for path in PATHS if receiving.intake.methods(path)]
    assert len(receivers) >= 5 and all_receivers()
    for path in receivers:
        for method in METHODS:
            for headers in FOREIGN:
                assert ask(front, method, path, headers) == 403, (path, method, headers)
    assert receiving.spool.appended_batches == 0


def test_a_name_that_a_page_gave_our_address_is_not_ours(receiving: Receiving) -> None:
    front = Front(receiving, "no store yet")
    rebound = {"Host": "evil.example:8514", "Origin": "http://evil.example:8514", "Sec-Fetch-Site": "same-origin"}
    assert ask(front, "POST", "/api/v1/ingest", rebound) == 421
    assert ask(front, "GET", "/api/v1/incidents", {"Host": "evil.example:8514"}) == 421
    assert receiving.spool.appended_batches == 0


@pytest.mark.parametrize("host", ["localhost:8514", "127.0.0.1:8514", "[::1]:8514", "logs.example.org", "loghost:8514"])
def test_shippers_are_taken_in_by_whatever_name_they_have_for_us(receiving: Receiving, host: str) -> None:
    front = Front(receiving, "no store yet")
    assert ask(front, "POST", "/api/v1/ingest", {"Host": host}) == 200
    assert receiving.spool.appended_batches == 1


def test_a_service_that_others_reach_asks_for_no_name_of_its_own(tmp_path: Path) -> None:
    made = Receiving(Config(listen="10.0.0.1:8514", data=tmp_path), listeners=False)
    front = Front(made, "no store yet")
    assert ask(front, "GET", "/api/v1/incidents", {"Host": "faultline.example.org"}) == 503
    made.close()
