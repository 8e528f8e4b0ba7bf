"""Syslog as senders frame it: every split of the stream gives the same lines, and nothing that was read is lost."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from receiver_requests import frames

from collector import decoding, octet_frames
from collector.decoding import Job
from collector.intake import Intake
from collector.receivers import syslog, syslog_batches
from collector.receivers.base import Decoded, Payload
from collector.receivers.refusals import ListenFailed
from collector.receivers.syslog import Stream
from collector.receivers.syslog_batches import Gatherer, Part
from collector.segment_file import Position
from collector.spool import Spool
from parsers.lines import split
from tests.line_parser import line_parser

PARSER = line_parser()


class Collected:
    """A gatherer that only stores."""

    has_room = True
    scratch = bytearray(1 << 16)
    room = memoryview(scratch)

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.parts: list[Part] = []
        self.streams: set[Stream] = set()
        self.is_held = False

    def add(self, data: bytes, part: Part, lines: int) -> None:
        self.data.append(data)
        self.parts.append(part)

    def lines(self) -> list[bytes]:
        into = Decoded()
        syslog.RECEIVER.decode(Payload(b"".join(self.data), {"parts": self.parts, "received": 1}), into)
        return [line for group in into.groups.values() for line in group.lines or split(b"".join(group.data)).lines]


def receive(stream: Stream, data: bytes) -> None:
    """What a transport does when ``data`` arrives."""
    stream.get_buffer(-1)[: len(data)] = data
    stream.buffer_updated(len(data))


def feed(chunks: Sequence[bytes]) -> list[bytes]:
    kept: Any = Collected()
    stream = Stream(kept, "tcp", None, set())
    for chunk in chunks:
        receive(stream, chunk)
    stream.connection_lost(None)
    return kept.lines()  # type: ignore[no-any-return]


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(a % (len(data) + 1) for a in at)})
    return [data[a:b] for a, b in pairwise(places)]


MESSAGES = [
    b"<34>1 2026-11-21T16:00:00Z n1 app 1 - - first",
    b"<13>Nov 21 16:00:01 n2 sshd[4]: two\nlines of one",
    b"<6>x",
]


@pytest.mark.parametrize("added", [b"", b"\n"])  # some senders add a line end that they do not count
@settings(deadline=None)
@given(st.lists(st.integers(0, 300), max_size=8))
def test_octet_counted_frames_survive_any_cut(added: bytes, at: list[int]) -> None:
    data = b"".join(b"%d %b" % (len(m), m) + added for m in MESSAGES)
    assert feed(cut(data, at)) == MESSAGES


def _frames_one_by_one(data: bytes) -> tuple[list[bytes], int]:
    """The frames in ``data``, parsed as in RFC 6587, and the end of the last whole one."""
    found, at = [], 0
    while counted := re.compile(rb"\n*([1-9]\d{0,6}) ").match(data, at):
        end = counted.end() + int(counted[1])
        if end > len(data):
            return found, re.compile(rb"\n*").match(data, at).end()  # type: ignore[union-attr]
        found.append(data[counted.end() : end])
        at = end
    return found, re.compile(rb"\n*").match(data, at).end()  # type: ignore[union-attr]


_PIECES = st.sampled_from([b"5 <6>ab", b"6 <6>ab\n", b"\n", b"\r\n", b"0 x", b"01 x", b"1 \0", b"9999999 ", b"99999999 x", b"3 a", b" ", b"<6>", b"7", b"\xff", b"4 \n\nab"])  # fmt: skip


@settings(deadline=None)
@given(st.lists(_PIECES | st.binary(max_size=9), max_size=9).map(b"".join))
def test_frames_of_whatever_comes_are_what_the_rfc_says(data: bytes) -> None:
    found, end = _frames_one_by_one(data)
    assert octet_frames.whole(data)[0] == end
    assert octet_frames.frames(data[:end]) == [frame.rstrip(b"\r\n\0") for frame in found if frame.rstrip(b"\r\n\0")]


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), max_size=8))
def test_lines_survive_any_cut(at: list[int]) -> None:
    lines = [
        b"<34>1 2026-11-21T16:00:00Z n1 app 1 - - first",
        b"2026-11-21T16:00:00Z n1 app: no priority",
        b"12 monkeys",
        b"<6>\xff\xfe",
    ]
    assert feed(cut(b"\r\n".join(lines) + b"\n", at)) == lines


@pytest.mark.parametrize(
    ("sent", "lines"),
    [
        (b"5 <6>ab\n6 <6>abc\n", [b"<6>ab", b"<6>abc"]),  # a line end that is not counted
        (b"6 <6>ab\n7 <6>abc\n", [b"<6>ab", b"<6>abc"]),  # one that is
        (b"5 <6>ab\n\n6 <6>abc\r\n", [b"<6>ab", b"<6>abc"]),
        (b"5 <6>abnonsense without a count\n<6>and on\n", [b"<6>ab", b"nonsense without a count", b"<6>and on"]),
        (b"<6>whole\n<6>half", [b"<6>whole", b"<6>half"]),
        (b"5 <6>ab90 <6>never finished", [b"<6>ab", b"90 <6>never finished"]),
        (b"<6>a\0<6>b\0", [b"<6>a", b"<6>b"]),  # NUL ends a message (RFC 6587, 3.4.2)
        (b"9 <6>a\0<6>b", [b"<6>a\0<6>b"]), (b"<6>a\0b\n<6>c\n", [b"<6>a\0b", b"<6>c"]),
        (b"12", [b"12"]), (b"", []), (b"\n\n<6>a\n\n", [b"<6>a"]),
    ],
)  # fmt: skip
def test_what_senders_do_to_the_framing(sent: bytes, lines: list[bytes]) -> None:
    assert feed([sent]) == lines


@pytest.mark.parametrize("sent", [b"<6>" + b"a" * 300_000 + b"\n", b"300003 <6>" + b"a" * 300_000])
def test_a_long_message_in_small_segments_is_looked_at_a_few_times(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: joined at every segment, 9 MB in 1,448 bytes each blocked the event loop for four seconds."""
    looked, take = [0], Stream._take

    def counted(self: Stream, data: bytes) -> None:
        looked[0] += 1
        take(self, data)

    monkeypatch.setattr(Stream, "_take", counted)
    chunks = [sent[at : at + 1000] for at in range(0, len(sent), 1000)]
    assert feed(chunks) == [b"<6>" + b"a" * 300_000]
    assert looked[0] < 5


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=8))
def test_messages_that_end_with_nul_survive_any_cut(at: list[int]) -> None:
    assert b"".join(feed(cut(b"<6>one\0<6>two\0<6>three\0\n", at))).replace(b"\0", b"") == b"<6>one<6>two<6>three"


