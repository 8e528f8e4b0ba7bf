"""Messages between two processes: what arrives is what was sent, and a buffer is reused only when no reader holds it."""

from __future__ import annotations

import mmap
import os
import threading
from multiprocessing import get_context

import polars as pl
import pytest

from collector import exchange
from collector.exchange import Exchange, Packed
from store.line_frames import coded

ROWS = 20_000


def pair() -> tuple[Exchange, Exchange]:
    ours, theirs = get_context("spawn").Pipe()
    return Exchange(ours), Exchange(theirs)


def lines(first: int, rows: int = ROWS) -> pl.DataFrame:
    return pl.DataFrame({"raw": [f"a line with a number {n}" for n in range(first, first + rows)], "event": "other"})


def sent(frame: pl.DataFrame, by: Exchange, to: Exchange) -> pl.DataFrame:
    by.send(Packed.of(frame))
    packed: Packed = to.receive()
    return packed.frame()


@pytest.mark.parametrize("rows", [1, ROWS])
def test_what_arrives_is_what_was_sent(rows: int) -> None:
    ours, theirs = pair()
    wanted = lines(7).head(rows)
    assert sent(wanted, theirs, ours).equals(wanted)
    assert sent(coded(wanted), theirs, ours).cast(pl.String).equals(wanted)


def test_what_is_still_read_is_never_written_over() -> None:
    ours, theirs = pair()
    kept = {n: sent(lines(n), theirs, ours) for n in range(exchange.MOST_ROOMS)}
    writer = threading.Thread(target=theirs.send, args=(Packed.of(lines(99)),))  # no buffer is free: through the pipe
    writer.start()
    more: Packed = ours.receive()
    writer.join()
    for n, frame in {**kept, 99: more.frame()}.items():
        assert frame.equals(lines(n))
    part = kept.pop(0)["raw"].slice(5, 1)  # a small slice holds its buffer
    kept.clear()
    for n in range(30):
        ours.send("back")
        theirs.receive()
        sent(lines(n), theirs, ours)
    assert part.to_list() == ["a line with a number 5"]


def test_rooms_are_used_again() -> None:
    ours, theirs = pair()
    for n in range(30):
        assert sent(lines(n), theirs, ours).equals(lines(n))
        ours.send("more")
        theirs.receive()
    assert len(theirs._rooms) == 1


def test_larger_messages_get_larger_rooms_and_released_ones_hold_the_next_message() -> None:
    ours, theirs = pair()
    for times in (1, 3, 9):
        wanted = pl.concat([lines(n) for n in range(times)])
        assert sent(wanted, theirs, ours).equals(wanted)
        ours.send("more")
        theirs.receive()
        theirs.release()
        assert sent(wanted, theirs, ours).equals(wanted)
    assert len(theirs._rooms) <= 2


def test_the_writer_returns_the_memory_of_rooms_that_it_did_not_use_lately() -> None:
    ours, theirs = pair()
    many = [sent(lines(n), theirs, ours) for n in range(3)]
    many.clear()
    ours.send("go on")
    theirs.receive()
    last = sent(lines(3), theirs, ours)  # in one of the three
    for _ in range(2):
        theirs.release(60.0)
        assert sum(used(room.handle) > 0 for room in theirs._rooms.values()) == 3
    theirs._filled = {number: at - 60 for number, at in theirs._filled.items()}
    theirs.release(60.0)
    assert sum(used(room.handle) > 0 for room in theirs._rooms.values()) == 1
    assert last.equals(lines(3))
    assert sent(lines(4), theirs, ours).equals(lines(4))


def used(handle: int) -> int:
    return os.fstat(handle).st_blocks * 512


@pytest.mark.skipif(not hasattr(mmap, "MADV_REMOVE"), reason="the system cannot return a part of a file's memory")
def test_the_reader_returns_the_memory_of_rooms_that_it_has_read() -> None:
    ours, theirs = pair()
    one, other = (sent(lines(n), theirs, ours) for n in (0, 1))
    handles = {number: room.handle for number, room in theirs._rooms.items()}
    assert len(handles) == 2 and all(map(used, handles.values()))
    del one
    ours.release()
    assert sorted(used(handle) > 0 for handle in handles.values()) == [False, True]
    assert other.equals(lines(1))
    ours.send("go on")  # now the writer knows which room is free
    theirs.receive()
    for n in range(3):
        assert sent(lines(n), theirs, ours).equals(lines(n))
        ours.release()
    assert other.equals(lines(1))


def test_without_memory_to_share_everything_goes_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int) -> int:
        raise OSError(28, "no space")

    monkeypatch.setattr(exchange, "_nameless_file", refused)
    ours, theirs = pair()
    small = lines(1, 50)  # fits in a pipe's buffer: both ends are in this thread
    monkeypatch.setattr(exchange, "LEAST_ROOM", 1)
    assert sent(small, theirs, ours).equals(small)
    assert not theirs._rooms


def test_what_was_received_outlives_both_ends() -> None:
    ours, theirs = pair()
    frame = sent(lines(3), theirs, ours)
    theirs.close()
    ours.close()
    assert frame.equals(lines(3))
