"""The repair list: both ends as one row, the fleet as the reference, the urgent first.

Outages with other causes are left out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

from correlator.engine import correlate
from correlator.live.ticker import Ticker
from correlator.repairs.model import Repair
from correlator.repairs.repairs import advise, repairs
from parsers.record import frame
from store import open_store
from store.door import Door
from tests.replaced_model import replace_model

DAY = datetime(2026, 3, 1)
#: Eight ports of a node, each on its own plane.
PLANES = 8


def at(minutes: float) -> datetime:
    return DAY + timedelta(minutes=minutes)


def event(kind: str, host: str, device: str | None, minutes: float, **more: Any) -> dict[str, Any]:
    return {
        "event_id": f"{kind}{host}{device}{minutes}", "time": at(minutes), "resolution_us": 1000, "cluster": "c", "host": host, "event": kind,
        "device": device, "severity": "warning", "message": "", "entities": "{}", "count": 1, "incident_id": None, **more,
    }  # fmt: skip


def flap(
    host: str, device: str, minutes: float, lasts_s: float | None = 2.0, side: str = "nic.link", **more: Any
) -> list[dict[str, Any]]:
    reported = [event(f"{side}_down", host, device, minutes, **more)]
    return (
        reported if lasts_s is None else [*reported, event(f"{side}_up", host, device, minutes + lasts_s / 60, **more)]
    )


def incident(name: str, root: str, ended: Iterable[str] = (), slowed: Iterable[str] = ()) -> dict[str, Any]:
    document = {"jobs": [{"job_id": j} for j in ended], "slowed_jobs": list(slowed)}
    return {"incident_id": name, "cluster": "c", "root_event": root, "document": json.dumps(document)}


def run(number: int, host: str, start: float, end: float | None) -> dict[str, Any]:
    return {
        "run_key": str(number),
        "cluster": "c",
        "job_id": number,
        "nodes": [host],
        "start": at(start),
        "end": None if end is None else at(end),
    }


@pytest.fixture
def store() -> Iterator[Door]:
    with open_store(None) as opened:
        yield opened


def fill(store: Door, events: list[dict[str, Any]], incidents: Iterable[dict[str, Any]] = (), runs: Iterable[dict[str, Any]] = (), nodes: int = 40) -> None:  # fmt: skip
    cables = [
        {"cluster": "c", "host": f"n{n}", "device": f"rdma{p}", "switch": f"leaf-p{p}", "switch_port": f"Ethernet{n}", "plane": str(p)}
        for n in range(nodes) for p in range(PLANES)
    ]  # fmt: skip
    replace_model(store, {
        "events": pl.DataFrame(events, infer_schema_length=None),
        **({"incidents": pl.DataFrame(list(incidents))} if incidents else {}), **({"runs": pl.DataFrame(list(runs))} if runs else {}),
    })  # fmt: skip
    store.append({"links": frame("links", cables)})


def only(store: Door, **period: datetime) -> Repair:
    (found,) = repairs(store, **period).repairs
    return found


def test_both_ends_of_a_cable_are_one_row_with_both_names(store: Door) -> None:
    fill(
        store,
        [
            *flap("n1", "rdma3", 0),
            *flap("leaf-p3", "Ethernet1", 0.005, side="switch.port"),
            *flap("n1", "rdma3", 90, 4.0),
        ],
    )
    found = only(store)
    assert (found.host, found.device, found.switch, found.switch_port) == ("n1", "rdma3", "leaf-p3", "Ethernet1")
    assert (found.flaps, found.down_s, found.longest_s) == (2, pytest.approx(6.0, abs=0.01), pytest.approx(4.0))
    assert (found.plane, found.planes, found.first, found.last) == ("3", PLANES, at(0), at(90))


def test_a_port_that_only_its_switch_reports_is_the_nodes(store: Door) -> None:
    fill(store, flap("leaf-p3", "Ethernet1", 0, side="switch.port"))
    assert (only(store).host, only(store).device, only(store).flaps) == ("n1", "rdma3", 1)


@pytest.mark.parametrize(("events", "incidents"), [
    (flap("n1", "rdma3", 0, incident_id="I"), [incident("I", "switch.failure")]),
    (flap("n1", "rdma3", 0, incident_id="I"), [incident("I", "node.reboot")]),
    ([*flap("n1", "rdma3", 0, 300.0), event("kernel.boot", "n1", None, 4)], []),
    ([event("kernel.boot", "n1", None, -1), *flap("n1", "rdma3", 0)], []),
    (flap("n1", "spare0", 0), []),
])  # fmt: skip
def test_what_somebody_else_explains_does_not_count(store: Door, events: list[dict[str, Any]], incidents: list[dict[str, Any]]) -> None:  # fmt: skip
    fill(store, events, incidents)
    assert repairs(store).repairs == []


def test_a_reboot_an_hour_before_explains_nothing(store: Door) -> None:
    fill(store, [event("kernel.boot", "n1", None, -60), *flap("n1", "rdma3", 0)])
    assert only(store).flaps == 1


def test_the_fleet_is_the_measure(store: Door) -> None:
    """Two flaps on each of twelve ports are normal; fourteen on one are not."""
    common = [e for n in range(12) for i in range(2) for e in flap(f"n{n}", "rdma0", 10 * n + 500 * i)]
    fill(store, [*common, *(e for i in range(14) for e in flap("n20", "rdma5", 7.0 + 40 * i))])
    first, *rest = repairs(store).repairs
    assert (first.host, first.outlier, first.urgency) == ("n20", True, "soon") and first.probability < 1e-6
    assert len(rest) == 12 and not any(one.outlier for one in rest) and {one.urgency for one in rest} == {"watch"}
    assert first.expected == pytest.approx(24.5 / (40 * PLANES - 1), abs=1e-4)


def test_three_flaps_of_one_port_in_a_small_lab_are_not_yet_reported_from_chance(store: Door) -> None:
    fill(
        store,
        [e for n in (0, 1, 1, 1, 2, 2) for e in flap(f"n{n}", "rdma0", random.Random(n).random() * 900 + n)],
        nodes=3,
    )
    assert not any(one.outlier for one in repairs(store).repairs)


def test_a_users_stamp_of_next_year_hides_no_fault(store: Door) -> None:
    lie = event("switch.port_down", "n9", "p1", 500_000, authority="local")
    fill(store, [*flap("n1", "rdma3", 0, authority="kernel"), *flap("n1", "rdma3", 50, authority="kernel"), lie])
    assert [r.device for r in repairs(store).repairs if r.host == "n1"] == ["rdma3"]


@pytest.mark.parametrize(("root", "ended", "slowed", "urgency"), [
    ("nic.link_flap", ["7"], [], "now"), ("nic.link_down", [], ["8"], "now"), ("nic.link_down", [], [], "watch"),
])  # fmt: skip
def test_whom_it_hurt_says_how_urgent_it_is(store: Door, root: str, ended: list[str], slowed: list[str], urgency: str) -> None:  # fmt: skip
    fill(store, [*flap("n1", "rdma3", 0, incident_id="I"), *flap("n1", "rdma3", 50)], [incident("I", root, ended, slowed)],
         [run(7, "n1", -10, 5), run(8, "n1", 10, None), run(9, "n2", -10, 500)])  # fmt: skip
    found = only(store)
    assert (found.ended, found.slowed, found.incidents, found.urgency) == (ended, slowed, ["I"], urgency)
    assert found.runs == 2, "job 7 ran at the first flap, job 8 at the second, job 9 elsewhere"


def test_a_port_that_stays_down_is_urgent_and_one_that_went_just_now_is_not(store: Door) -> None:
    fill(store, [*flap("n1", "rdma3", 0, None), event("kernel.boot", "n9", None, 60)])
    found = only(store)
    assert (found.down, found.urgency, found.down_s) == (True, "now", 0.0) and "Reseat both ends" in found.action
    assert only(store, until=at(4)).down is False


def test_a_period_counts_what_ends_in_it(store: Door) -> None:
    fill(store, [*flap("n1", "rdma3", 0, 600.0), *flap("n1", "rdma3", 60), *flap("n1", "rdma3", 120)])
    assert only(store, since=at(5), until=at(100)).flaps == 2
    assert repairs(store, since=at(300), until=at(400)).repairs == []


def test_without_a_period_it_is_the_last_week_of_what_is_stored(store: Door) -> None:
    week = 7 * 24 * 60
    fill(store, [*flap("n1", "rdma3", 0), *flap("n2", "rdma3", week + 5)])
    found = repairs(store)
    assert [one.host for one in found.repairs] == ["n2"] and found.until is not None and found.since is not None
    assert found.until - found.since == timedelta(days=7)


def test_ports_of_a_nic_that_go_together_point_to_the_nic(store: Door) -> None:
    fill(store, [e for i in range(3) for p in range(4) for e in flap("n1", f"rdma{p}", 60 * i + p / 120)])
    found = repairs(store).repairs
    assert len(found) == 4 and all(one.together == 3 and "Ports of n1 go together" in one.action for one in found)


def test_signs_of_bad_optics_name_the_cables_end(store: Door) -> None:
    fill(
        store,
        [
            event("switch.optic_warning", "leaf-p3", "Ethernet1", 0),
            event("fabric.link_errors", "n2", "rdma0", 1, count=9),
        ],
    )
    by_host = {one.host: one for one in repairs(store).repairs}
    assert (by_host["n1"].device, by_host["n1"].optics, by_host["n1"].urgency) == ("rdma3", 1, "soon")
    assert "Clean the connectors" in by_host["n1"].action and by_host["n2"].errors == 9


def test_gpus_that_correct_again_and_again_are_listed_and_failures_are_not(store: Door) -> None:
    xid = [event("gpu.xid", "n1", "0000:2a:00", 10.0 * i, entities=json.dumps({"xid": 63})) for i in range(4)]
    other = [event("gpu.xid", "n2", "0000:2a:00", 10.0 * i, entities=json.dumps({"xid": 79})) for i in range(4)]
    rare = [event("gpu.xid", "n3", "0000:2a:00", 1.0, entities=json.dumps({"xid": 63}))]
    aer = [event("pcie.aer", "n4", "0000:3b:00", i, message="PCIe Bus Error: severity=Corrected") for i in range(5)]
    fatal = [
        event("pcie.aer", "n5", "0000:3b:00", i, message="PCIe Bus Error: severity=Uncorrected (Fatal)")
        for i in range(5)
    ]
    fill(store, [*xid, *other, *rare, *aer, *fatal])
    assert {(one.host, one.kind, one.errors) for one in repairs(store).repairs} == {("n1", "gpu", 4), ("n4", "gpu", 5)}


def test_no_command_for_gpus_is_given_for_a_disk_or_a_port_of_the_bus(store: Door) -> None:
    """The list said `nvidia-smi` and "Run the GPU's diagnostics" of an NVMe disk and of the port above a GPU."""

    def aer(host: str, driver: str | None) -> list[dict[str, Any]]:
        entities = json.dumps({} if driver is None else {"driver": driver})
        text = "PCIe Bus Error: severity=Corrected"
        return [
            event("pcie.aer", host, "0000:3b:00", i, message=text, entities=entities, layer="kernel") for i in range(5)
        ]

    xid = [
        event("gpu.xid", "n5", "0000:2a:00", 10.0 * i, entities=json.dumps({"xid": 63}), layer="gpu") for i in range(4)
    ]
    fill(store, [*aer("n1", "nvme"), *aer("n2", "pcieport"), *aer("n3", "nvidia"), *aer("n4", None), *xid])
    found = {one.host: one for one in repairs(store).repairs}
    assert {host: one.role for host, one in found.items()} == {
        "n1": "pci",
        "n2": "pci",
        "n3": "gpu",
        "n4": "pci",
        "n5": "gpu",
    }
    for host in ("n1", "n2", "n4"):
        for found[host].outlier in (False, True):
            advise(found[host])
            assert "GPU" not in found[host].action and found[host].command == "lspci -vv -s 0000:3b:00"


def test_the_order_of_arrival_changes_nothing(store: Door) -> None:
    events = [e for n in range(6) for i in range(n) for e in (*flap(f"n{n}", "rdma1", 31.0 * i + n), *flap("leaf-p1", f"Ethernet{n}", 31.0 * i + n, side="switch.port"))]  # fmt: skip
    fill(store, events)
    wanted = [one.document() for one in repairs(store).repairs]
    random.Random(3).shuffle(events)
    replace_model(store, {"events": pl.DataFrame(events, infer_schema_length=None)})
    assert [one.document() for one in repairs(store).repairs] == wanted and len(wanted) == 5


def test_an_empty_store_has_an_empty_list(store: Door) -> None:
    assert repairs(store).repairs == []


@pytest.mark.parametrize(("fields", "words", "command"), [
    ({"flaps": 1}, "flaps no more than others", None),
    ({"flaps": 1, "planes": 8}, "8 planes carry", None),
    ({"flaps": 9, "outlier": True}, "spare port", "ethtool -m rdma0"),
    ({"flaps": 9, "outlier": True, "ended": ["7"]}, "Drain n1", "scontrol update nodename=n1 state=drain reason='link rdma0'"),
    ({"kind": "gpu", "errors": 40, "outlier": True}, "diagnostics", "dcgmi diag -r 3"),
])  # fmt: skip
def test_the_next_step_is_the_cheapest_that_the_signs_allow(fields: dict[str, Any], words: str, command: str | None) -> None:  # fmt: skip
    found = Repair(
        **{
            "kind": "link",
            "cluster": None,
            "host": "n1",
            "device": "rdma0",
            "switch": "leaf",
            "switch_port": "swp1",
            **fields,
        }
    )
    advise(found)
    assert words in found.action and found.command == command


def test_what_a_site_reports_its_interfaces_is_known_to_the_list(store: Door) -> None:
    """A report has no access to the configuration: the settings are stored beside what was concluded with them."""
    events = [*flap("n1", "ens2f0", 0), *flap("n2", "p1p1", 5)]
    fill(store, events, nodes=0)
    assert {one.device: one.role for one in repairs(store).repairs} == {"ens2f0": "management", "p1p1": "unknown"}
    settings = {"interfaces.fabric": ["ens2f*"], "interfaces.management": ["p1p*"], "SlurmdTimeout": 300}
    correlate(store, settings=settings)
    replace_model(store, {"events": pl.DataFrame(events, infer_schema_length=None)})
    assert {one.device: one.role for one in repairs(store).repairs} == {"ens2f0": "fabric", "p1p1": "management"}
    Ticker(store)  # a service without these settings
    assert {one.device: one.role for one in repairs(store).repairs} == {"ens2f0": "management", "p1p1": "unknown"}
