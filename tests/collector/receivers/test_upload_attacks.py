"""Uploads of a journal that are made to fill the memory or to keep everybody waiting."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from receiver_requests import ask

from collector.arriving import Arriving
from collector.intake import Intake
from collector.receivers import journal_upload
from collector.spool import SpoolFull


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_a_packed_upload_is_no_larger_than_other_bodies(packed: str, intake: Intake) -> None:
    """Found by attacking: the pieces of one endless body filled the memory."""
    pieces = [b"\x1f" * (1 << 20)] * 17
    kind = "application/vnd.fdo.journal"
    assert ask(intake, "POST", "/upload", pieces, content_type=kind, content_encoding=packed).status == 413
    assert intake.arriving.size == 0


def test_uploads_that_stop_in_the_middle_count_as_arriving(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.arriving.MOST_ARRIVING", 100)
    kind = "application/vnd.fdo.journal"
    assert ask(intake, "POST", "/upload", [b"MESSAGE=" + b"x" * 120, b"\n\n"], content_type=kind).status == 429
    assert intake.arriving.size == 0
    assert ask(intake, "POST", "/upload", [b"MESSAGE=" + b"x" * 20, b"\n\n"], content_type=kind).status == 202
    assert intake.arriving.size == 0


def test_a_sender_with_many_unfinished_bodies_keeps_nobody_else_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by attacking: 33 bodies that stopped in the middle, and every other batch got 429."""
    monkeypatch.setattr("collector.arriving.MOST_ARRIVING", 100)
    lost: list[object] = []
    arriving = Arriving()
    with ExitStack() as stack:
        attackers = [stack.enter_context(arriving.body("10.0.0.6", partial(lost.append, n))) for n in range(4)]
        for held, size in zip(attackers, (20, 40, 20, 15), strict=True):
            held.resize(size)
        other = stack.enter_context(arriving.body("10.0.0.7", partial(lost.append, "other")))
        other.resize(30)
        assert lost == [1] and arriving.size == 85 and not other.is_lost
        with pytest.raises(SpoolFull):
            attackers[1].resize(41)
        assert arriving.size == 85
        other.resize(44)
        assert lost == [1] and not other.is_lost
        with pytest.raises(SpoolFull):
            other.resize(60)  # now it is the sender that holds most
    assert lost == [1, "other"] and arriving.size == 0


def test_an_unfinished_entry_is_not_read_again_for_every_byte_that_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by attacking: a megabyte of short fields, then a byte at a time, blocked everybody."""
    sizes: list[int] = []
    real = bytearray

    class Counted(bytearray):
        def find(self, sub: Any, *place: Any) -> int:
            sizes.append(len(self) - (place[0] if place else 0))
            return real.find(self, sub, *place)

    monkeypatch.setattr(journal_upload, "bytearray", Counted, raising=False)
    entries = journal_upload.Entries()
    entries.feed(b"".join(b"F%d=%b\n" % (n, b"x" * 1000) for n in range(900)) + b"LONG=" + b"y" * 100_000)
    assert entries.next() is None
    assert sizes, "the search is counted"
    sizes.clear()
    for _ in range(1000):
        entries.feed(b"y")
        assert entries.next() is None
    assert sum(sizes) <= 1000
    entries.feed(b"\n\n")
    found = entries.next()
    assert found is not None and len(found[1]) == 901 and len(dict(found[1])[b"LONG"]) == 101_000


def test_an_entry_has_as_many_fields_as_journald_writes(intake: Intake) -> None:
    """1,025 of a program and those that journald adds: else any user's entry would stop the uploads of its node."""
    kind, most = "application/vnd.fdo.journal", journal_upload.MOST_FIELDS
    assert most > 1025 + 24 + 18 + 6
    assert ask(intake, "POST", "/upload", b"a=b\n" * most + b"\n", content_type=kind).status == 202
    assert ask(intake, "POST", "/upload", b"a=b\n" * (most + 1) + b"\n", content_type=kind).status == 400


def test_a_packed_upload_waits_for_its_turn(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, body = "application/vnd.fdo.journal", gzip.compress(b"MESSAGE=a\n\n")
    assert ask(intake, "POST", "/upload", body, content_type=kind, content_encoding="gzip").status == 202
    monkeypatch.setattr("collector.large_bodies.MOST_WAITING", len(body) - 1)
    assert ask(intake, "POST", "/upload", body, content_type=kind, content_encoding="gzip").status == 429
