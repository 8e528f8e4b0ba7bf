"""Verdicts do not depend on where lines are stored: a day has the same verdicts after it was archived."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from store import open_store
from store.duckdb import archive
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
