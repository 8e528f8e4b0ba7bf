"""Scrapes Prometheus endpoints: node_exporter, dcgm-exporter and anything else with the text format.

Targets come from the configuration (``[[scrape]]``). A target that does not answer is a blind period, reported once it
answers again or after ``REPORT_AFTER`` failures.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import Any

import structlog

from collector.receivers.base import Decoded, Intake, Payload, Receiver, moment_of
from collector.receivers.refusals import Refused
from collector.receivers.unpacking import MAX_UNPACKED, unpack
from collector.spool import SpoolBroken, SpoolFull
from parsers import documents
from parsers.record import Origin

log = structlog.get_logger()

REPORT_AFTER = 10
#: Failures of a target, and of this side when it has no room.
NO_ANSWER = (OSError, ValueError, urllib.error.URLError, http.client.HTTPException, Refused)
NO_ROOM = (SpoolFull, SpoolBroken)


def fetch(url: str, timeout_s: float) -> bytes:
    """The body of a scrape. Raises one of ``NO_ANSWER``."""
    request = urllib.request.Request(url, headers={"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        body = answer.read(MAX_UNPACKED + 1)
        if len(body) <= MAX_UNPACKED and answer.length:  # a truncated line would hold a different number
            raise ValueError(f"the answer ends {answer.length:,} bytes too early")
        return unpack(body, answer.headers.get("Content-Encoding"))


class Scraper:
    """Scrapes one target periodically."""

    def __init__(self, target: Any, intake: Intake) -> None:
        self.target, self.intake = target, intake
        self.host = target.host or urllib.parse.urlsplit(target.url).hostname or target.url
        self._since: float | None = None
        self._failures = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __str__(self) -> str:
        return f"scrape {self.target.url}"

    async def _run(self) -> None:
        import time

        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                body = await asyncio.to_thread(fetch, self.target.url, self.target.timeout_s)
                batch = self.intake.put("prometheus", body, {"host": self.host, "url": self.target.url})
                await asyncio.shield(batch)  # what was handed to the spool is written even if we are stopped
                self._report(time.time())
            except (*NO_ROOM, *NO_ANSWER) as error:
                self._since = self._since or time.time()
                self._failures += 1
                if self._failures == 1:
                    log.warning("scrape failed", url=self.target.url, reason=str(error))
                if self._failures % REPORT_AFTER == 0:
                    self._report(time.time())
                    self._since = time.time()
            except Exception as error:  # no memory, or a bug of ours: the scrape is repeated
                log.error("scrape failed", url=self.target.url, error=f"{type(error).__name__}: {error}")
            due = max(due + self.target.interval_s, loop.time())
            await asyncio.sleep(due - loop.time())

    def _report(self, now: float) -> None:
        if self._since is not None:
            reason = f"{self.target.url} did not answer"
            self.intake.report_blind(self.host, "prometheus", self.target.url, self._since, now, reason, None, None)
        self._since, self._failures = None, 0

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def _decode(payload: Payload, into: Decoded) -> None:
    received = moment_of(payload.received)
    host = str(payload.meta["host"])
    origin = Origin(path=f"{host}:{payload.meta.get('url')}", host=host, received=received, reference=received)
    into.parsed.append(documents.read("prometheus", payload.data, origin))


async def _open(config: Any, intake: Intake) -> list[Any]:
    return [Scraper(target, intake) for target in config.scrape]


RECEIVER = Receiver("prometheus", "Prometheus endpoints that are asked", _decode, open=_open)
