"""Monitors the service from a separate thread: problems are logged, and a part that needs a restart ends the
process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from collector import supervised
from faultline.receiving import Receiving

log = structlog.get_logger()

#: How often it checks, and how often it logs the same again, in seconds.
LOOK_S, AGAIN_S = 1.0, 60.0


class Watched(Protocol):
    """The monitored state of the service."""

    @property
    def ended(self) -> str | None:
        """Why a part of it has ended for good; None while all of them run."""


class Watch:
    """A thread between ``start`` and ``stop``."""

    def __init__(self, receiving: Receiving, service: Callable[[], Watched | None]) -> None:
        self._receiving, self._service = receiving, service
        self._ending = threading.Event()
        self._thread = supervised.Supervised("watch", self._run)
        self._logged: str | None = None
        self._logged_at = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            self.look()
            self._thread.well()

    def look(self) -> None:
        """One check. ``supervised.give_up`` is called with what is gone for good."""
        service = self._service()
        ended = self._receiving.ended or (service.ended if service is not None else None)
        if ended is not None and not self._ending.is_set():
            supervised.give_up(ended)
        # Normal before the store is open: the address reports it, and whoever started the service knows.
        pipeline = self._receiving.pipeline
        self.record(self._receiving.trouble() if pipeline is not None else self._receiving.spool.trouble)

    def record(self, trouble: str | None) -> None:
        """Logs a new problem, the same one again once a minute, and its end. Numbers in it (sizes) do not make it a
        different one."""
        now = time.monotonic()
        if trouble is None:
            if self._logged is not None:
                log.info("batches are taken in and stored again")
            self._logged = None
        elif _words(trouble) != self._logged or now - self._logged_at >= AGAIN_S:
            log.error("not all is taken in or stored", reason=trouble)
            self._logged, self._logged_at = _words(trouble), now


def _words(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())
