"""An incident with more events around it than are drawn one by one: none is lost, and none of the incident is moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from benchmarks.simulators import ui_store
from store import open_store
from store.door import Door
from web import reading
from web.app import create_app
from web.reading import Reader
from web.timerange import rfc3339

LANES, EVENTS = 20, 3_000


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    with open_store(None) as made:
        assert isinstance(made, Door)
        ui_store.fill(made, nodes=32, lanes=LANES, events=EVENTS)
        yield made


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "GATHERED", 400)


def test_too_many_events_are_gathered_and_all_are_counted(store: Door) -> None:
    read = Reader(store)
    row = read.incident(ui_store.INCIDENT)
    hosts, told = [ui_store.host(n) for n in range(LANES // 2)], [event["id"] for event in row["document"]["events"]]
    every = read.events(start=row["start"], end=row["end"], hosts=hosts, of=row)
    assert (
        read.events_around(row["start"], row["end"], hosts, of=row, in_document=told) == every and len(every) == EVENTS
    )
    few = read.events_around(row["start"], row["end"], hosts, of=row, in_document=told, most=EVENTS - 1)
    assert sum(event["count"] for event in few) == EVENTS and len(few) < EVENTS
    by_name = {event["event_id"]: event for event in every}
    assert {event["event_id"] for event in few} >= set(told) & set(by_name)
    kinds: dict[tuple[object, ...], list[tuple[object, object]]] = {}
    for event in few:
        whole = by_name[event["event_id"]]
        assert {name: event[name] for name in whole if name != "count"} == {
            name: whole[name] for name in whole if name != "count"
        }
        if event["event_id"] in told:
            assert event["count"] == 1
        else:
            kinds.setdefault((event["host"], event["source"], event["severity"]), []).append(
                (event["time"], event["last"])
            )
    for spans in kinds.values():  # one after the other, so that each line is in one of them
        assert all(a[1] < b[0] for a, b in zip(spans, spans[1:], strict=False))  # type: ignore[operator]  # noqa: RUF007


def test_the_axis_counts_them_and_is_sent_in_few_bytes(store: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader.events_around, "__kwdefaults__", {"most": 100})
    client = TestClient(create_app(store))
    plain = client.get(f"/api/v1/axis/{ui_store.INCIDENT}", headers={"accept-encoding": "identity"})
    packed = client.get(f"/api/v1/axis/{ui_store.INCIDENT}", headers={"accept-encoding": "gzip"})
    axis = packed.json()
    assert (
        axis == plain.json()
        and packed.headers["content-encoding"] == "gzip"
        and "content-encoding" not in plain.headers
    )
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 5
    assert (
        packed.headers["etag"] == plain.headers["etag"]
        and packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    )
    assert (
        sum(mark["count"] for mark in axis["marks"]) == EVENTS + 1
    )  # and the switch's own, which the store has no row of
    assert any(mark.get("last", mark["t"]) > mark["t"] and mark["count"] > 1 for mark in axis["marks"])
    assert axis["t0"] == rfc3339(ui_store.DAY.replace(minute=1))
