"""The pages of a hand-made store at an address, for a real browser."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import fixture
import pytest
import uvicorn
from _pytest.mark.structures import ParameterSet

from store.door import Door
from web.access.authentication import Authentication
from web.app import create_app


def in_parts(count: int) -> list[ParameterSet]:
    """The looks, each with a part of the pages that have ``count`` parts: in ``make test`` the first two looks have one part
    each, in ``make test-long`` all pages have all looks."""
    looks = [("dark", 1440), ("light", 390), ("dark", 390), ("light", 1440)]
    return [
        pytest.param(
            *look,
            slice(part, None, count),
            id=f"{look[0]}-{look[1]}-{part}",
            marks=() if n == part < 2 else pytest.mark.long,
        )
        for n, look in enumerate(looks)
        for part in range(count)
    ]


#: Combinations of theme and width: each theme and each width once; `make test-long` takes all of them.
LOOKS = [
    ("dark", 1440),
    ("light", 390),
    *(pytest.param(*look, marks=pytest.mark.long) for look in (("dark", 390), ("light", 1440))),
]


def serve(
    store: fixture.FakeStore | Door, authentication: Authentication | None = None, **settings: object
) -> Iterator[str]:
    """A server in a thread on a free port, until the generator is closed. ``authentication``: its access control, if it has one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(store, settings={"cluster": "mini", **settings}, authentication=authentication),
            port=port,
            log_level="error",
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
