"""Zones: a column is converted like each of its times, and no other code knows the time zone database."""

from __future__ import annotations

import ast
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parsers import zones
from tests.examples import examples
from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline")
NAMES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Etc/GMT+12",
)
WALLS = st.datetimes(datetime(2020, 1, 1), datetime(2027, 1, 1))


@pytest.mark.parametrize(("wall", "zone", "utc"), [
    (datetime(2026, 1, 15, 12), "Europe/Berlin", datetime(2026, 1, 15, 11)), (datetime(2026, 7, 15, 12), "Europe/Berlin", datetime(2026, 7, 15, 10)),
    (datetime(2026, 10, 25, 2, 30), "Europe/Berlin", datetime(2026, 10, 25, 0, 30)),  # occurs twice: the first pass
    (datetime(2026, 3, 29, 2, 30), "Europe/Berlin", datetime(2026, 3, 29, 1, 30)),  # does not exist: an hour later
    (datetime(2026, 1, 15, 12), "Asia/Kolkata", datetime(2026, 1, 15, 6, 30)), (datetime(2026, 1, 15, 12), "No/Such", datetime(2026, 1, 15, 12)),
    (datetime(2026, 1, 15, 12), "Zulu", datetime(2026, 1, 15, 12)),
])  # fmt: skip
def test_a_wall_clock_time_as_utc(wall: datetime, zone: str, utc: datetime) -> None:
    assert zones.to_utc(pl.Series([wall], dtype=pl.Datetime("us")), zone).to_list() == [utc]
    assert zones.utc_of(wall, zones.find(zone) or zones.UTC_ZONE) == utc


@given(st.lists(WALLS, min_size=1, max_size=8), st.sampled_from(NAMES))
@example([datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)], "Europe/Berlin")
@example([datetime(2026, 3, 8, 2, 15), datetime(2026, 11, 1, 1, 15)], "America/New_York")
@settings(max_examples=examples(50), deadline=None)
def test_a_column_is_moved_as_each_of_its_times(walls: list[datetime], name: str) -> None:
    zone = zones.find(name)
    assert zone is not None
    moments = zones.to_utc(pl.Series(walls, dtype=pl.Datetime("us")), name)
    assert moments.to_list() == [zones.utc_of(wall, zone) for wall in walls]
    assert zones.to_wall(moments, name).to_list() == [zones.wall_of(moment, zone) for moment in moments.to_list()]


@given(WALLS, st.sampled_from(NAMES))
@settings(max_examples=examples(50), deadline=None)
def test_there_and_back(moment: datetime, name: str) -> None:
    """For the hour that occurs twice, the first pass."""
    zone = zones.find(name)
    assert zone is not None
    back = zones.utc_of(zones.wall_of(moment, zone), zone)
    assert back == moment or timedelta() < moment - back <= timedelta(hours=1)


@pytest.mark.parametrize(("wall", "zone"), [
    (datetime(9999, 12, 31, 23, 59, 59), "America/New_York"), (datetime(1, 1, 1), "Asia/Tokyo"),
])  # fmt: skip
def test_beyond_the_calendar_there_is_a_clamped_time_or_none(wall: datetime, zone: str) -> None:
    found = zones.find(zone)
    assert found is not None
    assert zones.utc_of(wall, found) in (datetime.min, datetime.max)
    with pytest.raises(OverflowError):
        zones.utc_within(wall, found)
    noon = wall.replace(year=2026, hour=12)
    assert zones.utc_within(noon, found) == zones.utc_of(noon, found)


@pytest.mark.parametrize("name", ["No/Such", "", "../etc/passwd", "Europe", "x" * 5000, "a\0b"])
def test_what_is_no_zone_is_utc(name: str) -> None:
    assert zones.find(name) is None and zones.known_zone(name) == "UTC" and zones.is_utc(name)


def test_nothing_else_opens_the_time_zone_database() -> None:
    found = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if "ZoneInfo" in path.read_text(encoding="utf-8")  # the other files need not be parsed
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "ZoneInfo"
    ]
    assert set(found) == {"parsers/zones.py"}
