"""Measurements on the time axis: every point is a row, gaps are gaps, and counters show what they grew by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from correlator.facts.registry import kinds
from correlator.model.gauges import GAUGES
from store import open_store
from store.duckdb.store import DuckStore
from web.axis import Builder, event_lane
from web.axis_measures import measures, pieces
from web.reading import Reader


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
    ("given", "expected"),
    [
        (rows("0", (0, 40), (10, 41), (20, 42)), [[(0, 40, 40), (10, 41, 41), (20, 42, 42)]]),
        # Eight GPUs of 90 degrees are not 720.
        (rows("0", (0, 40), (10, 41)) + rows("1", (1, 90), (11, 91)), [[(1, 40, 90), (11, 41, 91)]]),
        # Nothing is drawn over an hour without samples.
        (rows("0", (0, 40), (10, 41), (20, 41), (3620, 60), (3630, 61)),
         [[(0, 40, 40), (10, 41, 41), (20, 41, 41)], [(3620, 60, 60), (3630, 61, 61)]]),
        (rows("0", (0, 40)), [[(0, 40, 40)]]), ([], []),
    ],
)  # fmt: skip
def test_points(given: list[dict[str, Any]], expected: list[Any]) -> None:
    assert seconds(pieces(given)) == expected


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
    store: DuckStore, host: str, event: str = "gpu.xid", device: str | None = BUS, start: float = 0, lasts: float = 10
) -> tuple[dict[str, Any], list[str]]:
    """What the axis has of an incident, by default of ten seconds, without a chain."""
    root = {"event": event, "host": host, "device": device}
    begin = START + timedelta(seconds=start)
    found, notes = measures(Reader(store), [], root, "c", begin, begin + timedelta(seconds=lasts))
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


def test_gpus_that_are_sampled_one_after_the_other_are_all_sampled_to_the_end() -> None:
    """Seven of eight GPUs of a healthy node were "last sampled" milliseconds before the eighth."""
    buses = [f"0000:{n}a:00" for n in range(1, 9)]
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        for n, address in enumerate(buses):
            last = 840 if address != buses[4] else -60
            sampled(
                store, [at + 0.003 * n for at in range(-840, last, 60)], "DCGM_FI_DEV_GPU_TEMP", {address: lambda at: 40.0}
            )  # fmt: skip
        found = {address: drawn(store, "n1", device=address) for address in buses}
    assert {address: notes for address, (_, notes) in found.items() if notes} == {
        buses[4]: [f"{buses[4]} of n1 was last sampled at 15:48:00 UTC; other devices there were sampled later."]
    }
    assert [address for address, (of, _) in found.items() if of["temperature"]["lost"]] == [buses[4]]


def test_a_device_on_a_bus_that_is_no_gpu_was_not_lost() -> None:
    """Bus errors of a network card read "was not sampled; other devices there were", as if a GPU had fallen off its bus."""
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        sampled(store, range(-800, 900, 30), "DCGM_FI_DEV_GPU_TEMP", {"0000:18:00": lambda at: 40.0})
        assert drawn(store, "n1", "pcie.aer", "0000:3a:00.0")[1] == []
        sampled(store, range(-800, -200, 30), "DCGM_FI_DEV_GPU_TEMP", {"0000:3a:00": lambda at: 40.0})
        (note,) = drawn(store, "n1", "pcie.aer", "0000:3a:00.0")[1]
    assert note == "0000:3a:00 of n1 was last sampled at 15:46:10 UTC; other devices there were sampled later."


def counted(store: DuckStore, metric: str, *samples: tuple[float, float], port: str = "1") -> None:
    insert(store, "raw.metrics", [
        {"time": START + timedelta(seconds=at), "cluster": "c", "host": "n1", "metric": metric, "device": "mlx5_0", "value": value,
         "labels": json.dumps({"device": "mlx5_0", "port": port})} for at, value in samples
    ])  # fmt: skip


SYMBOLS, RECEIVED = "infiniband_symbol_error_total", "infiniband_port_rcv_errors_total"


def grown(store: DuckStore, lasts: float = 10) -> tuple[dict[str, list[list[tuple[float, float, float]]]], list[str]]:
    """What ports' counters grew by, in seconds after the begin."""
    found, notes = drawn(store, "n1", "nic.link_errors", "mlx5_0", lasts=lasts)
    begun = (START - datetime(1970, 1, 1)).total_seconds()
    return {
        name: [[(at - begun, low, high) for at, low, high in piece] for piece in seconds(one["pieces"])]
        for name, one in found.items()
    }, notes


def test_a_counter_that_is_sent_when_it_changes_shows_its_one_jump() -> None:
    """The agent sends a counter that changed, and all of them once an hour: "No port counters were collected" stood on the axis of
    the very counter that was the evidence."""
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        counted(store, SYMBOLS, (-2400, 3.0), (5, 50003.0))
        assert grown(store) == ({"symbol errors": [[(5, 50000, 50000)]]}, [])
        counted(store, RECEIVED, (-2400, 7.0))
        assert grown(store)[1] == [], "whether it grew is not known before it is sent again"
        counted(store, RECEIVED, (1200, 7.0))
        assert grown(store) == ({"symbol errors": [[(5, 50000, 50000)]]}, ["Receive errors of n1 did not grow."])


def test_counters_that_are_known_only_from_after_the_range_are_not_said_to_stand_still() -> None:
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        counted(store, SYMBOLS, (100, 3.0), (400, 3.0))
        counted(store, RECEIVED, (-100, 3.0), (1200, 9.0))
        assert grown(store) == ({}, ["No port counters were collected for n1 in this range."])


def test_what_a_counter_grew_by() -> None:
    """Each port counts for itself, from wherever it began; one that a reboot reset grew by what it has since."""
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        counted(store, SYMBOLS, (0, 1e6), (10, 1e6 + 5), (20, 3), (30, 4))
        counted(store, SYMBOLS, (0, 900), (10, 900), (20, 907), (30, 907), port="2")
        counted(store, RECEIVED, (-5, 2), (5, 0), (6, 2), (30, 2))
        found, notes = grown(store, 40)
    assert found["symbol errors"] == [[(10, 0, 5), (20, 3, 7), (30, 0, 1)]]
    assert found["receive errors"] == [[(5, 0, 0), (6, 2, 2), (30, 0, 0)]] and notes == []


def test_samples_before_and_after_a_range_within_one_bin_are_two() -> None:
    """Around a range bins are 15 s wide: what was measured before a shorter one was drawn as if it came after."""
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        sampled(store, range(-600, 600, 10), "DCGM_FI_DEV_GPU_TEMP", {BUS: lambda at: 40.0 if at < 5 else 90.0})
        found, _ = drawn(store, "n1", start=2, lasts=5)
    (piece,) = found["temperature"]["pieces"]
    assert [((at - START).total_seconds(), low, high) for at, low, high, _ in piece] == [(0, 40, 40), (10, 90, 90)]


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
        sampled(store, (4,), "DCGM_FI_DEV_POWER_USAGE", {BUS: lambda at: 300.0})
        found, notes = drawn(store, "n1")
        assert [len(piece) for piece in found["power"]["pieces"]] == [1] and notes == []
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
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
