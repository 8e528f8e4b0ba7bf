"""Batches without a key: repeated because the answer was lost they are stored once, and equal ones are all stored."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from receiver_requests import ask, lines

from collector import repeats
from collector.intake import Intake
from collector.segment_file import Position
from collector.spool import Spool

BULK = b'{"index":{"_index":"logs"}}\n{"message":"heartbeat"}\n'
OTHER = b'{"index":{"_index":"logs"}}\n{"message":"other"}\n'


@contextmanager
def started(folder: Path) -> Iterator[Intake]:
    """The service's receiving side over ``folder``.

    It ends as by SIGKILL: files stay as they are, the lock is released.
    """
    spool = Spool(folder, min_free_bytes=0)
    try:
        yield Intake(spool)
    finally:
        spool.close()


def keys(intake: Intake) -> list[str]:
    """The keys in the spool, in order; the pipeline stores each key once."""
    return [str(record.meta["key"]) for record in intake.spool.read(Position(0, 0), 1 << 40)]


def send(intake: Intake, body: bytes = BULK, *, hangs_up: bool = False, path: str = "/_bulk") -> None:
    reply = ask(intake, "POST", path, body, hangs_up=hangs_up, content_type="application/x-ndjson")
    assert reply.status in (200, 201) and "duplicate" not in (reply.document if path != "/api/v1/ingest" else {})


@pytest.mark.parametrize("path", ["/_bulk", "/api/v1/ingest", "/logs/_doc"])
def test_equal_batches_that_were_answered_are_different_batches(path: str, tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        for _ in range(3):
            send(intake, BULK if path != "/logs/_doc" else b'{"message":"x"}', path=path)
        assert len(set(keys(intake))) == 3


def test_the_same_batch_after_a_lost_answer_has_the_same_key(tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        send(intake, hangs_up=True)
        send(intake, OTHER)
        send(intake)  # the repeat, answered now
        send(intake)  # one that looks the same
        first, _, repeat, another = keys(intake)
        assert first == repeat != another


def test_a_refused_batch_is_the_same_when_it_comes_again(tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        intake.spool.max_waiting_bytes = -1
        assert ask(intake, "POST", "/_bulk", BULK).status == 429
        intake.spool.max_waiting_bytes = 1 << 30
        send(intake)
        send(intake)
        assert len(set(keys(intake))) == 2


def test_what_came_just_before_a_crash_may_come_again_also_two_crashes_later(tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        send(intake)
        (first,) = keys(intake)
    with started(tmp_path) as intake:
        send(intake, OTHER)
        intake.spool.commit(Position(intake.spool.synced.segment, 0))  # the store has all of the former segment
        assert len(list(tmp_path.glob("*.seg"))) == 1
    with started(tmp_path) as intake:
        send(intake)
        send(intake)
        assert keys(intake)[1] == first and keys(intake)[2] != first


def test_what_was_answered_long_before_the_crash_is_not_taken_for_a_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path) as intake:
        send(intake)
        monkeypatch.setattr("collector.intake.time.time_ns", lambda: 4_000_000_000 * 10**9)  # years later
        send(intake, OTHER)
        first, last = keys(intake)
    with started(tmp_path) as intake:
        send(intake)
        send(intake, OTHER)
        assert keys(intake)[2] != first and keys(intake)[3] == last


def test_who_sends_and_where_to_are_part_of_it(tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        send(intake, hangs_up=True)
        send(intake, path="/other/_bulk")
        assert len(set(keys(intake))) == 2


def test_a_repeat_of_a_stored_batch_gets_the_protocols_own_answer(tmp_path: Path) -> None:
    """rsyslog and Vector look for ``items``; anything else would make them send it for ever."""
    with started(tmp_path) as intake:
        send(intake, hangs_up=True)
        stored = set(keys(intake))
        intake.stored = lambda key: str(key) in stored  # type: ignore[method-assign]
        reply = ask(intake, "POST", "/_bulk", BULK, content_type="application/x-ndjson")
        assert reply.document["errors"] is False and reply.document["items"][0]["index"]["status"] == 201
        assert len(keys(intake)) == 1


def dated(*numbers: int) -> bytes:
    return b"".join(
        b'{"index":{}}\n{"timestamp":"2026-11-21T10:00:00+00:00","message":"line %d"}\n' % number for number in numbers
    )


def texts(intake: Intake) -> list[str]:
    return [row["message"] for row in lines(intake.spool)]


@pytest.mark.parametrize("crash", [True, False])
def test_documents_of_an_unanswered_bulk_may_come_again_one_by_one(crash: bool, tmp_path: Path) -> None:
    """rsyslog does that: a bulk that failed is tried again message by message, then in bulks of another size."""
    with started(tmp_path) as intake:
        send(intake, dated(1, 2, 2, 3), hangs_up=not crash)
        if not crash:
            send(intake, dated(1))
            send(intake, dated(2, 2, 3, 4))
            send(intake, dated(2))
            assert sorted(texts(intake)) == ["line 1", "line 2", "line 2", "line 2", "line 3", "line 4"]
            return
    with started(tmp_path) as intake:
        send(intake, dated(1))
    with started(tmp_path) as intake:  # recalled keys survive another crash
        send(intake, dated(2, 2, 3, 4))
        send(intake, dated(2))
        assert sorted(texts(intake)) == ["line 1", "line 2", "line 2", "line 2", "line 3", "line 4"]


def test_documents_without_a_time_are_stored_each_time(tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        send(intake, BULK + BULK, hangs_up=True)
        send(intake, BULK)
        assert texts(intake) == ["heartbeat"] * 3


def test_a_part_of_a_packed_bulk_is_kept_unpacked(tmp_path: Path) -> None:
    with started(tmp_path) as intake:
        send(intake, dated(1, 2), hangs_up=True)
        body = gzip.compress(dated(2, 3))
        reply = ask(intake, "POST", "/_bulk", body, content_encoding="gzip", content_type="application/x-ndjson")
        assert len(reply.document["items"]) == 2, "the sender sees an item for each"
        assert sorted(texts(intake)) == ["line 1", "line 2", "line 3"]


def test_memory_and_disk_are_bounded_and_a_spoiled_file_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "MOST", 3)
    with started(tmp_path) as intake:
        for number in range(9):
            send(intake, b'{"index":{}}\n{"message":"%d"}\n' % number, hangs_up=True)
    with started(tmp_path) as intake:
        assert len(json.loads((tmp_path / "unanswered.json").read_text())["batches"]) == 3
    (tmp_path / "unanswered.json").write_text("{")
    with started(tmp_path) as intake:
        send(intake)
    shutil.rmtree(tmp_path)
