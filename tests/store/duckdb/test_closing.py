"""A store that is closed while another thread takes a cursor of it."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pytest

from store import open_store
from store.duckdb import closing


def test_threads_that_take_cursors_do_not_stop_a_store_from_closing(tmp_path: Path) -> None:
    for _ in range(5):
        ended = threading.Event()

        def take(ended: threading.Event = ended) -> None:
            while not ended.is_set():
                try:
                    stored.cursor().execute("SELECT 1")
                except Exception:
                    return  # it is closed

        with open_store(tmp_path / "store") as stored:
            threads = [threading.Thread(target=take) for _ in range(3)]
            for thread in threads:
                thread.start()
        ended.set()
        for thread in threads:
            thread.join()


class Busy:
    """A connection that is busy a few times, or for ever."""

    def __init__(self, times: float) -> None:
        self.times = times

    def close(self) -> None:
        if self.times > 0:
            self.times -= 1
            raise duckdb.ResourceInUseException("busy")


def test_it_waits_for_a_moment_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    closing.close(Busy(3))  # type: ignore[arg-type]
    monkeypatch.setattr(closing, "PATIENCE_S", 0.02)
    with pytest.raises(duckdb.ResourceInUseException):
        closing.close(Busy(float("inf")))  # type: ignore[arg-type]
