"""What a receiver's path answers to a request with a method other than its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultline.config import validate
from faultline.receiving import Front, Receiving


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    receiving = Receiving(validate({"data": tmp_path}, "test"), listeners=False)
    yield Front(receiving, "starting")
    receiving.close()


def asked(front: Front, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    reported: list[Any] = []

    async def send(message: Any) -> None:
        reported.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    asyncio.run(front(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in reported[0]["headers"]}
    return reported[0]["status"], headers, reported[1]["body"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/logs", "/v1/metrics", "/loki/api/v1/push", "/upload", "/api/v1/ingest"])
def test_a_path_that_takes_lines_says_how_they_are_sent(front: Front, method: str, path: str) -> None:
    status, headers, body = asked(front, method, path)
    assert (status, headers["allow"], headers["content-type"]) == (405, "POST", "application/problem+json")
    if method == "HEAD":
        assert body == b""
    else:
        reported = json.loads(body)
        assert (reported["status"], reported["instance"], reported["do"]) == (405, path, "Use POST.")


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/_bulk", 405), ("DELETE", "/slurm/_doc", 405), ("GET", "/_cluster/health", 200), ("GET", "/jobs/15", 503), ("GET", "/healthz", 200),
])  # fmt: skip
def test_other_paths_are_answered_as_before(front: Front, method: str, path: str, status: int) -> None:
    reported, headers, _ = asked(front, method, path)
    assert reported == status and headers.get("allow") == ("POST, PUT" if status == 405 else None)
