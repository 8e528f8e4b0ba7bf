"""Measurements on the time axis: every point is a row, gaps are gaps, and counters show what they grew by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from correlator.facts.registry import kinds
from correlator.model.gauges import GAUGES, Gauge
from store import open_store
from store.duckdb.store import DuckStore
from web.axis import Builder, event_lane
from web.axis_measures import measures, pieces
from web.reading import Reader

TEMPERATURE = Gauge("temperature", "°C", ("t",))
ERRORS = Gauge("errors", "", ("e",), counter=True)


def insert(store: DuckStore, table: str, given: list[dict[str, Any]]) -> None:
    names = list(given[0])
    columns, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    with store.transaction() as connection:
        connection.executemany(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})", [list(row.values()) for row in given]
        )


def rows(device: str, *samples: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"device": device, "bin": t // 10, "t": t, "low": value, "high": value} for t, value in samples]


def seconds(found: list[list[tuple[datetime, float, float]]]) -> list[list[tuple[float, float, float]]]:
    return [[((at - datetime(1970, 1, 1)).total_seconds(), low, high) for at, low, high in piece] for piece in found]


@pytest.mark.parametrize(
    ("gauge", "given", "expected"),
    [
        (TEMPERATURE, rows("0", (0, 40), (10, 41), (20, 42)), [[(0, 40, 40), (10, 41, 41), (20, 42, 42)]]),
        # Eight GPUs of 90 degrees are not 720.
        (TEMPERATURE, rows("0", (0, 40), (10, 41)) + rows("1", (1, 90), (11, 91)), [[(1, 40, 90), (11, 41, 91)]]),
        # Nothing is drawn over an hour without samples.
        (TEMPERATURE, rows("0", (0, 40), (10, 41), (20, 41), (3620, 60), (3630, 61)),
         [[(0, 40, 40), (10, 41, 41), (20, 41, 41)], [(3620, 60, 60), (3630, 61, 61)]]),
        (TEMPERATURE, rows("0", (0, 40)), []),
        # A counter that began at a million and was reset once.
        (ERRORS, rows("0", (0, 1e6), (10, 1e6 + 5), (20, 3), (30, 4)), [[(10, 5, 5), (20, 0, 0), (30, 1, 1)]]),
        (ERRORS, rows("0", (0, 10), (10, 12), (20, 12)) + rows("1", (0, 900), (10, 900), (20, 907)), [[(10, 0, 2), (20, 0, 7)]]),
    ],
)  # fmt: skip
def test_points(gauge: Gauge, given: list[dict[str, Any]], expected: list[Any]) -> None:
    assert seconds(pieces(given, gauge)) == expected


START = datetime(2026, 2, 4, 15, 50)
BUS = "0000:ba:00"


def sampled(
    store: DuckStore, seconds: Iterable[float], metric: str, values: dict[str, Callable[[float], float]]
) -> None:
    """Samples of devices by the addresses of their buses, as DCGM's exporter writes these."""
    insert(store, "raw.metrics", [
        {"time": START + timedelta(seconds=at), "cluster": "c", "host": "n1", "metric": metric, "device": f"nvidia{n}", "value": value(at),
         "labels": json.dumps({"pci_bus_id": f"0000{address.upper()}.0"})}
        for n, (address, value) in enumerate(values.items()) for at in seconds
    ])  # fmt: skip


def drawn(
    store: DuckStore, host: str, event: str = "gpu.xid", device: str | None = BUS
) -> tuple[dict[str, Any], list[str]]:
    """What the axis has of an incident of ten seconds without a chain."""
    root = {"event": event, "host": host, "device": device}
    found, notes = measures(Reader(store), [], root, "c", START, START + timedelta(seconds=10))
    return {one["name"]: one for one in found}, notes


