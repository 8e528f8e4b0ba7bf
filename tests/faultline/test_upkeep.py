"""Upkeep: the service and the command close days and drop old ones according to the configuration."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from faultline import upkeep
from faultline.cli import run
from faultline.config import Store as Settings
from faultline.config import load
from parsers.record import frame
from store import open_store
from store.duckdb import archive

DAY = datetime(2026, 2, 20)


def fill(folder: Path) -> None:
    rows = [{"time": DAY + timedelta(days=n % 10, seconds=n), "host": "gx01", "raw": f"line {n}", "message": f"line {n}", "line": n}
            for n in range(1000)]  # fmt: skip
    with open_store(folder) as store:
        store.add({"logs": frame("logs", rows)})


def test_hot_days_and_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setattr(archive.close_days, "__kwdefaults__", {"hot_days": 2, "least": 1})
    with open_store(tmp_path) as store:
        done = upkeep.keep_up(store, Settings(hot_days=3, retention_days=5), date(2026, 3, 1))
        assert done.dropped.lines == 400  # before the 24th
        assert (done.closed.days, done.closed.lines) == (2, 200)  # the 24th and 25th; 26th to 28th are hot
        assert upkeep.keep_up(store, Settings(), date(2026, 2, 21)).dropped == archive.Dropped()


def test_a_failure_is_reported_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> archive.Closed:
        raise OSError("no space left on device")

    with open_store(tmp_path) as store:
        monkeypatch.setattr(archive, "close_days", full)
        upkeep.job(store, Settings(), lambda: False)()
        assert "no space left" in "".join(capsys.readouterr())
        upkeep.job(store, Settings(), lambda: True)()
        assert capsys.readouterr() == ("", "")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    fill(data)
    (tmp_path / "f.toml").write_text(f'data = "{data}"\n[store]\nretention_days = 1\n')
    assert load(tmp_path / "f.toml").store.hot_days == 2
    assert run(["archive", "--config", str(tmp_path / "f.toml"), "--verify"]) == 0
    out = capsys.readouterr().out
    assert "dropped   1,000 lines older than 1 days" in out and "read and compared" in out
    (tmp_path / "g.toml").write_text("[store]\nretention_days = 0\n")
    assert run(["archive", "--config", str(tmp_path / "g.toml")]) == 2
    assert "retention_days" in capsys.readouterr().err
