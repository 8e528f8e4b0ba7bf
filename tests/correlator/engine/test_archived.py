"""Verdicts do not depend on where rows are stored: they are the same after a day was archived, and after rows moved."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from store import open_store
from store.duckdb import archive, shrinking
from store.duckdb.store import DuckStore
from tests.line_parser import line_parser

CAPTURE = Path(__file__).resolve().parents[3] / "faultline" / "capture"


@pytest.mark.long
def test_archiving_changes_no_verdict(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        ticker = Ticker(store)
        ticker.tick()
        before = result(store)
        assert before["incidents"] and before["verdicts"]
        assert archive.close_days(store, date(2100, 1, 1), least=1).lines > 100
        ticker.tick()
        assert result(store) == before
        correlate(store)
        again = result(store)
        assert again["verdicts"] == before["verdicts"]
        assert [i["chain"] for i in again["incidents"]] == [i["chain"] for i in before["incidents"]]


def test_moving_rows_to_the_front_of_the_file_changes_no_verdict(tmp_path: Path) -> None:
    with DuckStore(tmp_path) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        ticker = Ticker(store)
        ticker.tick()
        before = result(store)
        assert before["incidents"] and before["verdicts"]
        store.checkpoint()
        pieces = [piece for piece in shrinking._pieces(store) if piece.where is not None]
        assert {"raw.logs", "raw.jobs", "model.events", "model.runs"} <= {piece.table for piece in pieces}
        for piece in pieces:
            shrinking._move(store, piece)
        store.checkpoint()
        assert result(store) == before
        ticker.tick()
        assert result(store) == before
