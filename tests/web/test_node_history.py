"""The page of a node: a strip of its states, what was measured, its lemon score; each as the API and the rows have it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from correlator.model.gauges import GAUGES
from web.app import create_app
from web.node_history import MEASURED, WIDE, families, measures, risk, strip
from web.reading import Reader
from web.timerange import Range

T0 = datetime(2026, 11, 21, 4)


def at(minute: float) -> datetime:
    return T0 + timedelta(minutes=minute)


def state(minute: float, text: str, until: float | None = None, source: str = "poll", **more: Any) -> dict[str, Any]:
    end = None if until is None else at(until)
    return {"host": "a", "time": at(minute), "until": end, "state": text, "reason": None, "actor": None, "source": source, **more}  # fmt: skip


def drawn(states: list[dict[str, Any]], within: Range | None = None, newest: float | None = 100) -> list[Any]:
    """Kind, first and last minute of each bar, by its place."""
    found = strip(states, within or Range(), None if newest is None else at(newest))
    assert found is not None
    scale = (found["end"] - found["start"]).total_seconds() / 60 / WIDE
    begun = (found["start"] - T0).total_seconds() / 60
    for part in found["parts"]:
        assert 0 <= part["x"] <= part["x"] + part["wide"] <= WIDE + 0.01
    return [
        (part["kind"], round(begun + part["x"] * scale, 1), round(begun + (part["x"] + part["wide"]) * scale, 1))
        for part in found["parts"]
    ]


@pytest.mark.parametrize(
    ("states", "within", "expected"),
    [
        ([state(0, "idle"), state(40, "down*")], Range(), [("idle", 0, 40), ("down", 40, 100)]),
        # Nobody says a state between minute 20 and 60: there is no bar.
        ([state(0, "mixed", 20), state(60, "drained", 100)], Range(), [("busy", 0, 20), ("drain", 60, 100)]),
        # What began before the range begins with it, and nothing is drawn after it.
        ([state(0, "idle"), state(40, "down")], Range(at(30), at(50)), [("idle", 30, 40), ("down", 40, 50)]),
        # slurmctld's log does not say when jobs run: its IDLE is not idle.
        ([state(0, "IDLE", source="slurmctld"), state(50, "DOWN", source="slurmctld")], Range(), [("up", 0, 50), ("down", 50, 100)]),
        # Not longer than the state below it.
        ([state(0, "idle", 90), state(30, "down", 40)], Range(), [("idle", 0, 30), ("down", 30, 40)]),
    ],
)  # fmt: skip
def test_a_strip_has_the_states_of_the_rows(states: list[Any], within: Range, expected: list[Any]) -> None:
    assert drawn(states, within) == expected


def test_a_strip_says_how_long_and_by_whom() -> None:
    found = strip([state(0, "drained", 30, reason="fan", actor="ada"), state(30, "idle")], Range(), at(100))
    assert found is not None
    assert [(one["words"], one["seconds"]) for one in found["kinds"]] == [("drained", 1800), ("idle", 4200)]
    assert found["parts"][0]["words"] == "drained fan by ada, from 2026-11-21 04:00:00 to 2026-11-21 04:30:00"
    assert strip([], Range(), at(1)) is None and strip([state(5, "idle")], Range(), None) is None


@pytest.fixture(scope="module")
def store() -> fixture.FakeStore:
    store = fixture.build()
    newest = Reader(store).newest()
    assert newest is not None
    for gpu, degrees in (("nvidia0", (40, 72, 61)), ("nvidia1", (35, 36, 90))):
        for n, value in enumerate(degrees):
            sample(store, newest - timedelta(minutes=10 * (3 - n)), GAUGES["temperature"].metrics[0], gpu, value)
    for n, value in enumerate((3, 3, 10)):
        sample(store, newest - timedelta(minutes=10 * (3 - n)), GAUGES["symbol_errors"].metrics[0], "mlx5_0", value)
    for n, value in enumerate((5, 0)):  # it began again
        sample(store, newest - timedelta(minutes=10 * (3 - n)), GAUGES["replays"].metrics[0], "nvidia0", value)
    sample(store, newest - MEASURED - timedelta(minutes=1), GAUGES["power"].metrics[0], "nvidia0", 700)  # too long ago
    return store


def sample(store: fixture.FakeStore, at: datetime, metric: str, device: str, value: float) -> None:
    fixture.insert(store.con, "raw.metrics", {
        "time": at, "cluster": "mini", "host": "gpu02", "metric": metric, "value": value, "device": device,
    })  # fmt: skip


def test_measured_values_are_those_of_the_rows(store: fixture.FakeStore) -> None:
    read = Reader(store)
    found = {one["name"]: one for one in measures(read, read.node("gpu02"), read.newest())}
    assert list(found) == ["temperature", "PCIe replays", "symbol errors"]
    hot = found["temperature"]
    assert (hot["last"], hot["all"], hot["devices"]) == ([61, 90], [35, 90], 2)
    assert found["symbol errors"]["grew"] == 7 and found["PCIe replays"]["grew"] is None
    assert measures(read, read.node("gpu02"), None) == []


def test_the_page_shows_them_and_the_score_that_the_api_has(store: fixture.FakeStore) -> None:
    read, client = Reader(store), TestClient(create_app(store))
    scored = client.get("/api/v1/nodes/gpu02/risk").json()
    assert scored == risk(read, read.node("gpu02")) and scored["families"] == families(read, read.node("gpu02"))
    assert scored["families"], "an incident began here"
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", client.get("/nodes/gpu02").text))
    (family,) = scored["families"]
    score = page[page.index("Lemon score") :]
    assert f"{family['family']} {family['incidents']} {round(family['expected'], 2):g}" in score
    assert f"{family['probability']:.2g}" in score
    measured = page[page.index("Measured") :]
    assert "61 to 90 °C 35 to 90 °C" in measured and "10 +7" in measured and "began again" in measured
    assert "power" not in measured, "that was more than a day before"
    other = client.get("/nodes/gpu01").text
    assert "No incident that ended a job began on this node" in other and 'id="measures"' not in other
