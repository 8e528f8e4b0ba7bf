"""The thread that stores: lines that came one by one are in a segment, with its filter, as soon as they fill one."""

from __future__ import annotations

import threading
from pathlib import Path

import polars as pl
import pytest
from structlog.testing import capture_logs

from collector import storing
from collector.carry import Carry
from collector.ledger import Ledger, Step
from collector.pieces import Counts
from collector.segment_file import Position
from collector.storing import Storing, Transaction
from parsers.record import frame
from store import open_store
from store.door import Sealed
from store.errors import EngineError


def lines(first: int) -> pl.DataFrame:
    return frame(
        "logs",
        [{"raw": f"line {n}", "message": f"line {n}", "file": "f", "line": n} for n in range(first, first + 200)],
    )


@pytest.mark.parametrize("fails", [False, True])
def test_lines_are_put_into_a_segment_once_they_fill_one(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "SEGMENT_ROWS", 300)
    with open_store(None) as store:
        store.open_intake()
        if fails:

            def refuse(*, least: int) -> Sealed:
                raise EngineError("Could not write file: No space left on device")

            monkeypatch.setattr(store, "seal", refuse)
        running = Storing(store, Ledger(store, "spool"), Carry(tmp_path), Counts(), threading.Event())
        waiting = []
        with capture_logs() as log:
            for number in range(3):
                running.begin(Transaction(Step(Position(1, 20 + number)), [], {"logs": lines(200 * number)}, []))
                assert running.end() is not None
                running.close()  # what follows a transaction is done too
                waiting.append(store.info()["unfiltered"])
                running = Storing(store, running.ledger, running.carry, running.counts, threading.Event())
        assert waiting == ([200, 400, 600] if fails else [200, 0, 200])
        assert store.info()["lines"] == 600
        assert [entry["event"] for entry in log] == ["segments not closed"] * 3 * fails
