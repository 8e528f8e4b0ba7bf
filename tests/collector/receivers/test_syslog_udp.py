"""Floods over UDP: memory stays bounded, and every datagram is stored or counted as lost in a visible place."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Running

from collector import decoding
from collector.decoding import Job
from collector.intake import Intake
from collector.receivers import syslog, syslog_batches, syslog_udp
from collector.receivers.syslog_batches import PART_BYTES, Gatherer
from collector.receivers.syslog_udp import DatagramListener, udp_socket
from collector.segment_file import Position
from collector.spool import Spool, SpoolBroken
from tests.line_parser import line_parser
from tests.measured import Measured

PARSER = line_parser()


async def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 120.0
    while not is_so():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.005)


def sender(address: str = "127.0.0.1") -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    return made


def arrived(spool: Spool) -> tuple[int, list[dict[str, Any]]]:
    """Lines, and blind periods, that the spool holds."""
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta) for r in spool.read(Position(0, 0), 1 << 30)
    ]  # fmt: skip
    outcome = decoding.work(jobs, PARSER)
    assert not outcome.poison
    return outcome.lines, outcome.blind


class Stuck:
    """A spool whose disk accepts nothing for now: all writes wait."""

    def __init__(self) -> None:
        self.spool = self
        self.waiting: list[asyncio.Future[Position]] = []
        self.bytes = self.lines = 0

    def check_room(self) -> None:
        pass

    def put(self, _kind: str, payload: bytes, meta: dict[str, Any]) -> asyncio.Future[Position]:
        self.bytes += len(payload) + PART_BYTES * len(meta["parts"])
        self.lines += payload.count(b"\n")
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def report_blind(self, *_told: object) -> None:
        return None


@pytest.mark.parametrize(
    ("senders", "size"),
    [(1, 1000), (1, 60_000), (200, 1)],
    ids=["one sender", "large datagrams", "many senders, a byte each"],
)
def test_a_flood_holds_no_more_than_the_bound_and_the_rest_is_counted(
    senders: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog_batches, "HIGH_BYTES", 256 * 1024)
    monkeypatch.setattr(syslog_batches, "FLUSH_BYTES", 32 * 1024)
    monkeypatch.setattr(syslog_udp, "TURN_BYTES", 64 * 1024)

    async def run() -> None:
        stuck: Any = Stuck()
        gatherer = Gatherer(stuck)
        listener = DatagramListener(gatherer, udp_socket("127.0.0.1", 0), None)
        to, sent, turn = listener.sock.getsockname(), 0, 64 * 1024 + 60_000
        clients = [sender(f"127.0.1.{number + 1}") for number in range(senders)]
        while listener.lost < 1000:
            for client in clients:
                client.sendto(b"x" * size, to)
                sent += 1
            await asyncio.sleep(0)
            held = stuck.bytes + gatherer._size
            assert held <= 256 * 1024 + turn + PART_BYTES * senders
            assert sent < 100_000, "the flood is never refused"
        before = -1
        while (counted := stuck.lines + b"".join(gatherer._data).count(b"\n") + listener.lost) != before:  # the rest
            before = counted
            listener._readable()
        assert counted + sum(data.count(b"\n") for data, _, _ in gatherer._again) == sent
        listener._loop.remove_reader(listener.sock.fileno())
        listener._timer.cancel()
        listener.sock.close()
        for client in clients:
            client.close()

    asyncio.run(run())


def test_what_the_kernel_dropped_and_what_was_refused_become_blind_periods(tmp_path: Path) -> None:
    spool = Spool(tmp_path, min_free_bytes=0)

    async def run() -> int:
        gatherer = Gatherer(Intake(spool, receivers=[syslog.RECEIVER]))
        sock = udp_socket("127.0.0.1", 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listener = DatagramListener(gatherer, sock, None)
        to, client = sock.getsockname(), sender()
        for number in range(500):  # nothing reads meanwhile: most find the buffer full
            client.sendto(b"<13>first %d" % number, to)
        await until(lambda: bool(gatherer._parts) or spool.appended_batches > 0)
        dropped = listener.lost
        assert 0 < dropped < 500
        listener._report()
        spool.max_waiting_bytes = -1
        for number in range(20):
            client.sendto(b"<13>second %d" % number, to)
            await until(lambda n=number: listener.lost == dropped + n + 1)  # type: ignore[misc]
        listener._report()
        assert listener._waiting == 20, "the spool takes no report: it is made later"
        spool.max_waiting_bytes = 1 << 30
        client.close()
        await listener.close()
        return listener.lost

    lost = asyncio.run(run())
    lines, blind = arrived(spool)
    spool.close()
    assert [reported["lines"] for reported in blind] == [lost - 20, 20]
    assert "dropped in the kernel" in blind[0]["reason"] and "no room in the spool" in blind[1]["reason"]
    assert all(reported["start"] <= reported["end"] and "syslog udp" in reported["stream"] for reported in blind)
    assert lines + lost == 520


def test_a_report_that_the_disk_refuses_is_made_again(tmp_path: Path) -> None:
    reports: list[int] = []

    class Refusing(Stuck):
        def report_blind(self, *reported: Any) -> Any:
            reports.append(reported[6])
            done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
            if len(reports) == 1:
                done.set_exception(SpoolBroken("no"))
            else:
                done.set_result(Position(0, 0))
            return done

    async def run() -> None:
        refusing: Any = Refusing()
        listener = DatagramListener(Gatherer(refusing), udp_socket("127.0.0.1", 0), None)
        listener._refused = listener._waiting = 7
        for _ in range(3):
            listener._report()
            await asyncio.sleep(0)
        assert listener.lost == 7
        listener._timer.cancel()
        listener._loop.remove_reader(listener.sock.fileno())
        listener.sock.close()

    asyncio.run(run())
    assert reports == [7, 7], "once more after the refusal, and then no more"


def resident(pid: int) -> int:
    """The peak memory of the process, bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def counter(service: Running) -> int:
    text = service.request("GET", "/metrics")[1].decode()
    found = re.search(r"^faultline_intake_udp_lost(?:_total)? (\d+)", text, re.MULTILINE)
    assert found is not None, text[:3000]
    return int(found[1])


