"""Scraped targets: whatever one of them does, it is scraped again, and gaps are reported."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

import pytest
from receiver_requests import tables

from collector.intake import Intake
from collector.receivers import prometheus
from collector.receivers.prometheus import Scraper
from collector.segment_file import Position
from collector.spool import Spool

TEXT = b"# TYPE node_load1 gauge\nnode_load1 0.25\n"


class Target(NamedTuple):
    url: str
    host: str | None = None
    interval_s: float = 0.01
    timeout_s: float = 5.0


class Exporter:
    """Answers with the entries of ``says``, one after another, the last one for ever: the whole bytes of an answer."""

    def __init__(self, *says: bytes) -> None:
        waiting = list(says)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.wfile.write(waiting.pop(0) if len(waiting) > 1 else waiting[0])

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def answer(body: bytes, more: bytes = b"", size: int | None = None) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body) if size is None else size, more, body)


PACKED = b"Content-Encoding: gzip\r\n"
GOOD = answer(TEXT)


def bomb() -> bytes:
    """Packed by the test that sends it, and not by every process that collects it."""
    return answer(gzip.compress(bytes(65 * 1024 * 1024)), PACKED)


def scrape(url: str, spool: Spool, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """What is spooled once it is ``enough``, or after ten seconds."""

    async def run() -> list[Any]:
        scraper = Scraper(Target(url), Intake(spool, receivers=[prometheus.RECEIVER]))
        found: list[Any] = []
        for _ in range(1000):
            found = list(spool.read(Position(0, 0), 1 << 30))
            if enough(found):
                break
            await asyncio.sleep(0.01)
        await scraper.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("good", [GOOD, answer(gzip.compress(TEXT), PACKED)], ids=["plain", "gzip"])
def test_samples_are_stored_with_their_host(good: bytes, spool: Spool) -> None:
    exporter = Exporter(good)
    scrape(exporter.url, spool, lambda found: len(found) >= 2)
    exporter.close()
    rows = tables(spool)["metrics"].to_dicts()
    assert len(rows) >= 2 and {(row["metric"], row["value"], row["host"]) for row in rows} == {
        ("node_load1", 0.25, "127.0.0.1")
    }


@pytest.mark.parametrize(
    "bad",
    [
        answer(TEXT, size=len(TEXT) + 9), answer(b"no gzip", PACKED), answer(gzip.compress(TEXT)[:-9], PACKED), answer(b"\x1f\x8b\x08\x00" + b"x" * 30, PACKED),
        bomb, answer(TEXT, b"Content-Encoding: br\r\n"), b"nonsense\r\n", b"", b"HTTP/1.0 503 no\r\n\r\n",
    ],
    ids=["cut", "not gzip", "gzip cut", "gzip broken", "a bomb", "br", "no HTTP", "nothing", "503"],
)  # fmt: skip
def test_an_answer_that_is_none_is_a_blind_period_and_the_target_is_asked_again(
    bad: bytes | Callable[[], bytes], spool: Spool
) -> None:
    sent = bad if isinstance(bad, bytes) else bad()
    exporter = Exporter(sent, sent, GOOD)
    found = scrape(
        exporter.url,
        spool,
        lambda found: sum(record.meta["kind"] == "prometheus" for record in found) >= 1 and len(found) >= 2,
    )
    exporter.close()
    reported = [record for record in found if record.meta["kind"] != "prometheus"]
    assert len(reported) == 1 and len(found) >= 2


def test_a_target_that_stays_away_is_reported_while_it_is_away(spool: Spool) -> None:
    exporter = Exporter(b"")
    found = scrape(exporter.url, spool, lambda found: len(found) >= 2)
    exporter.close()
    assert len(found) >= 2 and not any(record.meta["kind"] == "prometheus" for record in found)
