"""Delivery: each batch until the service has it, once, at the pace that the service requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ingest_server import IngestServer

from collector.agent import sender as sending
from collector.agent import wire
from collector.agent.batch import Loss
from collector.agent.sender import Connection, Sender
from collector.agent.spool import AgentSpool


def made(tmp_path: Path, server: IngestServer, token: str = "") -> Sender:
    spool = AgentSpool(tmp_path, 10_000_000, _report)
    spool.open(lambda: "e1", 1000.0)
    return Sender(spool, Connection(server.url, lambda: token, timeout=5.0), "gpu01", chance=lambda: 0.5)


def _report(loss: Loss) -> bytes:
    rows = [wire.blind(n, None, loss.since, loss.until, loss.reason, c) for n, c in loss.lines.items()]
    return wire.pack(b"".join(rows))


def put(sender: Sender, *texts: str) -> None:
    body = wire.defaults({"host": "gpu01"}) + b"".join(wire.record(stream="s", raw=text) for text in texts)
    sender.spool.append(wire.pack(body), {"s": len(texts)}, 1000.0)


def step(sender: Sender) -> float | None:
    batch = sender.spool.first()
    return None if batch is None else sender.deliver(batch)


def test_a_batch_goes_once_under_its_key(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server, token="secret")
    put(sender, "a", "b")
    put(sender, "c")
    assert [step(sender), step(sender), step(sender)] == [0.0, 0.0, None]
    assert list(server.stored) == ["gpu01/logs/e1/1", "gpu01/logs/e1/2"]
    assert server.lines() == ["a", "b", "c"]
    assert server.authorizations == ["Bearer secret"] * 2
    assert (sender.delivered_lines, sender.delivered_batches, sender.trouble) == (3, 2, None)


@pytest.mark.parametrize(
    ("code", "headers", "waits"),
    [
        (429, {"Retry-After": "7"}, [7.7, 7.7]),
        (503, {"Retry-After": "0"}, [0.0, 0.0]),
        (503, {}, [0.75, 1.5]),
        (401, {}, [22.5, 22.5]),
        (500, {}, [0.75, 1.5]),
    ],
)
def test_a_refusal_keeps_the_batch_and_waits(
    tmp_path: Path, server: IngestServer, code: int, headers: dict[str, str], waits: list[float]
) -> None:
    sender = made(tmp_path, server)
    put(sender, "a")
    server.refuse = lambda key, body: (code, headers, json.dumps({"detail": "because"}))
    assert [step(sender), step(sender)] == pytest.approx(waits)
    assert sender.trouble == f"HTTP {code}: because"
    server.refuse = lambda key, body: None
    assert step(sender) == 0.0 and sender.trouble is None
    assert server.lines() == ["a"]


def test_a_refused_token_is_not_asked_about_every_second() -> None:
    assert sending.REFUSED_WAIT_S >= 30


def test_waits_double_up_to_a_minute(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server)
    put(sender, "a")
    server.close()
    waits = [step(sender) or 0.0 for _ in range(9)]
    assert waits == pytest.approx([0.75 * 2**n for n in range(6)] + [45.0] * 3)
    assert sender.trouble and server.url in sender.trouble


def test_a_link_that_comes_back_ends_the_wait_but_not_one_that_the_service_asked_for(
    tmp_path: Path, server: IngestServer
) -> None:
    import threading
    import time

    sender = made(tmp_path, server)
    sender._failures = 20  # the next wait is the longest
    put(sender, "a")
    server.close()
    thread = threading.Thread(target=sender.run, daemon=True)
    thread.start()
    while sender.trouble is None:
        time.sleep(0.01)
    server.refuse = lambda key, body: (429, {"Retry-After": "3600"}, "")
    server.start()
    sender.hurry()
    while not server.requests:
        time.sleep(0.01)
    server.refuse = lambda key, body: None
    sender.hurry()
    # Not the time that something takes: a second request that should not come has this long to come. A machine too busy for
    # it would miss the defect, and never see one that is not there.
    time.sleep(0.3)
    assert server.requests == [("gpu01/logs/e1/1", 429)]
    sender.stop(1.0)
    thread.join(120)
    assert not thread.is_alive()


def test_an_answer_that_is_lost_repeats_the_same_key(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server)
    put(sender, "a")
    server.drop = lambda key: True
    assert step(sender)
    server.drop = lambda key: False
    assert step(sender) == 0.0
    assert (server.lines(), server.repeated) == (["a"], 1)


def test_a_connection_that_the_service_closed_meanwhile_is_opened_again(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server)
    put(sender, "a")
    assert step(sender) == 0.0
    assert sender.connection._open is not None and sender.connection._open.sock is not None
    sender.connection._open.sock.shutdown(2)
    put(sender, "b")
    assert step(sender) == 0.0, "no wait: the other side was only tidying up"
    assert server.lines() == ["a", "b"]


def test_a_batch_that_the_service_cannot_read_is_kept_aside_and_reported(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server)
    put(sender, "a", "b")
    put(sender, "c")
    server.refuse = lambda key, body: (400, {}, "no") if key.endswith("/1") else None
    while step(sender) is not None:
        pass
    assert server.lines() == ["c"]
    (reported,) = server.blind("s")
    assert reported["lines"] == 2 and "400" in reported["reason"]
    (kept,) = (tmp_path / "refused").iterdir()
    assert b'"a"' in wire.unpack(kept.read_bytes())


def test_a_batch_too_large_goes_in_pieces_each_once(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server)
    body = wire.defaults({"host": "gpu01"}) + wire.record(stream="s", lines="\n".join(f"line {n}" for n in range(100)))
    sender.spool.append(wire.pack(body), {"s": 100}, 1000.0)
    size = {"limit": 300, "lost": 3}

    def refuse(key: str, packed: bytes) -> tuple[int, dict[str, str], str] | None:
        return (413, {}, "too large") if len(wire.unpack(packed)) > size["limit"] else None

    def drop(key: str) -> bool:
        size["lost"] -= 1
        return size["lost"] == 0

    server.refuse, server.drop = refuse, drop
    while step(sender) is not None:
        pass
    assert sorted(server.lines()) == sorted(f"line {n}" for n in range(100))
    assert all(row.get("stream") == "s" for row in server.records())
    assert server.repeated >= 1, "pieces that were there already came again under their own keys"


def test_one_line_too_large_is_reported(tmp_path: Path, server: IngestServer) -> None:
    sender = made(tmp_path, server)
    put(sender, "x" * 5000)
    server.refuse = lambda key, body: (413, {}, "too large") if len(wire.unpack(body)) > 1000 else None
    while step(sender) is not None:
        pass
    assert server.lines() == []
    assert [b["lines"] for b in server.blind()] == [1]


def test_records_without_zstandard_are_gzip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "zstandard", None)
    packed = wire.pack(b'{"raw":"x"}\n')
    assert wire.encoding_of(packed) == "gzip" and wire.unpack(packed) == b'{"raw":"x"}\n'
