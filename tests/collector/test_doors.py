"""Limits, timeouts and file handles of connections, over real sockets in one event loop."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector import connections as module
from collector.connections import Connections, Door, Place, Reserve
from collector.receivers.syslog import Stream
from collector.receivers.syslog_batches import Part


class Lines(asyncio.Protocol):
    """Finishes a request with every line."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def data_received(self, data: bytes) -> None:
        if b"\n" in data:
            self.place.finished()

    def connection_lost(self, _error: Exception | None) -> None:
        self.place.release()


async def until(true: Callable[[], bool], patience_s: float = 120.0) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=1024)


async def ended(client: socket.socket) -> bool:
    """Waits until the other side has closed it; returns whether it did."""
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.sock_recv(client, 1), 120) == b""
    except ConnectionError:
        return True


async def knock(door: Door, first: bytes = b"") -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, door.sockets[0].getsockname())
    if first:
        await loop.sock_sendall(client, first)
    return client


@pytest.mark.parametrize(("most", "per_address"), [(10, 100), (100, 10)])
def test_those_that_finished_nothing_go_first(most: int, per_address: int) -> None:
    async def run() -> None:
        everybody = Connections(most, per_address)
        door = Door(listening(), everybody, Lines)
        proven = [await knock(door, b"a line\n") for _ in range(8)]
        await until(lambda: sum(place.proven for place in everybody.places) == 8)
        half = [await knock(door, b"half") for _ in range(30)]
        await until(lambda: everybody.counts["opened"] == 38)
        assert len(everybody.places) == 10 and everybody.counts["evicted"] == 28
        assert sum(place.proven for place in everybody.places) == 8, "quiet ones that had said something stay"
        assert await ended(half[0])
        for client in (*proven, *half):
            client.close()
        await until(lambda: not everybody.places)
        door.close()
        everybody.close()

    asyncio.run(run())


def test_where_nobody_can_go_the_newcomer_is_refused_and_that_is_reported() -> None:
    async def run() -> None:
        everybody = Connections(4, 4)

        def busy(place: Place) -> Lines:
            place.finished()
            place.busy = True
            return Lines(place)

        door = Door(listening(), everybody, busy)
        clients = [await knock(door) for _ in range(4)]
        await until(lambda: sum(place.busy for place in everybody.places) == 4)
        assert everybody.trouble is None
        late = await knock(door)
        assert await ended(late)
        assert everybody.counts["refused"] == 1 and "turned away" in (everybody.trouble or "")
        for client in (*clients, late):
            client.close()
        door.close()
        everybody.close()

    asyncio.run(run())


def test_out_of_file_handles_is_told_and_the_door_opens_again() -> None:
    async def run() -> None:
        everybody = Connections(reserve=Reserve(4))
        door = Door(listening(), everybody, Lines)
        outside = [socket.socket() for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        held: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
            with pytest.raises(OSError, match="open files"):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            loop = asyncio.get_running_loop()
            for client in outside:
                client.setblocking(False)
                await loop.sock_connect(client, door.sockets[0].getsockname())
            assert all([await ended(client) for client in outside]), "they are told, not left waiting"
            assert "out of file handles" in (everybody.trouble or "")
        finally:
            for handle in held:
                os.close(handle)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client = await knock(door, b"a line\n")
        await until(lambda: any(place.proven for place in everybody.places))
        client.close()
        for one in outside:
            one.close()
        door.close()
        everybody.close()

    asyncio.run(run())


class Kept:
    """A gatherer that only stores."""

    def __init__(self) -> None:
        self.scratch = bytearray(64 * 1024)
        self.room = memoryview(self.scratch)
        self.has_room, self.is_held = True, False
        self.streams: set[Stream] = set()
        self.data: list[bytes] = []

    def add(self, data: bytes, _part: Part, _lines: int) -> None:
        self.data.append(data)


def test_half_a_frame_of_syslog_does_not_stay_and_a_quiet_sender_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.receivers.syslog.FRAME_S", 0.2)
    monkeypatch.setattr(module, "LOOK_S", 0.05)

    async def run() -> None:
        everybody, kept = Connections(), Kept()
        gatherer: Any = kept
        door = Door(listening(), everybody, lambda place: Stream(gatherer, "tcp", None, set(), place, everybody))
        quiet = await knock(door, b"<13>whole\n")
        silent = await knock(door)
        half = await knock(door, b"<13>half of it")
        counted = await knock(door, b"900 <13>half of it")
        assert await ended(half) and await ended(counted)
        await until(lambda: len(everybody.places) == 2)
        assert everybody.counts["frame"] == 2 and everybody.held == 0
        assert b"<13>half of it\n" in kept.data, "what was read is kept"
        for client in (quiet, silent, half, counted):
            client.close()
        door.close()
        everybody.close()

    asyncio.run(run())


def test_begun_frames_hold_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.receivers.syslog.MOST_HELD", 64 * 1024)

    async def run() -> None:
        everybody = Connections()
        gatherer: Any = Kept()
        door = Door(listening(), everybody, lambda place: Stream(gatherer, "tcp", None, set(), place, everybody))
        clients = [await knock(door, b"x" * 10_000) for _ in range(12)]
        await until(lambda: everybody.counts["held"] >= 5)
        assert everybody.held <= 64 * 1024
        for client in clients:
            client.close()
        await until(lambda: everybody.held == 0)
        door.close()
        everybody.close()

    asyncio.run(run())
