"""HTTP connections of the service: time limits for each part of a request, and uvicorn behind sockets of our own."""

from __future__ import annotations

import sys
import time
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from collector.connections import (
    FOR_FILES,
    HEAD_S,
    LEAST_RATE,
    MOST_HEAD,
    UNREAD_S,
    WINDOW_S,
    Connections,
    Door,
    Place,
    Reserve,
    raise_limit,
)
from faultline import tls
from faultline.config import Config

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(tls.Connection):
    """A connection with time limits: the part of a request that it is in, and since when.

    ``head``: from the first byte of a request (or the start of the connection) until its header is complete. ``body``:
    from then until it is complete; an early answer changes nothing. Otherwise it is idle (uvicorn's own limit), or we
    owe a response.
    """

    place: Place

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        now = time.monotonic()
        self._head_since: float | None = now
        self._head_bytes = 0
        self._in_body = False
        self._window = now
        self._came = 0
        self._unread_since: float | None = None
        self.place.overdue = self._overdue

    def connection_lost(self, exc: Exception | None) -> None:
        self.place.release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_body:
            self._came += len(data)
        elif self.cycle is None or self.cycle.response_complete:
            self.place.busy = True
            if self._head_since is None:
                self._head_since, self._head_bytes = time.monotonic(), 0
        if self._head_since is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_since is not None and self._head_bytes > MOST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        if self._head_since is None:  # after another request, in the same read
            self._head_since, self._head_bytes = time.monotonic(), 0
            self.place.busy = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_since, self._head_bytes = None, 0
        self._in_body, self._window, self._came = True, time.monotonic(), 0
        self.place.busy = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self.place.finished()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_body:
            self.place.finished()
            self.place.busy = bool(self.pipeline) or self._head_since is not None

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def _overdue(self, now: float) -> str | None:
        """The limit that it exceeded: ``head``, ``body`` or ``unread``; None if there is none."""
        if self._unread_since is not None and now - self._unread_since > UNREAD_S:
            return "unread"
        if self._head_since is not None:
            return "head" if now - self._head_since > HEAD_S else None
        if not self._in_body:
            return None
        if self.flow.read_paused:  # it would send if we read from it
            self._window, self._came = now, 0
        elif now - self._window > WINDOW_S:
            if self._came < LEAST_RATE * (now - self._window):
                return "body"
            self._window, self._came = now, 0
        return None


class Server(uvicorn.Server):
    """uvicorn with connections accepted by ``collector.connections``."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self.connections = connections

    async def startup(self, sockets: Any = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = []
        for sock in sockets:
            sock.listen(self.config.backlog)
            self.servers.append(Door(sock, self.connections, self._protocol, self.config.ssl))  # type: ignore[arg-type]
        self.started = True

    def _protocol(self, place: Place) -> Connection:
        made = Connection(self.config, self.server_state, self.lifespan.state)
        made.place = place
        return made

    async def shutdown(self, sockets: Any = None) -> None:
        await super().shutdown(sockets)
        self.connections.close()


def connections_of(config: Config) -> Connections:
    """Raises the handle limit as far as the system allows; at most three quarters of the handles, less some for files,
    are for connections."""
    handles = raise_limit()
    most = max(16, min(config.connections.most, handles * 3 // 4, handles - FOR_FILES))
    return Connections(most, min(config.connections.per_address, most), Reserve())