@pytest.mark.long
def test_every_datagram_of_a_flood_is_stored_or_reported_as_lost(tmp_path: Path, measured: Measured) -> None:
    """The service is stopped for a moment in the middle of it, so that the kernel must drop some."""
    service = Running(tmp_path / "data", syslog=("udp",)).start(180)
    assert service.process is not None
    client, to, sent = sender(), ("127.0.0.1", service.ports["udp"]), 0
    before = resident(service.process.pid)
    try:
        for stopped in (False, True, False):
            service.process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
            for _ in range(150_000):
                client.sendto(b"<13>flood %d" % sent, to)
                sent += 1
        asked: dict[str, Any] = {}
        end = time.monotonic() + 300
        while time.monotonic() < end:
            asked = service.get("/api/v1/sources")[1]
            reported = sum(row["lines"] for row in asked["blind"])
            ((stored,),) = service.query("Logs | where Message startswith 'flood ' | count")
            if stored + reported == sent:
                break
            time.sleep(0.5)
        most = resident(service.process.pid)
        measured(f"UDP flood: sent {sent:,}, stored {stored:,}, told as lost {reported:,}; memory {before >> 20} MiB before, "
              f"{most >> 20} MiB at most")  # fmt: skip
        assert stored + reported == sent and reported > 0
        assert asked["intake"]["udp_lost"] == reported == counter(service)
        assert f"{reported:,}" in service.request("GET", "/sources")[1].decode()
        assert "UDP datagrams were lost" in service.log.read_text()
        assert most < 2 << 30
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
        service.stop()
        client.close()