def rows(spool: Spool) -> list[dict[str, Any]]:
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta) for r in spool.read(Position(0, 0), 1 << 30)
    ]  # fmt: skip
    outcome = decoding.work(jobs, PARSER)
    assert not outcome.poison
    return frames(outcome)["logs"].sort("raw").to_dicts()


class Asked:
    """The part of the configuration that listeners read."""

    timezone = None
    address = ("127.0.0.1", 0)

    def __init__(self, *transports: str) -> None:
        self.syslog = [syslog._Default("127.0.0.1:0", transport) for transport in transports]


def test_udp_and_tcp_are_spooled_with_their_sender(tmp_path: Path) -> None:
    spool = Spool(tmp_path, min_free_bytes=0)

    async def talk() -> None:
        opened = await syslog._open(Asked("udp", "tcp"), Intake(spool, receivers=[syslog.RECEIVER]))
        udp, tcp = (str(one).rpartition(":")[2] for one in opened)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for number in range(500):
            sender.sendto(b"<13>Nov 21 16:00:00 n%d sshd[4]: udp %03d" % (number % 3, number), ("127.0.0.1", int(udp)))
        sender.sendto(b"<13>a datagram\nof two lines", ("127.0.0.1", int(udp)))
        _reader, writer = await asyncio.open_connection("127.0.0.1", int(tcp))
        writer.write(b"<13>Nov 21 16:00:00 n9 sshd[4]: over tcp\n<13>no host here\n")
        await writer.drain()
        writer.close()
        await asyncio.sleep(0.2)
        for one in opened:
            await one.close()

    asyncio.run(talk())
    found = rows(spool)
    spool.close()
    texts = [r["raw"] for r in found]
    assert sum("udp" in t for t in texts) == 500 and len(texts) == 503
    assert next(r for r in found if "over tcp" in r["raw"])["file"] == "syslog:n9"
    assert "<13>a datagram\nof two lines" in texts
    assert next(r for r in found if r["raw"] == "<13>no host here")["host"] == "127.0.0.1"


