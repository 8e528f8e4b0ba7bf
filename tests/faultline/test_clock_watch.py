"""A clock that jumped drops nothing, until the lines or an operator confirm it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from faultline import upkeep
from faultline.cli import run
from faultline.clock_watch import AGREES_FOR, FILE, ClockWatch
from faultline.config import Store as Settings
from faultline.config import validate
from faultline.service import Service, build_app
from parsers.record import frame
from store import open_store
from store.door import Door
from store.tables import LOGS

NOW = datetime(2026, 11, 24, 1, 0)
JUMPED = datetime(2039, 11, 24, 1, 0)


def lines(store: Door, at: datetime, own: datetime | None = None, count: int = 10) -> None:
    """Lines that arrived ``at``, when their hosts' clocks showed ``own``."""
    rows = [{"time": own or at, "time_quality": "line", "received_time": at, "host": "gx01", "raw": f"line {n} {at}", "message": "m", "line": n}
            for n in range(count)]  # fmt: skip
    store.append({"logs": frame("logs", rows)})


def held(store: Door) -> int:
    return len(store.ask(sa.select(LOGS.c.line)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    reported = [NOW]
    monkeypatch.setattr(upkeep, "utc_now", lambda: reported[0])
    return reported


def test_a_clock_13_years_ahead_drops_nothing(
    tmp_path: Path, clock: list[datetime], capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path) as store:
        lines(store, NOW - timedelta(days=1))
        watch = ClockWatch(store)
        round_ = upkeep.job(store, Settings(retention_days=30), lambda: False, watch)
        round_()
        assert watch.trouble is None and held(store) == 10
        clock[0] = JUMPED
        for _ in range(3):
            round_()
            lines(store, JUMPED, own=NOW)  # arrivals by the wrong clock are no evidence
            clock[0] += timedelta(hours=20)
        assert held(store) == 40
        assert watch.trouble is not None and "4,74" in watch.trouble and "--confirm-clock" in watch.trouble
        assert "".join(capsys.readouterr()).count("the clock jumped") == 1
        clock[0] = NOW + timedelta(hours=2)
        round_()
        assert watch.trouble is None


def test_the_last_arrival_counts_where_nothing_was_remembered(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lines(store, NOW)
        assert not ClockWatch(store).look(JUMPED)
        assert ClockWatch(store).trouble is None and not ClockWatch(store).look(NOW - timedelta(days=2))
        assert ClockWatch(store).look(NOW + timedelta(days=3))


def test_old_logs_in_a_new_store_say_nothing_about_the_clock(tmp_path: Path) -> None:
    """A week after they were written, `make demo` and a service over ingested logs said that the clock had jumped."""
    log, data = tmp_path / "syslog", tmp_path / "data"
    log.write_text("2026-02-28T10:00:00+00:00 gx01 systemd[1]: Started Session 1 of user root.\n")
    assert run(["ingest", str(log), "--data", str(data)]) == 0
    with open_store(data) as store:
        watch = ClockWatch(store)
        assert watch.look(upkeep.utc_now()) and watch.trouble is None
        assert not watch.look(upkeep.utc_now() + timedelta(days=30)) and watch.trouble is not None


def test_it_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lines(store, NOW)
        assert ClockWatch(store).look(NOW)
        lines(store, JUMPED, own=NOW)
    with open_store(tmp_path) as store:
        assert not ClockWatch(store).look(JUMPED)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / FILE).read_text())["seen"] == NOW.isoformat()


@pytest.mark.parametrize(("agree", "believed"), [(True, True), (False, False)])
def test_a_day_of_lines_that_agree_is_believed(tmp_path: Path, agree: bool, believed: bool) -> None:
    """A service that was off for a month: incoming lines show whether the clock is correct."""
    later = NOW + timedelta(days=30)
    with open_store(tmp_path) as store:
        lines(store, NOW)
        watch = ClockWatch(store)
        assert watch.look(NOW) and not watch.look(later)
        lines(store, later + timedelta(hours=12), own=None if agree else NOW)
        assert not watch.look(later + AGREES_FOR / 2)
        assert watch.look(later + AGREES_FOR) is believed
        assert (watch.trouble is None) is believed


def test_nothing_that_comes_in_agrees_with_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lines(store, NOW)
        watch = ClockWatch(store)
        assert watch.look(NOW) and not watch.look(JUMPED) and not watch.look(JUMPED + 3 * AGREES_FOR)


def test_a_store_that_knows_no_time_drops_nothing_in_the_first_round(tmp_path: Path, clock: list[datetime]) -> None:
    with open_store(tmp_path) as store:
        rows = [{"time": datetime(2020, 1, 1), "host": "gx01", "raw": "x", "message": "x", "line": 1}]
        store.append({"logs": frame("logs", rows)})
        round_ = upkeep.job(store, Settings(retention_days=30), lambda: False)
        round_()
        assert held(store) == 1
        clock[0] += timedelta(hours=1)
        round_()
        assert held(store) == 0


def test_the_command_refuses_until_an_operator_confirms(
    tmp_path: Path, clock: list[datetime], capsys: pytest.CaptureFixture[str]
) -> None:
    data, config = tmp_path / "data", tmp_path / "f.toml"
    with open_store(data) as store:
        lines(store, NOW)
    config.write_text(f'data = "{data}"\n[store]\nretention_days = 1\n')
    clock[0] = JUMPED
    assert run(["archive", "--config", str(config)]) == 2
    assert "4,748 days after" in capsys.readouterr().err
    with open_store(data) as store:
        assert held(store) == 10
    assert run(["archive", "--config", str(config), "--confirm-clock"]) == 0
    with open_store(data) as store:
        assert held(store) == 0


def test_it_is_told_where_operators_look(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        service = Service(validate({"data": str(tmp_path)}, "test"), store)
        client = TestClient(build_app(service))
        assert "troubles" not in client.get("/readyz").json()
        assert "faultline_retention_held 0" in client.get("/metrics").text
        lines(store, NOW)
        service.clock.look(JUMPED)
        (reported,) = client.get("/readyz").json()["troubles"]
        assert reported == service.clock.trouble
        assert "faultline_retention_held 1" in client.get("/metrics").text
