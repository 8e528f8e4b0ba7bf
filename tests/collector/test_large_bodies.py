"""A body that takes long to read keeps nobody else waiting, and one that would take gigabytes is refused."""

from __future__ import annotations

import asyncio
import gzip
import threading
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from receiver_requests import PARSER, ask

from collector import decoding, large_bodies
from collector.decoding import Job
from collector.intake import Intake
from collector.large_bodies import MOST_AT_ONCE, THREADS, LargeBodies
from collector.receivers import loki
from collector.receivers.base import Answer, Batch, Receiver, Request, Route
from collector.receivers.refusals import Refused
from collector.receivers.unpacking import unpack
from collector.segment_file import Position
from collector.spool import Spool, SpoolFull


def request(body: bytes, sender: str = "10.0.0.6", **headers: str) -> Request:
    return Request("POST", "/", {}, headers, body, sender)


LARGE = gzip.compress(b"x" * (MOST_AT_ONCE + 1))


@pytest.mark.parametrize("body", [b"x" * (MOST_AT_ONCE + 1), LARGE], ids=("plain", "packed"))
def test_a_large_body_is_read_while_others_are_answered(body: bytes) -> None:
    """Found by attacking: 120 kB that unpack to 60 MB stopped pages and receivers for ten seconds."""
    bodies, begun, answered = LargeBodies(), threading.Event(), threading.Event()
    headers = {"content-encoding": "gzip"} if body is LARGE else {}

    def read_slowly(asked: Request) -> bool:
        begun.set()
        return answered.wait(120)

    async def talk() -> tuple[bool, bytes]:
        slow = asyncio.ensure_future(bodies.read(request(body, **headers), read_slowly))
        assert await asyncio.to_thread(begun.wait, 120)
        small = await bodies.read(request(gzip.compress(b"small"), **{"content-encoding": "gzip"}), Request.plain)
        answered.set()
        return await slow, small

    assert asyncio.run(talk()) == (True, b"small")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_large_body_is_unpacked_once(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop unpacked 256 kB of each body of five thousand lines to see that a thread had to unpack it."""
    text, calls = b"x" * (MOST_AT_ONCE + 1), []

    def counted(*given: Any) -> bytes:
        calls.append(given)
        return unpack(*given)

    packed = gzip.compress(text) if encoding == "gzip" else zstandard.ZstdCompressor().compress(text)
    monkeypatch.setattr(large_bodies, "unpack", counted)
    asked = request(packed, **{"content-encoding": encoding})
    assert asyncio.run(LargeBodies().read(asked, Request.plain)) == text
    assert calls == []


def test_a_body_that_gives_a_wrong_size_is_read_as_others_are() -> None:
    lied = request(gzip.compress(b"small")[:-4] + b"\xff\xff\xff\x7f", **{"content-encoding": "gzip"})
    with pytest.raises(Refused, match="incorrect length"):
        asyncio.run(LargeBodies().read(lied, Request.plain))


def test_one_sender_does_not_use_all_threads() -> None:
    bodies, begun, answered = LargeBodies(), threading.Event(), threading.Event()

    def read_slowly(asked: Request) -> bool:
        begun.set()
        return answered.wait(120)

    async def talk() -> tuple[list[bool], bytes]:
        slow = [
            asyncio.ensure_future(bodies.read(request(LARGE, **{"content-encoding": "gzip"}), read_slowly))
            for _ in range(9)
        ]
        assert await asyncio.to_thread(begun.wait, 120)
        other = await bodies.read(request(b"y" * (MOST_AT_ONCE + 1), "10.0.0.7"), lambda asked: asked.plain()[:1])
        answered.set()
        return await asyncio.gather(*slow), other

    assert asyncio.run(talk()) == ([True] * 9, b"y")


def test_what_waits_to_be_read_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.large_bodies.MOST_WAITING", 2 * MOST_AT_ONCE + 10)
    bodies, large = LargeBodies(), b"x" * (MOST_AT_ONCE + 1)

    async def talk() -> list[Any]:
        return await asyncio.gather(
            *(bodies.read(request(large), lambda _: 1) for _ in range(3)), return_exceptions=True
        )

    first, second, third = asyncio.run(talk())
    assert (first, second) == (1, 1) and isinstance(third, SpoolFull)
    assert asyncio.run(talk())[:2] == [1, 1]  # what was read no longer counts


def test_what_is_on_disk_is_read_however_much_waits(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that hung up while many of its bodies waited: the answer had been sent, and then 429 was raised."""
    settle = intake._settle

    async def crowded(*args: Any) -> None:
        monkeypatch.setattr("collector.large_bodies.MOST_WAITING", 0)
        await settle(*args)

    monkeypatch.setattr(intake, "_settle", crowded)
    pair = b'{"index":{"_index":"n"}}\n{"message":"%s"}\n' % (b"a" * MOST_AT_ONCE)
    kind = "application/x-ndjson"
    assert ask(intake, "POST", "/elasticsearch/_bulk", pair, hangs_up=True, content_type=kind).status == 200
    assert intake.repeats.has_parts


def test_few_bodies_are_held_unpacked() -> None:
    """Found by reading: a journal's packed uploads held 64 MiB each, as many as there were connections."""
    bodies, count = LargeBodies(), 3 * THREADS

    async def talk() -> tuple[int, int]:
        held, most, ended, leave = 0, 0, 0, asyncio.Event()

        async def hold(sender: str) -> None:
            nonlocal held, most, ended
            async with bodies.unpacked(LARGE, "gzip", sender) as plain:
                assert len(plain) == MOST_AT_ONCE + 1
                held, most = held + 1, max(most, held + 1)
                await leave.wait()
                held, ended = held - 1, ended + 1

        holding = [asyncio.ensure_future(hold(f"10.0.0.{n}")) for n in range(count)]
        while held < THREADS or len(bodies._waiting) < count:
            await asyncio.sleep(0.01)
        leave.set()
        await asyncio.gather(*holding)
        return most, ended

    assert asyncio.run(talk()) == (THREADS, count)


def test_a_request_of_loki_counts_as_its_size_without_snappy(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: 250 kB that are five megabytes without Snappy stopped everybody for a second."""
    threads: list[bool] = []

    def check(_body: bytes, _as_json: bool) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        return 0

    monkeypatch.setattr(loki, "_check", check)
    for size in (MOST_AT_ONCE, MOST_AT_ONCE + 1):
        body = bytes(pa.compress(b"\n\0" * (size // 2) + b"\n" * (size % 2), codec="snappy", asbytes=True))
        assert len(body) < MOST_AT_ONCE / 10
        assert ask(intake, "POST", "/loki/api/v1/push", body, content_type="application/x-protobuf").status == 204
    assert threads == [True, False]


def test_a_receiver_reads_large_bodies_in_a_thread(spool: Spool) -> None:
    threads: list[bool] = []

    def accept(asked: Request) -> Batch:
        threads.append(threading.current_thread() is threading.main_thread())
        return Batch(None, Answer(200, asked.plain()[:1]))

    route = Route(("POST",), "/here", accept)
    intake = Intake(spool, receivers=[Receiver("here", "a receiver", lambda payload, into: None, (route,))])
    for body in (b"small", LARGE):
        assert ask(intake, "POST", "/here", body).status == 200
    assert threads == [True, False]


MANY = {
    "/loki/api/v1/push": b'{"streams":[{"stream":{},"values":[' + b'["1","a"],' * 60 + b'["1","a"]]}]}',
    "/v1/logs": b'{"resourceLogs":[' + b"{}," * 120 + b"{}]}",
    "/api/v1/ingest": b"[" + b"1," * 120 + b"1]",
}


@pytest.mark.parametrize("path", MANY)
def test_more_values_than_lines_can_have_are_refused(
    path: str, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by attacking: a request of 120 kB took two gigabytes."""
    assert ask(intake, "POST", path, MANY[path], content_type="application/json").status in (200, 204)
    monkeypatch.setattr("collector.receivers.wrapped.MOST_VALUES", 100)
    assert ask(intake, "POST", path, MANY[path], content_type="application/json").status == 413


def test_more_documents_than_a_request_can_have_are_refused(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.receivers.elasticsearch.MOST_DOCUMENTS", 3)
    pair = b'{"index":{"_index":"n"}}\n{"message":"a"}\n'
    kind = "application/x-ndjson"
    assert ask(intake, "POST", "/elasticsearch/_bulk", pair * 3, content_type=kind).status == 200
    assert ask(intake, "POST", "/elasticsearch/_bulk", pair * 4, content_type=kind).status == 413


def test_more_lines_than_a_worker_can_hold_are_refused_or_set_aside(
    intake: Intake, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by attacking: 52 kB that unpack to six million lines took four gigabytes in a worker."""
    monkeypatch.setattr("collector.receivers.base.MOST_LINES", 5)
    monkeypatch.setattr("collector.receivers.ndjson.MOST_LINES", 5)
    assert ask(intake, "POST", "/api/v1/ingest", b"a\n" * 5, content_type="text/plain").status == 200
    assert ask(intake, "POST", "/api/v1/ingest", b"b\n" * 6, content_type="text/plain").status == 413
    hidden = b'{"lines":"c\\nc\\nc\\nc\\nc\\nc\\n"}\n'
    assert ask(intake, "POST", "/api/v1/ingest", hidden, content_type="application/x-ndjson").status == 413
    listed = b'{"lines":["c","c","c","c","c","c"]}\n'
    assert ask(intake, "POST", "/api/v1/ingest", listed, content_type="application/x-ndjson").status == 200
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
        for r in spool.read(Position(0, 0), 1 << 40)
    ]
    outcome = decoding.work(jobs, PARSER)
    assert outcome.lines == 5 and [(place, "lines in one batch" in why) for place, why in outcome.poison] == [(1, True)]