def test_a_sender_waits_while_nothing_can_be_spooled(tmp_path: Path) -> None:
    spool = Spool(tmp_path, min_free_bytes=0, max_waiting_bytes=0)

    async def talk() -> list[bool]:
        gatherer = Gatherer(Intake(spool, receivers=[syslog.RECEIVER]))
        listener = syslog.StreamListener(gatherer, "tcp")
        made = lambda: Stream(gatherer, "tcp", None, listener.connections)  # noqa: E731
        listener.server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        spool.append({"kind": "syslog", "parts": [], "received": 1}, b"x").result(120)
        spool.max_waiting_bytes = 0
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.server.sockets[0].getsockname()[1])
        writer.write(b"<13>first\n")
        await writer.drain()
        await asyncio.sleep(0.1)
        (stream,) = listener.connections
        assert stream._transport is not None
        states = [stream._transport.is_reading()]
        writer.write(b"<13>second\n")
        await writer.drain()
        spool.max_waiting_bytes = 1 << 30
        for _ in range(200):
            await asyncio.sleep(0.02)
            if stream._transport.is_reading() and spool.appended_batches > 2:
                break
        states.append(stream._transport.is_reading())
        writer.close()
        await listener.close()
        del reader
        return states

    spool.max_waiting_bytes = 1 << 30
    assert asyncio.run(talk()) == [False, True]
    assert [r["raw"] for r in rows(spool)] == ["<13>first", "<13>second"]
    spool.close()


def test_when_there_is_no_room_nobody_is_read_from_not_even_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection was stopped only at its own next read: for thousands, that was half a megabyte each."""
    monkeypatch.setattr(syslog_batches, "HIGH_BYTES", 64 * 1024)
    spool = Spool(tmp_path, min_free_bytes=0)

    async def talk() -> int:
        (listener,) = await syslog._open(Asked("tcp"), Intake(spool, receivers=[syslog.RECEIVER]))
        gatherer = listener.gatherer
        made = [await asyncio.open_connection(*listener.server.sockets[0].getsockname()) for _ in range(40)]
        for number, (_, writer) in enumerate(made):
            writer.write(b"".join(b"<13>%d of %d %b\n" % (line, number, b"x" * 9000) for line in range(10)))
        most = 0
        spool.max_waiting_bytes = -1  # from now on nothing is accepted
        for _ in range(100):
            await asyncio.sleep(0.005)
            most = max(most, gatherer._size + sum(size for _, _, size in gatherer._again))
        assert gatherer.is_held and len(gatherer.streams) == 40
        spool.max_waiting_bytes = 1 << 40
        monkeypatch.undo()
        await asyncio.gather(*(writer.drain() for _, writer in made))
        for _, writer in made:
            writer.close()
        while gatherer.streams:
            await asyncio.sleep(0.01)
        await listener.close()
        return most

    most = asyncio.run(talk())
    found = rows(spool)
    spool.close()
    assert most < 2 * (64 * 1024 + syslog_batches.READ_BYTES) < 40 * 90_000
    assert len({row["raw"] for row in found}) == len(found) == 400


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path, min_free_bytes=0)
    held = socket.create_server(("127.0.0.1", 0))
    asked = Asked()
    asked.syslog = [syslog._Default(f"127.0.0.1:{held.getsockname()[1]}", "tcp")]

    async def listen() -> None:
        await syslog._open(asked, Intake(spool, receivers=[syslog.RECEIVER]))

    with pytest.raises(ListenFailed, match=r"syslog tcp 127.0.0.1:\d+: cannot listen: .*another address"):
        asyncio.run(listen())
    held.close()
    spool.close()
