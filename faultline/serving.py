"""`faultline serve`: the process around a service, from start to end."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import structlog
import uvicorn

from collector import supervised
from collector.priority import go_first, lower_priority
from faultline import collection, exposure, first, installed, private, tls
from faultline.authentication import authentication_of
from faultline.config import Config
from faultline.connections import Server, connections_of
from faultline.failure import CommandError
from faultline.receiving import Front, Receiving
from faultline.service import Service, build_app
from faultline.watching import Watch
from parsers import logs
from parsers.compiled import release
from store.door import Door
from store.errors import StoreError, StoreHeld
from store.files import SERVICE_FILE
from web.access.authentication import Authentication

log = structlog.get_logger()

#: The interpreter's switch interval, in seconds. A page takes the GIL again after every query to the store, and might
#: wait Python's 5 ms each time for a computing thread.
SWITCH_S = 0.001
#: How long a connection stays open without a request, in seconds. An agent of a quiet node sends once a minute, and one
#: whose service is slow every five seconds: without this, each of them would be a new connection with a handshake.
KEEP_ALIVE_S = 75
#: Agents that arrive at once when the service is back, and wait to be accepted (as many as Linux allows,
#: net.core.somaxconn).
BACKLOG = 4096
#: How often to retry a store that another process (an ingest) holds for a moment, in seconds.
HELD_RETRY_S = 1.0


def bound(config: Config) -> socket.socket:
    """A socket that listens at the configured address. Raises ``CommandError`` if that is taken or is not of this machine."""
    host, port = config.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CommandError(
            f"{config.listen}: cannot listen: {error.strerror}; use --listen HOST:PORT with a free port"
        ) from error
    listener.listen(128)
    return listener


def serve(config: Config, first_page: str = "/", *, listeners: bool = True) -> None:
    """Runs until stopped. Raises ``CommandError`` if another service holds the store, or an address is taken.

    While a process other than a service holds the store (an ingest), batches are accepted and stay in the spool.
    """
    logs.set_up()
    exposure.refuse(config)
    for warning in [*private.begin(config.data), *exposure.startup_warnings(config)]:
        log.warning(warning)
    sys.setswitchinterval(SWITCH_S)
    go_first()
    authentication, secured = authentication_of(config), tls.options(config.tls)
    listener = bound(config)
    host, port = listener.getsockname()[:2]
    shown = f"{config.scheme}://{'localhost' if host in ('127.0.0.1', '::1', '0.0.0.0', '::') else host}:{port}"
    store = _open_unless_held(config)
    receiving = Receiving(config, listeners=listeners, connections=connections_of(config))
    front = Front(receiving, f"{config.data}: the store is held by another process; batches wait in the spool")
    note = config.data / SERVICE_FILE
    parts = _Parts(config, receiving, front, note, shown, authentication)
    if store is not None:
        parts.begin(store)
    else:
        print(f"faultline: {front.waiting}", file=sys.stderr)
        threading.Thread(target=parts.begin_when_free, daemon=True).start()
    watch = Watch(receiving, lambda: parts.service)
    server = _server(config, front, receiving, secured)
    threading.Thread(
        target=_announce,
        args=(server, shown + first_page, receiving, first.offer(config, authentication, shown)),
        daemon=True,
    ).start()
    with suppress(ValueError):  # not the main thread: the caller ends us in another way
        signal.signal(signal.SIGTERM, _request_stop)
    supervised.give_up = supervised.end_process
    watch.start()
    try:
        server.run(sockets=[listener])
    except StopRequested:
        pass
    except SystemExit:  # uvicorn's way of reporting that the start failed
        if front.failure is None:
            raise
    finally:
        watch.stop()
        supervised.give_up = supervised.nothing_more
        with suppress(OSError):
            note.unlink(missing_ok=True)
        parts.end()
    if front.failure is not None:
        raise front.failure


def _server(config: Config, front: Front, receiving: Receiving, secured: Mapping[str, Any]) -> Server:
    """The HTTP server. ``secured``: uvicorn's settings for HTTPS."""
    settings = uvicorn.Config(
        tls.only_of_proxies(front, config),
        log_config=None,  # parsers.logs writes what uvicorn logs
        log_level="warning",
        access_log=False,
        lifespan="on",
        http=tls.Connection,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=BACKLOG,
        **tls.proxied(config),
        **secured,
    )
    return Server(settings, receiving.intake.connections)


class StopRequested(BaseException):
    """SIGTERM: after closing its connections uvicorn raises the signal again, and we must shut down in order."""


def _request_stop(_number: int, _frame: object) -> None:
    raise StopRequested


class _Parts:
    """The parts that start when the store is open, and end in the right order."""

    def __init__(self, config: Config, receiving: Receiving, front: Front, note: Path, address: str,
                 authentication: Authentication | None) -> None:  # fmt: skip
        self.config, self.receiving, self.front, self.authentication = config, receiving, front, authentication
        self.note, self.address = note, address
        self.service: Service | None = None
        self._ending = threading.Event()

    def begin(self, store: Door) -> None:
        self.service = Service(self.config, store, self.receiving, self.authentication)
        pages = build_app(self.service)
        installed.load_all()  # what is wrong is logged here once, and not by each worker
        gc.collect()
        collection.as_by_default()
        gc.freeze()  # existing objects stay: scanning them repeatedly finds nothing
        release()
        self.service.start()
        self.note.write_text(json.dumps({"pid": os.getpid(), "address": self.address}), encoding="utf-8")
        self.front.node_gate = pages.state.node_gate
        self.front.pages = pages

    def begin_when_free(self) -> None:
        while not self._ending.wait(HELD_RETRY_S):
            try:
                store = _open_unless_held(self.config)
            except CommandError as error:
                self.front.waiting = str(error)
                continue
            except Exception as error:  # half a start is no service: the service manager restarts us
                supervised.give_up(f"{self.config.data}: cannot open the store: {error}")
                return
            if store is not None:
                try:
                    self.begin(store)
                except Exception as error:
                    supervised.give_up(f"the service cannot start: {type(error).__name__}: {error}")
                return

    def end(self) -> None:
        self._ending.set()
        if self.service is not None:
            if not self.service.stop():
                log.warning("a conclusion was not finished; it is made anew at the next start")
                self.note.unlink(missing_ok=True)
                sys.stdout.flush()
                os._exit(0)  # its thread holds the store; everything stored is committed
            self.service.store.close()
        else:
            self.receiving.close()


def _open_unless_held(config: Config) -> Door | None:
    """The store; None while a process other than a service holds it."""
    try:
        with ThreadPoolExecutor(1, initializer=lower_priority) as beside:
            return beside.submit(_open, config.data).result()
    except StoreHeld as held:
        if held.address is not None:
            raise CommandError(str(held)) from held
        return None
    except (StoreError, OSError) as error:
        raise CommandError(f"{config.data}: cannot open the store: {error}") from error


def _open(data: Path) -> Door:
    """Opens the store in a lower-priority thread: the engines start their own threads here, which inherit its
    priority."""
    from store import open_compacted

    pl.thread_pool_size()
    return open_compacted(data)


def _announce(server: uvicorn.Server, address: str, receiving: Receiving, more: str | None) -> None:
    """Prints the address once it answers, and how to get access if nobody has it yet."""
    while not server.started and not server.should_exit:
        time.sleep(0.02)
    if server.started:
        also = f" and takes {', '.join(receiving.listening)}" if receiving.listening else ""
        print(f"Faultline is at {address}{also}  (Ctrl-C ends it)")
        if more:
            print(more)
        sys.stdout.flush()