def test_a_short_fault_has_the_samples_around_it_and_those_of_its_own_gpu() -> None:
    """12 of 13 Xids on a simulated cluster had no lane: it was sampled every five minutes, and each lasted seconds."""
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        every = range(-1100, 1100, 300)
        sampled(
            store,
            every,
            "DCGM_FI_DEV_GPU_TEMP",
            {"0000:18:00": lambda at: 40.0, BUS: lambda at: 60.0 if at < 0 else 90.0},
        )
        sampled(store, every, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", {BUS: lambda at: 0.0 if at < 0 else 2.0})
        sampled(store, every, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", {BUS: lambda at: 7.0})
        found, notes = drawn(store, "n1")
    heat = found["temperature"]
    around = [START + timedelta(seconds=at) for at in (-200, 100)]
    assert (heat["own"], heat["devices"]) == (BUS, 2)
    assert heat["pieces"] == [[(around[0], 40, 60, 60), (around[1], 40, 90, 90)]]
    assert found["uncorrected ECC"]["pieces"][0][-1] == (around[1], 2, 2, 2)
    assert notes == ["PCIe replays of n1 did not grow."] and "PCIe replays" not in found


def test_a_gpu_that_fell_off_its_bus_is_named_while_others_are_sampled() -> None:
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        metric = "DCGM_FI_DEV_GPU_TEMP"
        sampled(store, range(-800, 900, 300), metric, {"0000:18:00": lambda at: 40.0})
        assert drawn(store, "n1")[1] == [f"{BUS} of n1 was not sampled; other devices there were."]
        sampled(store, (-800, -500, -200), metric, {BUS: lambda at: 60.0})
        found, notes = drawn(store, "n1")
        assert notes == [f"{BUS} of n1 was last sampled at 15:46:40 UTC; other devices there were sampled later."]
        assert found["temperature"]["pieces"][0][-1][1:] == (40, 40, None)
        sampled(store, (90, 390, 690), metric, {BUS: lambda at: 60.0})  # not at the same moments
        assert drawn(store, "n1")[1] == []


def test_a_gpu_has_one_lane_however_the_kernel_writes_its_address() -> None:
    builder = Builder(START)
    events = ({"layer": "gpu", "host": "n1", "device": device} for device in (BUS, f"{BUS}.0", "0000:BA:00"))
    assert len({event_lane(builder, event, {}) for event in events}) == 1
    assert event_lane(builder, {"layer": "link", "host": "n1", "device": f"{BUS}.0"}, {}).endswith(f"{BUS}.0")


def test_without_samples_the_axis_says_so() -> None:
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        assert drawn(store, "n1") == ({}, ["No GPU samples were collected for n1 in this range."])
        assert drawn(store, "n1", "nic.link_errors", "mlx5_0") == (
            {},
            ["No port counters were collected for n1 in this range."],
        )
        assert drawn(store, "n1", "nic.link_down", "eth0") == ({}, [])
        # The GPU's node was sampled until it died, and long before it.
        sampled(store, range(-3000, -200, 60), "DCGM_FI_DEV_GPU_TEMP", {BUS: lambda at: 60.0})
        assert drawn(store, "n1") == ({}, ["No GPU samples were collected for n1 in this range."])


def test_a_gap_within_the_range_stays_one_though_bins_around_it_are_wider() -> None:
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        seconds = [at for at in range(-200, 210) if not 3 < at < 8]
        sampled(store, seconds, "DCGM_FI_DEV_GPU_TEMP", {BUS: lambda at: 60.0})
        found, _ = drawn(store, "n1")
    pieces_ = [[(point[0] - START).total_seconds() for point in piece] for piece in found["temperature"]["pieces"]]
    assert pieces_[0][-1] == 3 and pieces_[1][0] == 8


def test_every_kind_about_gpus_names_what_is_measured_of_them() -> None:
    about = {name for name, kind in kinds().items() if kind.component == "gpu" and kind.cause}
    assert about and all("temperature" in kinds()[name].gauges for name in about)


def test_kinds_name_gauges_that_exist() -> None:
    named = {gauge for kind in kinds().values() for gauge in kind.gauges}
    assert named == GAUGES.keys(), "each is drawn for some kind"
    assert "temperature" in kinds()["gpu.thermal"].gauges
